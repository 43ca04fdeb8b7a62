//! A path inside a directory that somebody hostile may change meanwhile.
//!
//! Every step is resolved by the kernel with the directory as its root (`openat2` with `RESOLVE_IN_ROOT`), so a
//! link, an absolute one or one full of `..` too, ends inside it, whatever is renamed at the same moment. What was
//! opened is mounted by its descriptor, never by its name again.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, open, openat, openat2};
use rustix::io::Errno;

use super::{SystemError, mounts};

/// Tries while others rename what is being resolved (the kernel answers EAGAIN).
const TRIES: usize = 200;

/// Opens `sub` inside `root`. What is missing is made, as directories with the mode of `root`, as a kubelet
/// does.
///
/// # Errors
/// The kernel's, with the path: ENOENT for a link into nowhere, ENOSYS before Linux 5.6.
pub fn open_in_root(root: &Path, sub: &Path) -> Result<OwnedFd, SystemError> {
    let failed = |action, e: Errno| SystemError::path(action, root.join(sub), e);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = open(root, flags, Mode::empty()).map_err(|e| SystemError::path("open", root, e))?;
    match resolve(&top, sub, OFlags::PATH) {
        Ok(found) => return Ok(found),
        Err(Errno::NOENT) => {}
        Err(Errno::NOSYS) => {
            return Err(failed("resolve (subPath needs openat2 of Linux 5.6)", Errno::NOSYS));
        }
        Err(e) => return Err(failed("open", e)),
    }
    let mode = fstat(&top).map_err(|e| failed("look at", e))?.st_mode;
    // The group that a set-group-ID directory hands on is what fsGroup relies on.
    let mode = Mode::from_raw_mode(mode & 0o2777);
    let mut at =
        resolve(&top, Path::new("."), OFlags::PATH | OFlags::DIRECTORY).map_err(|e| failed("open", e))?;
    let mut done = PathBuf::new();
    for component in sub.components() {
        let Component::Normal(name) = component else { continue };
        done.push(name);
        at = match resolve(&top, &done, OFlags::PATH) {
            Err(Errno::NOENT) => {
                make(&at, name, mode).map_err(|e| failed("find or create", e))?;
                resolve(&top, &done, OFlags::PATH).map_err(|e| failed("open", e))?
            }
            other => other.map_err(|e| failed("open", e))?,
        };
    }
    Ok(at)
}

/// Opens `sub` inside `root`; none when it, or something on its way, is not there.
///
/// # Errors
/// The kernel's, with the path.
pub fn find_in_root(root: &Path, sub: &Path) -> Result<Option<OwnedFd>, SystemError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = open(root, flags, Mode::empty()).map_err(|e| SystemError::path("open", root, e))?;
    match resolve(&top, sub, OFlags::PATH) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(SystemError::path("open", root.join(sub), e)),
    }
}

fn resolve(top: &OwnedFd, sub: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(top, sub, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

fn make(parent: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(), Errno> {
    match mkdirat(parent, name, mode) {
        Ok(()) => {}
        // Somebody was faster, or it is a link into nowhere, which the next step finds out.
        Err(Errno::EXIST) => return Ok(()),
        Err(e) => return Err(e),
    }
    // Again, as the umask took some of it. One that was replaced meanwhile keeps what it has.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(made) => fchmod(&made, mode),
        Err(_) => Ok(()),
    }
}

/// What others see of mounts made later below a staged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nothing, in either direction.
    Private,
    /// Those of the source appear.
    Slave,
    /// And the other way round.
    Shared,
}

/// Mounts what `source` is open on at `target`, which is made, in place of what was mounted there before.
///
/// # Errors
/// The kernel's, with the path; nothing stays mounted then.
pub fn stage(source: &OwnedFd, target: &Path, sharing: Sharing) -> Result<(), SystemError> {
    let stat = fstat(source).map_err(|e| SystemError::path("look at the source of", target, e))?;
    let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    unstage(target)?;
    make_target(target, directory).map_err(|e| SystemError::path("create", target, e))?;
    let by_descriptor = format!("/proc/self/fd/{}", source.as_raw_fd());
    let mounted = rustix::mount::mount_bind_recursive(by_descriptor.as_str(), target);
    mounted.map_err(|e| SystemError::path("bind-mount onto", target, e))?;
    let changed = match sharing {
        Sharing::Private => mounts::make_private(target),
        Sharing::Slave => mounts::make_slave(target),
        Sharing::Shared => Ok(()),
    };
    if changed.is_err() {
        let _ = unstage(target);
    }
    changed
}

/// Takes a staged mount away with all below it. It is made private first: to unmount what is below a mount
/// that is shared with its source would unmount it there.
///
/// # Errors
/// The kernel's, with the path.
pub fn unstage(target: &Path) -> Result<(), SystemError> {
    while mounts::is_mountpoint(target)? {
        mounts::make_private(target)?;
        match rustix::mount::unmount(target, unmount_flags()) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(SystemError::path("unmount", target, e)),
        }
    }
    Ok(())
}

