//! Processes of others: whether they live, since when, whose children they are, and signals to them.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};

use super::{SystemError, raw};

/// How often, and at what distance, the rest of a killed tree is looked for.
const KILL_ROUNDS: u32 = 50;
const KILL_ROUND: Duration = Duration::from_millis(10);

/// A process that stays told apart from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    ppid: u32,
    session: u32,
    start: u64,
}

/// Whether `pid` is a process that has not ended. A zombie has ended.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_ok_and(|s| !matches!(s.state, b'Z' | b'X'))
}

/// When `pid` started, in clock ticks since boot.
///
/// # Errors
/// [`SystemError::ProcessGone`].
pub fn start_time(pid: u32) -> Result<u64, SystemError> {
    stat(pid).map(|s| s.start)
}

/// The process now behind `pid`.
///
/// # Errors
/// [`SystemError::ProcessGone`].
pub fn identify(pid: u32) -> Result<ProcessId, SystemError> {
    start_time(pid).map(|start| ProcessId { pid, start })
}

/// The parent of `pid`. For the first process of a container this is its shim.
///
/// # Errors
/// [`SystemError::ProcessGone`].
pub fn parent(pid: u32) -> Result<u32, SystemError> {
    stat(pid).map(|s| s.ppid)
}

/// Sends signal `number` to exactly the process that `id` names.
///
/// # Errors
/// [`SystemError::ProcessGone`] when it ended, also when its id is in use again;
/// [`SystemError::NoSuchSignal`]; or the kernel's.
pub fn signal(id: ProcessId, number: i32) -> Result<(), SystemError> {
    let gone = SystemError::ProcessGone { pid: id.pid };
    let signal = raw::signal(number).ok_or(SystemError::NoSuchSignal(number))?;
    let Some(pid) = i32::try_from(id.pid).ok().and_then(Pid::from_raw) else { return Err(gone) };
    let fd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Err(gone),
        Err(e) => return Err(SystemError::call("open a process", e)),
    };
    // Checked after opening: from here on the descriptor cannot come to mean another process.
    if start_time(id.pid)? != id.start {
        return Err(gone);
    }
    match rustix::process::pidfd_send_signal(&fd, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(gone),
        Err(e) => Err(SystemError::call("send a signal", e)),
    }
}

/// Sets how many files a process may have open, `u64::MAX` for any number.
///
/// # Errors
/// The kernel's: `EPERM` for a hard limit above the present one without `CAP_SYS_RESOURCE`, `ESRCH`.
pub fn limit_open_files(pid: u32, soft: u64, hard: u64) -> Result<(), SystemError> {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Err(SystemError::ProcessGone { pid });
    };
    let finite = |n: u64| (n != u64::MAX).then_some(n);
    let limit = Rlimit { current: finite(soft), maximum: finite(hard) };
    match rustix::process::prlimit(Some(target), Resource::Nofile, limit) {
        Ok(_) => Ok(()),
        Err(e) => Err(SystemError::call("set the limit on open files", e)),
    }
}

/// Sets how readily the kernel kills a process for want of memory, -1000 (never) to 1000.
///
/// # Errors
/// The kernel's: `EACCES` for less than the process was given without `CAP_SYS_RESOURCE`, `ENOENT` when it is gone.
pub fn set_oom_score_adj(pid: u32, score: i32) -> Result<(), SystemError> {
    let path = PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
    if fs::read_to_string(&path).is_ok_and(|now| now.trim().parse() == Ok(score)) {
        return Ok(());
    }
    fs::write(&path, score.to_string()).map_err(|source| SystemError::Path { action: "write", path, source })
}

/// Kills a process with all it started: what is below it, and, when it leads a session, what is in that.
/// Goes on for a moment, since processes may fork meanwhile; true when none is left.
pub fn kill_tree(root: ProcessId) -> bool {
    for _ in 0..KILL_ROUNDS {
        let tree = tree(root);
        if tree.is_empty() {
            return true;
        }
        for id in &tree {
            // Gone already is as good.
            let _ = signal(*id, libc::SIGKILL);
        }
        std::thread::sleep(KILL_ROUND);
    }
    tree(root).is_empty()
}

