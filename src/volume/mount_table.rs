//! What is mounted, and what the host says should be.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::system::{SystemError, mounts};

/// Mount points, in the order in which they were mounted.
#[derive(Debug, Default)]
pub(super) struct MountTable {
    pub(super) points: Vec<PathBuf>,
}

impl MountTable {
    /// Reads the table of this process.
    pub fn read() -> Result<Self, SystemError> {
        Ok(Self { points: mounts::mounts_under(Path::new("/"))? })
    }

    /// Whether something is mounted at a place of podling's own, without a look at what is mounted there: a server
    /// behind it may not answer.
    pub fn has(&self, path: &Path) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let real = parent.canonicalize().map(|parent| parent.join(name));
        self.points.iter().any(|point| point == real.as_deref().unwrap_or(path))
    }

    /// Whether something is mounted exactly there.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.points.contains(&real)
    }
}

/// Mount points that `/etc/fstab` declares, other than the root.
pub(super) fn declared(fstab: &str) -> Vec<PathBuf> {
    let lines = fstab.lines().filter(|line| !line.trim_start().starts_with('#'));
    let fields = lines.filter_map(|line| line.split_whitespace().nth(1));
    let points = fields.map(|field| PathBuf::from(OsString::from_vec(mounts::unescape(field.as_bytes()))));
    points.filter(|point| point.is_absolute() && point != Path::new("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_mounts_are_those_of_fstab_without_root_and_swap() {
        let fstab = "# /dev/x /no ext4\nUUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n\
                     LABEL=data /srv/my\\040data ext4 nofail\n\n";
        assert_eq!(declared(fstab), [PathBuf::from("/srv/my data")]);
    }
}
