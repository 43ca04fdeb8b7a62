//! `hostUsers: false`: user namespaces of pods.
//!
//! A pod gets ids of the host that no other pod and no line of `/etc/subuid` has, and keeps them as long as its
//! directory lives. Its net, ipc and uts namespaces are made inside its user namespace, which is pinned with
//! them. The layers of images and the volumes stay as they are on the disk: they are mounted with their ids
//! mapped, for the moment until the container's own mounts hold copies of these. So neither runc nor the
//! snapshotter has to know how.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodSpec;
use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::containerd::Mount;
use super::spec::ResolvedUser;
use super::{Runtime, StartError};
use crate::settings::Paths;
use crate::system::SystemError;
use crate::system::files::{self, Durability};
use crate::system::mounts::{bind_mapped, restrictions, unmount_under};
use crate::system::userns::IdRange;

/// Ids of a pod, as many as a kubelet gives by default.
const COUNT: u32 = 65_536;
/// Overlay mounts take layers with mapped ids from here on.
const MIN_KERNEL: (u32, u32) = (5, 19);
/// Who may have what ranges of ids otherwise.
const SUB_IDS: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// Whether the pod wants ids of its own.
pub(super) fn wanted(spec: &PodSpec) -> bool {
    spec.host_users == Some(false)
}

fn failed(text: impl std::fmt::Display) -> StartError {
    StartError::new("CreatePodSandboxError", format!("hostUsers: false: {text}"))
}

/// The file in a pod's directory.
#[derive(Serialize, Deserialize)]
struct Record {
    first: u32,
    count: u32,
}

impl Record {
    fn path(paths: &Paths, uid: &str) -> PathBuf {
        paths.pod(uid).join("userns.json")
    }

    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

impl Runtime {
    /// The ids of a pod: those it has, or the first that are free.
    pub(super) fn id_range(&self, uid: &str) -> Result<IdRange, StartError> {
        // One at a time: two pods that look at once would find the same ids free.
        let _turn = self.inner.id_ranges.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let paths = &self.inner.paths;
        let path = Record::path(paths, uid);
        if let Some(Record { first, count }) = Record::read(&path) {
            return Ok(IdRange { first, count });
        }
        let mut taken: Vec<(u64, u64)> =
            SUB_IDS.iter().flat_map(|file| sub_ids(&fs::read_to_string(file).unwrap_or_default())).collect();
        for entry in fs::read_dir(paths.pods()).map_err(failed)?.flatten() {
            if let Some(record) = Record::read(&entry.path().join("userns.json")) {
                taken.push((record.first.into(), record.count.into()));
            }
        }
        let first = free(&taken).ok_or_else(|| failed("no 65536 user ids in a row are left on this node"))?;
        let bytes = serde_json::to_vec(&Record { first, count: COUNT }).map_err(failed)?;
        files::replace(&path, &bytes, 0o600, Durability::Synced)
            .map_err(|e| failed(format!("cannot write {}: {e}", path.display())))?;
        Ok(IdRange { first, count: COUNT })
    }

    /// What is known beforehand to keep a pod from having a user namespace here.
    pub(super) fn check_user_namespaces(&self) -> Result<(), StartError> {
        let (major, minor) = self.inner.features.kernel;
        if (major, minor) < MIN_KERNEL {
            let (least, than) = MIN_KERNEL;
            return Err(failed(format!(
                "this kernel, {major}.{minor}, cannot map the user ids of images; it takes Linux {least}.{than}"
            )));
        }
        let limit = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
        match limit.trim() {
            "" => Err(failed("this kernel has no user namespaces")),
            "0" => Err(failed("user namespaces are off: set the sysctl user.max_user_namespaces above 0")),
            _ => self.let_through(),
        }
    }

