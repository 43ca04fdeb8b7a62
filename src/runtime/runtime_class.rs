//! `runtimeClassName`: the runtime behind the name, and what pods of the class need beyond their containers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::containerd::OciRuntime;
use super::{Runtime, StartError};
use crate::settings::RuntimeClass;

/// What a shim of containerd's own is called.
const SHIM_PREFIX: &str = "io.containerd.";

/// The runtime for a pod. A node whose settings know no class at all runs any class in its own runtime, as a
/// kubelet without API server does; one that has some does not guess.
fn choose(
    spec: &PodSpec,
    classes: &BTreeMap<String, RuntimeClass>,
    default: &OciRuntime,
) -> Result<OciRuntime, StartError> {
    let Some(name) = class_name(spec).filter(|_| !classes.is_empty()) else { return Ok(default.clone()) };
    let class = classes.get(name).ok_or_else(|| {
        let known: Vec<&str> = classes.keys().map(String::as_str).collect();
        let text = format!(
            "runtimeClassName: RuntimeClass {name:?} not found: runtimeClasses in the settings has {}",
            known.join(", ")
        );
        StartError::new("CreatePodSandboxError", text)
    })?;
    Ok(if class.handler.starts_with(SHIM_PREFIX) {
        let name = class.handler.clone();
        if name == default.name { default.clone() } else { OciRuntime { name, ..OciRuntime::default() } }
    } else {
        let binary = Some(class.handler.clone()).filter(|b| b != "runc");
        OciRuntime { binary, ..default.clone() }
    })
}

fn class_name(spec: &PodSpec) -> Option<&str> {
    spec.runtime_class_name.as_deref().filter(|name| !name.is_empty())
}

impl Runtime {
    /// The runtime of a pod's containers.
    pub(super) fn oci_runtime_of(&self, spec: &PodSpec) -> Result<OciRuntime, StartError> {
        choose(spec, &self.inner.options.runtime_classes, &self.inner.oci)
    }

    /// The spec with the overhead of its class, where it gives none itself.
    pub(super) fn with_overhead<'a>(&self, spec: &'a PodSpec) -> Cow<'a, PodSpec> {
        let class = class_name(spec).and_then(|name| self.inner.options.runtime_classes.get(name));
        match class.filter(|class| spec.overhead.is_none() && !class.overhead.is_empty()) {
            None => Cow::Borrowed(spec),
            Some(class) => {
                let overhead = class.overhead.iter().map(|(name, q)| (name.clone(), Quantity(q.clone())));
                Cow::Owned(PodSpec { overhead: Some(overhead.collect()), ..spec.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str) -> Result<OciRuntime, String> {
        let class = |handler: &str| RuntimeClass { handler: handler.into(), overhead: BTreeMap::new() };
        let classes = BTreeMap::from([
            ("kata".to_owned(), class("io.containerd.kata.v2")),
            ("crun".to_owned(), class("crun")),
            ("plain".to_owned(), class("runc")),
        ]);
        let default = OciRuntime { binary: Some("/usr/bin/crun".into()), ..OciRuntime::default() };
        let spec = PodSpec { runtime_class_name: Some(name.into()), ..PodSpec::default() };
        choose(&spec, &classes, &default).map_err(|e| e.message)
    }

    #[test]
    fn a_class_names_a_shim_or_an_oci_runtime() {
        assert_eq!(chosen("kata").unwrap().name, "io.containerd.kata.v2");
        assert_eq!(chosen("kata").unwrap().binary, None);
        assert_eq!(chosen("crun").unwrap().binary.as_deref(), Some("crun"));
        assert_eq!(chosen("plain").unwrap().binary, None);
        assert_eq!(chosen("").unwrap().binary.as_deref(), Some("/usr/bin/crun"));
    }

    #[test]
    fn an_unknown_class_is_refused_only_where_classes_are_known() {
        assert_eq!(
            chosen("gvisor").unwrap_err(),
            "runtimeClassName: RuntimeClass \"gvisor\" not found: runtimeClasses in the settings has crun, kata, plain"
        );
        let spec = PodSpec { runtime_class_name: Some("gvisor".into()), ..PodSpec::default() };
        assert_eq!(choose(&spec, &BTreeMap::new(), &OciRuntime::default()), Ok(OciRuntime::default()));
    }
}
