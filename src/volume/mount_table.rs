//! What is mounted, and what the host says should be.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::VolumeError;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Mount points, in the order in which they were mounted.
#[derive(Debug, Default)]
pub(super) struct MountTable {
    points: Vec<PathBuf>,
}

impl MountTable {
    /// Reads the table of this process.
    pub fn read() -> Result<Self, VolumeError> {
        let text = fs::read(MOUNTINFO).map_err(VolumeError::io("read", Path::new(MOUNTINFO)))?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        let lines = text.split(|b| *b == b'\n');
        let points = lines.filter_map(|line| line.split(|b| *b == b' ').nth(4)).map(unescape);
        Self { points: points.collect() }
    }

    /// Whether something is mounted exactly there.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.points.contains(&real)
    }

    /// Unmounts everything at and below `directory`, last mounted first. Goes on after errors.
    pub fn unmount_below(&self, directory: &Path) -> Vec<VolumeError> {
        let Ok(real) = directory.canonicalize() else { return Vec::new() };
        let below = self.points.iter().rev().filter(|point| point.starts_with(&real));
        below.filter_map(|point| unmount_one(point).err()).collect()
    }
}

fn unmount_one(point: &Path) -> Result<(), VolumeError> {
    let result = match unmount(point, UnmountFlags::NOFOLLOW) {
        // Somebody has a file open in it. No container has any more, so whoever looks may go on looking.
        Err(Errno::BUSY) => unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
        result => result,
    };
    match result {
        // Gone meanwhile, or with the mount above it.
        Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
        Err(e) => Err(VolumeError::io("unmount", point)(io::Error::from(e))),
    }
}

/// Mount points that `/etc/fstab` declares, other than the root.
pub(super) fn declared(fstab: &str) -> Vec<PathBuf> {
    let lines = fstab.lines().filter(|line| !line.trim_start().starts_with('#'));
    let points = lines.filter_map(|line| line.split_whitespace().nth(1)).map(|p| unescape(p.as_bytes()));
    points.filter(|point| point.is_absolute() && point != Path::new("/")).collect()
}

/// Spaces and the like are written as three octal digits after a backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                out.push(value);
                rest = &after[3..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_spaces() {
        let table = MountTable::parse(
            b"22 1 0:20 / / rw - ext4 /dev/a rw\n23 22 0:21 / /mnt/a\\040b\\134 rw shared:1 - tmpfs t rw\n",
        );
        assert_eq!(table.points, [PathBuf::from("/"), PathBuf::from("/mnt/a b\\")]);
    }

    #[test]
    fn declared_mounts_are_those_of_fstab_without_root_and_swap() {
        let fstab = "# /dev/x /no ext4\nUUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n\
                     LABEL=data /srv/my\\040data ext4 nofail\n\n";
        assert_eq!(declared(fstab), [PathBuf::from("/srv/my data")]);
    }
}
