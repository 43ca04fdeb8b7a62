//! Processes run inside a running container, their input and output through FIFOs.

mod orphans;
mod stdin;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use containerd_client::services::v1::{
    CloseIoRequest, DeleteProcessRequest, ExecProcessRequest, GetRequest, KillRequest, ResizePtyRequest,
    StartRequest,
};
use containerd_client::types::v1::Status;
use oci_spec::runtime::{BoxBuilder, Process, Spec};
use prost_types::Any;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

pub use self::orphans::adopt as adopt_fifos;
pub use self::stdin::ExecStdin;
use self::stdin::open_stdin;
use super::Containerd;
use super::client::{DEADLINE, DEADLINE_RUNTIME, DEADLINE_STATE, Lane};
use super::error::RuntimeError;
use crate::system::process;

const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
const SIGKILL: u32 = 9;
/// Longer than a shim waits for the other end of a FIFO.
const SHIM_WAITS: Duration = Duration::from_secs(40);

/// A process to run in a container.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The process: arguments, environment, user, capabilities.
    pub process: Process,
    /// Give it an input; else it reads `/dev/null`.
    pub stdin: bool,
    /// Give it a terminal; its errors then come with its output.
    pub terminal: bool,
    /// First size of the terminal: columns, rows.
    pub size: Option<(u16, u16)>,
    /// Output and errors in one stream, in the order in which they came.
    pub merged: bool,
    /// Name of the process among those of its container, so that a later podling finds it again; any when
    /// none. A name that is in use is an error of class `AlreadyExists`.
    pub name: Option<String>,
    /// Leave it alone where containerd went before it said whether it started: it is asked for by its name later.
    pub lasting: bool,
}

impl ExecRequest {
    /// `args` run as the container's own process runs: its environment, user, directory, capabilities.
    /// None for a spec without a process.
    pub fn like_container(spec: &Spec, args: Vec<String>, stdin: bool, terminal: bool) -> Option<Self> {
        let mut process = spec.process().clone()?;
        process.set_args(Some(args));
        process.set_terminal(Some(terminal));
        process.set_console_size(None);
        if terminal {
            // As the CRI plugin has it; without one, shells and editors take the terminal for a dumb one.
            let mut env = process.env().clone().unwrap_or_default();
            env.retain(|e| !e.starts_with("TERM="));
            env.push("TERM=xterm".to_owned());
            process.set_env(Some(env));
        }
        Some(Self { process, stdin, terminal, size: None, merged: false, name: None, lasting: false })
    }
}

/// A process that was started in a container. Dropping it kills the process, if it still runs, deletes
/// it from containerd and removes the FIFOs; so keep it until the output is read.
#[derive(Debug)]
pub struct ExecSession {
    /// The input, when asked for. Dropping it is end of input.
    pub stdin: Option<ExecStdin>,
    /// The output. It ends when every process that holds it has ended, which can be long after
    /// [`ExecSession::wait`] returns when the process left children behind.
    pub stdout: Option<pipe::Receiver>,
    /// The errors; none on a terminal.
    pub stderr: Option<pipe::Receiver>,
    /// The host's id of the process.
    pub pid: u32,
    remote: Arc<Remote>,
    fifos: Option<TempDir>,
}

/// How far a process in a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// It was not started.
    Created,
    /// It runs; the host's id of it.
    Running(u32),
    /// It has ended.
    Ended,
}

/// What a short command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code.
    pub code: u32,
    /// Its output, up to the limit.
    pub stdout: Vec<u8>,
    /// Its errors, up to the limit.
    pub stderr: Vec<u8>,
}

/// The names by which containerd knows an exec process.
#[derive(Debug)]
struct Remote {
    client: Containerd,
    id: String,
    exec_id: String,
    /// containerd may have a record of it that is to be deleted.
    recorded: AtomicBool,
    exited: AtomicBool,
}

