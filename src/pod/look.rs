//! Looking at a pod: containerd's view, joined with the record, exits written down as they are seen.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::board::EventType;
use super::plan::{Instance, SandboxState, State, is_sidecar};
use super::worker::{Seen, Worker};
use crate::runtime::containerd::RuntimeError;
use crate::runtime::{Kind, Observed, TaskState};
use crate::store::{ContainerHistory, Exit, StopCause};
use crate::system::clock::{self, Moment};

/// How long a process may be gone before containerd's word that it runs no longer counts.
const VANISHED: Duration = Duration::from_secs(2);
/// Exit code of a run whose end nobody saw.
const UNKNOWN_EXIT: i32 = 255;

impl Worker {
    pub(super) async fn look(&mut self) -> Result<Seen, RuntimeError> {
        let Some(uid) = self.current.as_ref().map(|c| c.spec.uid.clone()) else {
            return Ok(Seen { observed: Vec::new(), instances: Vec::new(), sandbox: SandboxState::Absent });
        };
        let observed = self.ctx.runtime.observe(&uid).await?;
        let mut instances = Vec::with_capacity(observed.len());
        self.end_the_unmanaged(&observed).await;
        let mut news = self.miss_the_missing(&observed);
        for one in &observed {
            if self.ctx.runtime.is_discarding(&one.id) {
                continue;
            }
            self.ctx.routes.add(&one.id, &self.key);
            let (state, told) = self.classify(one);
            news |= told;
            instances.push(Instance {
                id: one.id.clone(),
                name: one.labels.name.clone(),
                kind: one.labels.kind,
                hash: self.hash_in_force(one),
                sandbox: one.labels.sandbox.clone(),
                state,
            });
        }
        self.mark_outdated(&mut instances);
        self.tell_of_silence(&instances);
        self.stopping.retain(|id, _| instances.iter().any(|i| i.id == *id && i.is_live()));
        self.vanished.retain(|id, _| instances.iter().any(|i| i.id == *id));
        // What runs has been started, whatever was heard of its start.
        self.held.retain(|name, _| !instances.iter().any(|i| i.name == *name && i.is_live()));
        news |= self.hear_the_rest();
        if news {
            self.save_status_for_good();
        }
        Ok(Seen { sandbox: self.sandbox_state(), observed, instances })
    }

    fn tell_of_silence(&mut self, instances: &[Instance]) {
        let silent: BTreeSet<String> =
            instances.iter().filter(|i| i.state == State::Unresponsive).map(|i| i.name.clone()).collect();
        for name in silent.difference(&self.silent) {
            let text = format!("the shim of container {name} does not answer");
            tracing::warn!(pod = %self.key, container = %name, "{text}");
            self.ctx.board.event(EventType::Warning, super::status::UNRESPONSIVE, Some(&self.key), text);
        }
        for name in self.silent.difference(&silent) {
            tracing::info!(pod = %self.key, container = %name, "its shim answers again, or is gone");
        }
        self.silent = silent;
    }

    /// Before a run is written off: what containerd lost sight of may still run, and a shim that never
    /// answers may have nothing in it.
    async fn end_the_unmanaged(&mut self, observed: &[Observed]) {
        let Some(current) = &self.current else { return };
        let without_task =
            |id: &str| observed.iter().find(|o| o.id == id).is_none_or(|o| o.task == TaskState::None);
        let believed = current.status.containers.values().filter(|h| h.believed_running());
        let lost: Vec<String> =
            believed.filter_map(|h| h.container_id.clone()).filter(|id| without_task(id)).collect();
        for id in lost {
            if self.ctx.runtime.kill_leftovers(&id).await {
                tracing::warn!(pod = %self.key, container = %id, "containerd lost this container while it ran; its processes were killed");
            }
        }
        let silent = observed.iter().filter(|o| o.task == TaskState::Unresponsive);
        let sandboxes: BTreeSet<&String> = silent.map(|o| &o.labels.sandbox).collect();
        for sandbox in sandboxes {
            self.ctx.runtime.end_idle_shim(sandbox).await;
        }
    }

    fn sandbox_state(&self) -> SandboxState {
        let Some(current) = &self.current else { return SandboxState::Absent };
        match &current.status.sandbox {
            None => SandboxState::Absent,
            Some(s) if self.ctx.runtime.sandbox_intact(&current.manifest, s) => SandboxState::Ready,
            Some(_) => SandboxState::Broken,
        }
    }

    /// State of one container; the flag says that the record changed.
    fn classify(&mut self, seen: &Observed) -> (State, bool) {
        match seen.task {
            TaskState::Unresponsive => (State::Unresponsive, false),
            TaskState::Created => (State::Created, false),
            TaskState::Running { alive: true, .. } => {
                self.vanished.remove(&seen.id);
                (State::Running, self.adopt(seen))
            }
            TaskState::Running { alive: false, .. } => self.classify_vanished(seen),
            TaskState::Stopped { code, at } => {
                let adopted = self.adopt(seen);
                (State::Exited, self.record_exit(seen, code, at, None) || adopted)
            }
            TaskState::None if self.believed_running(seen) => {
                let told = self.record_exit(seen, UNKNOWN_EXIT, None, Some("ContainerStatusUnknown"));
                (State::Exited, told)
            }
            TaskState::None => (State::Created, false),
        }
    }

    /// containerd says it runs, the kernel has no such process: believe the kernel after a moment.
    fn classify_vanished(&mut self, seen: &Observed) -> (State, bool) {
        let now = clock::now();
        let since = *self.vanished.entry(seen.id.clone()).or_insert(now);
        if now.since(since) < VANISHED {
            return (State::Running, false);
        }
        let told = self.record_exit(seen, UNKNOWN_EXIT, None, Some("ContainerStatusUnknown"));
        (State::Exited, told)
    }

