//! What a container mounts: its `volumeMounts`, with what is behind each on the host.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

use super::spec::{Propagation, VolumeMountSource};
use super::start::StartError;
use crate::volume::PreparedVolume;

/// The mounts of a container in the manifest's order.
pub(super) fn mount_sources(
    container: &Container,
    volumes: &BTreeMap<String, PreparedVolume>,
) -> Result<Vec<VolumeMountSource>, StartError> {
    let mut sources = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| StartError::config(format!("volumeMounts: no volume is named {}", mount.name)))?;
        sources.push(VolumeMountSource {
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only == Some(true) || volume.read_only,
            propagation: Propagation::default(),
            host_path: volume.host_path.clone(),
        });
    }
    Ok(sources)
}
