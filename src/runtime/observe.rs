//! Looking: which containers of a pod containerd has, and what their tasks do.

use jiff::Timestamp;

use super::containerd::{ContainerRecord, ErrorClass, RuntimeError, TaskStatus};
use super::{Labels, Runtime, label_filter};
use crate::system::process;

/// A container record of ours with the state of its task.
#[derive(Clone, Debug)]
pub struct Observed {
    /// containerd id.
    pub id: String,
    /// What it says about itself.
    pub labels: Labels,
    /// Image name as written.
    pub image: String,
    /// State of its task.
    pub task: TaskState,
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// No task: never created, deleted, or forgotten by containerd.
    None,
    /// Created and not started.
    Created,
    /// Runs as this process.
    Running {
        /// Host pid of its first process.
        pid: u32,
        /// False when containerd says it runs and the kernel has no such process.
        alive: bool,
    },
    /// Ended.
    Stopped {
        /// Exit code, 128 + signal.
        code: i32,
        /// When, by the shim's wall clock.
        at: Option<Timestamp>,
    },
    /// The shim does not answer in time.
    Unresponsive,
}

impl Runtime {
    /// The containers of one pod.
    pub async fn observe(&self, uid: &str) -> Result<Vec<Observed>, RuntimeError> {
        self.look(label_filter(&self.inner.root_label, Some(uid))).await
    }

    /// All containers of this podling.
    pub async fn observe_all(&self) -> Result<Vec<Observed>, RuntimeError> {
        self.look(label_filter(&self.inner.root_label, None)).await
    }

    async fn look(&self, filter: Vec<(&'static str, &str)>) -> Result<Vec<Observed>, RuntimeError> {
        let records = self.inner.ctd.containers(&filter).await?;
        // Each in its own task: a shim that does not answer costs its deadline once, not once a container.
        let mut jobs = Vec::with_capacity(records.len());
        let count = records.len();
        let mut seen = Vec::with_capacity(count);
        for record in records {
            if count == 1 {
                seen.extend(self.look_at(record).await?);
            } else {
                let this = self.clone();
                jobs.push(tokio::spawn(async move { this.look_at(record).await }));
            }
        }
        for job in jobs {
            let one = job.await.map_err(|e| RuntimeError::local("look at a container", "", e))?;
            seen.extend(one?);
        }
        Ok(seen)
    }

    async fn look_at(&self, record: ContainerRecord) -> Result<Option<Observed>, RuntimeError> {
        let Some(labels) = Labels::from_map(&record.labels) else { return Ok(None) };
        let task = match self.inner.ctd.task(&record.id).await {
            Ok(None) => TaskState::None,
            Ok(Some(task)) => match task.status {
                TaskStatus::Created => TaskState::Created,
                TaskStatus::Running | TaskStatus::Paused => {
                    TaskState::Running { pid: task.pid, alive: process::is_alive(task.pid) }
                }
                TaskStatus::Stopped => {
                    let code = i32::try_from(task.exit_code).unwrap_or(255);
                    TaskState::Stopped { code, at: task.exited_at }
                }
                TaskStatus::Unknown => TaskState::Unresponsive,
            },
            // Without containerd nothing is known of anything; any other failure is this container's alone.
            Err(e) if e.class() == ErrorClass::Unavailable => return Err(e),
            Err(e) => {
                tracing::debug!(container = %record.id, "{e}");
                TaskState::Unresponsive
            }
        };
        Ok(Some(Observed { id: record.id, labels, image: record.image, task }))
    }
}
