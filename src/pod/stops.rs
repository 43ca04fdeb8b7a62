//! Stopping containers: the steps of the plan carried out, and written down so that the next podling goes on
//! from them: a hook that was begun is not begun again, a signal is not repeated, and the time that has passed
//! counts.

use super::board::EventType;
use super::hooks::Hook;
use super::plan::{Stopping, Why};
use super::worker::{Seen, Worker};
use crate::runtime::StopStep;

impl Worker {
    /// Begins a stop that does not begin with a signal: a `preStop` hook runs first, or others end first.
    pub(super) fn begin_stop(&mut self, id: &str, name: &str, pre_stop: bool, stopping: Stopping, why: Why) {
        self.tell_of_stop(name, why);
        self.hooks.abort(id, Hook::PostStart);
        let limit = stopping.deadline.since(stopping.began);
        self.note_stop(id, name, stopping);
        if pre_stop {
            self.spawn_hook(id, name, Hook::PreStop, limit);
        }
    }

    /// Sends a signal, or does what is stronger.
    pub(super) async fn stop(
        &mut self,
        id: &str,
        name: &str,
        stopping: &Stopping,
        step: StopStep,
        why: Why,
        seen: &Seen,
    ) {
        let first = !self.stopping.contains_key(id);
        self.hooks.abort(id, Hook::PostStart);
        self.cut_pre_stop(id, name);
        let Some(container) = seen.observed.iter().find(|o| o.id == id) else { return };
        if first {
            self.tell_of_stop(name, why);
        } else if step >= StopStep::Kill {
            let how = match step {
                StopStep::Force => "SIGKILL did not end it: killing its cgroup and its shim",
                _ => "its grace is over: sending SIGKILL",
            };
            tracing::warn!(pod = %self.key, container = %name, "{how}");
            let text = format!("container {name}: {how}");
            self.ctx.board.event(EventType::Warning, "ExceededGracePeriod", Some(&self.key), text);
        }
        // Known before the signal is sent, since the exit may come at once and its cause must be known then.
        self.stopping.insert(id.to_owned(), stopping.clone());
        if let Err(e) = self.ctx.runtime.stop(container, step).await {
            tracing::warn!(pod = %self.key, container = %name, "cannot stop it: {e}");
        }
        // On disk after it: a signal too many is better than none.
        self.note_stop(id, name, stopping.clone());
    }

    /// Gives a stop under way less time.
    pub(super) fn hurry_stop(&mut self, id: &str, name: &str, stopping: Stopping) {
        tracing::info!(pod = %self.key, container = %name, "its stop is given less time than before");
        self.note_stop(id, name, stopping);
    }

    fn tell_of_stop(&self, name: &str, why: Why) {
        let why = why.text();
        tracing::info!(pod = %self.key, container = %name, why, "stopping container");
        let text = format!("stopping container {name} ({why})");
        self.ctx.board.event(EventType::Normal, "Killing", Some(&self.key), text);
    }

    pub(super) fn note_stop(&mut self, id: &str, name: &str, stopping: Stopping) {
        let histories = self.current.as_mut().map(|c| &mut c.status.containers);
        if let Some(history) = histories.and_then(|h| h.get_mut(name))
            && history.container_id.as_deref() == Some(id)
        {
            history.stop = Some(stopping.record());
        }
        self.stopping.insert(id.to_owned(), stopping);
        self.save_status();
    }

    /// Takes up the stops that the record speaks of.
    pub(super) fn resume_stops(&mut self) {
        let Some(current) = &self.current else { return };
        for history in current.status.containers.values().filter(|h| h.believed_running()) {
            if let (Some(id), Some(stop)) = (&history.container_id, &history.stop) {
                self.stopping.insert(id.clone(), Stopping::resume(stop));
            }
        }
    }
}
