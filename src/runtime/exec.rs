//! Short commands in running containers, for probes and hooks: output caught, time limited, nothing left.
//!
//! Each command has a name within its container, so there is never a second one of the same name, also not
//! beside one that a killed podling left behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::Runtime;
use super::containerd::{ErrorClass, ExecRequest, ExecSession, ExecState, RuntimeError};
use crate::system::process::{self, ProcessId};

/// Output kept of one command, as the kubelet's probes.
pub const OUTPUT_MAX: usize = 10 << 10;
/// Time for getting a command to run at all. It is not the command's own: runc may wait for a busy machine.
const BEGIN: Duration = Duration::from_secs(15);
/// After a command's end, output of what it left behind is awaited this long.
const LINGER: Duration = Duration::from_millis(200);

/// Between two questions to a containerd that does not answer.
const AGAIN: Duration = Duration::from_millis(200);

/// What a command in a container is for; one of each can run in a container at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecPurpose {
    /// `startupProbe`.
    Startup,
    /// `livenessProbe`.
    Liveness,
    /// `readinessProbe`.
    Readiness,
    /// `lifecycle.postStart`.
    PostStart,
    /// `lifecycle.preStop`.
    PreStop,
}

impl ExecPurpose {
    /// The command's name in containerd. Names of running commands outlive podling: never change them.
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup-probe",
            Self::Liveness => "liveness-probe",
            Self::Readiness => "readiness-probe",
            Self::PostStart => "post-start-hook",
            Self::PreStop => "pre-stop-hook",
        }
    }

    /// Whether it must run once and no more.
    fn is_hook(self) -> bool {
        matches!(self, Self::PostStart | Self::PreStop)
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// Exit code, 128 + signal when it was killed by somebody else.
    pub code: i32,
    /// The first `OUTPUT_MAX` bytes of output and errors, in the order in which they came.
    pub output: Vec<u8>,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It ran too long and was killed, with all it had started.
    #[error("command {command:?} timed out after {} s", .after.as_secs_f32())]
    TimedOut {
        /// The words of the command, with blanks between them.
        command: String,
        /// The limit.
        after: Duration,
    },
    /// containerd did not say how it ended, or went before it did.
    #[error("containerd does not say how command {command:?} ended")]
    Unheard {
        /// The words of the command, with blanks between them.
        command: String,
    },
    /// The one before it could not be killed.
    #[error("the previous run of the command does not end, though it was killed")]
    StillRunning,
    /// It could not be run.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
}

impl ExecError {
    /// Whether the container or its manifest is to blame, as for a command that does not exist: it will fail
    /// again however often it is tried. Else it is the node that could not.
    pub fn is_the_containers(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::StillRunning | Self::Unheard { .. } => false,
            Self::Runtime(e) => matches!(e.class(), ErrorClass::Other | ErrorClass::InvalidArgument),
        }
    }
}

impl Runtime {
    /// Runs a command in the running container `id`, as its own process runs, for at most `limit`, then
    /// kills it with all it has started. Dropping the future kills it too.
    ///
    /// # Errors
    /// [`ExecError`]; any exit code is a result.
    pub async fn exec_sync(
        &self,
        id: &str,
        purpose: ExecPurpose,
        command: &[String],
        limit: Duration,
    ) -> Result<ExecResult, ExecError> {
        let request = self.exec_request(id, purpose, command).await?;
        let session = match self.begin(id, &request).await {
            Err(ExecError::Runtime(e)) if e.is_already_exists() => {
                self.end_exec(id, purpose).await;
                match self.begin(id, &request).await {
                    Err(ExecError::Runtime(e)) if e.is_already_exists() => {
                        return Err(ExecError::StillRunning);
                    }
                    other => other?,
                }
            }
            Err(ExecError::Runtime(e))
                if e.class() == ErrorClass::Other && self.clear_way(id, purpose).await =>
            {
                self.begin(id, &request).await?
            }
            Err(ExecError::Runtime(e)) if purpose.is_hook() && e.class().is_transient() => {
                return Err(ExecError::Unheard { command: command.join(" ") });
            }
            other => other?,
        };
        let mut tree = Tree(process::identify(session.pid).ok());
        let mut session = session;
        let mut output = Vec::new();
        let result = timeout(limit, catch(&mut session, &mut output)).await;
        let runs = process::is_alive(session.pid);
        match tree.0.take() {
            Some(root) if result.is_err() => kill_tree(root).await,
            _ => {}
        }
        match purpose.is_hook() {
            // Its record says that it was begun, to a podling that finds nothing else written down.
            true => session.leave(),
            false => session.end().await,
        }
        match result {
            Ok(Ok(code)) => Ok(ExecResult { code: i32::try_from(code).unwrap_or(255), output }),
            Err(_) if runs => Err(ExecError::TimedOut { command: command.join(" "), after: limit }),
            // A containerd that stands still, or goes meanwhile, is no fault of the command's.
            Ok(Err(_)) | Err(_) => Err(ExecError::Unheard { command: command.join(" ") }),
        }
    }

