//! The process of the private containerd.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::layout::Layout;
use super::{BOOT, EmbeddedError, answers};
use crate::system::programs::{find_program, search_path};

/// How long a server gets to end when asked.
const END: Duration = Duration::from_secs(10);
/// How often an adopted server is looked at; a child's end is told by the kernel.
const LOOK: Duration = Duration::from_millis(250);

/// A server that runs.
#[derive(Debug)]
pub(super) struct Server {
    pidfd: OwnedFd,
    /// Set when this podling started it, so that it is reaped.
    child: Option<Child>,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(super) async fn start(layout: &Layout) -> Result<Self, EmbeddedError> {
        let Some(binary) = find_program("containerd") else {
            return Err(EmbeddedError::NoBinary { searched: search_path() });
        };
        let log = layout.open_log()?;
        let log2 = log.try_clone().map_err(|e| EmbeddedError::io("open", &layout.log, e))?;
        let mut command = Command::new(&binary);
        command
            .arg("--config")
            .arg(&layout.config)
            // It must find its shim and the OCI runtime where we would.
            .env("PATH", search_path())
            // Else it would tell systemd that podling is ready.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log2)
            .current_dir("/")
            .process_group(0);
        let mut child = command.spawn().map_err(|e| EmbeddedError::io("run", &binary, e))?;
        let deadline = Instant::now() + BOOT;
        loop {
            let ended = child.try_wait().map_err(|e| EmbeddedError::io("wait for", &binary, e))?;
            if let Some(status) = ended {
                let (last, log) = (layout.last_log_line(), layout.log.clone());
                return Err(EmbeddedError::Ended { status: status.to_string(), last, log });
            }
            if answers(&layout.socket).await {
                break;
            }
            if Instant::now() > deadline {
                // One that never answers would hold the database against the next.
                let _ = child.kill().await;
                let (last, log) = (layout.last_log_line(), layout.log.clone());
                return Err(EmbeddedError::Silent { socket: layout.socket.clone(), after: BOOT, last, log });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pid = child.id().unwrap_or_default() as i32;
        tracing::info!(pid, socket = %layout.socket.display(), "started a private containerd");
        Self::new(layout, pid, Some(child))
    }

    /// Takes over the server that answers at the socket.
    pub(super) async fn adopt(layout: &Layout) -> Result<Self, EmbeddedError> {
        let failed = |e| EmbeddedError::io("find the server at", &layout.socket, e);
        let stream = UnixStream::connect(&layout.socket).await.map_err(failed)?;
        // The kernel remembers who listens.
        let pid = stream.peer_cred().map_err(failed)?.pid().unwrap_or_default();
        Self::new(layout, pid, None)
    }

    fn new(layout: &Layout, pid: i32, child: Option<Child>) -> Result<Self, EmbeddedError> {
        let failed = |e| EmbeddedError::io("watch the server at", &layout.socket, e);
        let pid = Pid::from_raw(pid).ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        fs::write(&layout.pid_file, format!("{}\n", pid.as_raw_nonzero()))
            .map_err(|e| EmbeddedError::io("write", &layout.pid_file, e))?;
        Ok(Self { pidfd, child })
    }

    /// Waits for its end and says how it was. Can be cancelled and called again.
    pub(super) async fn wait(&mut self) -> String {
        match &mut self.child {
            Some(child) => match child.wait().await {
                Ok(status) => status.to_string(),
                Err(e) => format!("an unknown status ({e})"),
            },
            None => {
                while !ended(&self.pidfd) {
                    tokio::time::sleep(LOOK).await;
                }
                "an unknown status (it was started by an earlier podling)".to_owned()
            }
        }
    }

    /// Asks it to end, and makes it after a while.
    pub(super) async fn end(mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if pidfd_send_signal(&self.pidfd, signal).is_err() {
                break;
            }
            if tokio::time::timeout(END, self.wait()).await.is_ok() {
                break;
            }
        }
    }
}

/// True when the process has ended; its descriptor is readable from then on.
fn ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}
