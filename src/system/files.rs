//! Replacing files as a whole, and small reads of files that somebody else writes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock;

/// Begins the names of temporary files, so that those of a killed process can be told and removed.
const PREFIX: &str = ".podling-tmp-";

/// Whether a file must be on the disk when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut from then on.
    Synced,
    /// A power cut may bring the old one back, or leave an empty one.
    Lazy,
}

/// Replaces the file at `path` as a whole by way of one beside it, with exactly this `mode`. When it fails, the
/// old content is still there, except that the last step of [`Durability::Synced`] may fail behind the replacement.
///
/// # Errors
/// The kernel's; the caller knows the path.
pub fn replace(path: &Path, bytes: &[u8], mode: u32, sync: Durability) -> io::Result<()> {
    let temporary = temporary(path);
    let written = write(&temporary, bytes, mode, sync).and_then(|()| fs::rename(&temporary, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    if sync == Durability::Synced { sync_dir(parent(path)) } else { Ok(()) }
}

fn write(path: &Path, bytes: &[u8], mode: u32, sync: Durability) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // Again, as the umask may have taken some of it.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    if sync == Durability::Synced { file.sync_all() } else { Ok(()) }
}

/// A name that no other write uses, in this process or one before it.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    parent(path).join(format!("{PREFIX}{name}-{process}-{}-{count}", clock::boot_id()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The kernel's; the caller knows the path.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes temporary files that a killed process left in a directory.
pub fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The last `limit` bytes of a file, as text; empty when it cannot be read. Bytes that are no UTF-8 are
/// replaced.
pub fn tail(path: &Path, limit: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What is in a directory, in order.
    pub(crate) fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("list")
            .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_content_replaces_the_old_and_nothing_is_left_beside() {
        let home = tempfile::tempdir().expect("temp dir");
        let path = home.path().join("a.json");
        replace(&path, b"one", 0o600, Durability::Synced).expect("write");
        replace(&path, b"two", 0o666, Durability::Lazy).expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("stat").permissions().mode() & 0o777, 0o666);
        assert_eq!(names(home.path()), ["a.json"]);
    }

    #[test]
    fn a_write_that_was_killed_before_the_rename_leaves_the_old_content_and_is_swept() {
        let home = tempfile::tempdir().expect("temp dir");
        let path = home.path().join("a.json");
        replace(&path, b"old", 0o600, Durability::Synced).expect("write");
        write(&temporary(&path), b"new, but ha", 0o600, Durability::Synced).expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(names(home.path()).len(), 2);
        sweep(home.path());
        assert_eq!(names(home.path()), ["a.json"]);
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let home = tempfile::tempdir().expect("temp dir");
        let taken = home.path().join("taken");
        fs::create_dir(&taken).expect("mkdir");
        replace(&taken, b"x", 0o600, Durability::Synced).expect_err("a directory");
        assert_eq!(names(home.path()), ["taken"]);
    }

    #[test]
    fn only_the_end_of_a_file_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "abcdef").expect("writable");
        assert_eq!(tail(file.path(), 2), "ef");
        assert_eq!(tail(file.path(), 100), "abcdef");
    }

    #[test]
    fn a_file_that_is_not_there_is_empty() {
        assert_eq!(tail(Path::new("/nonexistent/file"), 10), "");
    }
}
