//! Mounts on the host: tmpfs, bind, unmount, and what is mounted where.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::SystemError;

mod idmap;
mod rootfs;

pub use idmap::bind_mapped;
pub use rootfs::{RootfsMount, mount_rootfs, with_rootfs};

/// How a tmpfs is made. It always is nosuid and nodev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Limit in bytes; None is the kernel's default, half of the memory.
    pub size: Option<u64>,
    /// Mode of the root directory, such as `0o1777`.
    pub mode: u32,
    /// Whether programs in it may be executed.
    pub exec: bool,
}

impl Tmpfs {
    /// `/dev/shm` of a pod as containerd's CRI plugin makes it: 64 MiB, 1777, noexec.
    pub const SHM: Tmpfs = Tmpfs { size: Some(64 << 20), mode: 0o1777, exec: false };
}

/// Mounts a new tmpfs on the directory `path`.
///
/// # Errors
/// The kernel's, with the path.
pub fn mount_tmpfs(path: &Path, tmpfs: Tmpfs) -> Result<(), SystemError> {
    try_tmpfs(path, tmpfs, "").map_err(|e| SystemError::path("mount a tmpfs on", path, e))
}

fn try_tmpfs(path: &Path, tmpfs: Tmpfs, more: &str) -> Result<(), Errno> {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if !tmpfs.exec {
        flags |= MountFlags::NOEXEC;
    }
    let mut data = format!("mode={:o}{more}", tmpfs.mode);
    if let Some(size) = tmpfs.size {
        data.push_str(&format!(",size={size}"));
    }
    let data = CString::new(data).unwrap_or_default();
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, data.as_c_str())
}

/// The same for what must not reach a disk: where the kernel can (6.4), its pages are never swapped out.
///
/// # Errors
/// The kernel's, with the path.
pub fn mount_tmpfs_unswapped(path: &Path, tmpfs: Tmpfs) -> Result<(), SystemError> {
    match try_tmpfs(path, tmpfs, ",noswap") {
        Err(Errno::INVAL) => mount_tmpfs(path, tmpfs),
        done => done.map_err(|e| SystemError::path("mount a tmpfs on", path, e)),
    }
}

/// Binds `source` with everything mounted below it onto `target`; both exist and are of one kind. With
/// `read_only`, the mount itself (not what is mounted below it) refuses writes.
///
/// # Errors
/// The kernel's, with the path; nothing stays mounted then.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), SystemError> {
    rustix::mount::mount_bind_recursive(source, target)
        .map_err(|e| SystemError::path("bind-mount onto", target, e))?;
    if read_only && let Err(e) = make_read_only(target) {
        let _ = unmount(target);
        return Err(SystemError::path("make read-only", target, e));
    }
    Ok(())
}

fn make_read_only(target: &Path) -> Result<(), Errno> {
    // A remount replaces all flags, and those the mount already has may be locked: they go along.
    let has = rustix::fs::statvfs(target)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let flags = kept
        .iter()
        .filter(|(old, _)| has.contains(*old))
        .fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | *flag);
    rustix::mount::mount_remount(target, flags, "")
}

/// What the mount on `path` refuses, as options of a mount. Who is root in a user namespace only can add to these,
/// and must name them in each remount.
///
/// # Errors
/// The kernel's, with the path.
pub fn restrictions(path: &Path) -> Result<Vec<&'static str>, SystemError> {
    let has = rustix::fs::statvfs(path).map_err(|e| SystemError::path("look at", path, e))?.f_flag;
    let names = [
        (StatVfsMountFlags::RDONLY, "ro"),
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
    ];
    Ok(names.iter().filter(|(flag, _)| has.contains(*flag)).map(|(_, name)| *name).collect())
}

/// Makes the mount on `target` and each one below it refuse writes. Meant for a mount that nothing is
/// propagated to any more.
///
/// # Errors
/// The kernel's, with the path.
pub fn make_read_only_below(target: &Path) -> Result<(), SystemError> {
    let real = fs::canonicalize(target).map_err(|e| SystemError::path("resolve", target, e))?;
    for mount in mounts_under(&real)? {
        make_read_only(&mount).map_err(|e| SystemError::path("make read-only", &mount, e))?;
    }
    Ok(())
}

/// Cuts the mount on `path` and those below it off from others: no mount passes in or out any more.
///
/// # Errors
/// The kernel's, with the path.
pub fn make_private(path: &Path) -> Result<(), SystemError> {
    change(path, MountPropagationFlags::PRIVATE)
}

/// Has mounts of its source still appear below `path`, and none go out.
///
/// # Errors
/// The kernel's, with the path.
pub fn make_slave(path: &Path) -> Result<(), SystemError> {
    change(path, MountPropagationFlags::DOWNSTREAM)
}