fn unmount_flags() -> rustix::mount::UnmountFlags {
    rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW
}

/// Takes all staged mounts below `dir` away.
///
/// # Errors
/// The first failure; goes on after one.
pub fn unstage_under(dir: &Path) -> Result<(), SystemError> {
    let Ok(real) = dir.canonicalize() else { return Ok(()) };
    let mut first = Ok(());
    // From the outside in: what is below a private mount goes with it.
    for mount in mounts::mounts_under(&real)? {
        let done = unstage(&mount);
        if first.is_ok() {
            first = done;
        }
    }
    first
}

fn make_target(target: &Path, directory: bool) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    // Left by an earlier run, and maybe of the other kind.
    let _ = fs::remove_file(target);
    if directory {
        return match fs::create_dir(target) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
    }
    let _ = fs::remove_dir(target);
    fs::File::create(target).map(drop)
}

/// Opens a path that is the operator's own, links followed.
///
/// # Errors
/// The kernel's, with the path.
pub fn open_path(path: &Path) -> Result<OwnedFd, SystemError> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| SystemError::path("open", path, e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn inode(fd: &OwnedFd) -> (u64, u64) {
        let stat = fstat(fd).unwrap();
        (stat.st_dev, stat.st_ino)
    }

    fn inode_of(path: &Path) -> (u64, u64) {
        let meta = fs::metadata(path).unwrap();
        (meta.dev(), meta.ino())
    }

    #[test]
    fn links_end_inside_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        symlink("/etc", root.join("absolute")).unwrap();
        symlink("../../../../../../etc", root.join("up")).unwrap();
        for link in ["absolute", "up"] {
            let found = open_in_root(&root, Path::new(link)).unwrap();
            assert_eq!(inode(&found), inode_of(&root.join("etc")), "{link}");
        }
        // Into nowhere: refused, and nothing is made outside.
        symlink("/nowhere", root.join("dangling")).unwrap();
        assert!(open_in_root(&root, Path::new("dangling/x")).is_err());
        assert!(!Path::new("/nowhere").exists());
    }

    #[test]
    fn missing_directories_get_the_mode_of_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2775)).unwrap();
        open_in_root(dir.path(), Path::new("a/b")).unwrap();
        for path in ["a", "a/b"] {
            let mode = fs::metadata(dir.path().join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o2775, "{path}");
        }
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(open_in_root(dir.path(), Path::new("file/x")).is_err());
        open_in_root(dir.path(), Path::new("file")).unwrap();
    }

    #[test]
    fn an_attacker_who_swaps_links_meanwhile_never_leads_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(outside.join("b")).unwrap();
        fs::create_dir_all(root.join("spare")).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        let stop = AtomicBool::new(false);
        let target = dir.path().join("staged/0");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{RenameFlags, renameat_with};
                while !stop.load(Ordering::Relaxed) {
                    let (a, link) = (root.join("a"), root.join("link"));
                    let _ = renameat_with(CWD, &a, CWD, &link, RenameFlags::EXCHANGE);
                }
            });
            let banned = [inode_of(&outside), inode_of(&outside.join("b"))];
            for n in 0..2000 {
                if let Ok(found) = open_in_root(&root, Path::new("a/b")) {
                    assert!(!banned.contains(&inode(&found)));
                    if n % 100 == 0 {
                        stage(&found, &target, Sharing::Private).unwrap();
                        let inside = inode_of(&target);
                        assert!(!banned.contains(&inside));
                    }
                }
                let _ = open_in_root(&root, Path::new("a/new/deep"));
            }
            stop.store(true, Ordering::Relaxed);
        });
        unstage_under(&dir.path().join("staged")).unwrap();
        assert!(!outside.join("new").exists(), "nothing was made outside");
        assert!(mounts::mounts_under(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn what_is_mounted_below_the_source_stays_when_the_staged_mount_goes() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("s");
        fs::create_dir(&source).unwrap();
        mounts::bind(&source, &source, false).unwrap();
        rustix::mount::mount_change(&source, rustix::mount::MountPropagationFlags::SHARED).unwrap();
        let inner = source.join("inner");
        fs::create_dir(&inner).unwrap();
        let tmpfs = mounts::Tmpfs { size: Some(1 << 20), mode: 0o755, exec: false };
        mounts::mount_tmpfs(&inner, tmpfs).unwrap();
        for sharing in [Sharing::Private, Sharing::Slave, Sharing::Shared] {
            let target = dir.path().join("t/0");
            stage(&open_path(&source).unwrap(), &target, sharing).unwrap();
            assert!(mounts::is_mountpoint(&target.join("inner")).unwrap());
            unstage_under(&dir.path().join("t")).unwrap();
            assert!(!mounts::is_mountpoint(&target).unwrap());
            assert!(mounts::is_mountpoint(&inner).unwrap(), "{sharing:?}");
        }
        mounts::unmount_under(dir.path()).unwrap();
    }
}
