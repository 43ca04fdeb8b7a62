//! Copying a directory tree as it is: owners, modes, times, links, devices and extended attributes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, FileTimes, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, llistxattr, lsetxattr, mknodat};
use rustix::io::Errno;

use super::SystemError;

/// The label of the copy is its new place's, not the layer's.
const SELINUX: &[u8] = b"security.selinux";

/// Makes the directory `to` what the directory `from` is, with all in it; what is in `to` already stays. Links
/// are copied, never followed; sockets are left out. Nobody else may write to either meanwhile.
///
/// # Errors
/// The first failure, with its path; what was copied until then stays.
pub fn copy_tree(from: &Path, to: &Path) -> Result<(), SystemError> {
    let mut links: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut todo = vec![(from.to_owned(), to.to_owned())];
    let mut directories = Vec::new();
    while let Some((from, to)) = todo.pop() {
        let meta = fs::metadata(&from).map_err(|e| SystemError::path("look at", &from, e))?;
        let entries = fs::read_dir(&from).map_err(|e| SystemError::path("read", &from, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| SystemError::path("read", &from, e))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let meta = entry.metadata().map_err(|e| SystemError::path("look at", &from, e))?;
            if meta.is_dir() {
                fs::create_dir(&to).map_err(|e| SystemError::path("create", &to, e))?;
                todo.push((from, to));
            } else if !meta.file_type().is_socket() {
                copy_entry(&from, &to, &meta, &mut links)?;
            }
        }
        directories.push((from, to, meta));
    }
    // From the inside out and last of all, since what is made in a directory changes its time.
    for (from, to, meta) in directories.iter().rev() {
        attributes(from, to, meta)?;
    }
    Ok(())
}

fn copy_entry(
    from: &Path,
    to: &Path,
    meta: &Metadata,
    links: &mut HashMap<(u64, u64), PathBuf>,
) -> Result<(), SystemError> {
    let failed = |e: std::io::Error| SystemError::path("copy to", to, e);
    if meta.nlink() > 1 {
        let inode = (meta.dev(), meta.ino());
        if let Some(first) = links.get(&inode) {
            return fs::hard_link(first, to).map_err(failed);
        }
        links.insert(inode, to.to_owned());
    }
    let kind = meta.file_type();
    if kind.is_symlink() {
        let target = fs::read_link(from).map_err(failed)?;
        symlink(target, to).map_err(failed)?;
    } else if kind.is_file() {
        fs::copy(from, to).map_err(failed)?;
    } else {
        let kind = FileType::from_raw_mode(meta.mode());
        mknodat(CWD, to, kind, Mode::from_raw_mode(meta.mode() & 0o7777), meta.rdev())
            .map_err(|e| failed(e.into()))?;
    }
    attributes(from, to, meta)
}

/// Owner first, since a change of it takes set-user-id bits and capabilities away.
fn attributes(from: &Path, to: &Path, meta: &Metadata) -> Result<(), SystemError> {
    let failed = |e: std::io::Error| SystemError::path("copy the attributes of", to, e);
    lchown(to, Some(meta.uid()), Some(meta.gid())).map_err(failed)?;
    extended(from, to).map_err(|e| failed(e.into()))?;
    if meta.is_symlink() {
        return Ok(());
    }
    fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777)).map_err(failed)?;
    // A FIFO or device would have to be opened for that.
    if let (true, Ok(modified)) = (meta.is_file() || meta.is_dir(), meta.modified()) {
        let opened = fs::File::open(to).map_err(failed)?;
        opened.set_times(FileTimes::new().set_modified(modified)).map_err(failed)?;
    }
    Ok(())
}

fn extended(from: &Path, to: &Path) -> Result<(), Errno> {
    let mut names = vec![0; 64 << 10];
    let length = match llistxattr(from, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut value = vec![0; 64 << 10];
    for name in names[..length].split(|b| *b == 0).filter(|name| !name.is_empty() && *name != SELINUX) {
        let name = OsStr::from_bytes(name);
        let length = lgetxattr(from, name, &mut value)?;
        match lsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            // Such as overlay's own, or a file system that has none.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_tree_is_copied_with_owners_modes_links_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("deep/er")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("deep/file"), "text").unwrap();
        fs::hard_link(from.join("deep/file"), from.join("twin")).unwrap();
        symlink("/etc/shadow", from.join("link")).unwrap();
        mknodat(CWD, from.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for (path, mode, owner) in
            [("", 0o700, 999), ("deep", 0o1777, 7), ("deep/er", 0o2500, 8), ("deep/file", 0o4755, 9)]
        {
            lchown(from.join(path), Some(owner), Some(owner + 1)).unwrap();
            fs::set_permissions(from.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        lchown(from.join("link"), Some(5), Some(6)).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        for path in ["", "deep", "deep/file"] {
            let opened = fs::File::open(from.join(path)).unwrap();
            opened.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        }

        copy_tree(&from, &to).unwrap();
        let of = |dir: &Path, path: &str| {
            let meta = fs::symlink_metadata(dir.join(path)).unwrap();
            (meta.mode(), meta.uid(), meta.gid(), meta.nlink())
        };
        for path in ["", "deep", "deep/er", "deep/file", "twin", "link", "fifo"] {
            assert_eq!(of(&from, path), of(&to, path), "{path}");
        }
        for path in ["", "deep", "deep/file"] {
            assert_eq!(fs::metadata(to.join(path)).unwrap().modified().unwrap(), long_ago, "{path}");
        }
        assert_eq!(fs::read_to_string(to.join("twin")).unwrap(), "text");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/shadow"));
    }
}
