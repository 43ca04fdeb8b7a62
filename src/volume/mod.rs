//! Volumes: what a pod's `spec.volumes` become on the host, before its containers start and after they end.
//!
//! Owns `<pods>/<uid>/volumes`. It makes directories and mounts there, and takes them away again; of a
//! hostPath it makes at most what its type asks for, and removes nothing, ever. Where a volume goes in a
//! container is not known here. Files whose content comes from ConfigMaps, Secrets or the pod itself are
//! collected by `payload`, replaced as one by `atomic`, and kept in memory by `data`.

mod atomic;
mod claim;
mod data;
mod empty_dir;
pub mod fs_group;
mod host_path;
mod huge_pages;
mod image;
mod mount_table;
mod nfs;
mod payload;
mod remove;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};
use tokio::time::timeout;

pub use self::data::{Refreshed, has_data_volumes, missing, refresh};
use crate::manifest::annotations;
use crate::objects::{ObjectKey, Objects};
use crate::runtime::downward::DownwardFacts;
use crate::system::{SystemError, mounts, subpath};

pub use fs_group::FsGroup;
pub use image::image_dir;
use mount_table::MountTable;

/// A file system that does not answer for so long (a dead NFS server) is given up for this attempt.
const LIMIT: Duration = Duration::from_secs(30);
/// Directory of the parts of volumes, in a pod's.
const SUBPATHS: &str = "volume-subpaths";
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
    /// A ConfigMap or Secret that no manifest defines; the pod starts when one does.
    #[error(
        "volume {volume:?}: waiting for {object}: no manifest file defines it (`podling get pods` names the files that were refused)"
    )]
    MissingObject {
        /// The volume's name.
        volume: String,
        /// What it wants.
        object: ObjectKey,
    },
    /// A ConfigMap or Secret without a key that is asked for by name.
    #[error("volume {volume:?}: waiting for the key {key:?} of {object}, which does not have it")]
    MissingKey {
        /// The volume's name.
        volume: String,
        /// What it wants the key of.
        object: ObjectKey,
        /// The key.
        key: String,
    },
    /// A file that cannot be made.
    #[error("volume {volume:?}: file {path:?}: {reason}")]
    Content {
        /// The volume's name.
        volume: String,
        /// The path of the file in the volume.
        path: String,
        /// What is wrong with it.
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
    /// Something on the host that the pod asks for is not mounted; the pod starts when it is.
    #[error("waiting for {} to be a mount point (annotation podling.dev/require-mountpoint)", path.display())]
    NotMounted {
        /// Where it should be.
        path: PathBuf,
    },
    /// Huge pages that the host does not have; the pod starts when it does.
    #[error("volume {volume:?}: {reason}")]
    HugePages {
        /// The volume's name.
        volume: String,
        /// What is missing.
        reason: String,
    },
    /// What stands in the place of a claim is of no use.
    #[error("volume {volume:?}: {} is neither a directory nor a block device, so no claim can be mapped to it", path.display())]
    Claim {
        /// The volume's name.
        volume: String,
        /// The path on the host.
        path: PathBuf,
    },
    /// An export that cannot be mounted.
    #[error("volume {volume:?}: cannot mount {export}: {reason}")]
    Nfs {
        /// The volume's name.
        volume: String,
        /// `server:path`.
        export: String,
        /// Why not, in the mount helper's words.
        reason: String,
    },
    /// An image that is not mounted: it was unmounted by hand.
    #[error("volume {volume:?}: its image is not mounted")]
    ImageNotMounted {
        /// The volume's name.
        volume: String,
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
        matches!(self, Self::Waiting { .. } | Self::NotMounted { .. } | Self::HugePages { .. })
            || self.is_missing()
    }

    /// True when a ConfigMap or Secret is awaited, or a key of one.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::MissingObject { .. } | Self::MissingKey { .. })
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
    /// No container may write to it, whatever its mount says.
    pub read_only: bool,
}

/// What the volumes of one pod are made from. Owned, since a file system that hangs may hold it for ever.
#[derive(Clone, Debug)]
pub struct VolumeInput {
    /// The pod, defaults filled in.
    pub pod: Pod,
    /// Its uid.
    pub uid: String,
    /// `<pods>/<uid>`.
    pub dir: PathBuf,
    /// Where the directories of persistentVolumeClaims are.
    pub claims: PathBuf,
    /// ConfigMaps and Secrets.
    pub objects: Objects,
    /// What the pod may ask about itself.
    pub facts: DownwardFacts,
}

impl VolumeInput {
    /// `namespace/name`, for messages.
    fn pod_name(&self) -> String {
        let name = |s: &Option<String>, or: &str| s.clone().unwrap_or_else(|| or.to_owned());
        let meta = &self.pod.metadata;
        format!("{}/{}", name(&meta.namespace, "default"), name(&meta.name, &self.uid))
    }
}