    /// When a vanished process should be looked at again.
    pub(super) fn vanished_due(&self) -> Option<Moment> {
        self.vanished.values().min().map(|since| *since + VANISHED)
    }

    /// The entry a container stands for: that of its label, unless an update left it running.
    fn hash_in_force(&self, one: &Observed) -> String {
        let history = self.current.as_ref().and_then(|c| c.status.containers.get(&one.labels.name));
        let run = history.filter(|h| h.container_id.as_deref() == Some(&one.id) && !h.hash.is_empty());
        run.map_or(&one.labels.container_hash, |h| &h.hash).clone()
    }

    fn history(&mut self, name: &str) -> Option<&mut ContainerHistory> {
        self.current.as_mut().map(|c| &mut **c.status.containers.entry(name.to_owned()).or_default())
    }

    fn believed_running(&mut self, seen: &Observed) -> bool {
        seen.labels.kind != Kind::Pause
            && self
                .history(&seen.labels.name)
                .is_some_and(|h| h.container_id.as_deref() == Some(&seen.id) && h.believed_running())
    }

    /// A container that runs and is not in the record: podling was killed between starting it and writing
    /// that down, or the record was lost. It is taken as it is.
    fn adopt(&mut self, seen: &Observed) -> bool {
        if seen.labels.kind == Kind::Pause {
            return false;
        }
        let labels = &seen.labels;
        let Some(history) = self.history(&labels.name) else { return false };
        let known = history.container_id.as_deref() == Some(&seen.id);
        if known && history.started.is_some()
            || history.last.as_ref().is_some_and(|e| e.container_id == seen.id)
        {
            return false;
        }
        history.container_id = Some(seen.id.clone());
        history.attempt = labels.attempt;
        history.restarts = labels.restarts;
        history.hash = labels.container_hash.clone();
        if history.image.is_empty() {
            history.image = seen.image.clone();
        }
        history.started = Some(Timestamp::now());
        history.started_at = Some(clock::now());
        true
    }

    /// Runs that the record believes in and containerd has no record of at all.
    fn miss_the_missing(&mut self, observed: &[Observed]) -> bool {
        let Some(current) = &self.current else { return false };
        let missing: Vec<_> = current
            .status
            .containers
            .iter()
            .filter(|(_, h)| h.believed_running())
            .filter_map(|(name, h)| Some((name.clone(), h.container_id.clone()?)))
            .filter(|(_, id)| !observed.iter().any(|o| o.id == *id))
            .collect();
        for (name, id) in &missing {
            self.write_exit(name, id, UNKNOWN_EXIT, None, "ContainerStatusUnknown", String::new());
        }
        !missing.is_empty()
    }

    /// Writes an exit down, once.
    fn record_exit(
        &mut self,
        seen: &Observed,
        code: i32,
        at: Option<Timestamp>,
        reason: Option<&str>,
    ) -> bool {
        let name = seen.labels.name.clone();
        if seen.labels.kind == Kind::Pause {
            return false;
        }
        let Some(history) = self.history(&name) else { return false };
        if history.container_id.as_deref() != Some(&seen.id) || history.exit().is_some() {
            return false;
        }
        let attempt = history.attempt;
        let killed_for_memory = code == 137 && self.ctx.runtime.oom_killed(&seen.labels.uid, &seen.id);
        let reason = match (reason, code) {
            (Some(reason), _) => reason,
            _ if killed_for_memory => "OOMKilled",
            (None, 0) => "Completed",
            (None, _) => "Error",
        };
        let message = self.last_words(&name, &seen.id, attempt, code);
        self.write_exit(&name, &seen.id, code, at, reason, message);
        true
    }

    fn write_exit(
        &mut self,
        name: &str,
        id: &str,
        code: i32,
        at: Option<Timestamp>,
        reason: &str,
        message: String,
    ) {
        let rule = super::backoff::BackoffRule::from(&**self.ctx.settings.borrow());
        let stopping = self.stopping.get(id).map(|s| s.cause);
        let init = self.runs_once(name);
        let Some(history) = self.history(name) else { return };
        let now = clock::now();
        let ran_for = history.started_at.map_or(Duration::ZERO, |s| now.since(s));
        history.previous = history.last.take();
        history.last = Some(Exit {
            container_id: id.to_owned(),
            code,
            reason: reason.to_owned(),
            message,
            started: history.started,
            finished: at.unwrap_or_else(Timestamp::now),
            finished_at: now,
            ran_for,
            cause: stopping.unwrap_or_default(),
        });
        history.stop = None;
        history.post_start = None;
        // What was interrupted by order did not crash.
        let crashed = stopping != Some(StopCause::Order);
        history.backoff = crashed.then(|| rule.after_exit(history.backoff, ran_for, now));
        history.completed = init && code == 0;
        self.ctx.routes.remove(id);
        tracing::info!(pod = %self.key, container = %name, code, reason, "container exited");
        if code != 0 && stopping.is_none() {
            let text = format!("container {name} exited with code {code} ({reason})");
            self.ctx.board.event(EventType::Warning, "Exited", Some(&self.key), text);
        }
    }

    /// Whether it is an init container, and no sidecar.
    fn runs_once(&self, name: &str) -> bool {
        let spec = self.current.as_ref().and_then(|c| c.manifest.pod.spec.as_ref());
        let mut init = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten());
        init.any(|c| c.name == name && !is_sidecar(c))
    }
}
