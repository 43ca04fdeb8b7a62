//! `fsGroup`: the group of the files in a pod's volumes.
//!
//! What a container may put into a volume is walked by descriptor, below the volume's own directory and
//! without following a link. The directory itself comes last: its group says that all below it has it.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use super::VolumeError;

/// What the group may do with files of a volume that containers write to, and of one they only read.
const WRITABLE: u32 = 0o660;
const READABLE: u32 = 0o440;
/// Directories: may be entered, and what is made in them gets their group.
const DIRECTORY: u32 = 0o2110;

/// The group that volumes of a pod get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGroup {
    /// `fsGroup`.
    pub gid: u32,
    /// `fsGroupChangePolicy: OnRootMismatch`: a volume whose directory has the group already stays as it is.
    pub on_root_mismatch: bool,
}

/// A volume as far as its group goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The volume's directory on the host.
    pub path: PathBuf,
    /// Containers only read it: a ConfigMap, a Secret.
    pub read_only: bool,
}

impl FsGroup {
    /// What a pod asks for.
    pub fn of(spec: &PodSpec) -> Option<Self> {
        let context = spec.security_context.as_ref()?;
        let gid = u32::try_from(context.fs_group?).ok()?;
        let policy = context.fs_group_change_policy.as_deref();
        Some(Self { gid, on_root_mismatch: policy == Some("OnRootMismatch") })
    }

    /// Whether a volume is one whose files get the group, and if so whether containers only read it. What
    /// belongs to the host, another machine or an image keeps its owners.
    pub fn applies(volume: &Volume) -> Option<bool> {
        let read_only = volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some();
        let foreign = volume.host_path.is_some() || volume.nfs.is_some() || volume.image.is_some();
        (!foreign).then_some(read_only)
    }

    /// Gives a volume the group, as far as it does not have it. `stop` ends a long walk early.
    ///
    /// # Errors
    /// The first file that could not be changed.
    pub fn apply(self, target: &Target, stop: &AtomicBool) -> Result<(), VolumeError> {
        let path = &target.path;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open", path))?;
        let stat = rustix::fs::fstat(&top).map_err(failed("look at", path))?;
        let mask = if target.read_only { READABLE } else { WRITABLE };
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return self.set(&top, &stat, mask, path);
        }
        let has_it = stat.st_gid == self.gid && has(&stat, mask | DIRECTORY);
        if self.on_root_mismatch && has_it {
            return Ok(());
        }
        self.walk(&top, mask, path, stop)?;
        self.set(&top, &stat, mask | DIRECTORY, path)
    }

    fn walk(self, top: &OwnedFd, mask: u32, path: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        let mut pending = vec![PathBuf::from(".")];
        while let Some(inside) = pending.pop() {
            let at = path.join(&inside);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let directory = match openat2(top, &inside, flags, Mode::empty(), resolve) {
                Ok(directory) => directory,
                // Gone or replaced meanwhile by a container that runs already.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(e) => return Err(failed("open", &at)(e)),
            };
            for entry in Dir::read_from(&directory).map_err(failed("read", &at))? {
                if stop.load(Ordering::Relaxed) {
                    return Err(failed("finish fsGroup in", path)(Errno::CANCELED));
                }
                let entry = entry.map_err(failed("read", &at))?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let name = std::ffi::OsStr::from_bytes(name.to_bytes());
                if self.entry(&directory, name, mask, &at)? {
                    pending.push(inside.join(name));
                }
            }
        }
        Ok(())
    }

    /// Changes one entry; true for a directory.
    fn entry(
        self,
        directory: &OwnedFd,
        name: &std::ffi::OsStr,
        mask: u32,
        at: &Path,
    ) -> Result<bool, VolumeError> {
        let at = at.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(failed("open", &at)(e)),
        };
        let stat = rustix::fs::fstat(&file).map_err(failed("look at", &at))?;
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        self.set(&file, &stat, if is_dir { mask | DIRECTORY } else { mask }, &at)?;
        Ok(is_dir)
    }

    /// Group and mode of what `file`, opened by path only, is; a link has no mode of its own.
    fn set(self, file: &OwnedFd, stat: &Stat, bits: u32, path: &Path) -> Result<(), VolumeError> {
        if stat.st_gid != self.gid {
            rustix::fs::chownat(file, "", None, Some(Gid::from_raw(self.gid)), AtFlags::EMPTY_PATH)
                .map_err(failed("change the group (fsGroup) of", path))?;
        }
        if FileType::from_raw_mode(stat.st_mode).is_symlink() {
            return Ok(());
        }
        // A change of group takes setuid and setgid away from programs, so the mode is looked at again.
        let now = rustix::fs::fstat(file).map_err(failed("look at", path))?;
        if has(&now, bits) {
            return Ok(());
        }
        let mode = Permissions::from_mode((stat.st_mode & 0o7777) | bits);
        // By the descriptor: the name may mean something else by now.
        let by_descriptor = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        fs::set_permissions(by_descriptor, mode)
            .map_err(VolumeError::io("change the mode (fsGroup) of", path))
    }
}