/// The living processes of a tree, its root first: it must not see its children end and go on.
fn tree(root: ProcessId) -> Vec<ProcessId> {
    let all: BTreeMap<u32, Stat> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid).ok()?)))
        .collect();
    let alive = |s: &Stat| !matches!(s.state, b'Z' | b'X');
    // An id that is in use again means that all of the old session has ended: the kernel keeps it till then.
    let known = all.get(&root.pid).is_none_or(|s| s.start == root.start);
    let below = |s: &Stat| {
        let mut above = s.ppid;
        while above > 1 && above != root.pid {
            above = all.get(&above).map_or(0, |parent| parent.ppid);
        }
        above == root.pid
    };
    let mut tree: Vec<ProcessId> = all
        .iter()
        .filter(|(pid, s)| known && alive(s) && (**pid == root.pid || s.session == root.pid || below(s)))
        .map(|(pid, s)| ProcessId { pid: *pid, start: s.start })
        .collect();
    tree.sort_by_key(|id| *id != root);
    tree
}

/// The containerd shim above a process: its parent, when that is one.
pub fn shim_above(pid: u32) -> Option<ProcessId> {
    let above = parent(pid).ok()?;
    // The kernel keeps 15 bytes of a command's name.
    let name = fs::read_to_string(format!("/proc/{above}/comm")).ok()?;
    name.starts_with("containerd-shim").then(|| identify(above).ok()).flatten()
}

fn stat(pid: u32) -> Result<Stat, SystemError> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).map_err(|e| {
        // A process that ends between open and read answers ESRCH.
        if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
            SystemError::ProcessGone { pid }
        } else {
            SystemError::path("read", path, e)
        }
    })?;
    parse_stat(&text).ok_or(SystemError::ProcessGone { pid })
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The command, in parentheses, may itself hold spaces and parentheses.
    let after = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(after + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let ppid = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(15)?.parse().ok()?;
    Some(Stat { state, ppid, session, start })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("30").spawn().unwrap()
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_confuse_the_fields() {
        let line = b"42 (a) b ( c)) S 7 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', ppid: 7, session: 43, start: 98765 }));
        assert_eq!(parse_stat(b"garbage"), None);
    }

    #[test]
    fn a_child_is_alive_until_it_is_a_zombie() {
        let mut child = sleeper();
        assert!(is_alive(child.id()));
        assert_eq!(parent(child.id()).unwrap(), std::process::id());
        let id = identify(child.id()).unwrap();
        signal(id, 9).unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        signal(id, 0).expect_err("0 is no signal");
        child.wait().unwrap();
        assert_eq!(
            start_time(child.id()).unwrap_err().to_string(),
            format!("process {} is gone", child.id())
        );
        assert_eq!(signal(id, 15).unwrap_err().to_string(), format!("process {} is gone", child.id()));
    }

    #[test]
    fn the_oom_score_of_a_process_is_set_and_of_none_is_an_error_with_its_path() {
        let mut child = sleeper();
        set_oom_score_adj(child.id(), 993).unwrap();
        let path = format!("/proc/{}/oom_score_adj", child.id());
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), "993");
        child.kill().unwrap();
        child.wait().unwrap();
        let e = set_oom_score_adj(child.id(), 5).unwrap_err().to_string();
        assert!(e.starts_with(&format!("cannot write {path}: ")), "{e}");
    }

    #[test]
    fn a_process_with_a_reused_id_is_left_alone() {
        let mut child = sleeper();
        let mut id = identify(child.id()).unwrap();
        id.start -= 1;
        assert!(matches!(signal(id, 9), Err(SystemError::ProcessGone { .. })));
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_killed_tree_takes_children_along_and_nobody_else() {
        let script = "sh -c 'sleep 31 & sleep 32' & sleep 33 & wait";
        let mut root = Command::new("setsid").args(["sh", "-c", script]).spawn().unwrap();
        let mut other = sleeper();
        let id = identify(root.id()).unwrap();
        while tree(id).len() < 5 {
            std::thread::yield_now();
        }
        assert_eq!(tree(id)[0], id);
        // Orphans are found by their session.
        let middle = tree(id).into_iter().find(|p| *p != id && parent(p.pid).ok() == Some(id.pid)).unwrap();
        signal(middle, 9).unwrap();
        assert!(kill_tree(id));
        root.wait().unwrap();
        assert!(tree(id).is_empty());
        assert!(is_alive(other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_number_that_is_no_signal_is_refused() {
        let id = identify(std::process::id()).unwrap();
        let text = signal(id, 70).unwrap_err().to_string();
        assert_eq!(text, "70 is not a signal; signals are 1 to 64 without 32 and 33");
    }
}
