//! Admission: what the pods of the node share. Host ports, processor, memory, disk, huge pages and places are
//! taken before a pod's sandbox is made and given back when its processes are gone. A pod that does not fit waits,
//! says for what and who holds it, and is tried again when something is given back. Pods that run are never put out:
//! what they have counts, even where it is more than there is.
//!
//! Of those that could come now the first in the order of starts comes first: of those that were refused before, and
//! of those that come together, whose workers may ask in any order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::capacity::{Amounts, Capacity, out_of, requests, shown};
use super::status::Waiting;
use crate::manifest::{PodKey, PodManifest, Quantity};
use crate::network::{HostPorts, PortMapping, host_ports, is_free_on_host};
use crate::runtime::containerd::Rank;
use crate::system::clock::{self, Moment};

/// Holders named in a message; more are counted.
const NAMED: usize = 3;
/// How long something is kept for a pod that is about to ask for it.
const KEPT: Duration = Duration::from_secs(10);

/// Why a pod cannot have what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason and message.
    pub why: Waiting,
    /// It could not be had even without the other pods.
    pub never: bool,
}

/// How a changed pod can have what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// As soon as it has given up its old share, or before.
    Beside,
    /// After it gave its old share up to others that change, and they gave up theirs.
    Instead,
}

/// What one pod has, or wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    ports: Vec<PortMapping>,
    amounts: Amounts,
}

#[derive(Default)]
struct Books {
    held: BTreeMap<PodKey, Share>,
    /// Pods that were refused, and pods that are about to ask: until when they are reckoned with.
    waiting: BTreeMap<Rank, (Share, Option<Moment>)>,
    /// Pods that run and were refused what their changed manifests want: until when they are reckoned with.
    changing: BTreeMap<Rank, (Share, Moment)>,
}

impl Books {
    fn wait_no_more(&mut self, key: &PodKey) -> bool {
        self.changing.retain(|rank, _| rank.key != *key);
        let before = self.waiting.len();
        self.waiting.retain(|rank, _| rank.key != *key);
        self.waiting.len() != before
    }
}

/// Who has what. A pod holds its share until its processes are gone.
#[derive(Clone, Default)]
pub struct Claims {
    books: Arc<Mutex<Books>>,
    released: Arc<Notify>,
}

impl Claims {
    /// A pod is about to claim its share: those behind it leave it to it for a moment.
    pub fn expect(&self, rank: Rank, manifest: &PodManifest) {
        self.lock().waiting.insert(rank, (share(manifest), Some(clock::now() + KEPT)));
    }

    /// Whether a pod has its share.
    pub fn has(&self, key: &PodKey) -> bool {
        self.lock().held.contains_key(key)
    }

    /// A pod wants nothing of the node now: it waits for something else.
    pub fn withdraw(&self, key: &PodKey) {
        if self.lock().wait_no_more(key) {
            self.released.notify_one();
        }
    }

    /// Takes a pod's share, all or nothing; on refusal the text names who has it.
    ///
    /// # Errors
    /// What it lacks, and who has it.
    pub fn claim(&self, rank: Rank, manifest: &PodManifest, node: &Capacity) -> Result<(), Refusal> {
        let wanted = share(manifest);
        let key = &rank.key;
        let mut books = self.lock();
        if books.held.get(key) == Some(&wanted) {
            return Ok(());
        }
        books.wait_no_more(key);
        if let Err(refusal) = judge(&books, &rank, &wanted, manifest, node) {
            // Nothing of it runs, so what it had before its manifest changed is free.
            let had = books.held.remove(key).is_some();
            // One that can never come must not be waited for.
            if !refusal.never {
                books.waiting.insert(rank, (wanted, None));
            }
            drop(books);
            if had {
                self.released.notify_one();
            }
            return Err(refusal);
        }
        let own = books.held.get(key).map(|share| share.ports.clone()).unwrap_or_default();
        let mut fresh = wanted.ports.iter().filter(|p| !own.contains(p));
        fresh.try_for_each(is_free_on_host).map_err(|e| port_taken(e.to_string()))?;
        // A pod that was made anew may have had other ports, or more of something.
        let before = books.held.insert(key.clone(), wanted);
        drop(books);
        if before.is_some() {
            self.released.notify_one();
        }
        Ok(())
    }

    /// Notes the share of a pod that runs: it has it, whatever the books say.
    pub fn adopt(&self, key: &PodKey, manifest: &PodManifest) {
        let share = share(manifest);
        let mut books = self.lock();
        books.wait_no_more(key);
        let before = books.held.insert(key.clone(), share.clone());
        let less = before.is_some_and(|b| b != share);
        drop(books);
        if less {
            self.released.notify_one();
        }
    }

    /// Whether a changed manifest could have its share once the pod has given up its old one. A pod of which
    /// something `ends` for it may have to give that up to others that wait for it as it waits for them.
    ///
    /// # Errors
    /// What it lacks, and who has it.
    pub fn would_fit(
        &self,
        rank: Rank,
        manifest: &PodManifest,
        node: &Capacity,
        ends: bool,
    ) -> Result<Fit, Refusal> {
        let wanted = share(manifest);
        let now = clock::now();
        let mut books = self.lock();
        books.changing.retain(|other, (_, until)| other.key != rank.key && now < *until);
        let Err(refusal) = judge(&books, &rank, &wanted, manifest, node) else { return Ok(Fit::Beside) };
        if refusal.never || !ends {
            return Err(refusal);
        }
        books.changing.insert(rank.clone(), (wanted, now + KEPT));
        if gives_way(&books, &rank, node) { Ok(Fit::Instead) } else { Err(refusal) }
    }