fn has(stat: &Stat, bits: u32) -> bool {
    stat.st_mode & bits == bits
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> VolumeError {
    let path = path.to_owned();
    move |e| VolumeError::io(action, &path)(io::Error::from(e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use serde_json::json;

    use super::*;

    fn apply(path: &Path, read_only: bool, on_root_mismatch: bool) {
        let target = Target { path: path.to_owned(), read_only };
        FsGroup { gid: 4711, on_root_mismatch }.apply(&target, &AtomicBool::new(false)).unwrap();
    }

    fn owner(path: &Path) -> (u32, u32) {
        let m = fs::symlink_metadata(path).unwrap();
        (m.gid(), m.mode() & 0o7777)
    }

    fn volume() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        for (name, mode) in [("sub/file", 0o600), ("run", 0o711)] {
            fs::write(dir.path().join(name), "x").unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(dir.path().join("sub"), Permissions::from_mode(0o700)).unwrap();
        dir
    }

    #[test]
    fn files_and_directories_get_the_group_and_may_be_written_by_it() {
        let dir = volume();
        apply(dir.path(), false, false);
        assert_eq!(owner(dir.path()), (4711, 0o2770));
        assert_eq!(owner(&dir.path().join("sub")), (4711, 0o2770));
        assert_eq!(owner(&dir.path().join("sub/file")), (4711, 0o660));
        assert_eq!(owner(&dir.path().join("run")), (4711, 0o771));
        fs::write(dir.path().join("new"), "").unwrap();
        assert_eq!(owner(&dir.path().join("new")).0, 4711, "by the setgid bit of the directory");
    }

    #[test]
    fn what_is_only_read_stays_so() {
        let dir = volume();
        apply(dir.path(), true, false);
        assert_eq!(owner(&dir.path().join("sub/file")), (4711, 0o640));
        assert_eq!(owner(&dir.path().join("sub")), (4711, 0o2750));
    }

    #[test]
    fn links_are_changed_and_not_followed() {
        let (dir, outside) = (volume(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "").unwrap();
        let before = (owner(outside.path()), owner(&outside.path().join("secret")));
        symlink(outside.path(), dir.path().join("dir")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        apply(dir.path(), false, false);
        assert_eq!(owner(&dir.path().join("dir")).0, 4711);
        assert_eq!((owner(outside.path()), owner(&outside.path().join("secret"))), before);
    }

    #[test]
    fn with_on_root_mismatch_a_directory_that_has_the_group_ends_the_matter() {
        let dir = volume();
        apply(dir.path(), false, true);
        let late = dir.path().join("late");
        fs::write(&late, "").unwrap();
        fs::set_permissions(&late, Permissions::from_mode(0o600)).unwrap();
        apply(dir.path(), false, true);
        assert_eq!(owner(&late).1, 0o600);
        apply(dir.path(), false, false);
        assert_eq!(owner(&late).1, 0o660);
    }

    #[test]
    fn a_walk_that_was_stopped_begins_anew() {
        let dir = volume();
        let target = Target { path: dir.path().to_owned(), read_only: false };
        let group = FsGroup { gid: 4711, on_root_mismatch: true };
        assert!(group.apply(&target, &AtomicBool::new(true)).is_err());
        assert_ne!(owner(dir.path()).0, 4711, "the directory itself comes last");
        group.apply(&target, &AtomicBool::new(false)).unwrap();
        assert_eq!(owner(&dir.path().join("sub/file")).0, 4711);
    }

    #[test]
    fn volumes_of_the_host_keep_their_owners() {
        let volume = |source: serde_json::Value| -> Volume {
            let mut all = json!({"name": "v"});
            all.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            serde_json::from_value(all).unwrap()
        };
        assert_eq!(FsGroup::applies(&volume(json!({"hostPath": {"path": "/x"}}))), None);
        assert_eq!(FsGroup::applies(&volume(json!({"emptyDir": {}}))), Some(false));
        assert_eq!(FsGroup::applies(&volume(json!({"configMap": {"name": "c"}}))), Some(true));
        let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
        assert_eq!(FsGroup::applies(&volume(claim)), Some(false));
    }
}
