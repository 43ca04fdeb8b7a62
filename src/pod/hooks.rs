//! Lifecycle hooks: `postStart` and `preStop`, run beside the worker, which goes on listening meanwhile.
//!
//! That a hook was begun is written down before it is, so that none runs twice. A podling that finds one begun
//! takes it up: it waits for the command that still runs in the container, or for the rest of a sleep. What
//! containerd has of a command stays until its end is written down, so a command that it does not know never ran,
//! and runs now. A request over HTTP went with the podling that made it and counts as done.

mod run;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use tokio::task::{AbortHandle, JoinSet};

use self::run::Job;
use super::board::EventType;
use super::plan::entries;
use super::worker::{Seen, Worker};
use crate::runtime::ExecPurpose;
use crate::store::HookPhase;
use crate::system::clock;

/// Longest run of a `postStart` hook. A kubelet lets it run for ever and the pod never comes up.
const POST_START_MAX: Duration = Duration::from_secs(600);

/// The two hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hook {
    PostStart,
    PreStop,
}

impl Hook {
    fn field(self) -> &'static str {
        match self {
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }

    fn failed(self) -> &'static str {
        match self {
            Self::PostStart => "FailedPostStartHook",
            Self::PreStop => "FailedPreStopHook",
        }
    }

    fn purpose(self) -> ExecPurpose {
        match self {
            Self::PostStart => ExecPurpose::PostStart,
            Self::PreStop => ExecPurpose::PreStop,
        }
    }
}

/// How a hook ended: with a remark for a person maybe, or why it failed.
type Verdict = Result<Option<String>, String>;

/// A hook that is over.
pub(super) struct Ended {
    id: String,
    name: String,
    hook: Hook,
    verdict: Verdict,
}

/// The hooks of a pod that run.
#[derive(Default)]
pub(super) struct Hooks {
    jobs: JoinSet<Ended>,
    running: BTreeMap<(String, Hook), AbortHandle>,
    ended: Vec<Ended>,
}

impl Hooks {
    /// Returns when a hook has ended; never while none runs.
    pub(super) async fn wait(&mut self) {
        match self.jobs.join_next_with_id().await {
            Some(end) => self.note(end),
            None => std::future::pending().await,
        }
    }

    /// The hooks that ended since the last call.
    fn take(&mut self) -> Vec<Ended> {
        while let Some(end) = self.jobs.try_join_next_with_id() {
            self.note(end);
        }
        std::mem::take(&mut self.ended)
    }

    fn note(&mut self, end: Result<(tokio::task::Id, Ended), tokio::task::JoinError>) {
        let task = match end {
            Ok((task, end)) => {
                self.ended.push(end);
                task
            }
            Err(e) => e.id(),
        };
        self.running.retain(|_, handle| handle.id() != task);
    }

    /// Gives a hook up, and kills its command.
    pub(super) fn abort(&mut self, id: &str, hook: Hook) {
        if let Some(handle) = self.running.remove(&(id.to_owned(), hook)) {
            handle.abort();
        }
    }

    /// Lets the hooks go on without anybody who waits for them.
    pub(super) fn leave(&mut self) {
        self.jobs.detach_all();
    }

    fn runs(&self, id: &str, hook: Hook) -> bool {
        self.running.contains_key(&(id.to_owned(), hook))
    }

    fn spawn(&mut self, id: &str, name: &str, hook: Hook, job: Job) {
        let (of, name) = (id.to_owned(), name.to_owned());
        let handle = self.jobs.spawn(async move { Ended { id: of, name, hook, verdict: job.run().await } });
        self.running.insert((id.to_owned(), hook), handle);
    }
}

impl Worker {
    /// Begins the `postStart` hook of a container.
    pub(super) fn post_start(&mut self, id: &str, name: &str) {
        let histories = self.current.as_mut().map(|c| &mut c.status.containers);
        let Some(history) = histories.and_then(|h| h.get_mut(name)) else { return };
        history.post_start = Some(HookPhase::Begun(clock::now()));
        self.save_status();
        self.spawn_hook(id, name, Hook::PostStart, POST_START_MAX);
    }

    /// Runs a hook that is written down as begun.
    pub(super) fn spawn_hook(&mut self, id: &str, name: &str, hook: Hook, limit: Duration) {
        if let Some(job) = self.job(id, name, hook, limit, None) {
            self.hooks.spawn(id, name, hook, job);
        }
    }

    fn job(&self, id: &str, name: &str, hook: Hook, limit: Duration, ran: Option<Duration>) -> Option<Job> {
        let current = self.current.as_ref()?;
        let handler = self.handler(id, name, hook)?;
        let spec = current.manifest.pod.spec.as_ref()?;
        let container = entries(spec).map(|(_, c)| c).find(|c| c.name == name);
        let host_ips = self.ctx.host_ips.borrow().clone();
        let hosts = match &current.status.sandbox {
            // The host on purpose, as probes have it: what such a pod listens on, whatever the node's address.
            Some(s) if s.host_network => {
                ["127.0.0.1".into(), "::1".into()].into_iter().chain(host_ips).collect()
            }
            Some(s) => s.ips.clone(),
            None => Vec::new(),
        };
        Some(Job {
            runtime: self.ctx.runtime.clone(),
            id: id.to_owned(),
            purpose: hook.purpose(),
            handler,
            container: container.cloned().unwrap_or_default(),
            hosts,
            limit,
            ran,
        })
    }

