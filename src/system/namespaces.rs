//! Namespaces that live without a process: made on a throw-away thread and held by bind mounts.
//!
//! This is what replaces a pause container. The pins must be made in a mount namespace whose mounts
//! containerd sees, see [`same_mount_namespace`].

use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::{SystemError, raw};

/// A kind of namespace that can be pinned empty. (A pid namespace cannot: it dies with its first process.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ns {
    /// Network.
    Net,
    /// System V IPC and POSIX message queues.
    Ipc,
    /// Hostname.
    Uts,
    /// User and group ids; see [`super::userns`].
    User,
}

impl Ns {
    /// All kinds that a pod has in any case.
    pub const ALL: [Ns; 3] = [Ns::Net, Ns::Ipc, Ns::Uts];
    /// All that can be pinned, the owner of the others last.
    const PINS: [Ns; 4] = [Ns::Net, Ns::Ipc, Ns::Uts, Ns::User];

    /// Name of the pin in its directory, and of the link under `/proc/PID/ns`.
    pub fn name(self) -> &'static str {
        match self {
            Ns::Net => "net",
            Ns::Ipc => "ipc",
            Ns::Uts => "uts",
            Ns::User => "user",
        }
    }

    pub(super) fn flag(self) -> UnshareFlags {
        match self {
            Ns::Net => UnshareFlags::NEWNET,
            Ns::Ipc => UnshareFlags::NEWIPC,
            Ns::Uts => UnshareFlags::NEWUTS,
            Ns::User => UnshareFlags::NEWUSER,
        }
    }
}

/// The magic number of nsfs, from `linux/magic.h`.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Creates the namespaces `which` and pins each as the file `dir/<name>`, with `lo` up in the network
/// namespace and `hostname` set in the UTS namespace. When all are pinned already nothing happens; when
/// some are, a former run stopped half-way: they are removed and all are made anew.
///
/// # Errors
/// What failed and where; nothing stays pinned then.
pub fn create_pinned(dir: &Path, which: &[Ns], hostname: Option<&str>) -> Result<(), SystemError> {
    if !which.is_empty() && which.iter().all(|ns| is_pinned(&dir.join(ns.name()))) {
        return Ok(());
    }
    make_pin_files(dir, which)?;
    let made = on_own_thread("make-namespaces", || make_and_pin(dir, which, hostname));
    if made.is_err() {
        // The first error is the one to tell; what is left is found by the next call or by the clean-up.
        let _ = unpin_files(dir);
    }
    made
}

/// Empty files to pin namespaces on, in place of whatever an earlier attempt left.
pub(super) fn make_pin_files(dir: &Path, which: &[Ns]) -> Result<(), SystemError> {
    unpin_files(dir)?;
    fs::create_dir_all(dir).map_err(|e| SystemError::path("create the directory", dir, e))?;
    for ns in which {
        let file = dir.join(ns.name());
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o444)
            .open(&file)
            .map_err(|e| SystemError::path("create the namespace pin", file, e))?;
    }
    Ok(())
}

fn make_and_pin(dir: &Path, which: &[Ns], hostname: Option<&str>) -> Result<(), SystemError> {
    let flags = which.iter().fold(UnshareFlags::empty(), |all, ns| all | ns.flag());
    raw::unshare_thread(flags).map_err(|e| SystemError::call("create namespaces", e))?;
    if which.contains(&Ns::Net) {
        raw::loopback_up().map_err(|e| SystemError::call("bring the loopback interface up", e))?;
    }
    if let Some(name) = hostname.filter(|_| which.contains(&Ns::Uts)) {
        rustix::system::sethostname(name.as_bytes())
            .map_err(|e| SystemError::call("set the hostname of the pod", e))?;
    }
    for ns in which {
        let target = dir.join(ns.name());
        rustix::mount::mount_bind(format!("/proc/thread-self/ns/{}", ns.name()), &target)
            .map_err(|e| SystemError::path("pin a namespace on", target, e))?;
    }
    Ok(())
}

/// Mounts the sysfs of a network namespace, writable, on the directory `target`, which is made. Which mount of it
/// comes first decides for all later ones whether it can be written at all; as long as this one is there, each
/// decides for itself. One that is there already stays.
///
/// # Errors
/// What failed and where.
pub fn hold_sysfs(netns: &Path, target: &Path) -> Result<(), SystemError> {
    if super::mounts::is_mountpoint(target).unwrap_or(false) {
        return Ok(());
    }
    fs::create_dir_all(target).map_err(|e| SystemError::path("create the directory", target, e))?;
    let net = fs::File::open(netns).map_err(|e| SystemError::path("open", netns, e))?;
    on_own_thread("mount-sysfs", || {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(net.as_fd(), kind)
            .map_err(|e| SystemError::path("enter the network namespace", netns, e))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("sysfs", target, "sysfs", flags, None)
            .map_err(|e| SystemError::path("mount sysfs on", target, e))
    })
}

/// Runs `f` on a thread that exists for it alone, so that what `f` does to its thread ends with it.
pub(super) fn on_own_thread<T: Send>(
    name: &'static str,
    f: impl FnOnce() -> Result<T, SystemError> + Send,
) -> Result<T, SystemError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, f)
            .map_err(|e| SystemError::call("start a thread", e))?;
        thread.join().unwrap_or_else(|_| Err(SystemError::call("finish a thread", std::io::ErrorKind::Other)))
    })
}

/// Removes all pins in `dir`, and `dir` itself when nothing else is in it. Missing ones are no error.
/// Containers that still use the namespaces keep them until they end.
///
/// # Errors
/// The kernel's, with the path.
pub fn unpin(dir: &Path) -> Result<(), SystemError> {
    unpin_files(dir)?;
    match fs::remove_dir(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(e) => Err(SystemError::path("remove the directory", dir, e)),
    }
}

fn unpin_files(dir: &Path) -> Result<(), SystemError> {
    for ns in Ns::PINS {
        let file = dir.join(ns.name());
        // More than one mount can lie on a pin after a crash between two attempts.
        while is_pinned(&file) {
            rustix::mount::unmount(&file, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .map_err(|e| SystemError::path("unmount the namespace pin", &file, e))?;
        }
        match fs::remove_file(&file) {
            Err(e)
                if !matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Err(SystemError::path("remove the namespace pin", file, e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// True when `path` is a namespace and not just the file on which one should be.
pub fn is_pinned(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|s| s.f_type as u64 == NSFS_MAGIC)
}

/// Whether process `pid` sees the mounts podling makes. When containerd does not, pinned namespaces and
/// volumes are invisible to containers: one of the two units has private mounts.
///
/// # Errors
/// [`SystemError::ProcessGone`] when there is no such process.
pub fn same_mount_namespace(pid: u32) -> Result<bool, SystemError> {
    let link = |path: &str| fs::read_link(path);
    let theirs = link(&format!("/proc/{pid}/ns/mnt")).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => SystemError::ProcessGone { pid },
        _ => SystemError::path("read", format!("/proc/{pid}/ns/mnt"), e),
    })?;
    let ours = link("/proc/self/ns/mnt").map_err(|e| SystemError::path("read", "/proc/self/ns/mnt", e))?;
    Ok(ours == theirs)
}

#[cfg(test)]
#[path = "namespaces/tests.rs"]
mod tests;
