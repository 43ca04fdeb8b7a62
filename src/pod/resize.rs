//! Resizing in place.

use k8s_openapi::api::core::v1::ResourceRequirements;

use crate::manifest::PodManifest;

/// The resources of a container's entry.
pub(super) fn resources(manifest: &PodManifest, name: &str) -> ResourceRequirements {
    let spec = manifest.pod.spec.as_ref();
    let mut all = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    all.find(|c| c.name == name).and_then(|c| c.resources.clone()).unwrap_or_default()
}
