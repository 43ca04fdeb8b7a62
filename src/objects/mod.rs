//! ConfigMaps and Secrets that are in force: what pods may take values from.
//!
//! The file source says which there are; the sync loop puts them in force here; container starts and
//! volumes read them. This folder knows no pod. Secrets never reach a disk: what a restart of podling
//! must not lose is kept in memory, by [`keep`].

pub mod keep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use crate::manifest::{DataObject, ObjectKey, ObjectKind};

/// An object and since when there is one of its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Since when.
    pub since: Timestamp,
    /// The object.
    pub object: Arc<DataObject>,
}

/// Handle on the ConfigMaps and Secrets of this node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    held: Mutex<BTreeMap<ObjectKey, Kept>>,
    generation: watch::Sender<u64>,
    known: AtomicBool,
}

impl Default for Objects {
    fn default() -> Self {
        let inner =
            Inner { held: Mutex::default(), generation: watch::channel(0).0, known: AtomicBool::new(false) };
        Self { inner: Arc::new(inner) }
    }
}

impl Objects {
    /// The object of this kind, namespace and name.
    pub fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Arc<DataObject>> {
        self.held().get(&ObjectKey::new(kind, namespace, name)).map(|kept| Arc::clone(&kept.object))
    }

    /// All of them, in order of key.
    pub fn list(&self) -> Vec<Kept> {
        self.held().values().cloned().collect()
    }

    /// Goes on with what was in force before this start.
    pub fn restore(&self, kept: &[Kept]) {
        self.held().extend(kept.iter().map(|kept| (kept.object.key.clone(), kept.clone())));
    }

    /// Rises whenever data changes, comes or goes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.generation.subscribe()
    }

    /// How often data changed, came or went.
    pub fn generation(&self) -> u64 {
        *self.inner.generation.borrow()
    }

    /// Whether what is not here is missing. Until the manifests were read for the first time after a boot,
    /// nobody can say.
    pub fn known(&self) -> bool {
        self.inner.known.load(Ordering::Acquire)
    }

    /// Notes that the manifests were looked at, or what was kept of them; true the first time.
    pub fn set_known(&self) -> bool {
        !self.inner.known.swap(true, Ordering::AcqRel)
    }

    /// Puts a complete set in force; answers whose data changed, came or went. Of two with one key, the
    /// first counts.
    pub fn replace(&self, set: Vec<Arc<DataObject>>) -> BTreeSet<ObjectKey> {
        let now = Timestamp::now();
        let mut held = self.held();
        let mut new: BTreeMap<ObjectKey, Kept> = BTreeMap::new();
        for object in set {
            let since = held.get(&object.key).map_or(now, |old| old.since);
            new.entry(object.key.clone()).or_insert(Kept { since, object });
        }
        let differs = |key: &&ObjectKey| match (held.get(*key), new.get(*key)) {
            (Some(old), Some(new)) => {
                !Arc::ptr_eq(&old.object, &new.object) && old.object.data != new.object.data
            }
            _ => true,
        };
        let changed: BTreeSet<ObjectKey> = held.keys().chain(new.keys()).filter(differs).cloned().collect();
        *held = new;
        drop(held);
        if !changed.is_empty() {
            self.inner.generation.send_modify(|n| *n += 1);
        }
        changed
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Kept>> {
        self.inner.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, value: &str) -> Arc<DataObject> {
        Arc::new(DataObject {
            key: ObjectKey::new(ObjectKind::ConfigMap, "default", name),
            data: BTreeMap::from([("k".to_owned(), value.as_bytes().to_vec())]),
            binary: Default::default(),
            secret_type: None,
            immutable: false,
            origin: Default::default(),
        })
    }

    #[test]
    fn what_came_went_or_changed_is_told_and_nothing_else() {
        let objects = Objects::default();
        let changes = objects.changes();
        let names = |set: BTreeSet<ObjectKey>| set.into_iter().map(|k| k.name).collect::<Vec<_>>();
        assert_eq!(names(objects.replace(vec![object("a", "1"), object("b", "1")])), ["a", "b"]);
        assert_eq!(*changes.borrow(), 1);
        assert!(objects.replace(vec![object("a", "1"), object("b", "1")]).is_empty());
        assert_eq!(*changes.borrow(), 1, "the same again is no change");
        assert_eq!(names(objects.replace(vec![object("a", "2"), object("c", "1")])), ["a", "b", "c"]);
        assert!(objects.get(ObjectKind::ConfigMap, "default", "b").is_none());
        assert!(objects.get(ObjectKind::Secret, "default", "a").is_none());
        assert!(objects.get(ObjectKind::ConfigMap, "other", "a").is_none());
    }
}
