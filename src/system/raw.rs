//! The calls that no safe crate offers. All `unsafe` of podling is in this file.

use rustix::process::Signal;
use rustix::thread::UnshareFlags;

/// Gives the calling **thread** namespaces of its own. Only meant for threads that end soon after: the
/// rest of the process keeps the old namespaces.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` at the limit of `/proc/sys/user/max_*_namespaces`.
pub fn unshare_thread(flags: UnshareFlags) -> std::io::Result<()> {
    if flags.contains(UnshareFlags::FILES) {
        // The file descriptor table must stay shared, or descriptors opened elsewhere would be stale here.
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the only hazard of unshare is a private descriptor table, which is refused above.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Brings the loopback interface of the calling thread's network namespace up.
///
/// # Errors
/// The kernel's.
pub fn loopback_up() -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the descriptor is an open socket and SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Limits glibc's allocator to one arena, so that memory freed by one thread is of use to all others.
/// To be called first thing in `main`, before threads exist. Does nothing with other C libraries.
pub fn use_one_malloc_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only changes the allocator's own settings and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Has names resolved by the hosts file and DNS alone, which a statically linked glibc does itself. Any other
/// service of `nsswitch.conf` would be a library of the host's glibc, loaded into a program with one of its own.
/// Does nothing in a dynamically linked program and with other C libraries.
pub fn resolve_without_plugins() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        // SAFETY: both are strings that live for ever, as glibc keeps them, and no other thread exists yet.
        unsafe {
            __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
        }
    }
}

/// Gives back the pages of the program itself: what only the start needed stays out, the rest comes back from
/// the page cache when it is next used, a few hundred microseconds in all.
fn drop_code_pages() {
    let (Ok(maps), Ok(exe)) =
        (std::fs::read_to_string("/proc/self/maps"), std::fs::read_link("/proc/self/exe"))
    else {
        return;
    };
    for range in code_ranges(&maps, &exe.to_string_lossy()) {
        let length = range.end - range.start;
        // SAFETY: the range is a private file mapping without write permission that was never writable (what
        // lies before and in the executable one; the relocated data behind it is left alone), so its pages
        // are as in the file and dropping them changes nothing that can be read.
        let dropped =
            unsafe { rustix::mm::madvise(range.start as *mut _, length, rustix::mm::Advice::LinuxDontNeed) };
        if dropped.is_err() {
            return;
        }
    }
}

/// Mappings of `exe` up to and including its executable one.
fn code_ranges(maps: &str, exe: &str) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    for line in maps.lines().filter(|l| l.ends_with(exe)) {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(mode)) = (fields.next(), fields.next()) else { break };
        let Some((start, end)) = range.split_once('-') else { break };
        let parsed = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16));
        let ((Ok(start), Ok(end)), "r--p" | "r-xp") = (parsed, mode) else { break };
        ranges.push(start..end);
        if mode == "r-xp" {
            return ranges;
        }
    }
    Vec::new()
}

/// Gives freed memory back to the kernel. Takes up to a few milliseconds: for after bursts and when idle.
pub fn trim_memory() {
    drop_code_pages();
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only releases memory that is free, and takes the allocator's locks itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The signal with that number, real-time signals included. None for numbers that are no signal and for
/// the two (32, 33) that the C library keeps to itself.
pub fn signal(number: i32) -> Option<Signal> {
    if !(1..=64).contains(&number) || number == 32 || number == 33 {
        return None;
    }
    // SAFETY: the number is a valid signal, and podling sends it to other processes only; it never
    // installs a handler or blocks by way of this value.
    Some(unsafe { Signal::from_raw_unchecked(number) })
}

/// Starts `program`, which waits for its standard input to end, in namespaces of its own: a user namespace that
/// owns the others. In it no id has a meaning yet. Its loopback interface is up and it has this host name.
///
/// # Errors
/// The kernel's, also for what fails in the child before `program` runs.
pub fn spawn_in_user_namespace(
    program: &std::path::Path,
    flags: UnshareFlags,
    hostname: Option<&str>,
) -> std::io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;

    let hostname = hostname.map(str::to_owned).filter(|_| flags.contains(UnshareFlags::NEWUTS));
    let mut command = std::process::Command::new(program);
    command.env_clear().stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated or locked; the child
    // has one thread, as the kernel demands of one that leaves its user namespace.
    unsafe {
        command.pre_exec(move || {
            unshare_thread(flags | UnshareFlags::NEWUSER)?;
            if flags.contains(UnshareFlags::NEWNET) {
                loopback_up()?;
            }
            match &hostname {
                Some(name) => rustix::system::sethostname(name.as_bytes()).map_err(Into::into),
                None => Ok(()),
            }
        });
    }
    command.spawn()
}

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// `MOUNT_ATTR_IDMAP` of `linux/mount.h`.
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
/// `AT_RECURSIVE` of `linux/fcntl.h`.
const AT_RECURSIVE: libc::c_int = 0x8000;

/// Maps the ids of a detached tree of mounts: what belongs to 0 on the disk is seen as belonging to 0 in the
/// user namespace, and so on.
///
/// # Errors
/// The kernel's: `EINVAL` for a file system that cannot do this, `ENOSYS` before Linux 5.12.
pub fn map_mount_ids(
    tree: std::os::fd::BorrowedFd<'_>,
    user_namespace: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    let attr = MountAttr {
        attr_set: MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.as_raw_fd() as u64,
    };
    // SAFETY: the descriptors are open, the path is an empty C string, and `attr` is a mount_attr of the size
    // that is given with it; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | AT_RECURSIVE,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_the_c_library_are_not_offered() {
        assert_eq!(signal(15), Some(Signal::TERM));
        assert!(signal(37).is_some());
        for number in [0, -1, 32, 33, 65] {
            assert_eq!(signal(number), None, "{number}");
        }
    }

    #[test]
    fn a_private_descriptor_table_is_refused() {
        assert!(unshare_thread(UnshareFlags::FILES).is_err());
    }

    #[test]
    fn the_allocator_can_be_tuned_at_any_time() {
        use_one_malloc_arena();
        trim_memory();
    }

    #[test]
    fn only_the_mappings_up_to_the_code_are_given_back() {
        let maps = "1000-2000 r--p 0 fe:00 1 /bin/x\n2000-5000 r-xp 1000 fe:00 1 /bin/x\n\
                    5000-6000 r--p 4000 fe:00 1 /bin/x\n6000-7000 rw-p 5000 fe:00 1 /bin/x\n\
                    8000-9000 r-xp 0 fe:00 2 /lib/y\n";
        assert_eq!(code_ranges(maps, "/bin/x"), [0x1000..0x2000, 0x2000..0x5000]);
        assert!(code_ranges("1000-2000 rw-p 0 fe:00 1 /bin/x\n", "/bin/x").is_empty());
    }
}