    fn handler(&self, id: &str, name: &str, hook: Hook) -> Option<LifecycleHandler> {
        let current = self.current.as_ref()?;
        let run = current.status.containers.get(name).filter(|h| h.container_id.as_deref() == Some(id));
        if let (Hook::PreStop, Some(farewell)) = (hook, run.and_then(|h| h.farewell.as_ref())) {
            // As it was when the container was started: its entry may have changed since, or be gone.
            return farewell.pre_stop.clone();
        }
        let spec = current.manifest.pod.spec.as_ref()?;
        let lifecycle = entries(spec).find(|(_, c)| c.name == name)?.1.lifecycle.as_ref()?;
        match hook {
            Hook::PostStart => lifecycle.post_start.clone(),
            Hook::PreStop => lifecycle.pre_stop.clone(),
        }
    }

    /// Takes up hooks that an earlier podling began, and gives up those whose container is gone.
    pub(super) fn mind_hooks(&mut self, seen: &Seen) {
        let live = |id: &str| seen.instances.iter().any(|i| i.id == id && i.is_live());
        let dead: Vec<_> = self.hooks.running.keys().filter(|(id, _)| !live(id)).cloned().collect();
        dead.iter().for_each(|(id, hook)| self.hooks.abort(id, *hook));
        let Some(current) = &self.current else { return };
        let mut begun = Vec::new();
        for instance in seen.instances.iter().filter(|i| i.is_live()) {
            let history = current.status.containers.get(&instance.name);
            let run = history.filter(|h| h.container_id.as_deref() == Some(&instance.id));
            if let Some(HookPhase::Begun(at)) = run.and_then(|h| h.post_start.as_ref()) {
                let limit = (*at + POST_START_MAX).since(clock::now());
                begun.push((instance, Hook::PostStart, *at, limit));
            }
            let stopping = self.stopping.get(&instance.id).filter(|s| s.sent.is_none());
            if let Some(stopping) = stopping
                && let Some(HookPhase::Begun(at)) = &stopping.pre_stop
            {
                begun.push((instance, Hook::PreStop, *at, stopping.deadline.since(clock::now())));
            }
        }
        begun.retain(|(instance, hook, ..)| !self.hooks.runs(&instance.id, *hook));
        for (instance, hook, at, limit) in begun {
            let ran = Some(clock::now().since(at));
            match self.job(&instance.id, &instance.name, hook, limit, ran) {
                Some(job) => self.hooks.spawn(&instance.id, &instance.name, hook, job),
                None => self.hooks.ended.push(Ended {
                    id: instance.id.clone(),
                    name: instance.name.clone(),
                    hook,
                    verdict: Ok(None),
                }),
            }
        }
    }

    /// Writes down the hooks that have ended.
    pub(super) fn take_hook_ends(&mut self) {
        for end in self.hooks.take() {
            self.tell_of_hook(&end);
            let (id, purpose) = (end.id.clone(), end.hook.purpose());
            match end.hook {
                Hook::PostStart => {
                    let histories = self.current.as_mut().map(|c| &mut c.status.containers);
                    let history = histories.and_then(|h| h.get_mut(&end.name));
                    if let Some(h) = history.filter(|h| h.container_id.as_deref() == Some(&end.id)) {
                        h.post_start = Some(match end.verdict {
                            Ok(_) => HookPhase::Done,
                            Err(why) => HookPhase::Failed(why),
                        });
                        self.save_status();
                    }
                }
                Hook::PreStop => {
                    if let Some(mut stopping) = self.stopping.get(&end.id).cloned() {
                        stopping.pre_stop = Some(HookPhase::Done);
                        self.note_stop(&end.id, &end.name, stopping);
                    }
                }
            }
            self.ctx.runtime.forget_exec(&id, purpose);
        }
    }

    fn tell_of_hook(&self, end: &Ended) {
        let field = end.hook.field();
        let (said, how) = match &end.verdict {
            Ok(None) => {
                tracing::debug!(pod = %self.key, container = %end.name, "{field} hook done");
                return;
            }
            Ok(Some(remark)) => (remark, ""),
            Err(why) => (why, " failed"),
        };
        tracing::warn!(pod = %self.key, container = %end.name, "{field} hook{how}: {said}");
        let reason = if end.verdict.is_ok() { "HookWarning" } else { end.hook.failed() };
        let text = format!("{field} hook of container {}{how}: {said}", end.name);
        self.ctx.board.event(EventType::Warning, reason, Some(&self.key), text);
    }

    /// Says that a `preStop` hook ran out of time, where it did.
    pub(super) fn cut_pre_stop(&mut self, id: &str, name: &str) {
        if !self.stopping.get(id).is_some_and(|s| s.hook_runs()) {
            return;
        }
        self.hooks.abort(id, Hook::PreStop);
        let verdict = Err("it still ran when the grace was over, and was ended".to_owned());
        let (id, name) = (id.to_owned(), name.to_owned());
        self.tell_of_hook(&Ended { id, name, hook: Hook::PreStop, verdict });
    }
}
