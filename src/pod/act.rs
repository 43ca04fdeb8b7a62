//! Acting: the steps of a plan, carried out in order. A step that fails is held and tried again later; it
//! never stops the steps after it unless they need it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::board::EventType;
use super::plan::{Action, Plan, State, entries, has_post_start, is_sidecar};
use super::status::Waiting;
use super::worker::{Held, Seen, Worker};
use crate::runtime::spec::qos::pod_resources;
use crate::runtime::{Kind, StartError, StartOrder, TaskState, entry_hash, new_id};
use crate::store::{Farewell, HookPhase, SandboxRecord, StopCause};
use crate::system::clock;

/// First and longest wait after a failed start. Short, since what was missing (a directory, an image, a
/// port) is often put right by a person who is looking.
const HOLD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long a creation under way may go on once its pod is to stop.
const GIVE_UP: Duration = Duration::from_secs(5);
/// A missing image is looked for at this pace: it costs one call.
const HOLD_IMAGE: Duration = Duration::from_secs(2);

impl Worker {
    /// Carries a plan out; true when something changed that makes another look worthwhile.
    pub(super) async fn act(&mut self, plan: &Plan, seen: &Seen) -> bool {
        let mut progressed = false;
        self.end_shims_of_aborted(plan, seen).await;
        // A dead container goes after its successor has come: the shim that both share would end with the last
        // of its containers, and a start that meets its end fails.
        let is_start = |a: &&Action| matches!(a, Action::Start { .. });
        let is_discard = |a: &&Action| matches!(a, Action::Discard { .. });
        let keep_order = !plan.actions.iter().any(|a| is_start(&a));
        let (first, last): (Vec<_>, Vec<_>) = plan.actions.iter().partition(|a| keep_order || !is_discard(a));
        for action in first.into_iter().chain(last) {
            progressed |= match action {
                Action::Discard { id } => {
                    self.ctx.routes.remove(id);
                    self.ctx.runtime.discard(id);
                    false
                }
                Action::CreateSandbox => self.create_sandbox().await,
                Action::DropSandbox => self.drop_sandbox().await,
                Action::Start { name, kind, restarts } => self.start(name, *kind, *restarts, seen).await,
                Action::PostStart { id, name } => {
                    self.post_start(id, name);
                    false
                }
                Action::BeginStop { id, name, pre_stop, stopping, why } => {
                    self.begin_stop(id, name, *pre_stop, stopping.clone(), *why);
                    false
                }
                Action::Stop { id, name, step, stopping, why } => {
                    self.stop(id, name, stopping, *step, *why, seen).await;
                    false
                }
                Action::Hurry { id, name, stopping } => {
                    self.hurry_stop(id, name, stopping.clone());
                    false
                }
                Action::RestartAll { by } => self.restart_all(by),
                Action::Renew => self.renew(),
                Action::Expire => self.expire(),
            };
        }
        progressed
    }

    /// A container that was created and not started is one whose creation was cut short, and with it maybe
    /// that of its shim. Before anything else is started under that shim it is replaced, if nothing runs in it.
    async fn end_shims_of_aborted(&self, plan: &Plan, seen: &Seen) {
        let starts = plan.actions.iter().any(|a| matches!(a, Action::Start { .. }));
        let aborted = seen.instances.iter().filter(|i| i.state == State::Created);
        let sandboxes: std::collections::BTreeSet<&String> = aborted.map(|i| &i.sandbox).collect();
        for sandbox in sandboxes.into_iter().filter(|_| starts) {
            self.ctx.runtime.end_idle_shim(sandbox).await;
        }
    }

    async fn create_sandbox(&mut self) -> bool {
        if let Err(why) = self.admit() {
            self.hold("", why, HOLD.0);
            return false;
        }
        let Some(current) = &mut self.current else { return false };
        let id = new_id();
        let host_network = current.manifest.pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
        current.status.sandbox =
            Some(SandboxRecord { id: id.clone(), ips: Vec::new(), host_network, ready: false });
        current.status.sandboxes += 1;
        current.status.pod_limits = current.manifest.pod.spec.as_ref().map(pod_resources);
        current.status.start_time.get_or_insert_with(Timestamp::now);
        let init = current.manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
        for init in init.filter(|c| !is_sidecar(c)) {
            if let Some(history) = current.status.containers.get_mut(&init.name) {
                history.completed = false;
                history.container_id = None;
            }
        }
        let (manifest, uid) = (current.manifest.clone(), current.spec.uid.clone());
        self.save_status();
        let slot = self.ctx.order.sandbox().await;
        // Boxed, here and below, so that those who wait for their turn do not hold the room that the work takes.
        let created = Box::pin(self.ctx.runtime.create_sandbox(&manifest, &uid, &id)).await;
        drop(slot);
        match created {
            Ok((record, notes)) => {
                self.held.remove("");
                self.said.remove("");
                for note in notes {
                    tracing::warn!(pod = %self.key, "{}: {}", note.reason, note.message);
                    self.ctx.board.event(EventType::Warning, note.reason, Some(&self.key), note.message);
                }
                if let Some(current) = &mut self.current {
                    current.status.sandbox = Some(record);
                }
                self.save_status();
            }
            Err(e) => self.hold_error("", &e),
        }
        true
    }