    /// A container's root must pass through the directories above its root file system. Those of a containerd
    /// of podling's own are below one that is private as a whole: there, what lies beside them is instead.
    fn let_through(&self) -> Result<(), StartError> {
        let run = self.inner.paths.run();
        if !self.inner.ctd.socket().starts_with(&run) {
            return Ok(());
        }
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .map_err(|e| failed(format!("cannot set the mode of {}: {e}", path.display())))
        };
        for entry in fs::read_dir(&run).map_err(failed)?.flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && entry.file_name() != "containerd" {
                set(&entry.path(), 0o700)?;
            }
        }
        set(&run, 0o711)?;
        if let Some(above) = run.parent().filter(|_| !self.inner.paths.is_system()) {
            // podling's own too, under a root of its own.
            set(above, 0o711)?;
        }
        let passable = |dir: &&Path| fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o001 != 0);
        match run.ancestors().find(|dir| !passable(dir)) {
            None => Ok(()),
            Some(closed) => Err(failed(format!(
                "{0} lets only its owner through, and root in a user namespace is another: chmod o+x {0}",
                closed.display()
            ))),
        }
    }

    /// Mounts what a container takes from the host with mapped ids, and has the spec take it from there. `user`
    /// must have its ids in the namespace.
    pub(super) fn map_sources(
        &self,
        spec: &mut Spec,
        sandbox: &Path,
        id: &str,
        user: &ResolvedUser,
    ) -> Result<(), StartError> {
        let groups = user.additional_gids.iter().chain([&user.uid, &user.gid]);
        if let Some(id) = groups.copied().find(|id| *id >= COUNT) {
            return Err(StartError::config(format!(
                "hostUsers: false: user or group id {id} does not exist in a user namespace of {COUNT} ids"
            )));
        }
        let (dir, pin) = (mapped_dir(sandbox, id), sandbox.join("user"));
        let shm = sandbox.join("shm");
        for (n, mount) in spec.mounts_mut().iter_mut().flatten().enumerate() {
            let Some(source) = mount.source().clone().filter(|s| is_bind(mount) && *s != shm) else {
                continue;
            };
            let failed = |e: SystemError| StartError::new("FailedMount", e.to_string());
            let mut target = dir.join(n.to_string());
            if is_device(&source) {
                // The file system of /dev maps no ids; whom a device is open to is its mode's business.
                target = source;
            } else {
                bind_mapped(&source, &target, &pin).map_err(failed)?;
            }
            // runc makes a mount read-only from inside the namespace, with no other flags than these.
            let held = restrictions(&target).map_err(failed)?;
            mount.options_mut().get_or_insert_default().extend(held.into_iter().map(str::to_owned));
            mount.set_source(Some(target));
        }
        Ok(())
    }

    /// A directory of the host as a root file system, with mapped ids.
    pub(super) fn map_dir(&self, source: &Path, sandbox: &Path, id: &str) -> Result<Mount, StartError> {
        let target = mapped_dir(sandbox, id).join("root");
        bind_mapped(source, &target, &sandbox.join("user")).map_err(failed)?;
        Ok(Mount {
            kind: "bind".to_owned(),
            source: target.display().to_string(),
            target: String::new(),
            options: vec!["rbind".to_owned(), "rw".to_owned()],
        })
    }

    /// The mounts of a root file system with the ids of its layers mapped.
    pub(super) fn map_rootfs(
        &self,
        mounts: Vec<Mount>,
        sandbox: &Path,
        id: &str,
        range: IdRange,
    ) -> Result<Vec<Mount>, StartError> {
        let (dir, pin) = (mapped_dir(sandbox, id).join("root"), sandbox.join("user"));
        let map = |source: &str, name: String| {
            let target = dir.join(name);
            bind_mapped(Path::new(source), &target, &pin).map_err(failed)?;
            Ok::<String, StartError>(target.display().to_string())
        };
        let one = |mut mount: Mount| {
            if mount.kind != "overlay" {
                mount.source = map(&mount.source, "bind".to_owned())?;
                return Ok(mount);
            }
            for option in &mut mount.options {
                if let Some(layers) = option.strip_prefix("lowerdir=") {
                    let mapped: Result<Vec<String>, StartError> =
                        layers.split(':').enumerate().map(|(n, layer)| map(layer, n.to_string())).collect();
                    *option = format!("lowerdir={}", mapped?.join(":"));
                } else if let Some(upper) = option.strip_prefix("upperdir=") {
                    // Not mapped: what the container writes has its ids on the disk.
                    std::os::unix::fs::chown(upper, Some(range.first), Some(range.first)).map_err(failed)?;
                }
            }
            Ok(mount)
        };
        mounts.into_iter().map(one).collect()
    }

    /// Gives the pipes of a container that was not started yet to its user, who else could write to them but not
    /// open them again as `/dev/stdout`. (runc does the same, but cannot from inside a user namespace.)
    pub(super) fn own_output(&self, pid: u32, user: &ResolvedUser, range: IdRange) {
        for fd in 0..=2 {
            let path = format!("/proc/{pid}/fd/{fd}");
            if fs::metadata(&path).is_ok_and(|m| m.file_type().is_fifo()) {
                let (uid, gid) = (range.first + user.uid, range.first + user.gid);
                if let Err(e) = std::os::unix::fs::chown(&path, Some(uid), Some(gid)) {
                    tracing::debug!("{path} keeps its owner: {e}");
                }
            }
        }
    }

    /// Takes the mounts of those above away again; the container has copies.
    pub(super) fn unmap(&self, sandbox: &Path, id: &str) {
        let dir = mapped_dir(sandbox, id);
        let gone = unmount_under(&dir).map_err(|e| e.to_string());
        if let Err(e) = gone.and_then(|()| fs::remove_dir_all(&dir).map_err(|e| e.to_string())) {
            tracing::debug!("{} goes with its sandbox: {e}", dir.display());
        }
    }
}

