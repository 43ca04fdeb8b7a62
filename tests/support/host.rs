//! What the harness needs of the host: a network namespace, processes, mounts, cgroups.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A network namespace with loopback up, alive as long as this value.
pub struct NetNs {
    holder: Child,
}

impl NetNs {
    pub fn new() -> Self {
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, from util-linux, starts");
        let mut word = [0; 3];
        let out = holder.stdout.as_mut().expect("stdout is piped");
        out.read_exact(&mut word).expect("a network namespace can be made (tests run as root)");
        Self { holder }
    }

    /// A command that runs inside; `nsenter` execs it, so the child's pid is the command's own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command
    }

    /// The file that stands for the namespace.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// A socket that listens inside.
    pub fn listen(&self, address: &str) -> std::net::TcpListener {
        let (path, address) = (format!("/proc/{}/ns/net", self.holder.id()), address.to_owned());
        let bind = move || {
            let namespace = fs::File::open(path).expect("the namespace lives");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                .expect("tests run as root");
            std::net::TcpListener::bind(address).expect("the address is free")
        };
        // A thread of its own, since it stays in there.
        std::thread::spawn(bind).join().expect("it does not panic")
    }

    /// Names of the links inside, without `lo`.
    pub fn links(&self) -> Vec<String> {
        let out = self.command("ip").args(["-o", "link"]).output().expect("ip, from iproute2, runs");
        String::from_utf8_lossy(&out.stdout)
            .lines()
            .filter_map(|l| l.split(": ").nth(1))
            .map(|name| name.split('@').next().unwrap_or(name).to_owned())
            .filter(|name| name != "lo")
            .collect()
    }

    /// The NAT table as `iptables-save` prints it.
    pub fn nat_rules(&self) -> String {
        let out = self.command("iptables-save").args(["-t", "nat"]).output().expect("iptables-save runs");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Sends a signal; a process that is gone already is fine.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|s| s != 'Z' && s != 'X')
}

/// The state letter of `/proc/<pid>/stat`.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The command line, arguments joined by spaces.
pub fn cmdline(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

/// All processes except this one.
pub fn processes() -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(|pid| *pid != own).collect()
}

/// Live processes whose command line contains `text`.
pub fn processes_naming(text: &str) -> Vec<u32> {
    processes().into_iter().filter(|pid| alive(*pid) && cmdline(*pid).contains(text)).collect()
}

/// Live processes whose cgroup path contains `text`.
pub fn processes_in_cgroup(text: &str) -> Vec<u32> {
    let inside = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(text))
    };
    processes().into_iter().filter(|pid| alive(*pid)).filter(inside).collect()
}

/// Mount points at or below `root`, deepest last mounted first.
pub fn mounts_under(root: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mut mounts: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|path| PathBuf::from(path.replace("\\040", " ")))
        .filter(|path| path.starts_with(root))
        .collect();
    mounts.reverse();
    mounts
}

/// Unmounts all below `root`, lazily.
pub fn unmount_under(root: &Path) {
    for mount in mounts_under(root) {
        let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
    }
}

/// The cgroup directories of `group` (such as `/podling-x`) in every hierarchy, children first.
pub fn cgroups(group: &str) -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let mut roots = vec![base.to_path_buf()];
    roots.extend(fs::read_dir(base).into_iter().flatten().flatten().map(|e| e.path()));
    let mut found = Vec::new();
    for root in roots {
        // `cpu` and `cpuacct` may be links to one joint hierarchy.
        if !fs::symlink_metadata(&root).is_ok_and(|m| m.is_symlink()) {
            descend(&root.join(group.trim_start_matches('/')), &mut found);
        }
    }
    found
}

fn descend(dir: &Path, found: &mut Vec<PathBuf>) {
    if !dir.is_dir() {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            descend(&entry.path(), found);
        }
    }
    found.push(dir.to_path_buf());
}

/// The cgroup directory of a process in the hierarchy of `controller`: its own v1 hierarchy, or the unified one.
pub fn cgroup_of(pid: u32, controller: &str) -> PathBuf {
    let table = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process is alive");
    let find = |wanted: &dyn Fn(&str) -> bool| {
        table.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    match find(&|c: &str| c.split(',').any(|c| c == controller)) {
        Some(path) => Path::new("/sys/fs/cgroup").join(controller).join(path),
        None => Path::new("/sys/fs/cgroup").join(find(&str::is_empty).expect("a unified hierarchy")),
    }
}

/// Whether the machine has only the unified cgroup hierarchy.
pub fn unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A fresh directory on a file system that overlay mounts can use as upper layer. Short, because sockets lie
/// below it and their paths are limited to 108 bytes.
pub fn scratch() -> tempfile::TempDir {
    let chosen = std::env::var_os("PODLING_TEST_DIR").map(PathBuf::from);
    let usual = ["/tmp", "/var/tmp", "/dev/shm"].into_iter().map(PathBuf::from);
    // OVERLAYFS_SUPER_MAGIC: an overlay cannot be the upper layer of another one.
    let usable = |dir: &PathBuf| rustix::fs::statfs(dir).is_ok_and(|s| s.f_type != 0x794c_7630);
    let base = chosen.into_iter().chain(usual).find(usable).expect("a directory that is not on overlayfs");
    tempfile::Builder::new().prefix("podt-").tempdir_in(base).expect("a scratch directory can be made")
}