    /// A pod that was to change stays as it is.
    pub fn stays(&self, key: &PodKey) {
        self.lock().changing.retain(|rank, _| rank.key != *key);
    }

    /// Gives a pod's share up and wakes those that wait.
    pub fn release(&self, key: &PodKey) {
        let mut books = self.lock();
        let waited = books.wait_no_more(key);
        let had = books.held.remove(key).is_some();
        drop(books);
        if had || waited {
            self.released.notify_one();
        }
    }

    /// Returns the pods to try again when something was given back, in the order of starts.
    pub async fn released(&self) -> Vec<PodKey> {
        self.released.notified().await;
        let books = self.lock();
        books.waiting.keys().chain(books.changing.keys()).map(|rank| rank.key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // A panic while holding the lock cannot leave the books half-changed.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn share(manifest: &PodManifest) -> Share {
    let spec = manifest.pod.spec.as_ref();
    Share { ports: host_ports(&manifest.pod), amounts: spec.map(requests).unwrap_or_default() }
}

fn judge(
    books: &Books,
    rank: &Rank,
    wanted: &Share,
    manifest: &PodManifest,
    node: &Capacity,
) -> Result<(), Refusal> {
    node.could_hold(&manifest.pod).map_err(|why| Refusal { why, never: true })?;
    let mut taken: BTreeMap<&PodKey, &Share> = books.held.iter().filter(|(k, _)| **k != rank.key).collect();
    let refused = |why: Waiting| Refusal { why, never: false };
    fits(&taken, wanted, node).map_err(refused)?;
    if books.held.contains_key(&rank.key) {
        return Ok(());
    }
    // Those before it that could come now come first.
    let now = clock::now();
    let reckoned = |until: &Option<Moment>| until.is_none_or(|until| now < until);
    for (first, (share, _)) in books.waiting.range(..rank).filter(|(_, (_, until))| reckoned(until)) {
        if fits(&taken, share, node).is_err() {
            continue;
        }
        taken.insert(&first.key, share);
        if let Err(mut why) = fits(&taken, wanted, node) {
            let rule = if first.priority == rank.priority { "" } else { " of higher priority" };
            why.message = format!("pod {}{rule} comes first and waits for it: {}", first.key, why.message);
            return Err(refused(why));
        }
    }
    Ok(())
}

/// Whether a changing pod has to give way. Where nothing but what changing pods have is in the way of changing pods,
/// the last of them in the order of starts does.
fn gives_way(books: &Books, rank: &Rank, node: &Capacity) -> bool {
    let mut all: Vec<(&Rank, &Share)> = books.changing.iter().map(|(r, (share, _))| (r, share)).collect();
    loop {
        // One that another pod keeps from changing keeps what it has.
        let mut settled: BTreeMap<&PodKey, &Share> = books.held.iter().collect();
        settled.extend(all.iter().map(|(rank, share)| (&rank.key, *share)));
        let before = all.len();
        all.retain(|(rank, share)| {
            let others = settled.iter().filter(|(k, _)| **k != &rank.key).map(|(k, s)| (*k, *s)).collect();
            fits(&others, share, node).is_ok()
        });
        if all.len() == before {
            return all.last().is_some_and(|(last, _)| *last == rank);
        }
    }
}

fn fits(others: &BTreeMap<&PodKey, &Share>, wanted: &Share, node: &Capacity) -> Result<(), Waiting> {
    let ports = others.iter().map(|(k, share)| (*k, share.ports.as_slice()));
    if let Some(taken) = HostPorts::conflict(&wanted.ports, ports) {
        return Err(port_taken(taken.to_string()).why);
    }
    if others.len() >= usize::try_from(node.max_pods).unwrap_or(usize::MAX) {
        let text = format!(
            "this node runs {} pods, and maxPods in the settings is {}; this pod starts when one is gone",
            others.len(),
            node.max_pods
        );
        return Err(out_of("pods", text));
    }
    for (name, amount) in &wanted.amounts {
        // What this node does not count is not held against anybody.
        let Some(most) = node.most(name) else { continue };
        let of = |share: &Share| share.amounts.get(name).copied().unwrap_or_default();
        let used = others.values().fold(Quantity::default(), |sum, share| sum + of(share));
        if used + *amount <= most {
            continue;
        }
        let mut holders: Vec<_> = others.iter().map(|(k, share)| (Reverse(of(share)), *k)).collect();
        holders.retain(|(amount, _)| !amount.0.is_zero());
        holders.sort();
        let named: Vec<String> = holders
            .iter()
            .take(NAMED)
            .map(|(amount, key)| format!("{key} {}", shown(name, amount.0)))
            .collect();
        let more = holders.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(out_of(
            name,
            format!(
                "the pod requests {name} {} and {} of {} are free; held by {}{more}; this pod starts when enough is released",
                shown(name, *amount),
                shown(name, most.less(used)),
                shown(name, most),
                named.join(", "),
            ),
        ));
    }
    Ok(())
}

fn port_taken(message: String) -> Refusal {
    Refusal { why: Waiting { reason: "NodePorts".into(), message }, never: false }
}

/// Whether a pod has any.
pub fn has_host_ports(manifest: &PodManifest) -> bool {
    !host_ports(&manifest.pod).is_empty()
}

#[cfg(test)]
mod tests;
