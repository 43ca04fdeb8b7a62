//! Device nodes of the host, which privileged containers get.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A character or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// Where it is, such as `/dev/fuse`.
    pub path: PathBuf,
    /// Block device, else character device.
    pub block: bool,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl HostDevice {
    /// The device whose metadata this is, as it is to appear at `path`; none for anything else.
    pub fn of(meta: &fs::Metadata, path: PathBuf) -> Option<Self> {
        let kind = meta.file_type();
        (kind.is_char_device() || kind.is_block_device()).then(|| Self {
            path,
            block: kind.is_block_device(),
            major: rustix::fs::major(meta.rdev()),
            minor: rustix::fs::minor(meta.rdev()),
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
        })
    }
}

/// Directories of `/dev` that the container has of its own.
const OWN: [&str; 4] = ["pts", "shm", "fd", "mqueue"];

/// All device nodes below `dev`, sorted by path, without those a container has of its own (`pts`, `shm`,
/// `mqueue`, `console`) and without symbolic links. What cannot be read or vanishes meanwhile is left out:
/// the list is a snapshot of a directory that changes by itself.
pub fn host_devices(dev: &Path) -> Vec<HostDevice> {
    let mut found = Vec::new();
    collect(dev, true, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(dir: &Path, top: bool, found: &mut Vec<HostDevice>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Ok(meta) = entry.metadata() else { continue };
        let kind = meta.file_type();
        if kind.is_dir() {
            let hidden = name.as_encoded_bytes().first() == Some(&b'.');
            if !hidden && !OWN.iter().any(|own| name == *own) {
                collect(&entry.path(), false, found);
            }
        } else if !(top && name == "console") {
            found.extend(HostDevice::of(&meta, entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_device_is_found_and_the_containers_own_are_not() {
        let devices = host_devices(Path::new("/dev"));
        let null = devices.iter().find(|d| d.path == Path::new("/dev/null")).unwrap();
        assert_eq!((null.block, null.major, null.minor, null.mode & 0o666), (false, 1, 3, 0o666));
        for device in &devices {
            assert!(!device.path.starts_with("/dev/pts"), "{device:?}");
            assert_ne!(device.path, Path::new("/dev/console"));
        }
    }

    #[test]
    fn a_missing_directory_has_no_devices() {
        assert_eq!(host_devices(Path::new("/nonexistent")), []);
    }
}
