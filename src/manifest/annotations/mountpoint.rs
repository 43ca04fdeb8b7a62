//! `podling.dev/require-mountpoint`: what must be mounted on the host before the pod starts.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

pub(super) fn check(text: &str, pod: &Pod) -> Result<(), String> {
    paths(text, pod).map(drop)
}

fn paths(text: &str, pod: &Pod) -> Result<Vec<PathBuf>, String> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if part.starts_with('/') {
            all.push(PathBuf::from(part));
            continue;
        }
        let Some(volume) = volumes.iter().find(|v| v.name == part) else {
            return Err(format!(
                "the pod has no volume {part:?}; write names of hostPath volumes, or absolute paths"
            ));
        };
        match &volume.host_path {
            Some(host) => all.push(PathBuf::from(&host.path)),
            None => {
                return Err(format!(
                    "volume {part:?} is no hostPath, so it cannot wait for a mount of the host"
                ));
            }
        }
    }
    if all.is_empty() {
        return Err("must be names of hostPath volumes, or absolute paths, with commas between".to_owned());
    }
    Ok(all)
}

/// Paths on the host that must be mount points.
pub fn required_mount_points(pod: &Pod) -> Vec<PathBuf> {
    super::value(pod, "require-mountpoint").and_then(|v| paths(v, pod).ok()).unwrap_or_default()
}
