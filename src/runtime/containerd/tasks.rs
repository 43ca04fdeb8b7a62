//! Tasks: containers that run, or ran and were not deleted yet.

use std::path::PathBuf;
use std::time::Duration;

use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::{
    CreateTaskRequest, DeleteTaskRequest, GetRequest, KillRequest, ListPidsRequest, ListTasksRequest,
    StartRequest, UpdateTaskRequest, WaitRequest,
};
use containerd_client::types::v1::{Process, Status};
use jiff::Timestamp;
use oci_spec::runtime::LinuxResources;
use prost_types::Any;
use tonic::transport::Channel;

use super::client::{ANSWER_MAX, DEADLINE, DEADLINE_LIST, DEADLINE_RUNTIME, DEADLINE_STATE, Lane};
use super::error::{ErrorClass, RuntimeError};
use super::{Containerd, Mount, OciRuntime, timestamp};

const RESOURCES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// Where a container's input comes from and its output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskIo {
    /// No input, output dropped.
    Null,
    /// Output to what a containerd URI names.
    Logger {
        /// `binary:///path?arg=value`: a process that the shim starts and that outlives podling and
        /// containerd; or `file:///path`.
        uri: String,
        /// A terminal for the container, its output through the logger.
        terminal: bool,
        /// A FIFO that is the container's input. While nobody has it open, reads block as on an idle
        /// terminal; none is `/dev/null`.
        stdin: Option<PathBuf>,
    },
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// Created, not started.
    Created,
    /// Running.
    Running,
    /// Ended, not deleted yet.
    Stopped,
    /// Frozen.
    Paused,
    /// containerd could not say, as when the shim does not answer.
    Unknown,
}

/// A task as containerd sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// The container's id.
    pub id: String,
    /// Process id of its first process, on the host.
    pub pid: u32,
    /// State.
    pub status: TaskStatus,
    /// Exit code, of a stopped task; 128 + signal for one that was killed.
    pub exit_code: u32,
    /// When it ended, by the wall clock; for display.
    pub exited_at: Option<Timestamp>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 + signal for one that was killed.
    pub code: u32,
    /// When, by the wall clock; for display.
    pub at: Option<Timestamp>,
}

impl From<Process> for TaskInfo {
    fn from(p: Process) -> Self {
        let status = match p.status() {
            Status::Created => TaskStatus::Created,
            Status::Running => TaskStatus::Running,
            Status::Stopped => TaskStatus::Stopped,
            Status::Paused | Status::Pausing => TaskStatus::Paused,
            Status::Unknown => TaskStatus::Unknown,
        };
        // List fills in `id` and Get `container_id` as well on some versions; `id` is always there.
        let id = if p.id.is_empty() { p.container_id } else { p.id };
        Self { id, pid: p.pid, status, exit_code: p.exit_status, exited_at: timestamp(p.exited_at) }
    }
}

