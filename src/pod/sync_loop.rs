//! The sync loop: takes what happens, changes what should be, and tells the workers concerned.
//!
//! It selects over source updates, containerd's wake-ups, orders from the server, workers that are done, and
//! timers. It never waits for a pod: each pod's worker does the work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use super::board::{Control, EventType};
use super::capacity::Capacity;
use super::closing;
use super::context::Context;
use super::findings;
use super::manager::PodManager;
use super::orphans::{Orphan, Orphans};
use super::uid;
use super::worker::{Desired, Mail, Worker};
use crate::manifest::{DataObject, PodKey, PodManifest};
use crate::runtime::containerd::{Wake, WakeKind};
use crate::source::{FileSource, Op, PodConfig, PodUpdate, SourceProblem, SourceUpdate};
use crate::store::{PodRecord, PodSpecRecord, StatusRecord};
use crate::system::clock;
use crate::system::files::Durability;

/// How often leftovers are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// Condition of the node under which the absence of containerd shows.
const CONTAINERD: &str = "ContainerdUnavailable";

/// What the loop listens to.
pub struct Inputs {
    /// Complete sets from the sources.
    pub sources: mpsc::Receiver<SourceUpdate>,
    /// Containers that changed.
    pub wakes: mpsc::Receiver<Wake>,
    /// Orders from the server.
    pub control: mpsc::Receiver<Control>,
    /// Workers that are done.
    pub done: mpsc::UnboundedReceiver<PodKey>,
    /// Asks the daemon to read settings and manifests again.
    pub reload: mpsc::Sender<()>,
    /// The file source, for what must be on disk before its pods are.
    pub files: Arc<FileSource>,
    /// Told when images arrived.
    pub images: Arc<Notify>,
}

/// The loop's state.
pub struct SyncLoop {
    ctx: Context,
    config: PodConfig,
    manager: PodManager,
    workers: BTreeMap<PodKey, watch::Sender<Mail>>,
    /// Records of the store that no worker has taken yet.
    stored: BTreeMap<PodKey, Vec<(PodSpecRecord, StatusRecord)>>,
    orphans: Orphans,
    sources_seen: bool,
    sweep: Option<tokio::task::JoinHandle<()>>,
    /// The pods whose turn it is to leave a machine that shuts down.
    leave: (mpsc::Sender<Vec<PodKey>>, mpsc::Receiver<Vec<PodKey>>),
    /// What each source last found wrong.
    reported: BTreeMap<&'static str, Vec<SourceProblem>>,
}

impl SyncLoop {
    /// A loop that goes on from what the store and containerd know.
    pub fn new(ctx: Context, records: Vec<PodRecord>, orphans: Orphans) -> Self {
        let mut this = Self {
            ctx,
            config: PodConfig::new(),
            manager: PodManager::default(),
            workers: BTreeMap::new(),
            stored: BTreeMap::new(),
            orphans,
            sources_seen: false,
            sweep: None,
            leave: mpsc::channel(1),
            reported: BTreeMap::new(),
        };
        this.restore(records);
        this
    }

