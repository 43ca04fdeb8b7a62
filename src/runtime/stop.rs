//! Stopping containers, ever harder, and deleting what is left of them.

use std::time::Duration;

use super::containerd::{ErrorClass, TaskStatus};
use super::shims::Processes;
use super::{Observed, Runtime, TaskState};
use crate::system::process::{self, ProcessId};

/// Tries to delete a dead container before leaving it to the next look at the pod.
const DISCARD_TRIES: u32 = 5;
/// How often, and at what distance, the end of a killed container is looked for.
const END_LOOKS: u32 = 20;
const END_LOOK: Duration = Duration::from_millis(20);
/// Time a shim has to end by itself after its last container is gone.
const SHIM_PATIENCE: Duration = Duration::from_secs(3);

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
            StopStep::Force => {
                let (this, seen) = (self.clone(), seen.clone());
                let job = tokio::task::spawn_blocking(move || this.force(&seen));
                return job.await.unwrap_or_else(|e| Err(e.to_string()));
            }
        };
        match self.inner.ctd.kill(&seen.id, signal, all).await {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.class(), ErrorClass::NotFound) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Kills what still runs of a container that containerd has no task of: a shim that was killed, or a
    /// record that was removed by hand, leave processes that nobody but the kernel knows. True if there were
    /// any.
    pub async fn kill_leftovers(&self, id: &str) -> bool {
        let (this, id) = (self.clone(), id.to_owned());
        let job = tokio::task::spawn_blocking(move || {
            let groups = &this.inner.cgroups;
            let paths = groups.pods().into_iter().map(|p| groups.container_path(&p.uid, p.qos, &id));
            let alive = |path: &String| groups.pids(path).into_iter().any(process::is_alive);
            let Some(path) = paths.into_iter().find(alive) else { return false };
            let shim = groups.pids(&path).into_iter().find_map(process::shim_above);
            if let Err(e) = groups.kill_all(&path, libc::SIGKILL) {
                tracing::warn!(container = %id, "cannot kill what is left of it: {e}");
            }
            // With nothing left in it, a shim that containerd does not know would stay for ever.
            let processes = Processes::read(this.inner.ctd.namespace());
            if let Some(shim) = shim.filter(|s| processes.is_idle(*s)) {
                processes.end(shim);
            }
            true
        });
        job.await.unwrap_or(false)
    }

    /// Ends the shim of a sandbox in which nothing runs, so that the next container gets a new one: the old
    /// one may be one that never answers. False when something may run in it.
    pub async fn end_idle_shim(&self, sandbox: &str) -> bool {
        let (namespace, sandbox) = (self.inner.ctd.namespace().to_owned(), sandbox.to_owned());
        let job = tokio::task::spawn_blocking(move || {
            let processes = Processes::read(&namespace);
            match processes.of_sandbox(&sandbox) {
                Some(shim) if processes.is_idle(shim) => processes.end(shim),
                Some(_) => return false,
                None => {}
            }
            true
        });
        job.await.unwrap_or(false)
    }

    /// Looks for shims that are left once those of a removed pod have had time to end. Calls that come before
    /// that are one.
    pub fn end_stray_shims_soon(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        if self.inner.shims_due.swap(true, Relaxed) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SHIM_PATIENCE / 3).await;
            this.inner.shims_due.store(false, Relaxed);
            this.end_stray_shims().await;
        });
    }

    /// Ends shims in which nothing runs and whose sandbox is gone, and forgets the notes of those that ended.
    pub async fn end_stray_shims(&self) {
        let suspects = self.stray_shims().await;
        if suspects.is_empty() {
            return;
        }
        // They may just be about to end by themselves.
        tokio::time::sleep(SHIM_PATIENCE).await;
        let again = self.stray_shims().await;
        let processes = Processes::read(self.inner.ctd.namespace());
        for shim in again.into_iter().filter(|s| suspects.contains(s) && processes.is_idle(*s)) {
            tracing::warn!(pid = shim.pid, "ending a shim that nothing runs in and containerd does not know");
            processes.end(shim);
        }
    }

    async fn stray_shims(&self) -> Vec<ProcessId> {
        let this = self.clone();
        let job = tokio::task::spawn_blocking(move || {
            let notes = this.inner.notes.all();
            let in_use: Vec<String> = this.lock_sandboxes().keys().cloned().collect();
            let stray: Vec<_> = notes.into_iter().filter(|n| !in_use.contains(&n.sandbox)).collect();
            if stray.is_empty() {
                return Vec::new();
            }
            let processes = Processes::read(this.inner.ctd.namespace());
            let mut shims = Vec::new();
            for note in &stray {
                match processes.started_for(&note.container) {
                    Some(shim) => shims.push(shim),
                    None => this.inner.notes.remove(note),
                }
            }
            shims
        });
        job.await.unwrap_or_default()
    }

    /// When containerd or the shim cannot do it: every process in the container's cgroup, then the shim,
    /// whose death makes containerd clean up.
    fn force(&self, seen: &Observed) -> Result<(), String> {
        let groups = &self.inner.cgroups;
        let path = self.find_cgroup(&seen.labels.uid, &seen.id).unwrap_or_default();
        if path.is_empty() || groups.pids(&path).is_empty() {
            // No process to find the shim by.
            let processes = Processes::read(self.inner.ctd.namespace());
            return match processes.of_sandbox(&seen.labels.sandbox) {
                Some(shim) if processes.is_idle(shim) => {
                    processes.end(shim);
                    Ok(())
                }
                Some(_) => Err(format!("its shim holds other containers of sandbox {}", seen.labels.sandbox)),
                None => Err(format!("container {} has no processes and no shim: nothing to kill", seen.id)),
            };
        }
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
        let task = match ctd.delete_task(id).await {
            Err(e) if !e.class().is_transient() => {
                // It runs after all, or containerd still counts a process of it. Shims have no code of their
                // own for that.
                self.kill_for_good(id).await?;
                ctd.delete_task(id).await
            }
            answer => answer,
        };
        if task.map_err(|e| e.to_string())?.is_none() {
            self.kill_leftovers(id).await;
        }
        ctd.remove_container(id).await.map_err(|e| e.to_string())?;
        ctd.remove_snapshot(id).await.map_err(|e| e.to_string())
    }

    /// Kills a container and gives containerd a moment to see it end.
    async fn kill_for_good(&self, id: &str) -> Result<(), String> {
        let ctd = &self.inner.ctd;
        match ctd.kill(id, libc::SIGKILL, true).await {
            Err(e) if !e.is_not_found() => return Err(e.to_string()),
            _ => {}
        }
        for _ in 0..END_LOOKS {
            match ctd.task(id).await {
                Ok(Some(task)) if task.status == TaskStatus::Running => tokio::time::sleep(END_LOOK).await,
                _ => break,
            }
        }
        Ok(())
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
