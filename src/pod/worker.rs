//! One worker per pod key: observe, decide, act, and sleep until something changes.
//!
//! The worker is level-triggered. It reads what is wanted from its mailbox (newest wins) and what is from
//! containerd and the store, and every pass may be the first: killing podling between any two lines and
//! starting it again continues here. It never waits for a container to stop; it takes the next step when
//! that is due and goes on listening.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tracing::Instrument;

use super::capacity::Capacity;
use super::context::Context;
use super::hooks::Hooks;
use super::last_words::Unfinished;
use super::plan::{Goal, Health, Instance, Plan, SandboxState, Stopping, View, plan};

use super::refresh::Refresh;
use super::resize::Resizing;
use super::status::Waiting;
use crate::manifest::{PodKey, PodManifest};
use crate::probe::ProbeSet;
use crate::runtime::Observed;
use crate::runtime::containerd::{Rank, with_rank};
use crate::store::{PodSpecRecord, StatusRecord, StoreError, VERSION};
use crate::system::clock::{self, Moment};
use crate::system::files::Durability;

/// Looks at the pod at least this often, whatever happens.
const RESYNC: Duration = Duration::from_secs(60);
/// Pause after containerd could not be asked.
const UNAVAILABLE: Duration = Duration::from_secs(1);
/// Passes of one reconcile; each one but the last changed something, so more would be a loop.
const MAX_PASSES: u32 = 16;

/// What is wanted of a pod.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The manifest that should run.
    pub manifest: Arc<PodManifest>,
    /// `metadata.uid`.
    pub uid: String,
    /// When it was first accepted.
    pub seen: Timestamp,
    /// Its source.
    pub source: &'static str,
    /// `podling stop` was said.
    pub stopped: bool,
    /// The machine shuts down: it stops until the next podling.
    pub leaving: bool,
    /// How often `podling restart` was said.
    pub restarts: u64,
    /// Why its manifest file, as it is now, is not what runs.
    pub trouble: Option<Waiting>,
}

/// A worker's mailbox.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    /// What is wanted; none when the pod is to go.
    pub desired: Option<Desired>,
    /// Raised to make the worker look.
    pub pokes: u64,
    /// Raised when something that pods wait for became available: holds are over.
    pub retries: u64,
}

/// The pod a worker is working on, with what is on disk of it.
pub(super) struct Current {
    /// `pod.json`.
    pub spec: PodSpecRecord,
    /// The same manifest, shared.
    pub manifest: Arc<PodManifest>,
    /// `status.json`.
    pub status: StatusRecord,
    /// Restart orders carried out.
    pub restarts: u64,
    /// The order under way wants the pod made anew.
    pub recreating: bool,
    /// It started in this boot: it waits for no other pod any more.
    pub in_order: bool,
    /// Since when the pod is on its way out.
    pub deleting: Option<Timestamp>,
}

/// A start that failed.
pub(super) struct Held {
    /// When to try again.
    pub until: Moment,
    /// The latest wait.
    pub delay: Duration,
    /// Why.
    pub why: Waiting,
}

/// The worker of one pod key.
pub struct Worker {
    pub(super) key: PodKey,
    pub(super) ctx: Context,
    pub(super) mail: watch::Receiver<Mail>,
    pub(super) current: Option<Current>,
    /// Further records of this key, all of pods on their way out: taken one after the other.
    backlog: Vec<(PodSpecRecord, StatusRecord)>,
    pub(super) stopping: BTreeMap<String, Stopping>,
    pub(super) hooks: Hooks,
    pub(super) held: BTreeMap<String, Held>,
    /// What the log last heard of each that is held.
    pub(super) said: BTreeMap<String, String>,
    /// Verdicts of the probes of running containers, by container id.
    pub(super) health: BTreeMap<String, Health>,
    /// The probes of the running containers, while there are any.
    pub(super) probes: Option<ProbeSet>,
    /// Notified when a verdict changed.
    pub(super) news: Arc<Notify>,
    /// Containers whose process is gone though containerd says it runs: since when.
    pub(super) vanished: BTreeMap<String, Moment>,
    /// Back-offs that were told of: container to their end.
    pub(super) backed_off: BTreeMap<String, Moment>,
    /// Runs that ended, and whose logs may not be whole yet.
    pub(super) unfinished: Vec<Unfinished>,
    /// Starts that wait for an image: since when.
    pub(super) asked: BTreeMap<String, Moment>,
    /// Rises when a pull has ended.
    pulls: watch::Receiver<u64>,
    /// Containers whose shim did not answer last time.
    pub(super) silent: BTreeSet<String>,
    pub(super) pending_update: Option<Waiting>,
    /// A resize that did not succeed yet.
    pub(super) resizing: Option<Resizing>,
    /// Conditions of a resize that waits for the node.
    pub(super) resize_pending: Option<Waiting>,
    /// What the files of its volumes were last made from.
    pub(super) refresh: Option<Refresh>,
    /// Why the pod's state could not be saved the last time it was tried.
    pub(super) unsaved: Mutex<Option<String>>,
}

