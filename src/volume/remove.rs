//! Removing a directory tree that a container may have filled with anything.
//!
//! Links are removed, never followed; other file systems are never entered; a tree of any depth takes a fixed
//! number of descriptors and a fixed depth of stack. One that cannot be removed does not keep the rest.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{MAX_ERRORS, VolumeError};

/// Directories deeper than this are moved up to the top and removed from there.
const MAX_DEPTH: usize = 64;

/// Removes `directory` and all in it; one that is not there is fine. Returns what could not be removed.
pub(super) fn remove_tree(directory: &Path) -> Vec<VolumeError> {
    let mut remover = Remover { device: 0, moved: Vec::new(), serial: 0, errors: Vec::new() };
    let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = directory.file_name().and_then(|n| CString::new(n.as_bytes()).ok()) else {
        remover.fail("remove", directory, Errno::INVAL);
        return remover.errors;
    };
    match open(CWD, parent.as_os_str().as_bytes()) {
        Ok(parent) => remover.remove_top(&parent, &name, directory),
        Err(Errno::NOENT) => {}
        Err(e) => remover.fail("open", parent, e),
    }
    remover.errors
}

fn open(at: impl std::os::fd::AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

struct Remover {
    device: u64,
    /// Directories moved up, by their new name in the top directory and their old path.
    moved: Vec<(CString, PathBuf)>,
    serial: u64,
    errors: Vec<VolumeError>,
}

impl Remover {
    fn fail(&mut self, action: &'static str, path: &Path, error: Errno) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(VolumeError::io(action, path)(io::Error::from(error)));
        }
    }

    fn remove_top(&mut self, parent: &OwnedFd, name: &CStr, path: &Path) {
        let top = match open(parent, name.to_bytes()) {
            Ok(top) => top,
            Err(Errno::NOENT) => return,
            // Not a directory: a link or a file.
            Err(Errno::NOTDIR | Errno::LOOP) => return self.unlink(parent, name, AtFlags::empty(), path),
            Err(e) => return self.fail("open", path, e),
        };
        match fstat(&top) {
            Ok(stat) => self.device = stat.st_dev,
            Err(e) => return self.fail("look at", path, e),
        }
        self.empty(&top, &top, path, 0);
        while let Some((name, old)) = self.moved.pop() {
            self.remove_dir(&top, &top, &name, &old, 0);
        }
        self.unlink(parent, name, AtFlags::REMOVEDIR, path);
    }

    /// Removes everything in a directory.
    fn empty(&mut self, top: &OwnedFd, directory: &OwnedFd, path: &Path, depth: usize) {
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(e) => return self.fail("read", path, e),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return self.fail("read", path, e),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) if depth >= MAX_DEPTH => self.move_up(top, directory, name, path),
                Err(Errno::ISDIR) => self.remove_dir(top, directory, name, &path, depth + 1),
                Err(e) => self.fail("remove", &path, e),
            }
        }
    }

    fn remove_dir(&mut self, top: &OwnedFd, parent: &OwnedFd, name: &CStr, path: &Path, depth: usize) {
        let directory = match open(parent, name.to_bytes()) {
            Ok(directory) => directory,
            Err(e) => return self.fail("open", path, e),
        };
        if fstat(&directory).is_ok_and(|stat| stat.st_dev != self.device) {
            // Another file system: its content is not ours.
            return self.fail("remove", path, Errno::XDEV);
        }
        self.empty(top, &directory, path, depth);
        drop(directory);
        self.unlink(parent, name, AtFlags::REMOVEDIR, path);
    }

    fn move_up(&mut self, top: &OwnedFd, directory: &OwnedFd, name: &CStr, path: PathBuf) {
        loop {
            self.serial += 1;
            let Ok(new) = CString::new(format!(".podling-removing-{}", self.serial)) else { return };
            match renameat(directory, name, top, &new) {
                Ok(()) => return self.moved.push((new, path)),
                // Left by an earlier attempt.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(e) => return self.fail("remove", &path, e),
            }
        }
    }

    fn unlink(&mut self, parent: &OwnedFd, name: &CStr, flags: AtFlags, path: &Path) {
        match unlinkat(parent, name, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            // What is in it has been reported.
            Err(Errno::NOTEMPTY) if !self.errors.is_empty() => {}
            Err(e) => self.fail("remove", path, e),
        }
    }
}
