//! What an edit changes, field by field, and the least that has to be done for it: pure.
//!
//! Both manifests are compared as they are in force, with the present defaults filled into both, so that a podling
//! that knows more defaults sees no change where a person made none. The effect hangs on the field:
//!
//! | what changed | effect |
//! |---|---|
//! | labels, annotations, probes, hooks, grace, deadlines, restart and pull policies, what only chooses a node | none |
//! | cpu and memory of a container under `resizePolicy: NotRequired`, of the pod | resized in place |
//! | anything else of a container or sidecar | that container restarts |
//! | anything else: volumes, init containers, host ports, security context, network, names, the QoS class | the pod is made anew |

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::Value;

use super::differences::{Difference, differences};
use super::plan::is_sidecar;
use crate::manifest::annotations::{Reach, reach};
use crate::manifest::{PodManifest, with_defaults};
use crate::network::host_ports;
use crate::runtime::spec::qos::qos_class;

/// Fields of a container that its process is not made from.
const NOT_OF_THE_PROCESS: [&str; 10] = [
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "startupProbe",
    "terminationMessagePolicy",
];

/// Fields of a pod's spec that nothing running is made from: read when they are needed, or without effect here.
const NOT_OF_THE_POD: [&str; 20] = [
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "evictionResponders",
    "imagePullSecrets",
    "nodeName",
    "nodeSelector",
    "os",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "readinessGates",
    "restartPolicy",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// Fields listed in one line; more are counted.
const SHOWN: usize = 12;

/// What has to be done for one changed field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing: it holds from now on.
    Nothing,
    /// Limits of running processes change.
    Resize,
    /// The container of this name is new.
    Start(String),
    /// The container of this name is gone.
    Stop(String),
    /// The container of this name is stopped and started.
    Restart(String),
    /// The pod is made anew.
    Recreate,
}

/// Everything that an edit changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    fields: Vec<(Difference, Effect)>,
    /// What fields with several effects have besides.
    more: Vec<Effect>,
    /// Init containers that end: of them only the next run is concerned.
    ending: BTreeSet<String>,
}

impl Changes {
    /// From the manifest in force to a new one.
    pub fn between(old: &PodManifest, new: &PodManifest) -> Self {
        let (old, new) = (with_defaults(&old.pod), with_defaults(&new.pod));
        let mut changes = Self::default();
        for field in ["labels", "annotations"] {
            let of = |pod: &Pod| match field {
                "labels" => serde_json::to_value(&pod.metadata.labels).unwrap_or_default(),
                _ => serde_json::to_value(&pod.metadata.annotations).unwrap_or_default(),
            };
            changes.add(&format!("metadata.{field}"), &of(&old), &of(&new), Effect::Nothing);
        }
        changes.annotations(&new);
        let empty = PodSpec::default();
        let (before, after) = (old.spec.as_ref().unwrap_or(&empty), new.spec.as_ref().unwrap_or(&empty));
        changes.spec(before, after);
        let ports = |pod: &Pod| {
            let on_host = pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
            let ports: BTreeSet<String> = host_ports(pod).iter().map(|p| format!("{p:?}")).collect();
            if on_host { BTreeSet::new() } else { ports }
        };
        if ports(&old) != ports(&new) {
            // Where they lead is decided when the pod joins its network.
            let of_ports = changes.fields.iter_mut().filter(|(d, _)| d.path.contains("].ports"));
            of_ports.for_each(|(_, effect)| *effect = Effect::Recreate);
        }
        let (class_before, class_after) = (qos_class(before), qos_class(after));
        if class_before != class_after {
            // The class is the place of the pod's cgroup in the tree.
            let text = format!("{class_before} -> {class_after}");
            changes.fields.push((Difference { path: "status.qosClass".into(), text }, Effect::Recreate));
        }
        changes
    }