impl Containerd {
    /// Runs a process in the running container `id`.
    pub async fn exec(&self, id: &str, request: &ExecRequest) -> Result<ExecSession, RuntimeError> {
        let local = |e: io::Error| RuntimeError::from_io("make FIFOs for exec in container", id, &e);
        let dir = self.exec_dir();
        std::fs::create_dir_all(&dir).map_err(local)?;
        let fifos = tempfile::Builder::new().prefix("podling-exec-").tempdir_in(dir).map_err(local)?;
        let stdin = request.stdin.then(|| fifo(fifos.path(), "stdin")).transpose().map_err(local)?;
        let stdout = fifo(fifos.path(), "stdout").map_err(local)?;
        let errors = !request.terminal && !request.merged;
        let stderr = errors.then(|| fifo(fifos.path(), "stderr")).transpose().map_err(local)?;
        // Opened before the shim writes, so that nothing is lost, and read only after the start has
        // returned: a FIFO that nobody has opened for writing yet would read as ended.
        let open = |path: &Path| pipe::OpenOptions::new().open_receiver(path);
        let mut session = ExecSession {
            stdin: None,
            stdout: Some(open(&stdout).map_err(local)?),
            stderr: stderr.as_deref().map(open).transpose().map_err(local)?,
            pid: 0,
            remote: Arc::new(Remote {
                client: self.clone(),
                id: id.to_owned(),
                exec_id: request
                    .name
                    .clone()
                    .unwrap_or_else(|| format!("exec-{}", uuid::Uuid::new_v4().simple())),
                recorded: AtomicBool::new(true),
                // Nothing to kill until it was started.
                exited: AtomicBool::new(true),
            }),
            fifos: Some(fifos),
        };
        let text = |p: &Path| p.to_string_lossy().into_owned();
        let added = session
            .remote
            .add(ExecProcessRequest {
                stdin: stdin.as_deref().map(text).unwrap_or_default(),
                stdout: text(&stdout),
                stderr: match (&stderr, request.merged) {
                    (Some(path), _) => text(path),
                    (None, true) => text(&stdout),
                    (None, false) => String::new(),
                },
                terminal: request.terminal,
                ..session.remote.spec(request)?
            })
            .await;
        if added.as_ref().is_err_and(RuntimeError::is_already_exists) {
            // The record is of another process.
            session.remote.recorded.store(false, Ordering::Relaxed);
        }
        added?;
        session.remote.exited.store(false, Ordering::Relaxed);
        session.pid = match session.remote.start().await {
            Err(e) if request.lasting && e.class().is_transient() => {
                session.lose();
                return Err(e);
            }
            started => started?,
        };
        // crun leaves it at the shim's, which the kernel hardly ever kills: the container's own process would go instead.
        if let (Some(score), true) = (request.process.oom_score_adj(), session.pid > 0)
            && let Err(e) = process::set_oom_score_adj(session.pid, score)
        {
            tracing::debug!("{e}");
        }
        if let Some(path) = stdin {
            let pipe = open_stdin(&path).await.map_err(local)?;
            session.stdin = Some(ExecStdin { pipe: Some(pipe), remote: session.remote.clone() });
        }
        if let (true, Some((width, height))) = (request.terminal, request.size)
            && let Err(e) = session.resize(width, height).await
        {
            // The process may have ended already; the wrong size harms nobody.
            tracing::debug!("{e}");
        }
        Ok(session)
    }
}