/// What a reconcile asks for next.
enum Next {
    /// Look again then, or when something changes.
    At(Moment),
    /// Nothing is left of the pod and nothing is wanted.
    Gone,
}

/// What one pass found.
pub(super) struct Seen {
    pub observed: Vec<Observed>,
    pub instances: Vec<Instance>,
    pub sandbox: SandboxState,
}

impl Worker {
    /// A worker, with what the store knows of pods of its key: more than one when podling was killed while
    /// one was removed and added again.
    pub fn new(
        key: PodKey,
        ctx: Context,
        mail: watch::Receiver<Mail>,
        stored: Vec<(PodSpecRecord, StatusRecord)>,
    ) -> Self {
        let pulls = ctx.runtime.images().changed();
        Self {
            key,
            ctx,
            asked: BTreeMap::new(),
            pulls,
            mail,
            current: None,
            backlog: stored,
            stopping: BTreeMap::new(),
            hooks: Hooks::default(),
            held: BTreeMap::new(),
            said: BTreeMap::new(),
            health: BTreeMap::new(),
            probes: None,
            news: Arc::default(),
            vanished: BTreeMap::new(),
            backed_off: BTreeMap::new(),
            unfinished: Vec::new(),
            silent: BTreeSet::new(),
            pending_update: None,
            resizing: None,
            resize_pending: None,
            refresh: None,
            unsaved: Mutex::new(None),
        }
    }

    /// Works until the pod is gone.
    pub async fn run(mut self) {
        let mut retries = 0;
        loop {
            let said = self.mail.borrow_and_update().retries;
            if retries != said {
                retries = said;
                // Tried now, but remembered: what fails for the same reason again was said already.
                self.held.values_mut().for_each(|h| h.until = clock::now());
            }
            // From here on the news is of something that this look may not have seen.
            self.pulls.mark_unchanged();
            let span = self.span();
            // Boxed, so that a worker that waits does not hold the room that working takes.
            let work = with_rank(self.rank(), self.reconcile().instrument(span));
            let next = Box::pin(work).await;
            // It has started, or waits for something: nobody need wait for it.
            self.ctx.order.passes(&self.key);
            match next {
                Next::Gone => break,
                Next::At(at) => {
                    let wait = at.since(clock::now()).min(RESYNC);
                    tokio::select! {
                        changed = self.mail.changed() => if changed.is_err() {
                            // podling ends; the next one takes its hooks up.
                            return self.hooks.leave();
                        },
                        () = self.news.notified() => {}
                        () = tokio::time::sleep(wait) => {}
                        _ = self.pulls.changed(), if !self.asked.is_empty() => self.expire_pulls(),
                        () = self.hooks.wait() => {}
                    }
                }
            }
        }
        // The loop starts a new worker if the pod is wanted again by now.
        let _ = self.ctx.done.send(self.key);
    }

    /// The pod's place in the order of starts.
    pub(super) fn rank(&self) -> Rank {
        let wanted = self.mail.borrow().desired.as_ref().map(|d| d.manifest.clone());
        let spec = wanted.as_ref().and_then(|m| m.pod.spec.as_ref());
        match (&wanted, spec) {
            // Only a class needs the settings.
            (Some(wanted), Some(spec)) if spec.priority_class_name.is_some() => {
                self.ctx.order.rank(wanted, &self.ctx.capacity())
            }
            (Some(wanted), _) => self.ctx.order.rank(wanted, &Capacity::default()),
            (None, _) => Rank { priority: Reverse(0), depth: 0, key: self.key.clone() },
        }
    }

    /// Puts pod and uid on each line that is logged on the way. Of the highest level, so that the fields are
    /// there however little is logged.
    fn span(&self) -> tracing::Span {
        let wanted = || self.mail.borrow().desired.as_ref().map(|d| d.uid.clone());
        let uid = self.current.as_ref().map(|c| c.spec.uid.clone()).or_else(wanted).unwrap_or_default();
        tracing::error_span!("pod", pod = %self.key, uid)
    }