/// Makes all volumes of a pod ready, by name. What is ready already stays as it is.
pub async fn prepare(input: VolumeInput) -> Result<BTreeMap<String, PreparedVolume>, VolumeError> {
    let pod_name = input.pod_name();
    // One that hangs keeps its thread until the file system answers: trying again must not take another.
    let Some(busy) = Busy::with(&input.dir) else { return Err(VolumeError::Hung { pod: pod_name }) };
    let work = tokio::task::spawn_blocking(move || {
        let _busy = busy;
        prepare_all(&input)
    });
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

fn prepare_all(input: &VolumeInput) -> Result<BTreeMap<String, PreparedVolume>, VolumeError> {
    let Some(spec) = &input.pod.spec else { return Ok(BTreeMap::new()) };
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let required = annotations::required_mount_points(&input.pod);
    if volumes.is_empty() && required.is_empty() {
        return Ok(BTreeMap::new());
    }
    let job = Job { input, spec, mounts: &MountTable::read()? };
    if let Some(path) = required.into_iter().find(|path| !job.mounts.is_mount_point(path)) {
        return Err(VolumeError::NotMounted { path });
    }
    // Those in memory first: when a file system behind another one hangs, they are done, and no thread that
    // is given up will write to them later.
    let (first, last): (Vec<_>, Vec<_>) =
        volumes.iter().partition(|volume| data::directory(volume, &input.dir).is_some());
    let all = first.into_iter().chain(last);
    all.map(|volume| Ok((volume.name.clone(), job.prepare(volume)?))).collect()
}

/// Pod directories whose volumes are being made ready.
static BUSY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// One of them, for as long as it takes.
struct Busy(PathBuf);

impl Busy {
    fn with(dir: &Path) -> Option<Self> {
        let mut all = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(dir.to_owned()).then(|| Self(dir.to_owned()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// What each kind of volume is made from.
struct Job<'a> {
    input: &'a VolumeInput,
    spec: &'a PodSpec,
    mounts: &'a MountTable,
}

impl Job<'_> {
    /// Makes one volume ready. Each kind has a file of its own.
    fn prepare(&self, volume: &Volume) -> Result<PreparedVolume, VolumeError> {
        match source(volume).as_deref() {
            // None at all means an empty directory.
            None | Some("emptyDir" | "ephemeral") => {
                let node = self.input.facts.allocatable.memory;
                empty_dir::prepare(volume, self.spec, &self.input.dir, self.mounts, node)
            }
            Some("configMap" | "secret" | "downwardAPI" | "projected") => data::prepare(volume, self.input),
            Some("hostPath") if claim::named_by_path(volume).is_some() => claim::prepare(volume, self.input),
            Some("hostPath") => host_path::prepare(volume, self.mounts),
            Some("image") => image::prepare(volume, &self.input.dir, self.mounts),
            Some("nfs") => nfs::prepare(volume, &self.input.dir, self.mounts),
            Some("persistentVolumeClaim") => claim::prepare(volume, self.input),
            Some(other) => {
                Err(VolumeError::Unsupported { volume: volume.name.clone(), what: other.to_owned() })
            }
        }
    }
}

/// The field that says what kind of volume it is; the API allows one.
fn source(volume: &Volume) -> Option<String> {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    fields.as_object()?.keys().find(|key| *key != "name").cloned()
}

/// `<pod>/volumes/<plugin>/<name>`, as the kubelet lays it out; `plugin` has `~` for `/`.
fn volume_dir(pod_dir: &Path, plugin: &str, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(plugin).join(name)
}

/// `<pod>/volume-subpaths/<volume>/<container>`, as the kubelet lays it out: parts of volumes, by the number of their
/// mount.
pub fn subpath_dir(pod_dir: &Path, volume: &str, container: &str) -> PathBuf {
    pod_dir.join(SUBPATHS).join(volume).join(container)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), VolumeError> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(VolumeError::io("create", path))
}

/// Takes all volumes of a pod away: unmounts what is mounted below `pod_dir`, then removes the directory
/// itself. Goes on after errors and returns them all (at most 20); to be repeated until it succeeds.
pub fn teardown(pod_dir: &Path) -> Result<(), Vec<VolumeError>> {
    // Before the rest, and in their own way: what is below them may be shared with the host.
    let mut errors: Vec<VolumeError> = subpath::unstage_under(&pod_dir.join(SUBPATHS))
        .map_err(VolumeError::from)
        .err()
        .into_iter()
        .collect();
    if errors.is_empty() {
        errors = unmount_below(pod_dir);
    }
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

/// Empties the emptyDirs of a pod that is made anew under the same uid, and takes away what came from
/// ConfigMaps, Secrets and the pod itself. Directories are moved aside at once and deleted behind. Whatever is
/// left of that by a crash goes with [`teardown`].
pub fn reset(pod_dir: &Path) -> Result<(), VolumeError> {
    // Images too: the next instance may run another one of the same name.
    subpath::unstage_under(&pod_dir.join(SUBPATHS))?;
    if let Some(error) = unmount_below(&pod_dir.join("volumes").join(image::PLUGIN)).into_iter().next() {
        return Err(error);
    }
    let data = data::PLUGINS.iter().map(|(_, plugin)| *plugin);
    for plugin in data.chain([empty_dir::PLUGIN]) {
        set_aside(pod_dir, &pod_dir.join("volumes").join(plugin))?;
    }
    Ok(())
}

fn set_aside(pod_dir: &Path, volumes: &Path) -> Result<(), VolumeError> {
    if let Some(error) = unmount_below(volumes).into_iter().next() {
        return Err(error);
    }
    for number in 0.. {
        let aside = pod_dir.join(format!(".old-volumes-{number}"));
        if aside.symlink_metadata().is_ok() {
            continue;
        }
        match fs::rename(volumes, &aside) {
            Ok(()) => delete_behind(aside),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(VolumeError::io("move aside", volumes)(e)),
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
