//! Annotations by which runtimes and tools recognise a container, with the CRI plugin's names.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;

use super::{SandboxPaths, SpecInput};

/// The shim puts all containers with the same value under one process.
const SHIM_GROUP: &str = "io.containerd.runc.v2.group";

pub(super) fn of(input: &SpecInput<'_>) -> HashMap<String, String> {
    let mut all = shared(input.pod, input.uid, input.sandbox, "container");
    all.insert("io.kubernetes.cri.container-name".into(), input.name());
    all.insert("io.kubernetes.cri.image-name".into(), input.image_name.into());
    all.insert("io.kubernetes.container.restartCount".into(), input.attempt.to_string());
    all
}

/// What the containers of a sandbox have in common; `kind` is `container` or `sandbox`.
pub(super) fn shared(pod: &Pod, uid: &str, sandbox: &SandboxPaths, kind: &str) -> HashMap<String, String> {
    let meta = &pod.metadata;
    [
        (SHIM_GROUP, sandbox.id.clone()),
        ("io.kubernetes.cri.container-type", kind.to_owned()),
        ("io.kubernetes.cri.sandbox-id", sandbox.id.clone()),
        ("io.kubernetes.cri.sandbox-log-directory", sandbox.log_directory.display().to_string()),
        ("io.kubernetes.cri.sandbox-name", meta.name.clone().unwrap_or_default()),
        ("io.kubernetes.cri.sandbox-namespace", meta.namespace.clone().unwrap_or_default()),
        ("io.kubernetes.cri.sandbox-uid", uid.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