    async fn reconcile(&mut self) -> Next {
        for _ in 0..MAX_PASSES {
            // Read for each pass: a pass can take long, and the newest wins.
            let desired = self.mail.borrow().desired.clone();
            let desired = desired.as_ref();
            self.take_up_stored(desired);
            if self.current.is_none() {
                let Some(desired) = desired else { return Next::Gone };
                if let Err(e) = self.accept_new(desired) {
                    self.not_accepted(desired, e);
                    return Next::At(clock::now() + UNAVAILABLE * 10);
                }
            }
            let goal = self.settle(desired).await;
            self.refresh_volumes(goal).await;
            let seen = match self.look().await {
                Ok(seen) => seen,
                Err(e) => {
                    tracing::debug!(pod = %self.key, "cannot look at the pod: {e}");
                    self.publish_unseen(goal);
                    return Next::At(clock::now() + UNAVAILABLE);
                }
            };
            // First what has ended: it stands as begun until then, and would be taken up as if it had been lost.
            self.take_hook_ends();
            self.mind_hooks(&seen);
            self.take_hook_ends();
            self.watch_probes(goal, &seen);
            let plan = self.decide(goal, &seen);
            self.tell_of_backoff(&plan);
            let progressed = self.act(&plan, &seen).await;
            if goal == Goal::Run {
                self.resize(&seen).await;
            }
            if plan.outcome.is_some() && plan.quiet && self.sandbox_gone() {
                // What is done needs nothing of the node.
                self.ctx.claims.release(&self.key);
            }
            self.publish(goal, &seen, &plan);
            if plan.quiet && goal == Goal::Stop && !progressed && self.sandbox_gone() {
                match self.stopped(desired).await {
                    AfterStop::Idle => return Next::At(clock::now() + RESYNC),
                    AfterStop::Again => continue,
                }
            }
            if !progressed {
                return Next::At(self.wake(&plan));
            }
        }
        tracing::warn!(pod = %self.key, "the pod does not settle; looking again in a second");
        Next::At(clock::now() + UNAVAILABLE)
    }

    /// When to look again: the plan's time, or the end of a hold that came after it.
    fn wake(&self, plan: &Plan) -> Moment {
        let now = clock::now();
        let holds = self.held.values().map(|h| h.until).filter(|until| *until > now);
        let holds = holds.chain(self.resizing.as_ref().map(|r| r.until));
        let due = plan.wake.into_iter().chain(holds).chain(self.vanished_due()).chain(self.rest_due()).min();
        due.unwrap_or(now + RESYNC)
    }

    fn decide(&mut self, goal: Goal, seen: &Seen) -> Plan {
        let deadline = self.count_active(goal == Goal::Run);
        let Some(current) = &self.current else { return Plan::default() };
        let Some(spec) = &current.manifest.pod.spec else { return Plan::default() };
        let held = self.held.iter().map(|(name, h)| (name.clone(), h.until)).collect();
        plan(&View {
            spec,
            hashes: &current.manifest.hashes,
            goal,
            record: &current.status,
            sandbox: seen.sandbox,
            instances: &seen.instances,
            stopping: &self.stopping,
            held: &held,
            health: &self.health,
            deadline,
            now: clock::now(),
        })
    }

    /// Goes on with a pod that is on disk.
    fn take_up_stored(&mut self, desired: Option<&Desired>) {
        if self.current.is_some() {
            return;
        }
        self.current = self.backlog.pop().map(|(spec, status)| Current {
            in_order: status.boot_id == clock::boot_id() && status.sandbox.is_some(),
            manifest: spec.manifest.clone(),
            status: super::update::settled(&spec.manifest, status.of_this_boot()),
            spec,
            restarts: desired.map_or(0, |d| d.restarts),
            recreating: false,
            deleting: None,
        });
        self.resume_stops();
        self.resume_last_words();
    }

    /// Takes a pod on that this worker has nothing of.
    fn accept_new(&mut self, desired: &Desired) -> Result<(), StoreError> {
        let spec = PodSpecRecord {
            version: VERSION,
            uid: desired.uid.clone(),
            source: desired.source.into(),
            seen: desired.seen,
            stopped: desired.stopped,
            removing: false,
            manifest: desired.manifest.clone(),
        };
        let status =
            StatusRecord { version: VERSION, boot_id: clock::boot_id().into(), ..Default::default() };
        self.ctx.store.save_spec(&spec, Durability::Lazy)?;
        self.ctx.store.save_status(&spec.uid, &status, Durability::Lazy)?;
        self.note_saved(None);
        tracing::info!(pod = %self.key, uid = %spec.uid, hash = %spec.manifest.hashes.manifest, "pod accepted");
        self.current = Some(Current {
            spec,
            manifest: desired.manifest.clone(),
            status,
            restarts: desired.restarts,
            recreating: false,
            in_order: false,
            deleting: None,
        });
        self.held.clear();
        Ok(())
    }

