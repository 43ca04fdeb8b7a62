//! Start order: which pods wait for others (`podling.dev/start-after`), and who comes first of those that come
//! together, as at boot.
//!
//! The order matters until a pod has started; what happens to the others later stops nothing. Pods that come
//! together are made ready side by side, and their first processes start one after the other. Nobody is waited for
//! who waits himself, or longer than [`PATIENCE`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::capacity::Capacity;
use super::status::Waiting;
use crate::manifest::annotations::start_after;
use crate::manifest::{PodKey, PodManifest};
use crate::runtime::containerd::{Permit, Rank, RankedQueue};

/// Sandboxes made at a time, per core: more at once only make all of them later.
const SANDBOXES: usize = 2;
/// Longest time that a pod whose turn it would be is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct State {
    /// Wanted pods, each with those it starts after.
    after: BTreeMap<PodKey, Vec<PodKey>>,
    ready: BTreeSet<PodKey>,
    /// Pods that ended badly and are not run again.
    failed: BTreeSet<PodKey>,
    waiting: BTreeSet<PodKey>,
    /// Pods on their way to their first process.
    coming: BTreeSet<Rank>,
}

/// How far a pod is, as those that start after it see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Neither of the others.
    UnderWay,
    /// Ready, or done with success: others may start.
    Ready,
    /// Ended without success, and not run again.
    Failed,
}

/// Who waits for whom.
#[derive(Clone)]
pub struct Order {
    sandboxes: RankedQueue,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    passed: Arc<Notify>,
}

impl Default for Order {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            sandboxes: RankedQueue::new(SANDBOXES * cores),
            state: Arc::default(),
            changed: Arc::default(),
            passed: Arc::default(),
        }
    }
}

