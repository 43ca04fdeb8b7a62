//! Replacing a file as a whole: temporary file, sync, rename, sync of the directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::StoreError;

/// Begins the names of temporary files, so that those of a killed process can be told and removed.
const PREFIX: &str = ".podling-tmp-";

/// Writes `bytes` to `path` with `mode`, by way of a file beside it. When this returns well the new
/// content survives a power cut; when it does not, the old one is still there.
///
/// # Errors
/// The step that failed, with the path; [`StoreError::Full`] when the disk is full.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    let temporary = temporary(path);
    let written = write(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&temporary);
        return Err(StoreError::io("write", path, e));
    }
    sync_dir(parent(path))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name that no other write uses, in this process or one before it.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    parent(path).join(format!("{PREFIX}{name}-{process}-{}-{count}", crate::system::clock::boot_id()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| StoreError::io("sync", dir, e))
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

/// Removes temporary files that a killed process left in a directory.
pub(super) fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("list")
            .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_content_replaces_the_old_and_nothing_is_left_beside() {
        let home = TempDir::new().expect("temp dir");
        let path = home.path().join("a.json");
        write_atomic(&path, b"one", 0o600).expect("write");
        write_atomic(&path, b"two", 0o640).expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("stat").permissions().mode() & 0o777, 0o640);
        assert_eq!(names(home.path()), ["a.json"]);
    }

    #[test]
    fn a_write_that_was_killed_before_the_rename_leaves_the_old_content_and_is_swept() {
        let home = TempDir::new().expect("temp dir");
        let path = home.path().join("a.json");
        write_atomic(&path, b"old", 0o600).expect("write");
        write(&temporary(&path), b"new, but ha", 0o600).expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(names(home.path()).len(), 2);
        sweep(home.path());
        assert_eq!(names(home.path()), ["a.json"]);
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_the_old_content() {
        let home = TempDir::new().expect("temp dir");
        let path = home.path().join("missing/a.json");
        let error = write_atomic(&path, b"x", 0o600).expect_err("no directory").to_string();
        let expected = format!("cannot write {}: No such file or directory", path.display());
        assert!(error.starts_with(&expected), "{error}");
        let taken = home.path().join("taken");
        fs::create_dir(&taken).expect("mkdir");
        write_atomic(&taken, b"x", 0o600).expect_err("a directory");
        assert_eq!(names(home.path()), ["taken"]);
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
