//! Pods annotated `podling.dev/restart-on-change: "true"`: what they run by is compared with the ConfigMaps
//! and Secrets in force.
//!
//! What a container was started with is written down as one digest for each object it names, of every pod, so
//! that a change is seen that happened while podling was down. An object that is gone changes nothing: a
//! container that runs is better than one that waits. The same holds for a change by which the container
//! could not start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use sha2::{Digest, Sha256};

use super::board::EventType;
use super::plan::{Instance, is_sidecar};
use super::worker::Worker;
use crate::manifest::{annotations, references};
use crate::objects::{DataObject, Objects};
use crate::runtime::Kind;

/// Name of the annotation behind its prefix.
const ANNOTATION: &str = "restart-on-change";
/// Stands for the hash of what runs, when that is to be replaced though its entry did not change.
const OUTDATED: &str = "its data changed";

/// Digests of the objects that a container names and that are there, by their names.
fn digests(pod: &Pod, container: &Container, objects: &Objects) -> BTreeMap<String, String> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let keys = references::of_container(pod, spec, container);
    let found = keys.iter().filter_map(|key| objects.get(key.kind, &key.namespace, &key.name));
    found.map(|object| (object.key.to_string(), digest(&object))).collect()
}

/// Over keys and values, each with its length before it.
fn digest(object: &DataObject) -> String {
    let mut hash = Sha256::new();
    for (key, value) in &object.data {
        for part in [key.as_bytes(), value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hex::encode(&hash.finalize()[..8])
}

/// The first object, by name, that is not as it was at the start.
fn changed<'a>(now: &'a BTreeMap<String, String>, then: &BTreeMap<String, String>) -> Option<&'a String> {
    now.iter().find(|(name, digest)| then.get(*name) != Some(*digest)).map(|(name, _)| name)
}

/// What a container is started with, for the record.
pub(super) fn of(pod: &Pod, name: &str, objects: &Objects) -> BTreeMap<String, String> {
    let spec = pod.spec.as_ref();
    let mut all = spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    all.find(|c| c.name == name).map(|c| digests(pod, c, objects)).unwrap_or_default()
}

impl Worker {
    /// Marks the containers that run by data which is not in force any more, so that they are replaced with
    /// their grace.
    pub(super) fn mark_outdated(&mut self, instances: &mut [Instance]) {
        for (name, object) in self.outdated() {
            // Other init containers are let run to their end: `remake_outdated` looks after what they made.
            let lasts = |i: &Instance| i.kind == Kind::Regular || self.is_sidecar(&i.name);
            let found = instances.iter().position(|i| i.name == name && i.is_live() && lasts(i));
            if let Some(instance) = found.and_then(|at| instances.get_mut(at)) {
                instance.hash = OUTDATED.to_owned();
                let id = instance.id.clone();
                self.replace_outdated(&name, &id, &object);
            }
        }
    }

    fn is_sidecar(&self, name: &str) -> bool {
        let spec = self.current.as_ref().and_then(|c| c.manifest.pod.spec.as_ref());
        let mut init = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten());
        init.any(|c| c.name == name && is_sidecar(c))
    }

    /// Containers that were started with other data than is in force, each with what changed; none when the
    /// pod does not ask, or when it could not start with what is in force.
    fn outdated(&self) -> Vec<(String, String)> {
        let Some(current) = &self.current else { return Vec::new() };
        let pod = &current.manifest.pod;
        let asked = annotations::value(pod, ANNOTATION) == Some("true") && !current.recreating;
        let Some(spec) = pod.spec.as_ref().filter(|_| asked) else { return Vec::new() };
        let mut outdated = Vec::new();
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let Some(history) = current.status.containers.get(&container.name) else { continue };
            let then = history.data.as_ref().filter(|_| history.container_id.is_some());
            let now = digests(pod, container, &self.ctx.objects);
            if let Some(name) = then.and_then(|then| changed(&now, then)) {
                outdated.push((container.name.clone(), name.clone()));
            }
        }
        if !outdated.is_empty() && !self.could_run(spec, pod) {
            outdated.clear();
        }
        outdated
    }

    /// The run counts as one of another entry: it is replaced whatever the restart policy says, without
    /// back-off.
    fn replace_outdated(&mut self, name: &str, id: &str, object: &str) {
        let Some(history) = self.current.as_mut().and_then(|c| c.status.containers.get_mut(name)) else {
            return;
        };
        if history.hash != OUTDATED {
            history.hash = OUTDATED.to_owned();
            tracing::info!(pod = %self.key, container = %name, id = %&id[..12.min(id.len())], "{object} changed: restarting the container");
            let text = format!("{object} changed: restarting container {name}");
            self.ctx.board.event(EventType::Normal, "DataChanged", Some(&self.key), text);
        }
    }

    /// What an init container made of the old data is in the pod's volumes: the pod is made anew.
    pub(super) fn remake_outdated(&mut self) {
        for (name, object) in self.outdated() {
            let Some(current) = &mut self.current else { return };
            let mut init = current.manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
            let completed = current.status.containers.get(&name).is_some_and(|h| h.completed);
            if !init.any(|c| c.name == name) || !completed || current.status.sandbox.is_none() {
                continue;
            }
            current.recreating = true;
            tracing::info!(pod = %self.key, container = %name, "{object} changed: the pod is made anew");
            let text = format!("{object} changed, which init container {name} ran by: the pod is made anew");
            return self.ctx.board.event(EventType::Normal, "DataChanged", Some(&self.key), text);
        }
    }

    /// Whether all variables have values, so that what is stopped can start again.
    fn could_run(&self, spec: &PodSpec, pod: &Pod) -> bool {
        let Some(current) = &self.current else { return false };
        let Some(sandbox) = &current.status.sandbox else { return true };
        let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let missing =
            all().find_map(|c| self.ctx.runtime.missing_variable(pod, &current.spec.uid, sandbox, c));
        if let Some(why) = missing {
            tracing::debug!(pod = %self.key, "data changed, and what runs goes on: {why}");
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::objects::{ObjectKey, ObjectKind};

    fn objects(values: &[(&str, &str)]) -> Objects {
        let objects = Objects::default();
        let object = |(name, value): &(&str, &str)| {
            Arc::new(DataObject {
                key: ObjectKey::new(ObjectKind::ConfigMap, "default", *name),
                data: BTreeMap::from([("k".to_owned(), value.as_bytes().to_vec())]),
                binary: Default::default(),
                secret_type: None,
                immutable: false,
                origin: Default::default(),
            })
        };
        objects.replace(values.iter().map(object).collect());
        objects
    }

    #[test]
    fn a_change_and_an_arrival_count_and_a_removal_does_not() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "a", "envFrom": [
                {"configMapRef": {"name": "x"}}, {"configMapRef": {"name": "y", "optional": true}},
            ]}]},
        }))
        .expect("a pod");
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        let at = |values: &[(&str, &str)]| digests(&pod, container, &objects(values));
        let then = at(&[("x", "1"), ("z", "1")]);
        assert_eq!(changed(&at(&[("x", "1"), ("z", "2")]), &then), None, "z is nothing to it");
        assert_eq!(changed(&at(&[]), &then), None, "gone");
        assert_eq!(changed(&at(&[("x", "2")]), &then).map(String::as_str), Some("ConfigMap default/x"));
        let came = at(&[("x", "1"), ("y", "1")]);
        assert_eq!(changed(&came, &then).map(String::as_str), Some("ConfigMap default/y"));
    }
}