impl Containerd {
    /// How far the process `name` in container `id` is, if it is known.
    pub async fn exec_state(&self, id: &str, name: &str) -> Result<Option<ExecState>, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(GetRequest { container_id: id.to_owned(), exec_id: name.to_owned() });
        let call = client.get(request);
        let process = match self.call("get exec in container", id, DEADLINE_STATE, Lane::Shim, call).await {
            Ok(answer) => answer.process,
            Err(e) if e.is_not_found() => None,
            Err(e) => return Err(e),
        };
        Ok(process.map(|p| match p.status() {
            Status::Stopped => ExecState::Ended,
            _ if p.pid == 0 => ExecState::Created,
            _ => ExecState::Running(p.pid),
        }))
    }

    /// Waits for the end of the process `name` in container `id`; its exit code, also when it has ended already.
    pub async fn wait_exec(&self, id: &str, name: &str) -> Result<u32, RuntimeError> {
        Ok(self.wait_process("wait for exec in container", id, name).await?.code)
    }

    /// Kills the process `name` in container `id` and deletes its record: one that an earlier podling left.
    pub async fn end_exec(&self, id: &str, name: &str) {
        let remote = Remote {
            client: self.clone(),
            id: id.to_owned(),
            exec_id: name.to_owned(),
            recorded: AtomicBool::new(true),
            exited: AtomicBool::new(false),
        };
        remote.delete().await;
    }
}

impl ExecSession {
    /// Waits for the end of the process and returns its exit code, 128 + signal when it was killed.
    pub async fn wait(&self) -> Result<u32, RuntimeError> {
        let remote = &self.remote;
        let exit =
            remote.client.wait_process("wait for exec in container", &remote.id, &remote.exec_id).await?;
        remote.exited.store(true, Ordering::Relaxed);
        Ok(exit.code)
    }

    /// Kills the process, if it still runs, and has containerd forget it: what dropping does, waited for.
    pub async fn end(mut self) {
        self.remote.delete().await;
        self.remote.recorded.store(false, Ordering::Relaxed);
        self.fifos = None;
    }

    /// Lets go of a process that may have been started. The FIFOs stay as long as a shim may wait for them.
    fn lose(mut self) {
        self.remote.recorded.store(false, Ordering::Relaxed);
        let held = (self.stdout.take(), self.stderr.take(), self.fifos.take());
        tokio::spawn(async move {
            tokio::time::sleep(SHIM_WAITS).await;
            drop(held);
        });
    }

    /// Lets go of a process that has ended; containerd keeps its record.
    pub fn leave(self) {
        self.remote.recorded.store(false, Ordering::Relaxed);
    }

    /// Sends `signal` to the process.
    pub async fn kill(&self, signal: u32) -> Result<(), RuntimeError> {
        self.remote.kill(signal).await
    }

    /// Tells the terminal its new size, in columns and rows.
    pub async fn resize(&self, width: u16, height: u16) -> Result<(), RuntimeError> {
        let remote = &self.remote;
        let mut client = remote.client.tasks_client();
        let request = remote.client.request(ResizePtyRequest {
            container_id: remote.id.clone(),
            exec_id: remote.exec_id.clone(),
            width: width.into(),
            height: height.into(),
        });
        let call = client.resize_pty(request);
        remote.call("resize terminal of exec in container", DEADLINE, call).await
    }

    /// Ends the input.
    pub async fn close_io(&mut self) -> Result<(), RuntimeError> {
        if let Some(mut stdin) = self.stdin.take() {
            // Ours first: while it is open the shim would not see the end.
            stdin.pipe = None;
        }
        self.remote.close_io().await
    }

    /// Waits for the end and collects up to `limit` bytes each of output and errors; what comes beyond
    /// is read and dropped, so that the process never blocks. After the end of the process the streams
    /// get one more second, for children that keep them open.
    pub async fn output(mut self, limit: usize) -> Result<ExecOutput, RuntimeError> {
        self.stdin = None;
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let mut read = tokio::spawn(async move { tokio::join!(drain(stdout, limit), drain(stderr, limit)) });
        let code = match self.wait().await {
            Ok(code) => code,
            Err(e) => {
                read.abort();
                return Err(e);
            }
        };
        let (stdout, stderr) = match tokio::time::timeout(Duration::from_secs(1), &mut read).await {
            Ok(Ok(both)) => both,
            _ => {
                read.abort();
                Default::default()
            }
        };
        Ok(ExecOutput { code, stdout, stderr })
    }
}