    /// Ends a command that an earlier podling may have left in a container.
    pub async fn end_exec(&self, id: &str, purpose: ExecPurpose) {
        let ctd = &self.inner.ctd;
        let Ok(Some(state)) = ctd.exec_state(id, purpose.name()).await else { return };
        let root = match state {
            ExecState::Running(pid) => process::identify(pid).ok(),
            ExecState::Created => self.unseen(id, purpose).await.and_then(Unseen::process),
            // The id of one that has ended may be another's by now.
            ExecState::Ended => None,
        };
        if let Some(root) = root {
            kill_tree(root).await;
        }
        ctd.end_exec(id, purpose.name()).await;
        self.clear_way(id, purpose).await;
    }

    /// Removes what a runtime that was killed left in the way of a command; whether there was something.
    async fn clear_way(&self, id: &str, purpose: ExecPurpose) -> bool {
        let Ok(Some(ExecState::Running(init))) = self.inner.ctd.exec_state(id, "").await else {
            return false;
        };
        let bundle = process::shim_above(init).and_then(|shim| bundle(shim.pid, id));
        bundle.is_some_and(|dir| std::fs::remove_file(&pid_files(&dir, purpose)[1]).is_ok())
    }

    /// Waits for the end of a hook's command that was begun before, for at most `limit`, then kills it. None when
    /// it never ran: its record in containerd stays until its end is written down. Its output went to whoever
    /// began it.
    ///
    /// # Errors
    /// When it runs on, or containerd does not say, for `limit`.
    pub async fn await_exec(
        &self,
        id: &str,
        purpose: ExecPurpose,
        command: &[String],
        limit: Duration,
    ) -> Result<Option<ExecResult>, ExecError> {
        let ctd = &self.inner.ctd;
        let wait = async {
            let mut ended = false;
            loop {
                match ctd.exec_state(id, purpose.name()).await {
                    Ok(None) => return None,
                    Ok(Some(ExecState::Created)) => match self.unseen(id, purpose).await {
                        // How, nobody knows. Looked at twice, as its start may be just under way.
                        Some(Unseen::Ended) if ended => return Some(0),
                        Some(Unseen::Ended) => ended = true,
                        Some(Unseen::Runs(_)) => {}
                        // Unless its start is under way, which this then finds.
                        None => ctd.end_exec(id, purpose.name()).await,
                    },
                    Ok(Some(_)) => match ctd.wait_exec(id, purpose.name()).await {
                        Ok(code) => return Some(code),
                        Err(e) => tracing::debug!("{e}"),
                    },
                    Err(e) => tracing::debug!("{e}"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        match timeout(limit, wait).await {
            Ok(code) => {
                Ok(code
                    .map(|code| ExecResult { code: i32::try_from(code).unwrap_or(255), output: Vec::new() }))
            }
            Err(_) => {
                self.end_exec(id, purpose).await;
                Err(ExecError::TimedOut { command: command.join(" "), after: limit })
            }
        }
    }

    /// Whether a command runs or ran of which the shim thinks that it was never started: containerd went in the
    /// moment between the command's start and the runtime's answer.
    async fn unseen(&self, id: &str, purpose: ExecPurpose) -> Option<Unseen> {
        let Ok(Some(ExecState::Running(init))) = self.inner.ctd.exec_state(id, "").await else { return None };
        let shim = process::shim_above(init)?;
        let files = pid_files(&bundle(shim.pid, id)?, purpose);
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok())?;
        let process = text.trim().parse().ok().and_then(|pid| process::identify(pid).ok());
        let process = process.filter(|p| process::is_alive(p.pid));
        // Its id may be another's by now; what the shim took over from the runtime is this one.
        let process = process.filter(|p| process::shim_above(p.pid) == Some(shim));
        Some(process.map_or(Unseen::Ended, Unseen::Runs))
    }

    /// Has containerd forget the command of a hook whose end is written down.
    pub fn forget_exec(&self, id: &str, purpose: ExecPurpose) {
        let (this, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move { this.end_exec(&id, purpose).await });
    }

    async fn begin(&self, id: &str, request: &ExecRequest) -> Result<ExecSession, ExecError> {
        match timeout(BEGIN, self.inner.ctd.exec(id, request)).await {
            Ok(session) => Ok(session?),
            Err(_) => {
                let operation = "exec in container";
                Err(RuntimeError::Timeout { operation, id: id.to_owned(), after: BEGIN }.into())
            }
        }
    }

    async fn exec_request(
        &self,
        id: &str,
        purpose: ExecPurpose,
        command: &[String],
    ) -> Result<ExecRequest, RuntimeError> {
        let operation = "exec in container";
        let missing = |class, message: &str| RuntimeError::Call {
            operation,
            id: id.to_owned(),
            class,
            message: message.to_owned(),
        };
        let record = self.inner.ctd.container(id).await?;
        let record = record.ok_or_else(|| missing(ErrorClass::NotFound, "the container is gone"))?;
        let request = ExecRequest::like_container(&record.spec()?, command.to_vec(), false, false);
        let request = request.ok_or_else(|| missing(ErrorClass::Other, "its spec has no process"))?;
        Ok(ExecRequest {
            merged: true,
            name: Some(purpose.name().to_owned()),
            lasting: purpose.is_hook(),
            ..request
        })
    }
}

/// A command whose start the shim did not see.
enum Unseen {
    Runs(ProcessId),
    Ended,
}

impl Unseen {
    fn process(self) -> Option<ProcessId> {
        match self {
            Self::Runs(process) => Some(process),
            Self::Ended => None,
        }
    }
}

/// The directory in which a container's shim and runtime keep their files: beside that of the container which
/// the shim was started for, and in which it works.
fn bundle(shim: u32, id: &str) -> Option<PathBuf> {
    let own = std::fs::read_link(format!("/proc/{shim}/cwd")).ok()?;
    Some(own.parent()?.join(id))
}

/// The file that the runtime writes when a command runs, and the one that it is until it is whole. A runtime
/// that was killed then leaves that one, and no command of the name can begin until it is gone.
fn pid_files(bundle: &Path, purpose: ExecPurpose) -> [PathBuf; 2] {
    ["", "."].map(|dot| bundle.join(format!("{dot}{}.pid", purpose.name())))
}

async fn kill_tree(root: ProcessId) {
    let killed = tokio::task::spawn_blocking(move || process::kill_tree(root)).await;
    if !killed.unwrap_or(false) {
        tracing::warn!(pid = root.pid, "a command in a container does not end, though it was killed");
    }
}

/// The processes of a command, killed when nobody waits for it any more.
struct Tree(Option<ProcessId>);

impl Drop for Tree {
    fn drop(&mut self) {
        if let (Some(root), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || process::kill_tree(root));
        }
    }
}

/// Reads the output, so that the command never blocks, until it has ended.
async fn catch(session: &mut ExecSession, output: &mut Vec<u8>) -> Result<u32, RuntimeError> {
    let mut pipe = session.stdout.take();
    let mut buffer = vec![0; 4 << 10];
    let wait = session.wait();
    tokio::pin!(wait);
    let mut code = None;
    let mut until = Instant::now();
    loop {
        let read = async {
            match pipe.as_mut() {
                Some(pipe) => pipe.read(&mut buffer).await.unwrap_or(0),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            count = read => {
                if count == 0 {
                    pipe = None;
                }
                output.extend_from_slice(&buffer[..count.min(OUTPUT_MAX - output.len())]);
            }
            ended = &mut wait, if code.is_none() => {
                code = Some(ended?);
                until = Instant::now() + LINGER;
            }
            () = sleep_until(until), if code.is_some() => pipe = None,
        }
        if let (None, Some(code)) = (&pipe, code) {
            return Ok(code);
        }
    }
}