impl Containerd {
    pub(super) fn tasks_client(&self) -> TasksClient<Channel> {
        TasksClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX)
    }

    /// Creates the task of container `id` on `rootfs`: shim, namespaces, cgroup and the process, which
    /// waits for [`Containerd::start_task`]. Returns its process id.
    pub async fn create_task(
        &self,
        id: &str,
        rootfs: &[Mount],
        io: &TaskIo,
        runtime: &OciRuntime,
    ) -> Result<u32, RuntimeError> {
        let mut message = CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs: rootfs.iter().map(Into::into).collect(),
            options: runtime.options(),
            ..Default::default()
        };
        if let TaskIo::Logger { uri, terminal, stdin } = io {
            message.stdout = uri.clone();
            // A terminal has one output; shims refuse a second.
            message.stderr = if *terminal { String::new() } else { uri.clone() };
            message.stdin = stdin.as_ref().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
            message.terminal = *terminal;
        }
        let mut client = self.tasks_client();
        let request = self.request(message);
        let answer = self.call("create task", id, DEADLINE_RUNTIME, Lane::Start, client.create(request));
        Ok(answer.await?.pid)
    }

    /// Starts the created task of container `id`. Returns its process id.
    pub async fn start_task(&self, id: &str) -> Result<u32, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(StartRequest { container_id: id.to_owned(), exec_id: String::new() });
        let answer = self.call("start task", id, DEADLINE_RUNTIME, Lane::Start, client.start(request));
        Ok(answer.await?.pid)
    }

    /// The task of container `id`, if there is one. A shim that does not answer is a timeout after 5 s.
    pub async fn task(&self, id: &str) -> Result<Option<TaskInfo>, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(GetRequest { container_id: id.to_owned(), exec_id: String::new() });
        match self.call("get task", id, DEADLINE_STATE, Lane::Shim, client.get(request)).await {
            Ok(answer) => Ok(answer.process.map(TaskInfo::from)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All tasks of the namespace. containerd asks the shims one after the other, and waits 2 s for each that
    /// does not answer.
    pub async fn tasks(&self) -> Result<Vec<TaskInfo>, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(ListTasksRequest::default());
        let answer = self.call("list tasks", "", DEADLINE_LIST, Lane::Shim, client.list(request)).await?;
        Ok(answer.tasks.into_iter().map(TaskInfo::from).collect())
    }

    /// Sends `signal` to the first process of container `id`, or to `all` its processes. A process that
    /// is gone already is an error of class `NotFound`.
    pub async fn kill(&self, id: &str, signal: i32, all: bool) -> Result<(), RuntimeError> {
        let operation = "kill task";
        let Ok(signal) = u32::try_from(signal) else {
            return Err(RuntimeError::local(operation, id, format!("{signal} is not a signal")));
        };
        let mut client = self.tasks_client();
        let request =
            self.request(KillRequest { container_id: id.to_owned(), exec_id: String::new(), signal, all });
        self.call(operation, id, DEADLINE, Lane::Shim, client.kill(request)).await?;
        Ok(())
    }

    /// Waits until the task of container `id` has ended, through any number of restarts of containerd.
    /// A task that is not there, among them from containerd 1.7 on one that ended while containerd was
    /// down, is an error of class `NotFound`.
    pub async fn wait(&self, id: &str) -> Result<Exit, RuntimeError> {
        self.wait_process("wait for task", id, "").await
    }

    pub(super) async fn wait_process(
        &self,
        operation: &'static str,
        id: &str,
        exec_id: &str,
    ) -> Result<Exit, RuntimeError> {
        let mut pause = Duration::from_millis(50);
        loop {
            let request =
                self.request(WaitRequest { container_id: id.to_owned(), exec_id: exec_id.to_owned() });
            // No deadline and no lane: this call takes as long as the container lives.
            match self.tasks_client().wait(request).await {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    return Ok(Exit { code: answer.exit_status, at: timestamp(answer.exited_at) });
                }
                Err(status) => {
                    let e = RuntimeError::from_status(operation, id, &status);
                    if e.class() != ErrorClass::Unavailable {
                        return Err(e);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }

    /// Deletes the ended task of container `id`: shim, mounts and leaf cgroup go. None when there was
    /// none.
    pub async fn delete_task(&self, id: &str) -> Result<Option<Exit>, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(DeleteTaskRequest { container_id: id.to_owned() });
        match self.call("delete task", id, DEADLINE_RUNTIME, Lane::Delete, client.delete(request)).await {
            Ok(answer) => Ok(Some(Exit { code: answer.exit_status, at: timestamp(answer.exited_at) })),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Changes the limits of the running task of container `id`; what `resources` does not name stays.
    pub async fn update_task(&self, id: &str, resources: &LinuxResources) -> Result<(), RuntimeError> {
        let operation = "update task";
        let value = serde_json::to_vec(resources).map_err(|e| RuntimeError::local(operation, id, e))?;
        let request = UpdateTaskRequest {
            container_id: id.to_owned(),
            resources: Some(Any { type_url: RESOURCES_TYPE.to_owned(), value }),
            ..Default::default()
        };
        let mut client = self.tasks_client();
        let request = self.request(request);
        self.call(operation, id, DEADLINE_RUNTIME, Lane::Shim, client.update(request)).await?;
        Ok(())
    }

    /// The host's ids of all processes in container `id`.
    pub async fn pids(&self, id: &str) -> Result<Vec<u32>, RuntimeError> {
        let mut client = self.tasks_client();
        let request = self.request(ListPidsRequest { container_id: id.to_owned() });
        let call = client.list_pids(request);
        let answer = self.call("list processes of task", id, DEADLINE_STATE, Lane::Shim, call).await?;
        Ok(answer.processes.into_iter().map(|p| p.pid).collect())
    }
}
