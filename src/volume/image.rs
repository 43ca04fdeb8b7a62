//! image: the files of an image, read-only. Whoever speaks to containerd mounts it; here it is only looked for.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;

use super::mount_table::MountTable;
use super::{PreparedVolume, VolumeError, volume_dir};

/// Directory of all of a pod's.
pub(super) const PLUGIN: &str = "kubernetes.io~image";

/// Where the image of a volume is to be mounted.
pub fn image_dir(pod_dir: &Path, volume: &str) -> PathBuf {
    volume_dir(pod_dir, PLUGIN, volume)
}

pub(super) fn prepare(
    volume: &Volume,
    pod_dir: &Path,
    mounts: &MountTable,
) -> Result<PreparedVolume, VolumeError> {
    let host_path = image_dir(pod_dir, &volume.name);
    if mounts.has(&host_path) {
        Ok(PreparedVolume { host_path, is_file: false, read_only: true })
    } else {
        Err(VolumeError::ImageNotMounted { volume: volume.name.clone() })
    }
}
