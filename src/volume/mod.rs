//! Volumes: what a pod's `spec.volumes` become on the host, before its containers start and after they end.
//!
//! Owns `<pods>/<uid>/volumes`. It makes directories and mounts there, and takes them away again; of a
//! hostPath it makes at most what its type asks for, and removes nothing, ever. Where a volume goes in a
//! container is not known here.

mod empty_dir;
mod host_path;
mod mount_table;
mod remove;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Volume};
use tokio::time::timeout;

use crate::system::{SystemError, mounts};

use mount_table::MountTable;

/// A file system that does not answer for so long (a dead NFS server) is given up for this attempt.
const LIMIT: Duration = Duration::from_secs(30);
/// Errors kept of one teardown: a full list of a million files helps nobody.
const MAX_ERRORS: usize = 20;

/// What goes wrong with volumes.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// What the pod needs is not there yet; it starts when it comes.
    #[error("volume {volume:?}: waiting for {} (hostPath type {kind}): {reason}", path.display())]
    Waiting {
        /// The volume's name.
        volume: String,
        /// The path on the host.
        path: PathBuf,
        /// The hostPath type, or `unset`.
        kind: String,
        /// What is missing.
        reason: String,
    },
    /// Something else is there.
    #[error("volume {volume:?}: {} is {found}, and hostPath type {kind} wants {wanted}", path.display())]
    Mismatch {
        /// The volume's name.
        volume: String,
        /// The path on the host.
        path: PathBuf,
        /// The hostPath type.
        kind: String,
        /// What is there: `a regular file`.
        found: &'static str,
        /// What should be: `a directory`.
        wanted: &'static str,
    },
    /// A kind of volume, a medium or a type that podling does not have.
    #[error("volume {volume:?}: {what} is not supported")]
    Unsupported {
        /// The volume's name.
        volume: String,
        /// What it is.
        what: String,
    },
    /// A size that is none.
    #[error("volume {volume:?}: sizeLimit {value:?} is not a quantity such as 64Mi")]
    Size {
        /// The volume's name.
        volume: String,
        /// As written.
        value: String,
    },
    /// The file system does not answer.
    #[error("the volumes of pod {pod} were not ready within {} s: a file system behind a hostPath does not answer", LIMIT.as_secs())]
    Hung {
        /// The pod, `namespace/name`.
        pod: String,
    },
    /// The kernel said no to a mount.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The file system said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl VolumeError {
    /// True when nothing is wrong with the manifest or the host: what is awaited may come at any time.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
        let path = path.to_owned();
        move |source| VolumeError::Io { action, path, source }
    }
}

/// A volume that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedVolume {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// It is not a directory: a file, a socket or a device.
    pub is_file: bool,
}

/// Makes all volumes of a pod ready, by name; `dir` is `<pods>/<uid>`. What is ready already stays as it is.
pub async fn prepare(
    pod: &Pod,
    uid: &str,
    dir: &Path,
) -> Result<BTreeMap<String, PreparedVolume>, VolumeError> {
    let name = |s: &Option<String>, or: &str| s.clone().unwrap_or_else(|| or.to_owned());
    let pod_name = format!("{}/{}", name(&pod.metadata.namespace, "default"), name(&pod.metadata.name, uid));
    let (pod, dir) = (pod.clone(), dir.to_owned());
    let work = tokio::task::spawn_blocking(move || prepare_all(&pod, &dir));
    match timeout(LIMIT, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(join)) => Err(VolumeError::Io {
            action: "prepare the volumes of pod",
            path: pod_name.into(),
            source: io::Error::other(join),
        }),
        Err(_) => Err(VolumeError::Hung { pod: pod_name }),
    }
}

fn prepare_all(pod: &Pod, dir: &Path) -> Result<BTreeMap<String, PreparedVolume>, VolumeError> {
    let Some(spec) = &pod.spec else { return Ok(BTreeMap::new()) };
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    if volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mounts = MountTable::read()?;
    let ready = volumes.iter().map(|volume| {
        let prepared = match kind(volume)? {
            Kind::EmptyDir => empty_dir::prepare(volume, spec, dir, &mounts)?,
            Kind::HostPath => host_path::prepare(volume, &mounts)?,
        };
        Ok((volume.name.clone(), prepared))
    });
    ready.collect()
}

enum Kind {
    EmptyDir,
    HostPath,
}

/// The API allows one source a volume, and none at all means an empty directory.
fn kind(volume: &Volume) -> Result<Kind, VolumeError> {
    if volume.host_path.is_some() {
        return Ok(Kind::HostPath);
    }
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let source = fields.as_object().and_then(|o| o.keys().find(|key| *key != "name"));
    match source.map(String::as_str) {
        None | Some("emptyDir") => Ok(Kind::EmptyDir),
        Some(other) => Err(VolumeError::Unsupported { volume: volume.name.clone(), what: other.to_owned() }),
    }
}

/// `<pod>/volumes/<plugin>/<name>`, as the kubelet lays it out; `plugin` has `~` for `/`.
fn volume_dir(pod_dir: &Path, plugin: &str, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(plugin).join(name)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), VolumeError> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(VolumeError::io("create", path))
}

/// Takes all volumes of a pod away: unmounts what is mounted below `pod_dir`, then removes the directory
/// itself. Goes on after errors and returns them all (at most 20); to be repeated until it succeeds.
pub fn teardown(pod_dir: &Path) -> Result<(), Vec<VolumeError>> {
    let mut errors = unmount_below(pod_dir);
    if errors.is_empty() {
        // With something still mounted, removing could reach into it.
        errors = remove::remove_tree(pod_dir);
    }
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn unmount_below(directory: &Path) -> Vec<VolumeError> {
    // Without the directory there is nothing below it.
    let Ok(real) = directory.canonicalize() else { return Vec::new() };
    mounts::unmount_under(&real).map_err(VolumeError::from).err().into_iter().collect()
}

/// Empties the emptyDirs of a pod that is made anew under the same uid: they are moved aside at once and
/// deleted behind. Whatever is left of that by a crash goes with [`teardown`].
pub fn reset(pod_dir: &Path) -> Result<(), VolumeError> {
    let volumes = pod_dir.join("volumes").join(empty_dir::PLUGIN);
    if let Some(error) = unmount_below(&volumes).into_iter().next() {
        return Err(error);
    }
    for number in 0.. {
        let aside = pod_dir.join(format!(".old-volumes-{number}"));
        if aside.symlink_metadata().is_ok() {
            continue;
        }
        match fs::rename(&volumes, &aside) {
            Ok(()) => delete_behind(aside),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(VolumeError::io("move aside", &volumes)(e)),
        }
        break;
    }
    Ok(())
}

fn delete_behind(directory: PathBuf) {
    // A thread of its own: there may be no runtime, and deleting gigabytes must not hold one of its threads.
    std::thread::spawn(move || {
        for error in remove::remove_tree(&directory).into_iter().take(MAX_ERRORS) {
            tracing::warn!(%error, "old volume not removed; it goes with the pod");
        }
    });
}

#[cfg(test)]
mod tests;
