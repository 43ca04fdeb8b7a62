//! configMap, secret, downwardAPI and projected: files in memory that follow what they come from.
//!
//! Each such volume is a tmpfs of its own below the pod's directory, so nothing of it reaches a disk, and
//! what a container has mounted stays while podling restarts. It is written when the pod starts and by
//! [`refresh`]; containers never write to it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Volume};
use tokio::time::timeout;

use super::payload::{Sources, collect};
use super::{LIMIT, PreparedVolume, VolumeError, VolumeInput, atomic, make_dir, volume_dir};
use crate::objects::Objects;
use crate::runtime::downward::DownwardFacts;
use crate::system::mounts::{self, Tmpfs};

/// The kinds by their field in a manifest, with the names of their directories.
pub(super) const PLUGINS: [(&str, &str); 4] = [
    ("configMap", "kubernetes.io~configmap"),
    ("secret", "kubernetes.io~secret"),
    ("downwardAPI", "kubernetes.io~downward-api"),
    ("projected", "kubernetes.io~projected"),
];

/// As the kubelet's. Scripts in ConfigMaps are run from there. What they come from has a limit already.
const TMPFS: Tmpfs = Tmpfs { size: None, mode: 0o1777, exec: true };

/// What [`refresh`] did.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// Volumes whose files changed.
    pub changed: Vec<String>,
    /// Volumes that keep the files they have, since what they come from is gone.
    pub kept: Vec<VolumeError>,
    /// Volumes that could not be written; they keep the files they have.
    pub failed: Vec<VolumeError>,
}

/// The directory of such a volume; none for other kinds.
pub(super) fn directory(volume: &Volume, pod_dir: &Path) -> Option<PathBuf> {
    let set = [
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.downward_api.is_some(),
        volume.projected.is_some(),
    ];
    let (_, plugin) = PLUGINS.iter().zip(set).find(|(_, set)| *set)?.0;
    Some(volume_dir(pod_dir, plugin, &volume.name))
}

/// Whether any volume of the pod is of these kinds.
pub fn has_data_volumes(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().any(|volume| directory(volume, Path::new("")).is_some())
}

fn sources(input: &VolumeInput) -> Sources<'_> {
    Sources { pod: &input.pod, objects: &input.objects, facts: &input.facts }
}

pub(super) fn prepare(volume: &Volume, input: &VolumeInput) -> Result<PreparedVolume, VolumeError> {
    let Some(dir) = directory(volume, &input.dir) else {
        return Err(VolumeError::Unsupported { volume: volume.name.clone(), what: "its kind".to_owned() });
    };
    match collect(volume, &sources(input)) {
        Ok(payload) => {
            make_dir(dir.parent().unwrap_or(&input.dir), 0o750)?;
            make_dir(&dir, 0o755)?;
            if !mounts::is_mountpoint(&dir)? {
                mounts::mount_tmpfs_unswapped(&dir, TMPFS)?;
            }
            atomic::write(&dir, &payload)?;
        }
        // A container that restarts goes on with the files that the others have; `refresh` says so.
        Err(e) if e.is_missing() && is_filled(&dir) => {}
        Err(e) => return Err(e),
    }
    Ok(PreparedVolume { host_path: dir, is_file: false, read_only: true })
}

/// What the volumes of a pod cannot start without and is not there: the first of each volume.
pub fn missing(pod: &Pod, objects: &Objects) -> Vec<VolumeError> {
    // What is missing does not depend on them.
    let facts = DownwardFacts::default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let sources = Sources { pod, objects, facts: &facts };
    let all = volumes.iter().filter_map(|volume| collect(volume, &sources).err());
    all.filter(VolumeError::is_missing).collect()
}

/// Mounted, and with content in force. The mount goes with a reboot, and then there is no content either.
fn is_filled(dir: &Path) -> bool {
    mounts::is_mountpoint(dir).unwrap_or(false) && atomic::is_written(dir)
}

/// Brings the files of the volumes that are there up to date. Volumes that are not there yet are left to
/// [`prepare`](super::prepare).
pub async fn refresh(input: VolumeInput) -> Result<Refreshed, VolumeError> {
    let pod = input.pod_name();
    let work = tokio::task::spawn_blocking(move || refresh_all(&input));
    match timeout(LIMIT, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(join)) => {
            Err(VolumeError::io("refresh the volumes of pod", Path::new(&pod))(std::io::Error::other(join)))
        }
        Err(_) => Err(VolumeError::Hung { pod }),
    }
}

fn refresh_all(input: &VolumeInput) -> Refreshed {
    let mut done = Refreshed::default();
    for volume in input.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(dir) = directory(volume, &input.dir) else { continue };
        if !is_filled(&dir) {
            continue;
        }
        let written = collect(volume, &sources(input)).and_then(|payload| atomic::write(&dir, &payload));
        match written {
            Ok(true) => done.changed.push(volume.name.clone()),
            Ok(false) => {}
            Err(e) if e.is_missing() => done.kept.push(e),
            Err(e) => done.failed.push(e),
        }
    }
    done
}

#[cfg(test)]
mod tests;