fn change(path: &Path, how: MountPropagationFlags) -> Result<(), SystemError> {
    rustix::mount::mount_change(path, how | MountPropagationFlags::REC)
        .map_err(|e| SystemError::path("change the propagation of", path, e))
}

/// How the file system at a path passes mounts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Mounts pass both ways.
    pub shared: bool,
    /// Mounts pass in.
    pub slave: bool,
}

/// How mounts pass on where `path` is.
///
/// # Errors
/// When the path cannot be resolved or `/proc/self/mountinfo` cannot be read.
pub fn passing(path: &Path) -> Result<Passing, SystemError> {
    let real = fs::canonicalize(path).map_err(|e| SystemError::path("resolve", path, e))?;
    Ok(passing_in(&read_mountinfo()?, &real))
}

fn passing_in(table: &[u8], real: &Path) -> Passing {
    let mut best = Passing { point: "/".into(), shared: false, slave: false };
    for line in table.split(|b| *b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let Some(point) = fields.get(4).map(|f| PathBuf::from(OsString::from_vec(unescape(f)))) else {
            continue;
        };
        // A later line of the same place lies on top.
        if real.starts_with(&point) && point.as_os_str().len() >= best.point.as_os_str().len() {
            let optional: Vec<_> = fields[6.min(fields.len())..].iter().take_while(|f| **f != b"-").collect();
            let has = |start: &[u8]| optional.iter().any(|f| f.starts_with(start));
            best = Passing { point, shared: has(b"shared:"), slave: has(b"master:") };
        }
    }
    best
}

/// Unmounts all that is mounted on `path`, lazily, so that users of open files do not stop it. No mount
/// there, or no such path, is no error.
///
/// # Errors
/// The kernel's, with the path.
pub fn unmount(path: &Path) -> Result<(), SystemError> {
    loop {
        match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(e) => return Err(SystemError::path("unmount", path, e)),
        }
    }
}

/// Unmounts everything on and below `dir`, innermost first; goes on after a failure.
///
/// # Errors
/// The first failure.
pub fn unmount_under(dir: &Path) -> Result<(), SystemError> {
    let mut first = Ok(());
    for mount in mounts_under(dir)?.iter().rev() {
        let done = unmount(mount);
        if first.is_ok() {
            first = done;
        }
    }
    first
}

/// True when something is mounted on `path` itself. A symbolic link is none.
///
/// # Errors
/// The kernel's, with the path; a missing path is `false`.
pub fn is_mountpoint(path: &Path) -> Result<bool, SystemError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = match rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(e) => return Err(SystemError::path("stat", path, e)),
    };
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Kernels before 5.8 do not tell.
    let full = fs::canonicalize(path).map_err(|e| SystemError::path("resolve", path, e))?;
    Ok(mounts_under(&full)?.contains(&full))
}

/// Whether what is written below `path` stays in memory: a tmpfs or a ramfs.
///
/// # Errors
/// The kernel's, with the path.
pub fn is_in_memory(path: &Path) -> Result<bool, SystemError> {
    // TMPFS_MAGIC and RAMFS_MAGIC, from `linux/magic.h`.
    const MAGIC: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let stat = rustix::fs::statfs(path).map_err(|e| SystemError::path("look at", path, e))?;
    // Its type differs between architectures; the magic numbers have 32 bits.
    #[allow(clippy::unnecessary_cast)]
    Ok(MAGIC.contains(&(stat.f_type as u64 & 0xffff_ffff)))
}

/// Mount points on and below `dir` (an absolute path without symbolic links), in mount order: outer ones
/// come before what is mounted inside them.
///
/// # Errors
/// When `/proc/self/mountinfo` cannot be read.
pub fn mounts_under(dir: &Path) -> Result<Vec<PathBuf>, SystemError> {
    Ok(mount_points(&read_mountinfo()?).filter(|p| p.starts_with(dir)).collect())
}

/// The raw bytes of this process's mount table.
pub(super) fn read_mountinfo() -> Result<Vec<u8>, SystemError> {
    let path = "/proc/self/mountinfo";
    fs::read(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => SystemError::path("read (is /proc mounted?)", path, e),
        _ => SystemError::path("read", path, e),
    })
}

fn mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    table
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(|field| PathBuf::from(OsString::from_vec(unescape(field))))
}

/// Undoes the `\ooo` escapes of space, tab, newline and backslash in the kernel's mount table and in fstab.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            out.push(byte);
            rest = &tail[3..];
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
#[path = "mounts/tests.rs"]
mod tests;