/// Short: the paths of all layers must fit on one page.
fn mapped_dir(sandbox: &Path, id: &str) -> PathBuf {
    sandbox.join(&id[..8.min(id.len())])
}

fn is_bind(mount: &oci_spec::runtime::Mount) -> bool {
    let options = mount.options().iter().flatten();
    mount.typ().as_deref() == Some("bind") || options.into_iter().any(|o| o == "bind" || o == "rbind")
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device() || m.file_type().is_block_device())
}

/// First id and count of each range in a file such as `/etc/subuid`.
fn sub_ids(text: &str) -> Vec<(u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(1).map(|n| n.trim().parse().ok());
            Some((fields.next()??, fields.next()??))
        })
        .collect()
}

/// The first free ids, in steps of [`COUNT`] and beyond those of the host itself.
fn free(taken: &[(u64, u64)]) -> Option<u32> {
    let count = u64::from(COUNT);
    let clear = |first: &u64| taken.iter().all(|(other, n)| *other >= first + count || other + n <= *first);
    // The last step holds 2^32 - 1, which is nobody's.
    (1..u64::from(u32::MAX) / count).map(|step| step * count).find(clear).and_then(|f| u32::try_from(f).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_never_overlap() {
        assert_eq!(free(&[]), Some(65_536));
        assert_eq!(free(&[(65_536, 65_536), (196_608, 65_536)]), Some(131_072));
        assert_eq!(free(&[(100_000, 65_536)]), Some(196_608), "a line of /etc/subuid reaches over a step");
        assert_eq!(free(&[(0, 1 << 32)]), None);
        let mut taken = Vec::new();
        for _ in 0..100 {
            taken.push((u64::from(free(&taken).unwrap()), u64::from(COUNT)));
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
    }

    #[test]
    fn lines_of_sub_ids_are_read_and_others_passed_over() {
        assert_eq!(
            sub_ids("me:100000:65536\n# no\nroot:x:1\n1000:231072:65536\n"),
            [(100_000, 65_536), (231_072, 65_536)]
        );
    }
}