    /// Puts what was accepted before this start back in force.
    fn restore(&mut self, records: Vec<PodRecord>) {
        let (going, staying): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| r.spec.removing);
        // What runs has its share, also what is about to end. After a boot nothing runs, and all of them ask anew.
        let ran = |r: &&PodRecord| r.status.sandbox.is_some() && r.status.boot_id == clock::boot_id();
        for PodRecord { spec, .. } in going.iter().chain(&staying).filter(ran) {
            self.ctx.claims.adopt(&spec.manifest.key, &spec.manifest);
        }
        let manifests: Vec<_> = staying.iter().map(|r| r.spec.manifest.clone()).collect();
        for (record, manifest) in staying.into_iter().zip(&manifests) {
            self.manager.restore(&record.spec, manifest.clone());
            self.store_for_worker(record.spec, record.status);
        }
        let staying: Vec<_> = self.stored.keys().cloned().collect();
        for record in going {
            let key = record.spec.manifest.key.clone();
            if staying.contains(&key) {
                // Its successor runs, so nothing of it has processes: only rests are left.
                tokio::spawn(super::cleanup::clean_up(self.ctx.clone(), key, record.spec.uid));
            } else {
                self.store_for_worker(record.spec, record.status);
            }
        }
        let going: Vec<_> = self.stored.keys().filter(|key| !staying.contains(key)).cloned().collect();
        going.iter().for_each(|key| self.tell(key));
        let set = self.config.seed("file", manifests);
        self.handle(set);
    }

    /// Keeps a record for the worker of its pod.
    fn store_for_worker(&mut self, spec: PodSpecRecord, status: StatusRecord) {
        self.stored.entry(spec.manifest.key.clone()).or_default().push((spec, status));
    }

    /// Has the worker of its pod stop what no manifest explains, as a pod that is being removed.
    fn stop_orphan(&mut self, orphan: Orphan) {
        tracing::warn!(pod = %orphan.key, uid = %orphan.uid, "containers that no manifest and no record explains: stopping them");
        let text = "containers were found that no manifest and no record explains: stopping them";
        self.ctx.board.event(EventType::Warning, "Orphan", Some(&orphan.key), text);
        let (spec, status) = orphan.into_removal();
        if let Err(e) = self.ctx.store.save_spec(&spec, Durability::Synced) {
            tracing::warn!(pod = %spec.manifest.key, "{e}");
        }
        self.store_for_worker(spec, status);
    }

    /// Runs until every sender is gone.
    pub async fn run(mut self, mut inputs: Inputs) {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        let (claims, order) = (self.ctx.claims.clone(), self.ctx.order.clone());
        let images = inputs.images.clone();
        let mut settings = self.ctx.settings.clone();
        loop {
            tokio::select! {
                Some(update) = inputs.sources.recv() => {
                    self.remember_directories(&inputs.files);
                    self.handle_source(update);
                }
                Some(wake) = inputs.wakes.recv() => self.handle_wake(&wake),
                Some(order) = inputs.control.recv() => self.handle_control(order, &inputs.reload),
                Some(key) = inputs.done.recv() => self.handle_done(&key),
                keys = claims.released() => self.retry(&keys),
                keys = order.changed() => self.retry(&keys),
                () = images.notified() => self.retry_all(),
                Ok(()) = settings.changed() => self.retry_all(),
                Some(keys) = self.leave.1.recv() => self.leave(&keys),
                _ = housekeeping.tick() => self.handle_pod_cleanups(),
                else => return,
            }
        }
    }

    /// Which directories the pods are from: without it, after a crash, a directory that was emptied on
    /// purpose could not be told from one that is not mounted.
    fn remember_directories(&self, files: &FileSource) {
        let saved = tokio::task::block_in_place(|| self.ctx.store.save_source(&files.dir_identities()));
        if let Err(e) = saved {
            tracing::warn!("{e}");
        }
    }

    fn handle_source(&mut self, update: SourceUpdate) {
        let SourceUpdate { source, pods, objects, report } = update;
        let before = self.reported.insert(source, report.problems.clone()).unwrap_or_default();
        self.ctx.board.report(source, report);
        self.sources_seen |= pods.is_some();
        let updates = pods.map(|set| self.config.merge(source, set)).unwrap_or_default();
        // Objects after the pods that go with them, which need not miss them, and before those that come with them.
        let (going, staying): (Vec<_>, Vec<_>) =
            updates.into_iter().partition(|update| matches!(update.op, Op::Remove | Op::Delete));
        going.into_iter().for_each(|update| self.handle(update));
        if let Some(set) = objects {
            self.take_objects(set);
        }
        if self.ctx.objects.set_known() {
            self.retry_all();
        }
        staying.into_iter().for_each(|update| self.handle(update));
        let now = self.reported.get(source).map_or(&[][..], Vec::as_slice);
        let file_of = |key: &PodKey| Some(self.manager.get(key)?.manifest.origin.file.clone());
        findings::announce(&self.ctx.board, &before, now, file_of);
        for key in self.manager.set_troubles(source, findings::troubles(now)) {
            self.tell(&key);
        }
    }

    /// Puts ConfigMaps and Secrets in force, and wakes the pods that take values from those that changed.
    fn take_objects(&mut self, set: Vec<Arc<DataObject>>) {
        let changed = self.ctx.objects.replace(set);
        let kept = tokio::task::block_in_place(|| self.ctx.keep.save(&self.ctx.objects.list()));
        if let Err(e) = kept {
            tracing::warn!("ConfigMaps and Secrets are not kept over a restart of podling: {e}");
        }
        for key in self.manager.users_of(&changed) {
            if let Some(mail) = self.workers.get(&key) {
                mail.send_modify(|m| m.retries += 1);
            }
        }
    }

    fn handle(&mut self, update: PodUpdate) {
        tracing::debug!(op = ?update.op, source = update.source, pods = update.pods.len(), "pod update");
        self.apply(update);
        self.ctx.runtime.weigh_burstable(self.manager.specs());
    }

    fn apply(&mut self, mut update: PodUpdate) {
        if !matches!(update.op, Op::Remove | Op::Delete) {
            let node = self.ctx.capacity();
            for manifest in &mut update.pods {
                self.ctx.order.wanted(&manifest.key, Some(manifest));
                let more = findings::overlooked(&node, manifest);
                if !more.is_empty() && update.op != Op::Set {
                    Arc::make_mut(manifest).warnings.extend(more);
                }
            }
            self.ctx.order.sort(&mut update.pods, &node);
            if matches!(update.op, Op::Set | Op::Add) {
                update.pods.iter().for_each(|manifest| self.expect(manifest, &node));
            }
        }
        match update.op {
            Op::Set => self.handle_pod_syncs(&update.pods),
            Op::Add => self.handle_pod_additions(update.source, &update.pods),
            Op::Update => self.handle_pod_updates(update.source, &update.pods),
            Op::Remove | Op::Delete => self.handle_pod_removes(&update.pods),
            Op::Reconcile => self.handle_pod_reconcile(update.source, &update.pods),
        }
    }

    /// A pod is about to be started by its worker, unless it runs, or was stopped by order.
    fn expect(&self, manifest: &PodManifest, node: &Capacity) {
        let stopped = self.manager.get(&manifest.key).is_some_and(|d| d.stopped);
        if stopped || self.ctx.claims.has(&manifest.key) {
            return;
        }
        let rank = self.ctx.order.rank(manifest, node);
        self.ctx.order.comes(rank.clone());
        self.ctx.claims.expect(rank, manifest);
    }

    fn handle_pod_additions(&mut self, source: &'static str, pods: &[Arc<PodManifest>]) {
        for manifest in pods {
            findings::warnings(&self.ctx.board, None, manifest);
            let orphan = self.orphans.take(manifest);
            let uid = uid::of_its_own(&self.manager, &self.ctx, manifest)
                .or_else(|| orphan.as_ref().map(|o| o.uid.clone()));
            let desired = self.manager.add(source, manifest.clone(), uid).clone();
            if let Some(orphan) = orphan {
                let (spec, status) = orphan.into_record(&desired);
                self.ctx.claims.adopt(&manifest.key, manifest);
                tracing::info!(pod = %manifest.key, uid = %spec.uid, "taking running containers back by their labels");
                self.store_for_worker(spec, status);
            }
            // Others of this name go first, so that the pod never runs twice.
            for other in self.orphans.take_others(&manifest.key) {
                self.stop_orphan(other);
            }
            self.tell(&manifest.key);
        }
    }

    fn handle_pod_updates(&mut self, source: &'static str, pods: &[Arc<PodManifest>]) {
        for manifest in pods {
            let before = self.manager.get(&manifest.key).map(|d| d.manifest.clone());
            findings::warnings(&self.ctx.board, before.as_deref(), manifest);
            let names_another = before.is_none_or(|before| before.uid != manifest.uid);
            let uid = names_another.then(|| uid::of_its_own(&self.manager, &self.ctx, manifest)).flatten();
            self.manager.update(source, manifest.clone(), uid);
            self.tell(&manifest.key);
        }
    }

    fn handle_pod_removes(&mut self, pods: &[Arc<PodManifest>]) {
        for manifest in pods {
            let uid = self.manager.remove(&manifest.key).map(|d| d.uid).unwrap_or_default();
            self.ctx.order.wanted(&manifest.key, None);
            tracing::info!(pod = %manifest.key, %uid, "manifest removed: stopping the pod");
            self.tell(&manifest.key);
        }
    }

    /// Only where the manifest stands, or its status, changed: nothing that runs is concerned.
    fn handle_pod_reconcile(&mut self, source: &'static str, pods: &[Arc<PodManifest>]) {
        self.handle_pod_updates(source, pods);
    }

    fn handle_pod_syncs(&mut self, pods: &[Arc<PodManifest>]) {
        for manifest in pods {
            self.tell(&manifest.key);
        }
    }

    fn handle_wake(&mut self, wake: &Wake) {
        let socket = self.ctx.runtime.containerd().socket();
        match wake.kind {
            WakeKind::Lost => {
                let text = format!(
                    "containerd at {} is gone: pods keep running, and what changed is acted on when it is back",
                    socket.display()
                );
                tracing::warn!("{text}");
                return self.ctx.board.node(CONTAINERD, Some(text));
            }
            WakeKind::Connected => return self.ctx.board.node(CONTAINERD, None),
            _ => {}
        }
        match &wake.container_id {
            Some(id) => {
                if let Some(key) = self.ctx.routes.get(id) {
                    self.poke(&key);
                }
            }
            None => {
                let keys: Vec<_> = self.workers.keys().cloned().collect();
                keys.iter().for_each(|key| self.poke(key));
            }
        }
    }

    fn handle_control(&mut self, order: Control, reload: &mpsc::Sender<()>) {
        let (reply, answer) = match order {
            Control::Stop(key, reply) => (reply, self.order(&key, |d| d.stopped = true)),
            Control::Start(key, reply) => (reply, self.order(&key, |d| d.stopped = false)),
            Control::Restart(key, reply) => (
                reply,
                self.order(&key, |d| {
                    d.stopped = false;
                    d.restarts += 1;
                }),
            ),
            Control::Shutdown(time, reply) => {
                self.shut_down(time);
                (reply, Ok(()))
            }
            Control::Reload(reply) => {
                // A full queue means that a reload is due anyway.
                let _ = reload.try_send(());
                (reply, Ok(()))
            }
        };
        // The client may have gone; the order stands.
        let _ = reply.send(answer);
    }

    /// The machine shuts down: nothing starts any more, and what runs stops in order.
    fn shut_down(&mut self, time: Duration) {
        if self.ctx.closing.swap(true, Ordering::Relaxed) {
            return;
        }
        let node = self.ctx.capacity();
        let groups = closing::groups(self.manager.manifests(), &self.ctx.order, &node);
        tokio::spawn(closing::close(self.ctx.board.clone(), groups, self.leave.0.clone(), time));
    }

    fn leave(&mut self, keys: &[PodKey]) {
        for key in keys {
            if let Some(desired) = self.manager.get_mut(key) {
                desired.leaving = true;
                self.tell(key);
                self.ctx.board.not_ready(key);
            }
        }
    }

    fn order(&mut self, key: &PodKey, change: impl FnOnce(&mut Desired)) -> Result<(), String> {
        let desired = self.manager.get_mut(key).ok_or_else(|| format!("pods \"{}\" not found", key.name))?;
        let before = desired.restarts;
        change(desired);
        let ends = desired.stopped || desired.restarts != before;
        self.tell(key);
        if ends {
            // Whoever waits for Ready after this order must not be answered with what is going.
            self.ctx.board.not_ready(key);
        }
        Ok(())
    }

    /// A worker ended; if its pod is wanted again by now, or a message crossed its end, there is a new one.
    fn handle_done(&mut self, key: &PodKey) {
        self.workers.remove(key);
        if self.manager.get(key).is_some() || self.stored.contains_key(key) {
            self.tell(key);
        }
    }

    fn handle_pod_cleanups(&mut self) {
        if self.sources_seen {
            for orphan in self.orphans.drain() {
                let key = orphan.key.clone();
                if self.manager.get(&key).is_some() {
                    // Its worker has a pod to run.
                    tokio::spawn(orphan.stop(self.ctx.clone()));
                } else {
                    self.stop_orphan(orphan);
                    self.tell(&key);
                }
            }
        }
        self.ctx.runtime.weigh_burstable(self.manager.specs());
        // One at a time: a round may wait for a plugin or for containerd.
        if self.sweep.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
            self.sweep = Some(tokio::spawn(super::housekeeping::sweep(self.ctx.clone())));
        }
    }

    /// Something that these pods wait for became available.
    fn retry(&mut self, keys: &[PodKey]) {
        for mail in keys.iter().filter_map(|key| self.workers.get(key)) {
            mail.send_modify(|m| m.retries += 1);
        }
    }

    /// Something that any pod may wait for became available.
    fn retry_all(&mut self) {
        for mail in self.workers.values() {
            mail.send_modify(|m| m.retries += 1);
        }
    }

    fn poke(&mut self, key: &PodKey) {
        if let Some(mail) = self.workers.get(key) {
            mail.send_modify(|m| m.pokes += 1);
        }
    }

    /// Puts what is wanted of a pod into its worker's mailbox, with a worker if there is none.
    fn tell(&mut self, key: &PodKey) {
        let desired = self.manager.get(key).cloned();
        if let Some(mail) = self.workers.get(key) {
            return mail.send_modify(|m| m.desired = desired);
        }
        let (mail, inbox) = watch::channel(Mail { desired, ..Mail::default() });
        let worker =
            Worker::new(key.clone(), self.ctx.clone(), inbox, self.stored.remove(key).unwrap_or_default());
        self.workers.insert(key.clone(), mail);
        tokio::spawn(worker.run());
    }
}