    /// Annotations that podling acts on.
    fn annotations(&mut self, pod: &Pod) {
        let init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
        self.ending = init.filter(|c| !is_sidecar(c)).map(|c| c.name.clone()).collect();
        let spec = pod.spec.iter();
        let all: Vec<&str> = spec
            .flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers))
            .map(|c| c.name.as_str())
            .collect();
        for (difference, effect) in &mut self.fields {
            let key = difference.path.strip_prefix("metadata.annotations[").and_then(|k| k.strip_suffix(']'));
            match key.and_then(reach) {
                Some((Reach::Pod, _)) => *effect = Effect::Recreate,
                Some((Reach::Containers, container)) => {
                    let named = all.iter().filter(|name| container.is_none_or(|c| c == **name));
                    self.more.extend(named.map(|name| Effect::Restart((*name).to_owned())));
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, path: &str, old: &Value, new: &Value, effect: Effect) {
        self.fields.extend(differences(path, old, new).into_iter().map(|d| (d, effect.clone())));
    }

    fn spec(&mut self, old: &PodSpec, new: &PodSpec) {
        let (before, after) = (fields(old), fields(new));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names.into_iter().filter(|n| !matches!(n.as_str(), "containers" | "initContainers")) {
            let effect = match name.as_str() {
                "resources" => Effect::Resize,
                name if NOT_OF_THE_POD.contains(&name) => Effect::Nothing,
                "topologySpreadConstraints" => Effect::Nothing,
                _ => Effect::Recreate,
            };
            let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
            self.add(&format!("spec.{name}"), &of(&before), &of(&after), effect);
        }
        self.containers("containers", &old.containers, &new.containers);
        let (old, new) = (old.init_containers.as_deref(), new.init_containers.as_deref());
        self.containers("initContainers", old.unwrap_or_default(), new.unwrap_or_default());
    }

    fn containers(&mut self, list: &str, old: &[Container], new: &[Container]) {
        let init = list == "initContainers";
        let path = |name: &str| format!("spec.{list}[{name}]");
        for gone in old.iter().filter(|c| !new.iter().any(|n| n.name == c.name)) {
            let effect = if init { Effect::Recreate } else { Effect::Stop(gone.name.clone()) };
            self.fields.push((Difference { path: path(&gone.name), text: "removed".into() }, effect));
        }
        for one in new {
            let Some(before) = old.iter().find(|o| o.name == one.name) else {
                let effect = if init { Effect::Recreate } else { Effect::Start(one.name.clone()) };
                self.fields.push((Difference { path: path(&one.name), text: "added".into() }, effect));
                continue;
            };
            if before != one {
                self.container(&path(&one.name), before, one, init);
            }
        }
        let order = |list: &[Container]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let (before, after) = (order(old), order(new));
        let same = before.iter().collect::<BTreeSet<_>>() == after.iter().collect::<BTreeSet<_>>();
        if same && before != after {
            let text = format!("{} -> {}", before.join(", "), after.join(", "));
            let effect = if init { Effect::Recreate } else { Effect::Nothing };
            self.fields.push((Difference { path: format!("spec.{list} (order)"), text }, effect));
        }
    }

    fn container(&mut self, path: &str, old: &Container, new: &Container, init: bool) {
        // What an init container did is done; only a sidecar still runs.
        let harm = match (init, is_sidecar(old) && is_sidecar(new)) {
            (true, false) => Effect::Recreate,
            _ => Effect::Restart(new.name.clone()),
        };
        if init && is_sidecar(old) != is_sidecar(new) {
            let (old, new) = (old.restart_policy.clone(), new.restart_policy.clone());
            let value = |v: Option<String>| v.map_or(Value::Null, Value::String);
            return self.add(&format!("{path}.restartPolicy"), &value(old), &value(new), Effect::Recreate);
        }
        let (before, after) = (fields(old), fields(new));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
            for difference in differences(&format!("{path}.{name}"), &of(&before), &of(&after)) {
                let effect = match name.as_str() {
                    "resources" => resource_effect(&difference.path, new, &harm),
                    "lifecycle" if difference.path.ends_with("lifecycle.stopSignal") => harm.clone(),
                    name if NOT_OF_THE_PROCESS.contains(&name) => Effect::Nothing,
                    _ => harm.clone(),
                };
                self.fields.push((difference, effect));
            }
        }
    }

    fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.fields.iter().map(|(_, effect)| effect).chain(&self.more)
    }

    /// The pod was ended by its deadline: with another one it begins anew.
    pub fn after_deadline(&mut self) {
        let of_deadline = self.fields.iter_mut().filter(|(d, _)| d.path == "spec.activeDeadlineSeconds");
        of_deadline.for_each(|(_, effect)| *effect = Effect::Recreate);
    }

    /// The pod has to give up what it has before it can have what it wants.
    pub fn give_way(&mut self) {
        self.more.push(Effect::Recreate);
    }

    /// Nothing is different.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Nothing that runs is touched, not even its limits.
    pub fn is_harmless(&self) -> bool {
        self.effects().all(|e| *e == Effect::Nothing)
    }

    /// No process starts or ends.
    pub fn keeps_processes(&self) -> bool {
        self.effects().all(|e| matches!(e, Effect::Nothing | Effect::Resize))
    }

    /// Only limits change, besides that needs nothing.
    pub fn is_resize(&self) -> bool {
        self.keeps_processes() && !self.is_harmless()
    }

    /// The pod has to be made anew.
    pub fn recreates(&self) -> bool {
        self.effects().any(|e| *e == Effect::Recreate)
    }

    /// Whether the container's process has to go, with or without a successor.
    pub fn ends(&self, container: &str) -> bool {
        self.effects().any(|e| matches!(e, Effect::Restart(name) | Effect::Stop(name) if name == container))
    }

    /// What is done, and for which fields: one line for log and event.
    pub fn summary(&self) -> String {
        let shown: Vec<String> =
            self.fields.iter().take(SHOWN).map(|(d, _)| format!("{}: {}", d.path, d.text)).collect();
        let more = self.fields.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} ({}{more})", self.what_is_done(), shown.join(", "))
    }

    fn what_is_done(&self) -> String {
        if self.recreates() {
            return "the pod is made anew".into();
        }
        let named = |of: fn(&Effect) -> Option<&String>| {
            let names: BTreeSet<&str> = self.effects().filter_map(of).map(String::as_str).collect();
            names.into_iter().filter(|name| !self.ending.contains(*name)).collect::<Vec<_>>().join(", ")
        };
        let mut done = Vec::new();
        for (word, names) in [
            ("restarting", named(|e| if let Effect::Restart(n) = e { Some(n) } else { None })),
            ("starting", named(|e| if let Effect::Start(n) = e { Some(n) } else { None })),
            ("stopping", named(|e| if let Effect::Stop(n) = e { Some(n) } else { None })),
        ] {
            if !names.is_empty() {
                done.push(format!("{word} {names}"));
            }
        }
        if self.effects().any(|e| *e == Effect::Resize) {
            done.push("resizing in place".into());
        }
        if done.is_empty() { "nothing restarts".into() } else { done.join(", ") }
    }
}

/// What a changed resource of a container needs, by its name and the container's `resizePolicy`.
fn resource_effect(path: &str, container: &Container, harm: &Effect) -> Effect {
    if path.ends_with("[ephemeral-storage]") {
        return Effect::Nothing;
    }
    let Some(name) = ["cpu", "memory"].into_iter().find(|name| path.ends_with(&format!("[{name}]"))) else {
        return harm.clone();
    };
    let mut policies = container.resize_policy.iter().flatten();
    let restart = policies.any(|p| p.resource_name == name && p.restart_policy == "RestartContainer");
    if restart { harm.clone() } else { Effect::Resize }
}

fn fields<T: serde::Serialize>(object: &T) -> serde_json::Map<String, Value> {
    match serde_json::to_value(object) {
        Ok(Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests;