    /// Whether it is the pod's turn, and the node has what it needs; what it needs is its own then.
    fn admit(&mut self) -> Result<(), Waiting> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if self.ctx.closing.load(Ordering::Relaxed) {
            let message = "the machine shuts down; the pod starts with the next podling".into();
            return Err(Waiting { reason: "NodeShutdown".into(), message });
        }
        if !current.in_order
            && let Err(why) = self.ctx.order.may_start(&self.key)
        {
            self.ctx.claims.withdraw(&self.key);
            return Err(why);
        }
        let node = self.ctx.capacity();
        let rank = self.ctx.order.rank(&current.manifest, &node);
        self.ctx.claims.claim(rank, &current.manifest, &node).map_err(|refusal| refusal.why)?;
        current.in_order = true;
        Ok(())
    }

    async fn drop_sandbox(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        let Some(sandbox) = current.status.sandbox.take() else { return false };
        let has_ports = super::admission::has_host_ports(&current.manifest);
        let uid = current.spec.uid.clone();
        self.save_status();
        let runtime = self.ctx.runtime.clone();
        let key = self.key.clone();
        // What made the sandbox fail is often what keeps it from being taken down, and was said.
        let said = self.held.get("").map(|h| without_ids(&h.why.message));
        let drop = async move {
            if let Err(e) = runtime.drop_sandbox(&sandbox.id).await
                && said != Some(without_ids(&e))
            {
                tracing::warn!(pod = %key, %uid, sandbox = %sandbox.id, "cannot take the sandbox down yet: {e}");
            }
        };
        // A successor may start before the old network is gone, except when old port rules would catch its
        // traffic.
        if has_ports {
            drop.await
        } else {
            drop_later(drop)
        }
        true
    }

    async fn start(&mut self, name: &str, kind: Kind, restarts: u32, seen: &Seen) -> bool {
        let Some(current) = &mut self.current else { return false };
        let Some(sandbox) = current.status.sandbox.clone() else { return false };
        let (manifest, uid) = (current.manifest.clone(), current.spec.uid.clone());
        let history = current.status.containers.get(name);
        let attempt = history.map_or(0, |h| if h.image.is_empty() { h.attempt } else { h.attempt + 1 });
        let asked = self.asked.get(name).copied().unwrap_or_else(clock::now);
        let order = StartOrder {
            manifest: &manifest,
            uid: &uid,
            sandbox: &sandbox,
            name,
            kind,
            attempt,
            restarts,
            asked,
            pause_pid: pause_pid(seen),
        };
        // Before the start reads it: what changes in between is seen as a change, never missed.
        let data = super::data_changes::of(&manifest.pod, name, &self.ctx.objects);
        // Starting can hang in the runtime. When the pod is not wanted any more, what comes of it is found
        // and discarded by the next look. It is given a little time, as containerd is left with a mess when
        // a creation is given up.
        let given_up = async {
            self.unwanted(&uid).await;
            tokio::time::sleep(GIVE_UP).await;
        };
        let created = tokio::select! {
            created = Box::pin(self.ctx.runtime.create(&order)) => created,
            () = given_up => return false,
        };
        let created = match created {
            Ok(created) => created,
            Err(e) => {
                self.hold_start(name, asked, &e);
                return false;
            }
        };
        self.asked.remove(name);
        self.tell_pulled(&created);
        self.ctx.routes.add(&created.id, &self.key);
        if kind != Kind::Pause {
            // Written before the process runs: a crash in between leaves a container that never started.
            let hash = entry_hash(&manifest, name).to_owned();
            let spec = manifest.pod.spec.iter().flat_map(entries);
            let hook = spec.map(|(_, c)| c).find(|c| c.name == name).is_some_and(has_post_start);
            let resources = super::resize::resources(&manifest, name);
            if let Some(current) = &mut self.current {
                let history = current.status.containers.entry(name.to_owned()).or_default();
                history.attempt = attempt;
                history.restarts = restarts;
                history.container_id = Some(created.id.clone());
                history.hash = hash;
                history.data = Some(data);
                history.hash_before = None;
                history.farewell = manifest.pod.spec.as_ref().map(|s| Farewell::of(s, name));
                history.resources = Some(resources);
                if history.image != created.image && !history.image.is_empty() {
                    history.image_before = Some(std::mem::take(&mut history.image));
                }
                history.image = created.image.clone();
                history.image_id = created.image_id.clone();
                history.stop_signal = Some(created.stop_signal);
                history.stale = created.stale.clone();
                history.started = None;
                history.started_at = None;
                history.post_start = hook.then_some(HookPhase::Due);
                history.stop = None;
                if restarts == 0 {
                    history.backoff = None;
                }
            }
            self.save_status();
        }
        let begun = match created.refused {
            Some(refused) => Err(refused),
            None => {
                self.ctx.order.turn(&self.key).await;
                let begun = self.ctx.runtime.start(&created.id).await;
                self.ctx.order.passes(&self.key);
                begun
            }
        };
        if let Err(e) = begun {
            self.start_failed(name, &created.id, &e);
            if e.unavailable {
                // It may have been started all the same. The next look tells: what runs is kept, what does
                // not is discarded, and never do two run.
                self.assume_started(name);
            } else {
                self.ctx.runtime.discard(&created.id);
            }
            return true;
        }
        self.started(name, kind, &created.id, created.pid, &created.image);
        if let Some(why) = created.stale {
            let text = format!(
                "container {name}: imagePullPolicy is Always and no registry could be asked, so it runs the copy of {} that is here: {why}",
                created.image
            );
            if restarts == 0 {
                tracing::warn!(pod = %self.key, container = %name, "StaleImage: {text}");
            }
            self.ctx.board.event(EventType::Warning, "StaleImage", Some(&self.key), text);
        }
        true
    }

    /// Notes the time of a start whose outcome is not known.
    fn assume_started(&mut self, name: &str) {
        let current = self.current.as_mut();
        if let Some(history) = current.and_then(|c| c.status.containers.get_mut(name)) {
            history.started = Some(Timestamp::now());
            history.started_at = Some(clock::now());
        }
    }

    fn started(&mut self, name: &str, kind: Kind, id: &str, pid: u32, image: &str) {
        self.held.remove(name);
        self.said.remove(name);
        if kind == Kind::Pause {
            return;
        }
        if let Some(current) = &mut self.current
            && let Some(history) = current.status.containers.get_mut(name)
        {
            history.started = Some(Timestamp::now());
            history.started_at = Some(clock::now());
            tracing::info!(pod = %self.key, uid = %current.spec.uid, container = %name, id = %&id[..12.min(id.len())], pid, "container started");
        }
        self.save_status();
        let text = format!("started container {name} from image {image}");
        self.ctx.board.event(EventType::Normal, "Started", Some(&self.key), text);
    }

    /// The process could not be started, for example since the command does not exist: a run that ended with
    /// 128, so that crash back-off and restart policy apply as to any other.
    fn start_failed(&mut self, name: &str, id: &str, e: &StartError) {
        if e.unavailable {
            return self.hold_error(name, e);
        }
        // What kept it from being tried before is over.
        self.held.remove(name);
        let rule = super::backoff::BackoffRule::from(&**self.ctx.settings.borrow());
        let now = clock::now();
        if let Some(current) = &mut self.current
            && let Some(history) = current.status.containers.get_mut(name)
        {
            history.previous = history.last.take();
            history.last = Some(crate::store::Exit {
                container_id: id.to_owned(),
                code: 128,
                reason: "StartError".into(),
                message: e.message.clone(),
                started: None,
                finished: Timestamp::now(),
                finished_at: now,
                ran_for: Duration::ZERO,
                cause: StopCause::Other,
            });
            history.backoff = Some(rule.after_exit(history.backoff, Duration::ZERO, now));
        }
        self.save_status_for_good();
        tracing::warn!(pod = %self.key, container = %name, "{e}");
        let text = format!("cannot start container {name}: {}", e.message);
        self.ctx.board.event(EventType::Warning, "Failed", Some(&self.key), text);
    }

    pub(super) fn hold_error(&mut self, name: &str, e: &StartError) {
        let first = match (e.unavailable, e.reason) {
            (true, _) => HOLD.0,
            (_, "ErrImageNeverPull") => HOLD_IMAGE,
            _ => HOLD.0,
        };
        self.hold(name, Waiting { reason: e.reason.into(), message: e.message.clone() }, first);
    }

    /// Tries again later, each time later; says so once.
    pub(super) fn hold(&mut self, name: &str, why: Waiting, first: Duration) {
        let same = |h: &&Held| {
            h.why.reason == why.reason && without_ids(&h.why.message) == without_ids(&why.message)
        };
        let before = self.held.get(name).filter(same);
        let delay = match before {
            Some(h) if first == HOLD.0 => (h.delay * 2).min(HOLD.1),
            _ => first,
        };
        if before.is_none() {
            if self.is_news(name, &why) {
                match name {
                    "" => tracing::warn!(pod = %self.key, "{}: {}", why.reason, why.message),
                    name => {
                        tracing::warn!(pod = %self.key, container = %name, "{}: {}", why.reason, why.message)
                    }
                }
            }
            self.ctx.board.event(EventType::Warning, &why.reason, Some(&self.key), &why.message);
        }
        self.held.insert(name.to_owned(), Held { until: clock::now() + delay, delay, why });
    }
}

fn drop_later(job: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(job);
}

/// Host pid of the pause container, if the pod has one.
fn pause_pid(seen: &Seen) -> Option<u32> {
    seen.observed.iter().find(|o| o.labels.kind == Kind::Pause).and_then(|o| match o.task {
        TaskState::Running { pid, alive: true } => Some(pid),
        _ => None,
    })
}

/// A message without the ids in it, whole or cut to the twelve digits that people read: they differ at each try.
pub(super) fn without_ids(message: &str) -> String {
    let is_id = |word: &&str| word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit());
    message.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !is_id(w)).collect::<Vec<_>>().join(" ")
}