    /// Brings the accepted spec nearer to the desired one and says what that means for the processes.
    async fn settle(&mut self, desired: Option<&Desired>) -> Goal {
        self.pending_update = None;
        self.resize_pending = None;
        let Some(current) = &mut self.current else { return Goal::Stop };
        let Some(desired) = desired.filter(|d| d.uid == current.spec.uid && !current.spec.removing) else {
            current.deleting.get_or_insert_with(Timestamp::now);
            if !current.spec.removing {
                current.spec.removing = true;
                self.save_spec();
                self.tell_successor(desired);
            }
            return Goal::Stop;
        };
        if desired.stopped != current.spec.stopped {
            current.spec.stopped = desired.stopped;
            self.save_spec();
        }
        if desired.stopped || desired.leaving {
            return Goal::Stop;
        }
        let current = match &mut self.current {
            Some(current) => current,
            None => return Goal::Stop,
        };
        if current.restarts != desired.restarts {
            current.restarts = desired.restarts;
            current.recreating = true;
        }
        if !Arc::ptr_eq(&current.manifest, &desired.manifest) {
            self.update(&desired.manifest).await;
        }
        self.remake_outdated();
        if self.current.as_ref().is_some_and(|c| c.recreating) { Goal::Stop } else { Goal::Run }
    }

    fn sandbox_gone(&self) -> bool {
        self.current.as_ref().is_none_or(|c| c.status.sandbox.is_none())
    }

    /// All processes and the sandbox are gone: what now?
    async fn stopped(&mut self, desired: Option<&Desired>) -> AfterStop {
        let Some(current) = &mut self.current else { return AfterStop::Again };
        if current.spec.removing {
            self.ctx.claims.release(&self.key);
            let uid = current.spec.uid.clone();
            let key = self.key.clone();
            self.clean_up_behind(key, uid, desired).await;
            self.current = None;
            return AfterStop::Again;
        }
        if !current.recreating {
            self.ctx.claims.release(&self.key);
            return AfterStop::Idle;
        }
        current.recreating = false;
        let uid = current.spec.uid.clone();
        if let Ok(dir) = self.ctx.store.pod_dir(&uid)
            && let Err(e) = crate::volume::reset(&dir)
        {
            tracing::warn!(pod = %self.key, %uid, "cannot clear the pod's volumes: {e}");
        }
        self.forget_runs();
        if let Some(d) = desired {
            let manifest = d.manifest.clone();
            self.accept(&manifest);
        }
        self.save_status();
        AfterStop::Again
    }

    /// Removes the rests of a pod, and lets a successor of another uid start without waiting for that: it has
    /// other directories and another cgroup.
    async fn clean_up_behind(&mut self, key: PodKey, uid: String, desired: Option<&Desired>) {
        let job = tokio::spawn(super::cleanup::clean_up(self.ctx.clone(), key, uid.clone()));
        tokio::pin!(job);
        let other = |d: Option<&Desired>| d.is_some_and(|d| d.uid != uid);
        let mut overtaken = other(desired);
        while !overtaken {
            tokio::select! {
                _ = &mut job => break,
                changed = self.mail.changed() => match changed {
                    Ok(()) => overtaken = other(self.mail.borrow().desired.as_ref()),
                    Err(_) => return,
                },
            }
        }
        if self.mail.borrow().desired.is_none() {
            self.ctx.board.forget(&self.key);
        }
    }

    /// Returns when the pod with this uid is to stop.
    pub(super) async fn unwanted(&self, uid: &str) {
        // A receiver of its own, so that the news is still news to the worker's loop.
        let mut mail = self.mail.clone();
        let gone = |m: &Mail| m.desired.as_ref().is_none_or(|d| d.uid != uid || d.stopped || d.leaving);
        if mail.wait_for(gone).await.is_err() {
            // Nobody can say any more: podling is ending.
            std::future::pending::<()>().await;
        }
    }
}

enum AfterStop {
    Idle,
    Again,
}