impl Order {
    /// A pod is wanted, or, with none, no more.
    pub fn wanted(&self, key: &PodKey, manifest: Option<&PodManifest>) {
        let mut state = self.lock();
        let changed = match manifest {
            Some(manifest) => {
                let after = start_after(&manifest.pod, &key.namespace);
                state.after.insert(key.clone(), after.clone()) != Some(after)
            }
            None => {
                state.ready.remove(key);
                state.failed.remove(key);
                state.waiting.remove(key);
                state.after.remove(key).is_some()
            }
        };
        if changed && !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// How far a pod is now.
    pub fn note(&self, key: &PodKey, progress: Progress) {
        let mut state = self.lock();
        let (ready, failed) = (progress == Progress::Ready, progress == Progress::Failed);
        let became_ready = ready && state.ready.insert(key.clone());
        let became_failed = failed && state.failed.insert(key.clone());
        if !ready {
            state.ready.remove(key);
        }
        if !failed {
            state.failed.remove(key);
        }
        // Also what they say of one that failed is another.
        if (became_ready || became_failed) && !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Whether a pod may start now.
    ///
    /// # Errors
    /// What it waits for.
    pub fn may_start(&self, key: &PodKey) -> Result<(), Waiting> {
        let mut state = self.lock();
        let why = reason(&state, key);
        if why.is_some() {
            state.waiting.insert(key.clone());
        } else {
            state.waiting.remove(key);
        }
        why.map_or(Ok(()), Err)
    }

    /// Returns the pods that waited for others, when that may be over.
    pub async fn changed(&self) -> Vec<PodKey> {
        self.changed.notified().await;
        self.lock().waiting.iter().cloned().collect()
    }

    /// A pod's place in the order of starts.
    pub fn rank(&self, manifest: &PodManifest, node: &Capacity) -> Rank {
        rank(&self.lock(), manifest, node)
    }

    /// Sorts pods into the order in which they start.
    pub fn sort(&self, pods: &mut [Arc<PodManifest>], node: &Capacity) {
        let state = self.lock();
        pods.sort_by_cached_key(|manifest| rank(&state, manifest, node));
    }

    /// A pod is about to start: those behind it give it a moment.
    pub fn comes(&self, rank: Rank) {
        self.lock().coming.insert(rank);
    }

    /// The right to make a sandbox, in the order of starts. One that others keep for too long is not waited for.
    pub async fn sandbox(&self) -> Option<Permit> {
        tokio::time::timeout(PATIENCE, self.sandboxes.acquire()).await.ok()
    }

    /// A pod has started, or cannot now.
    pub fn passes(&self, key: &PodKey) {
        let mut state = self.lock();
        let before = state.coming.len();
        state.coming.retain(|rank| rank.key != *key);
        if state.coming.len() != before {
            self.passed.notify_waiters();
        }
    }

    /// Returns when it is a pod's turn to start its first process. One that did not come with others is not held up.
    pub async fn turn(&self, key: &PodKey) {
        let wait = async {
            loop {
                let passed = self.passed.notified();
                tokio::pin!(passed);
                // Registered before the look, so that nothing between the two is missed.
                passed.as_mut().enable();
                let first = {
                    let state = self.lock();
                    let own = state.coming.iter().any(|rank| rank.key == *key);
                    !own || state.coming.first().is_none_or(|rank| rank.key == *key)
                };
                if first {
                    return;
                }
                passed.await;
            }
        };
        // Too long: it goes without them.
        let _ = tokio::time::timeout(PATIENCE, wait).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock cannot leave the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rank(state: &State, manifest: &PodManifest, node: &Capacity) -> Rank {
    let priority = manifest.pod.spec.as_ref().and_then(|s| node.priority(s).ok()).unwrap_or(0);
    let depth = depth(&state.after, &manifest.key, &mut BTreeSet::new());
    Rank { priority: Reverse(priority), depth, key: manifest.key.clone() }
}

fn reason(state: &State, key: &PodKey) -> Option<Waiting> {
    let after = state.after.get(key).map(Vec::as_slice).unwrap_or_default();
    if after.is_empty() {
        return None;
    }
    if let Some(cycle) = cycle(&state.after, key) {
        let names: Vec<String> = cycle.iter().map(PodKey::to_string).collect();
        let message = format!(
            "podling.dev/start-after: these pods wait for each other: {}; none of them can start until one of the annotations goes",
            names.join(" -> ")
        );
        return Some(Waiting { reason: "StartAfterCycle".into(), message });
    }
    let missing: Vec<String> = after
        .iter()
        .filter(|k| !state.ready.contains(k))
        .map(|k| match state.after.contains_key(k) {
            true if state.failed.contains(k) => format!("{k}, which has failed"),
            true => format!("{k} to be ready"),
            false => format!("{k}, for which there is no manifest"),
        })
        .collect();
    (!missing.is_empty()).then(|| Waiting {
        reason: "StartAfter".into(),
        message: format!("podling.dev/start-after: waits for {}", missing.join(" and ")),
    })
}

/// A way from a pod back to itself.
fn cycle(after: &BTreeMap<PodKey, Vec<PodKey>>, start: &PodKey) -> Option<Vec<PodKey>> {
    let mut paths = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop() {
        for next in path.last().and_then(|last| after.get(last)).into_iter().flatten() {
            let longer = || path.iter().chain([next]).cloned().collect::<Vec<_>>();
            if next == start {
                return Some(longer());
            }
            if seen.insert(next.clone()) {
                paths.push(longer());
            }
        }
    }
    None
}

/// How many others have to start before it, one after the other.
fn depth(after: &BTreeMap<PodKey, Vec<PodKey>>, key: &PodKey, on_the_way: &mut BTreeSet<PodKey>) -> usize {
    if !on_the_way.insert(key.clone()) {
        return 0;
    }
    let before = after.get(key).into_iter().flatten();
    let depth = before.map(|k| 1 + depth(after, k, on_the_way)).max().unwrap_or(0);
    on_the_way.remove(key);
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Paths, Settings};
    use crate::system::machine::Machine;

    fn key(name: &str) -> PodKey {
        PodKey::new("default", name)
    }

    fn pod(name: &str, after: &str, priority: i32) -> PodManifest {
        let pod = serde_json::json!({"metadata": {"annotations": {"podling.dev/start-after": after}},
            "spec": {"containers": [], "priority": priority}});
        PodManifest::without_file(key(name), serde_json::from_value(pod).expect("a pod"))
    }

    fn order(pods: &[(&str, &str)]) -> Order {
        let order = Order::default();
        for (name, after) in pods {
            order.wanted(&key(name), Some(&pod(name, after, 0)));
        }
        order
    }

    fn waits(order: &Order, name: &str) -> String {
        order.may_start(&key(name)).err().map(|w| format!("{}: {}", w.reason, w.message)).unwrap_or_default()
    }

    #[tokio::test]
    async fn a_pod_waits_until_all_that_it_names_are_ready() {
        let order = order(&[("app", "db, other/cache"), ("db", "")]);
        assert_eq!(
            waits(&order, "app"),
            "StartAfter: podling.dev/start-after: waits for default/db to be ready and other/cache, for which there is no manifest"
        );
        assert_eq!(waits(&order, "db"), "");
        order.note(&key("db"), Progress::Failed);
        assert!(waits(&order, "app").contains("waits for default/db, which has failed and other/cache"));
        order.note(&key("db"), Progress::Ready);
        assert_eq!(order.changed().await, [key("app")]);
        assert!(waits(&order, "app").ends_with("waits for other/cache, for which there is no manifest"));
        order.note(&PodKey::new("other", "cache"), Progress::Ready);
        assert_eq!(waits(&order, "app"), "");
        // What happens later concerns who has not started.
        order.note(&key("db"), Progress::UnderWay);
        assert!(!waits(&order, "app").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_come_together_start_one_after_the_other_and_nobody_is_waited_for_long() {
        let order = Order::default();
        let node = Capacity::on(&Settings::defaults(Paths::under("/x")), &Machine::default());
        for name in ["a", "b", "c"] {
            order.comes(order.rank(&pod(name, "", 0), &node));
        }
        let turn = |name: &str| {
            let (order, key) = (order.clone(), key(name));
            tokio::spawn(async move { order.turn(&key).await })
        };
        let (first, second) = (turn("a"), turn("b"));
        first.await.expect("its turn");
        assert!(!second.is_finished());
        order.passes(&key("a"));
        second.await.expect("its turn");
        // b is stuck.
        let before = tokio::time::Instant::now();
        turn("c").await.expect("its turn in any case");
        assert_eq!(before.elapsed(), PATIENCE);
        turn("stranger").await.expect("not held up");
    }

    #[test]
    fn pods_that_wait_for_each_other_are_named() {
        let order = order(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "e")]);
        assert!(
            waits(&order, "a").contains("default/a -> default/b -> default/c -> default/a"),
            "{}",
            waits(&order, "a")
        );
        assert!(waits(&order, "d").starts_with("StartAfter: "));
        assert!(waits(&order, "e").contains("default/e -> default/e"));
        order.wanted(&key("c"), Some(&pod("c", "", 0)));
        assert!(waits(&order, "a").starts_with("StartAfter: "));
    }

    #[test]
    fn pods_start_by_priority_then_dependencies_then_name() {
        let pods = [pod("a", "b", 0), pod("b", "c", 0), pod("c", "", 0), pod("d", "", 0), pod("z", "", 9)];
        let order = Order::default();
        for one in &pods {
            order.wanted(&one.key, Some(one));
        }
        let node = Capacity::on(&Settings::defaults(Paths::under("/x")), &Machine::default());
        let mut sorted: Vec<_> = pods.into_iter().map(Arc::new).collect();
        order.sort(&mut sorted, &node);
        let names: Vec<_> = sorted.iter().map(|p| p.key.name.as_str()).collect();
        assert_eq!(names, ["z", "c", "d", "b", "a"]);
    }
}
