//! Stopping containers, ever harder, and deleting what is left of them.

use std::time::Duration;

use super::containerd::ErrorClass;
use super::{Observed, Runtime, TaskState};
use crate::system::process;

/// Tries to delete a dead container before leaving it to the next look at the pod.
const DISCARD_TRIES: u32 = 5;

/// Steps of stopping, each stronger than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopStep {
    /// The stop signal of the image, SIGTERM by default.
    Signal,
    /// SIGKILL to all its processes.
    Kill,
    /// Past containerd: kill by cgroup, then the shim.
    Force,
}

impl Runtime {
    /// Takes one step in stopping a container. A container that is gone already is success.
    pub async fn stop(&self, seen: &Observed, step: StopStep) -> Result<(), String> {
        let (signal, all) = match step {
            StopStep::Signal => (seen.labels.stop_signal, false),
            StopStep::Kill => (libc::SIGKILL, true),
            StopStep::Force => return self.force(seen),
        };
        match self.inner.ctd.kill(&seen.id, signal, all).await {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.class(), ErrorClass::NotFound) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// When containerd or the shim cannot do it: every process in the container's cgroup, then the shim,
    /// whose death makes containerd clean up.
    fn force(&self, seen: &Observed) -> Result<(), String> {
        let Some(path) = self.find_cgroup(&seen.labels.uid, &seen.id) else {
            return Err(format!("container {} has no cgroup: nothing to kill", seen.id));
        };
        let groups = &self.inner.cgroups;
        let known = match seen.task {
            TaskState::Running { pid, .. } => Some(pid),
            _ => None,
        };
        // Before the kill, while the processes still tell who their parent is.
        let shim = groups.pids(&path).into_iter().chain(known).find_map(process::shim_above);
        groups.kill_all(&path, libc::SIGKILL).map_err(|e| e.to_string())?;
        match shim {
            Some(shim) => process::signal(shim, libc::SIGKILL).map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }

    /// Deletes a container that has no processes, in the background: nothing waits for it, and a container
    /// that cannot be deleted only stays in containerd's list until it can.
    pub fn discard(&self, id: &str) {
        if !self.lock_discarding().insert(id.to_owned()) {
            return;
        }
        let (this, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            for attempt in 0..DISCARD_TRIES {
                match this.delete(&id).await {
                    Ok(()) => break,
                    Err(e) => tracing::debug!(container = %id, "cannot delete dead container yet: {e}"),
                }
                tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
            }
            this.lock_discarding().remove(&id);
        });
    }

    /// Deletes task, record and snapshot of a container, in the order that leaves nothing unnamed.
    pub async fn delete(&self, id: &str) -> Result<(), String> {
        let ctd = &self.inner.ctd;
        if let Err(e) = ctd.delete_task(id).await {
            if e.class().is_transient() {
                return Err(e.to_string());
            }
            // Created and never started, or a process that containerd still counts; shims have no common
            // code for the latter.
            ctd.kill(id, libc::SIGKILL, true).await.map_err(|e| e.to_string())?;
            ctd.delete_task(id).await.map_err(|e| e.to_string())?;
        }
        ctd.remove_container(id).await.map_err(|e| e.to_string())?;
        ctd.remove_snapshot(id).await.map_err(|e| e.to_string())
    }

    /// Whether a container is being deleted behind the scenes.
    pub fn is_discarding(&self, id: &str) -> bool {
        self.lock_discarding().contains(id)
    }

    fn lock_discarding(&self) -> std::sync::MutexGuard<'_, std::collections::HashSet<String>> {
        // A panic while holding the lock cannot leave the set half-changed.
        self.inner.discarding.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
