//! PodConfig: merges the complete sets that sources send, and says what changed.
//!
//! Identity is namespace and name. The rules are the kubelet's, with two departures: a pod that two
//! sources define stays with the one that has it and passes to the other without being removed, and a
//! difference that does not touch what runs (another file, another line, a comment) is a RECONCILE.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::{PodKey, PodManifest};

use super::{Op, PodUpdate};

/// The order in which changes of one merge are delivered: what goes makes room for what comes.
const ORDER: [Op; 5] = [Op::Remove, Op::Add, Op::Update, Op::Delete, Op::Reconcile];

type Set = BTreeMap<PodKey, Arc<PodManifest>>;

/// What each source wants, and which of it is in force.
#[derive(Debug, Default)]
pub struct PodConfig {
    /// The last complete set of each source, also of pods that another source holds.
    wanted: BTreeMap<&'static str, Set>,
    /// Pods in force, and whose they are.
    held: BTreeMap<PodKey, (&'static str, Arc<PodManifest>)>,
    seen: BTreeSet<&'static str>,
}

impl PodConfig {
    /// No source, no pods.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over what was accepted from a source before this start, and returns it as one
    /// [`Op::Set`]. Does not count as hearing from the source.
    pub fn seed(&mut self, source: &'static str, pods: Vec<Arc<PodManifest>>) -> PodUpdate {
        let set = index(pods);
        self.held.retain(|_, (of, _)| *of != source);
        let mut taken = Vec::new();
        for (key, pod) in &set {
            if !self.held.contains_key(key) {
                self.held.insert(key.clone(), (source, Arc::clone(pod)));
                taken.push(Arc::clone(pod));
            }
        }
        self.wanted.insert(source, set);
        PodUpdate { op: Op::Set, source, pods: taken }
    }

    /// Whether the source has sent a set of its own since the start.
    pub fn has_heard(&self, source: &str) -> bool {
        self.seen.contains(source)
    }

    /// Pods in force, in order of key.
    pub fn pods(&self) -> impl Iterator<Item = (&'static str, &Arc<PodManifest>)> {
        self.held.values().map(|(source, pod)| (*source, pod))
    }

    /// Takes the complete set of a source and returns what changed, in the order REMOVE, ADD, UPDATE,
    /// DELETE, RECONCILE. Of two pods with one key in `set`, the first counts.
    pub fn merge(&mut self, source: &'static str, set: Vec<Arc<PodManifest>>) -> Vec<PodUpdate> {
        self.seen.insert(source);
        let set = index(set);
        let before = self.wanted.insert(source, set.clone()).unwrap_or_default();
        let mut changes: BTreeMap<(usize, &'static str), Vec<Arc<PodManifest>>> = BTreeMap::new();
        let keys: BTreeSet<&PodKey> = before.keys().chain(set.keys()).collect();
        for key in keys {
            let held = self.held.get(key).cloned();
            let Some((op, of, pod)) = self.change(source, key, set.get(key), held) else { continue };
            match op {
                Op::Remove => self.held.remove(key),
                _ => self.held.insert(key.clone(), (of, Arc::clone(&pod))),
            };
            let rank = ORDER.iter().position(|o| *o == op).unwrap_or(ORDER.len());
            changes.entry((rank, of)).or_default().push(pod);
        }
        changes
            .into_iter()
            .map(|((rank, source), pods)| PodUpdate { op: ORDER[rank], source, pods })
            .collect()
    }

    /// What becomes of one key: the operation, whose pod it then is, and the pod.
    fn change(
        &self,
        source: &'static str,
        key: &PodKey,
        new: Option<&Arc<PodManifest>>,
        held: Option<(&'static str, Arc<PodManifest>)>,
    ) -> Option<(Op, &'static str, Arc<PodManifest>)> {
        match (new, held) {
            (None, None) => None,
            (Some(new), None) => Some((Op::Add, source, Arc::clone(new))),
            // Held by another source: it keeps it.
            (_, Some((holder, _))) if holder != source => None,
            (Some(new), Some((_, old))) => difference(&old, new).map(|op| (op, source, Arc::clone(new))),
            (None, Some((_, old))) => match self.heir(source, key) {
                // Not removed, only somebody else's now.
                Some((heir, pod)) => Some((difference(&old, &pod).unwrap_or(Op::Reconcile), heir, pod)),
                None => Some((Op::Remove, source, old)),
            },
        }
    }

    /// Another source that wants the pod.
    fn heir(&self, source: &str, key: &PodKey) -> Option<(&'static str, Arc<PodManifest>)> {
        self.wanted
            .iter()
            .filter(|(other, _)| **other != source)
            .find_map(|(other, set)| Some((*other, Arc::clone(set.get(key)?))))
    }
}

fn index(pods: Vec<Arc<PodManifest>>) -> Set {
    let mut set = Set::new();
    for pod in pods {
        set.entry(pod.key.clone()).or_insert(pod);
    }
    set
}

/// How two manifests of one pod differ, if they do.
fn difference(old: &Arc<PodManifest>, new: &Arc<PodManifest>) -> Option<Op> {
    if Arc::ptr_eq(old, new) || old == new {
        return None;
    }
    let (a, b) = (&old.pod.metadata, &new.pod.metadata);
    let deletion_differs = a.deletion_timestamp != b.deletion_timestamp
        || a.deletion_grace_period_seconds != b.deletion_grace_period_seconds;
    let differs = deletion_differs || old.uid != new.uid || old.hashes.manifest != new.hashes.manifest;
    if !differs {
        return Some(Op::Reconcile);
    }
    if b.deletion_timestamp.is_some() {
        return Some(Op::Delete);
    }
    // The hash covers the status where the manifest has one; nothing runs by it.
    let only_status = old.pod.status != new.pod.status
        && old.uid == new.uid
        && old.hashes.pod == new.hashes.pod
        && old.hashes.containers == new.hashes.containers
        && old.pod.metadata == new.pod.metadata
        && old.pod.spec == new.pod.spec;
    Some(if only_status { Op::Reconcile } else { Op::Update })
}

#[cfg(test)]
mod tests;