impl Drop for ExecSession {
    fn drop(&mut self) {
        // Outside a runtime nothing can be sent; the FIFOs then go with their directory.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (remote, fifos) = (self.remote.clone(), self.fifos.take());
        // A shim that is just starting it waits until both ends are open, and holds up all its containers then.
        let pipes = (self.stdout.take(), self.stderr.take());
        if !remote.recorded.load(Ordering::Relaxed) {
            return;
        }
        runtime.spawn(async move {
            remote.delete().await;
            drop((pipes, fifos));
        });
    }
}

impl Remote {
    fn spec(&self, request: &ExecRequest) -> Result<ExecProcessRequest, RuntimeError> {
        let mut process = request.process.clone();
        process.set_terminal(Some(request.terminal));
        if let (true, Some((width, height))) = (request.terminal, request.size) {
            // Newer runtimes set it before the process runs; for the others it is set after the start.
            let size = BoxBuilder::default().width(width).height(height).build();
            process.set_console_size(size.ok());
        }
        let value = serde_json::to_vec(&process)
            .map_err(|e| RuntimeError::local("exec in container", &self.id, e))?;
        Ok(ExecProcessRequest {
            container_id: self.id.clone(),
            exec_id: self.exec_id.clone(),
            spec: Some(Any { type_url: PROCESS_TYPE.to_owned(), value }),
            ..Default::default()
        })
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<(), RuntimeError> {
        self.client.call(operation, &self.id, deadline, Lane::Shim, call).await.map(|_| ())
    }

    async fn add(&self, message: ExecProcessRequest) -> Result<(), RuntimeError> {
        let mut client = self.client.tasks_client();
        let request = self.client.request(message);
        self.call("exec in container", DEADLINE, client.exec(request)).await
    }

    async fn start(&self) -> Result<u32, RuntimeError> {
        let mut client = self.client.tasks_client();
        let request = self
            .client
            .request(StartRequest { container_id: self.id.clone(), exec_id: self.exec_id.clone() });
        let call = client.start(request);
        let answer =
            self.client.call("exec in container", &self.id, DEADLINE_RUNTIME, Lane::Exec, call).await;
        Ok(answer?.pid)
    }

    async fn kill(&self, signal: u32) -> Result<(), RuntimeError> {
        let mut client = self.client.tasks_client();
        let request = self.client.request(KillRequest {
            container_id: self.id.clone(),
            exec_id: self.exec_id.clone(),
            signal,
            all: false,
        });
        self.call("kill exec in container", DEADLINE, client.kill(request)).await
    }

    async fn close_io(&self) -> Result<(), RuntimeError> {
        let mut client = self.client.tasks_client();
        let request = self.client.request(CloseIoRequest {
            container_id: self.id.clone(),
            exec_id: self.exec_id.clone(),
            stdin: true,
        });
        self.call("close input of exec in container", DEADLINE, client.close_io(request)).await
    }

    /// Ends the process, if need be, and has containerd forget it.
    async fn delete(&self) {
        if !self.exited.load(Ordering::Relaxed) && self.kill(SIGKILL).await.is_ok() {
            let wait = self.client.wait_process("wait for exec in container", &self.id, &self.exec_id);
            // The deletion below says it if the process did not end.
            let _ = tokio::time::timeout(Duration::from_secs(10), wait).await;
        }
        let mut client = self.client.tasks_client();
        let request = self
            .client
            .request(DeleteProcessRequest { container_id: self.id.clone(), exec_id: self.exec_id.clone() });
        let call = client.delete_process(request);
        match self.call("delete exec in container", DEADLINE_RUNTIME, call).await {
            Err(e) if !e.is_not_found() => tracing::debug!("{e}"),
            _ => {}
        }
    }
}

fn fifo(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let path = dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    Ok(path)
}

/// Reads to the end, keeping the first `limit` bytes. A read error ends it like the end.
async fn drain(pipe: Option<pipe::Receiver>, limit: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return kept };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..n.min(limit - kept.len())]);
    }
    kept
}
