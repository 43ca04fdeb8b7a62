//! Replacing a checkpoint file as a whole and durably, and making its directory so.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::StoreError;
use crate::system::files::{self, Durability};

/// Writes `bytes` to `path` with `mode`, by way of a file beside it. When this returns well the new
/// content survives a power cut; when it does not, the old one is still there.
///
/// # Errors
/// The kernel's, with the path; [`StoreError::Full`] when the disk is full.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    files::replace(path, bytes, mode, Durability::Synced).map_err(|e| StoreError::io("write", path, e))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    files::sync_dir(dir).map_err(|e| StoreError::io("sync", dir, e))
}

/// Makes a directory and those above it, durably; an existing one is left as it is.
pub(super) fn make_dir(dir: &Path, mode: u32) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.ancestors().skip(1).find(|d| d.exists());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(|e| StoreError::io("make directory", dir, e))?;
    above.map_or(Ok(()), sync_dir)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tempfile::TempDir;

    use super::*;
    use crate::system::files::tests::names;

    #[test]
    fn a_failed_write_names_the_file() {
        let home = TempDir::new().expect("temp dir");
        let path = home.path().join("missing/a.json");
        let error = write_atomic(&path, b"x", 0o600).expect_err("no directory").to_string();
        let expected = format!("cannot write {}: No such file or directory", path.display());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn a_full_disk_is_told_from_other_errors_and_says_what_to_do() {
        let path = Path::new("/var/lib/podling/source.json");
        let full = StoreError::io("write", path, io::Error::from_raw_os_error(28));
        assert!(full.is_full());
        assert_eq!(
            full.to_string(),
            "cannot write /var/lib/podling/source.json: the disk is full; make room and it goes on by itself"
        );
        assert!(StoreError::io("write", path, io::Error::from_raw_os_error(122)).is_full());
        assert!(!StoreError::io("write", path, io::Error::from_raw_os_error(5)).is_full());
    }

    #[test]
    fn a_full_disk_leaves_the_old_content() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = TempDir::new().expect("temp dir");
        let options = c"size=64k,mode=0700";
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("podling-test", home.path(), "tmpfs", flags, options).expect("mount");
        let path = home.path().join("a.json");
        write_atomic(&path, b"old", 0o600).expect("write");
        let error = write_atomic(&path, &[b'x'; 1 << 20], 0o600);
        let (kept, names) = (fs::read(&path), names(home.path()));
        rustix::mount::unmount(home.path(), rustix::mount::UnmountFlags::DETACH).expect("unmount");
        assert!(error.expect_err("no room").is_full());
        assert_eq!(kept.expect("read"), b"old");
        assert_eq!(names, ["a.json"]);
    }
}
