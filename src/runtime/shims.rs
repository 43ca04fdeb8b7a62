//! Shims that were left behind.
//!
//! One shim holds the containers of a sandbox. When podling dies in the middle of creating a container,
//! containerd drops the call, and may drop it between starting the shim and connecting to it: that shim
//! waits for ever, and every later call for its sandbox waits with it. Nothing in containerd knows of it any
//! more. So podling notes, before it has a container created, whose shim that may bring about, and ends the
//! ones in which nothing runs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::system::process::{self, ProcessId};

/// The notes: empty files named `<sandbox>.<container>`, gone after a reboot as the shims are.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    dir: PathBuf,
}

/// Container `container` of `sandbox` may have founded a shim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Note {
    pub sandbox: String,
    pub container: String,
}

impl Notes {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// To be called before a container is created.
    pub fn add(&self, sandbox: &str, container: &str) -> std::io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        fs::write(self.dir.join(format!("{sandbox}.{container}")), "")
    }

    pub fn all(&self) -> Vec<Note> {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        names.filter_map(|e| Note::parse(e.file_name().to_str()?)).collect()
    }

    pub fn remove(&self, note: &Note) {
        // One that stays is looked at again.
        let _ = fs::remove_file(self.dir.join(format!("{}.{}", note.sandbox, note.container)));
    }
}

impl Note {
    fn parse(name: &str) -> Option<Self> {
        let (sandbox, container) = name.split_once('.')?;
        Some(Self { sandbox: sandbox.into(), container: container.into() })
    }
}

/// A shim as its command line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shim {
    process: ProcessId,
    /// The container that it was started for; others may have joined it.
    id: String,
    /// containerd's socket.
    address: String,
}

/// All processes of the machine, as far as shims are concerned: shims of one containerd namespace, and who is
/// whose child.
pub(super) struct Processes {
    namespace: String,
    shims: Vec<Shim>,
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    /// Reads `/proc`; blocks for some milliseconds.
    pub fn read(namespace: &str) -> Self {
        let mut this = Self { namespace: namespace.to_owned(), shims: Vec::new(), children: HashMap::new() };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()) {
            let Ok(parent) = process::parent(pid) else { continue };
            this.children.entry(parent).or_default().push(pid);
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if let Some((id, address)) = parse(&cmdline, namespace)
                && let Ok(process) = process::identify(pid)
            {
                this.shims.push(Shim { process, id, address });
            }
        }
        this
    }

    /// The shim that was started for a container.
    pub fn started_for(&self, container: &str) -> Option<ProcessId> {
        self.shims.iter().find(|s| s.id == container).map(|s| s.process)
    }

    /// The shim that answers, or should, for a sandbox.
    pub fn of_sandbox(&self, sandbox: &str) -> Option<ProcessId> {
        let listens = |s: &&Shim| listens(s.process.pid, &socket_hash(&s.address, &self.namespace, sandbox));
        self.shims.iter().find(listens).map(|s| s.process)
    }

    /// Whether a shim has no containers: it has no children, or only those that write logs.
    pub fn is_idle(&self, shim: ProcessId) -> bool {
        self.children_of(shim).iter().all(|pid| is_logger(*pid))
    }

    /// Ends a shim and its loggers, which wait for the end of its pipes.
    pub fn end(&self, shim: ProcessId) {
        let loggers = self.children_of(shim).iter().filter(|pid| is_logger(**pid));
        let loggers = loggers.filter_map(|pid| process::identify(*pid).ok());
        for id in std::iter::once(shim).chain(loggers) {
            if let Err(e) = process::signal(id, libc::SIGKILL) {
                tracing::debug!(pid = id.pid, "{e}");
            }
        }
    }

    fn children_of(&self, shim: ProcessId) -> &[u32] {
        self.children.get(&shim.pid).map_or(&[], Vec::as_slice)
    }
}

fn is_logger(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "podling-logger")
}

/// Container and containerd socket of a shim of `namespace`. The command line is
/// `containerd-shim-… -namespace NAMESPACE -id ID -address SOCKET` on all versions.
fn parse(cmdline: &[u8], namespace: &str) -> Option<(String, String)> {
    let args: Vec<&str> = cmdline.split(|b| *b == 0).filter_map(|a| std::str::from_utf8(a).ok()).collect();
    let value = |flag: &str| args.iter().position(|a| *a == flag).and_then(|at| args.get(at + 1)).copied();
    let program = Path::new(args.first()?).file_name()?.to_str()?;
    // `delete` is what containerd runs to clean up after one, and `start` to have one.
    let serves =
        program.starts_with("containerd-shim") && !args.iter().any(|a| *a == "delete" || *a == "start");
    (serves && value("-namespace") == Some(namespace))
        .then(|| Some((value("-id")?.to_owned(), value("-address")?.to_owned())))?
}

/// Name of the socket of the shim of a group: containerd makes it from its own socket, the containerd
/// namespace and the group.
fn socket_hash(address: &str, namespace: &str, group: &str) -> String {
    let digest = Sha256::digest(Path::new(address).join(namespace).join(group).to_string_lossy().as_bytes());
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a process has a unix socket whose path holds `name`.
fn listens(pid: u32, name: &str) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let sockets: HashSet<String> = table
        .lines()
        .filter(|line| line.contains(name))
        .filter_map(|line| line.split_ascii_whitespace().nth(6).map(|inode| format!("socket:[{inode}]")))
        .collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    !sockets.is_empty()
        && open
            .filter_map(|e| fs::read_link(e.path()).ok())
            .any(|target| target.to_str().is_some_and(|t| sockets.contains(t)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_that_serves_is_told_from_one_that_starts_or_deletes() {
        let line = |more: &str| {
            format!(
                "/usr/bin/containerd-shim-runc-v2\0-namespace\0podling\0-id\0ab\0-address\0/run/c.sock\0{more}"
            )
        };
        let found = Some(("ab".to_owned(), "/run/c.sock".to_owned()));
        assert_eq!(parse(line("").as_bytes(), "podling"), found);
        assert_eq!(parse(line("start\0").as_bytes(), "podling"), None);
        assert_eq!(parse(line("delete\0").as_bytes(), "podling"), None);
        assert_eq!(parse(line("").as_bytes(), "k8s.io"), None);
        assert_eq!(parse(b"sh\0-namespace\0podling\0-id\0ab\0-address\0/run/c.sock\0", "podling"), None);
        assert_eq!(parse(b"", "podling"), None);
    }

    #[test]
    fn a_process_is_found_by_the_name_of_a_socket_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("deadbeef")).unwrap();
        assert!(listens(std::process::id(), "deadbeef"));
        drop(listener);
        assert!(!listens(std::process::id(), "deadbeef"));
    }

    #[test]
    fn notes_are_kept_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::new(dir.path().join("shims"));
        assert!(notes.all().is_empty());
        notes.add("s1", "c1").unwrap();
        let note = Note { sandbox: "s1".into(), container: "c1".into() };
        assert_eq!(notes.all(), std::slice::from_ref(&note));
        notes.remove(&note);
        assert!(notes.all().is_empty());
    }
}
