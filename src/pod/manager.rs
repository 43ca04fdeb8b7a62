//! The pod manager: which pods should be, by key, with the uid each was given when it was accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;

use super::status::Waiting;
use super::worker::Desired;
use crate::manifest::{ObjectKey, PodKey, PodManifest, references};
use crate::store::PodSpecRecord;

/// What should be.
#[derive(Default)]
pub struct PodManager {
    pods: BTreeMap<PodKey, Desired>,
}

/// The static name of a source; records hold it as text.
pub fn source_name(name: &str) -> &'static str {
    match name {
        "http" => "http",
        "api" => "api",
        _ => "file",
    }
}

impl PodManager {
    /// A pod that was accepted before this start.
    pub fn restore(&mut self, record: &PodSpecRecord, manifest: Arc<PodManifest>) -> &Desired {
        let desired = Desired {
            manifest,
            uid: record.uid.clone(),
            seen: record.seen,
            source: source_name(&record.source),
            stopped: record.stopped,
            leaving: false,
            restarts: 0,
            trouble: None,
        };
        self.insert(desired)
    }

    /// A pod that is new, with the uid given or a random one.
    pub fn add(&mut self, source: &'static str, manifest: Arc<PodManifest>, uid: Option<String>) -> &Desired {
        let uid = uid.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let seen = Timestamp::now();
        let desired = Desired {
            manifest,
            uid,
            seen,
            source,
            stopped: false,
            leaving: false,
            restarts: 0,
            trouble: None,
        };
        self.insert(desired)
    }

    /// A pod whose manifest changed keeps its uid, unless another is given.
    pub fn update(
        &mut self,
        source: &'static str,
        manifest: Arc<PodManifest>,
        uid: Option<String>,
    ) -> &Desired {
        let before = self.pods.get(&manifest.key).cloned();
        match before {
            None => self.add(source, manifest, uid),
            Some(old) => {
                let uid = uid.unwrap_or_else(|| old.uid.clone());
                self.insert(Desired { manifest, uid, ..old })
            }
        }
    }

    /// The pod that has this uid.
    pub fn holder(&self, uid: &str) -> Option<&PodKey> {
        self.pods.iter().find(|(_, d)| d.uid == uid).map(|(key, _)| key)
    }

    fn insert(&mut self, desired: Desired) -> &Desired {
        let key = desired.manifest.key.clone();
        let slot = self.pods.entry(key);
        match slot {
            std::collections::btree_map::Entry::Vacant(v) => v.insert(desired),
            std::collections::btree_map::Entry::Occupied(o) => {
                let slot = o.into_mut();
                *slot = desired;
                slot
            }
        }
    }

    /// Forgets a pod.
    pub fn remove(&mut self, key: &PodKey) -> Option<Desired> {
        self.pods.remove(key)
    }

    /// Notes what keeps the manifests of a source's pods from being applied; answers which pods that changed.
    pub fn set_troubles(
        &mut self,
        source: &'static str,
        mut troubles: BTreeMap<PodKey, Waiting>,
    ) -> Vec<PodKey> {
        let mut changed = Vec::new();
        for (key, desired) in self.pods.iter_mut().filter(|(_, d)| d.source == source) {
            let trouble = troubles.remove(key);
            if desired.trouble != trouble {
                desired.trouble = trouble;
                changed.push(key.clone());
            }
        }
        changed
    }

    /// What the pods that should run ask for.
    pub fn specs(&self) -> impl Iterator<Item = &PodSpec> {
        self.pods.values().filter(|d| !d.stopped).filter_map(|d| d.manifest.pod.spec.as_ref())
    }

    /// The pods that take values from any of these.
    pub fn users_of(&self, objects: &BTreeSet<ObjectKey>) -> Vec<PodKey> {
        if objects.is_empty() {
            return Vec::new();
        }
        let uses = |d: &Desired| !references::of_pod(&d.manifest.pod).is_disjoint(objects);
        self.pods.iter().filter(|(_, d)| uses(d)).map(|(key, _)| key.clone()).collect()
    }

    /// The manifests of all pods.
    pub fn manifests(&self) -> impl Iterator<Item = &Arc<PodManifest>> {
        self.pods.values().map(|d| &d.manifest)
    }

    /// What is wanted of a pod.
    pub fn get(&self, key: &PodKey) -> Option<&Desired> {
        self.pods.get(key)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: &PodKey) -> Option<&mut Desired> {
        self.pods.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Hashes;

    fn manifest(hash: &str, uid: Option<&str>) -> Arc<PodManifest> {
        Arc::new(PodManifest {
            key: PodKey::new("default", "web"),
            uid: uid.map(Into::into),
            pod: Default::default(),
            hashes: Hashes { manifest: hash.into(), ..Hashes::default() },
            origin: Default::default(),
            warnings: Vec::new(),
        })
    }

    #[test]
    fn an_edit_keeps_the_uid_and_a_removal_does_not() {
        let mut manager = PodManager::default();
        let first = manager.add("file", manifest("1", None), None).uid.clone();
        assert_eq!(manager.update("file", manifest("2", None), None).uid, first);
        manager.remove(&PodKey::new("default", "web"));
        assert_ne!(manager.add("file", manifest("2", None), None).uid, first);
    }

    #[test]
    fn a_uid_that_is_given_wins_and_has_a_holder() {
        let mut manager = PodManager::default();
        assert_eq!(manager.add("file", manifest("1", Some("mine")), Some("mine".into())).uid, "mine");
        assert_eq!(manager.update("file", manifest("2", Some("other")), Some("other".into())).uid, "other");
        assert_eq!(manager.holder("other"), Some(&PodKey::new("default", "web")));
        assert_eq!(manager.holder("mine"), None);
    }
}
