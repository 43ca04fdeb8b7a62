//! Start order: which pods wait for others (`podling.dev/start-after`), and who comes first at boot.
//!
//! The order matters until a pod has started; what happens to the others later stops nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::capacity::Capacity;
use super::status::Waiting;
use crate::manifest::annotations::start_after;
use crate::manifest::{PodKey, PodManifest};

#[derive(Default)]
struct State {
    /// Wanted pods, each with those it starts after.
    after: BTreeMap<PodKey, Vec<PodKey>>,
    ready: BTreeSet<PodKey>,
    waiting: BTreeSet<PodKey>,
}

/// Who waits for whom.
#[derive(Clone, Default)]
pub struct Order {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
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
                state.waiting.remove(key);
                state.after.remove(key).is_some()
            }
        };
        if changed && !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// A pod became ready, or is not any more.
    pub fn ready(&self, key: &PodKey, ready: bool) {
        let mut state = self.lock();
        if !ready {
            state.ready.remove(key);
        } else if !state.ready.contains(key) {
            state.ready.insert(key.clone());
            if !state.waiting.is_empty() {
                self.changed.notify_one();
            }
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

    /// Sorts pods into the order in which they start: by priority, then those that others start after, then by
    /// name.
    pub fn sort(&self, pods: &mut [Arc<PodManifest>], node: &Capacity) {
        let state = self.lock();
        pods.sort_by_cached_key(|manifest| {
            let priority = manifest.pod.spec.as_ref().and_then(|s| node.priority(s).ok()).unwrap_or(0);
            let depth = depth(&state.after, &manifest.key, &mut BTreeSet::new());
            (Reverse(priority), depth, manifest.key.clone())
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock cannot leave the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        PodManifest {
            key: key(name),
            uid: None,
            pod: serde_json::from_value(pod).expect("a pod"),
            hashes: Default::default(),
            origin: Default::default(),
            warnings: Vec::new(),
        }
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
        order.ready(&key("db"), true);
        assert_eq!(order.changed().await, [key("app")]);
        assert!(waits(&order, "app").ends_with("waits for other/cache, for which there is no manifest"));
        order.ready(&PodKey::new("other", "cache"), true);
        assert_eq!(waits(&order, "app"), "");
        // What happens later concerns who has not started.
        order.ready(&key("db"), false);
        assert!(!waits(&order, "app").is_empty());
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
