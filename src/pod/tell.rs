//! Writing a pod down and showing it: its records in the store, its status on the board.

use std::sync::PoisonError;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;

use super::act::without_ids;
use super::board::{EventType, PodView};
use super::order::Progress;
use super::plan::{Goal, Plan};
use super::status::{self, Ending, Facts, Waiting, status};
use super::worker::{Desired, Seen, Worker};
use crate::runtime::spec::qos::qos_class;
use crate::store::{PodRecord, StoreError};
use crate::system::files::Durability;

impl Worker {
    pub(super) fn save_spec(&self) {
        let Some(current) = &self.current else { return };
        // An order to stop or to go must outlive a power cut.
        let store = &self.ctx.store;
        let saved = tokio::task::block_in_place(|| store.save_spec(&current.spec, Durability::Synced));
        self.note_saved(saved.err());
    }

    /// Writes the status so that a kill cannot lose it.
    pub(super) fn save_status(&self) {
        self.write_status(Durability::Lazy);
    }

    /// Writes the status so that a power cut cannot lose it: exits, and what hangs on them.
    pub(super) fn save_status_for_good(&self) {
        self.write_status(Durability::Synced);
    }

    fn write_status(&self, sync: Durability) {
        let Some(current) = &self.current else { return };
        let (store, uid) = (&self.ctx.store, &current.spec.uid);
        let save = || store.save_status(uid, &current.status, sync);
        let saved = match sync {
            // Only a file in the page cache: quicker than handing the thread's other work to another thread.
            Durability::Lazy => save(),
            Durability::Synced => tokio::task::block_in_place(save),
        };
        self.note_saved(saved.err());
    }

    /// A full disk fails each of many saves; it is said once, and once when it is over.
    pub(super) fn note_saved(&self, error: Option<StoreError>) {
        let error = error.map(|e| e.to_string());
        let mut before = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        match (&error, before.as_ref()) {
            (Some(text), None) => {
                tracing::error!(pod = %self.key, "{text}");
                self.ctx.board.event(EventType::Warning, "StateNotSaved", Some(&self.key), text.as_str());
            }
            (None, Some(_)) => tracing::info!(pod = %self.key, "the pod's state is saved again"),
            _ => {}
        }
        *before = error;
    }

    /// Whether the log has not heard it yet: of what is tried again and again each failure is said once, and the
    /// pauses in between, which only repeat it, are not.
    pub(super) fn is_news(&mut self, name: &str, why: &Waiting) -> bool {
        if why.reason == "ImagePullBackOff" {
            return false;
        }
        let said = format!("{}: {}", why.reason, without_ids(&why.message));
        self.said.insert(name.to_owned(), said.clone()) != Some(said)
    }

    /// An edit of `metadata.uid` makes another pod of the same name.
    pub(super) fn tell_successor(&self, desired: Option<&Desired>) {
        let Some((current, next)) = self.current.as_ref().zip(desired) else { return };
        let text =
            format!("another pod takes its place (metadata.uid: {} -> {})", current.spec.uid, next.uid);
        tracing::info!(pod = %self.key, "manifest changed: {text}");
        self.ctx.board.event(EventType::Normal, "Updated", Some(&self.key), text);
    }

    /// A pod that cannot be written down is not started: after a crash nobody would know of it.
    pub(super) fn not_accepted(&self, desired: &Desired, e: StoreError) {
        let status = PodStatus {
            phase: Some("Pending".into()),
            reason: Some("StateNotSaved".into()),
            message: Some(e.to_string()),
            ..PodStatus::default()
        };
        self.note_saved(Some(e));
        self.ctx.board.publish(PodView {
            manifest: desired.manifest.clone(),
            uid: desired.uid.clone(),
            seen: desired.seen,
            source: desired.source,
            deleting: None,
            status,
        });
    }

    /// A pod of which nothing is known yet, or that is to go, shows so even while containerd cannot be asked;
    /// of any other the last that was seen stands.
    pub(super) fn publish_unseen(&mut self, goal: Goal) {
        let shown = self.ctx.board.subscribe().borrow().pods.get(&self.key).cloned();
        let Some(current) = &mut self.current else { return };
        match shown.filter(|view| view.uid == current.spec.uid) {
            Some(view) if goal == Goal::Stop && view.deleting != current.deleting => {
                let deleting = current.deleting;
                self.ctx.board.publish(PodView { deleting, ..(*view).clone() });
            }
            Some(_) => {}
            None => {
                let record = PodRecord { spec: current.spec.clone(), status: current.status.clone() };
                let shown = status::from_record(&record);
                self.ctx.board.publish(PodView { deleting: current.deleting, ..shown });
            }
        }
    }

    pub(super) fn publish(&mut self, goal: Goal, seen: &Seen, plan: &Plan) {
        // What was said meanwhile counts: nobody should see a pod ready that is about to be stopped.
        let (trouble, ordered) = self.mail.borrow().desired.as_ref().map_or((None, None), |d| {
            let restart = self.current.as_ref().is_some_and(|c| c.recreating || c.restarts != d.restarts);
            let ending = match (d.stopped, restart) {
                (true, _) => Some(Ending::Stop),
                (false, _) if d.leaving => Some(Ending::Shutdown),
                (false, true) => Some(Ending::Restart),
                (false, false) => None,
            };
            (d.trouble.clone(), ending)
        });
        let Some(current) = &mut self.current else { return };
        let Some(spec) = &current.manifest.pod.spec else { return };
        let waiting = self.held.iter().map(|(name, h)| (name.clone(), h.why.clone())).collect();
        let mut conditions = std::mem::take(&mut current.status.conditions);
        let host_ips = self.ctx.host_ips.borrow().clone();
        let pending = self.resize_pending.clone().map(|w| ("PodResizePending", w));
        let under_way = self.resizing.as_ref().map(|r| ("PodResizeInProgress", r.why.clone()));
        let resize = pending.into_iter().chain(under_way);
        let facts = Facts {
            spec,
            record: &current.status,
            instances: &seen.instances,
            sandbox: seen.sandbox,
            plan,
            waiting: &waiting,
            health: &self.health,
            hashes: &current.manifest.hashes,
            pending_update: self.pending_update.as_ref(),
            trouble: trouble.as_ref(),
            resize: resize.collect(),
            stopped: current.spec.stopped && plan.quiet,
            terminating: goal == Goal::Stop,
            ending: ordered,
            host_ips: &host_ips,
            qos_class: &qos_class(spec).to_string(),
            now: Timestamp::now(),
        };
        let status = status(&facts, &mut conditions);
        current.status.conditions = conditions;
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let progress = match status.phase.as_deref() {
            _ if ready => Progress::Ready,
            Some("Succeeded") => Progress::Ready,
            Some("Failed") => Progress::Failed,
            _ => Progress::UnderWay,
        };
        self.ctx.order.note(&self.key, progress);
        self.ctx.board.publish(PodView {
            manifest: current.manifest.clone(),
            uid: current.spec.uid.clone(),
            seen: current.spec.seen,
            source: super::manager::source_name(&current.spec.source),
            deleting: current.deleting,
            status,
        });
        if !self.ctx.store.has_spec(&current.spec.uid) {
            let text = "the pod's record was gone from the state directory and is written again";
            self.ctx.board.event(EventType::Warning, "StateLost", Some(&self.key), text);
            self.save_spec();
        }
        self.save_status();
    }

    /// Says once of each back-off that it has begun.
    pub(super) fn tell_of_backoff(&mut self, plan: &Plan) {
        self.backed_off.retain(|name, _| plan.backing_off.contains_key(name));
        for (name, until) in &plan.backing_off {
            if self.backed_off.insert(name.clone(), *until) != Some(*until) {
                let text = format!("back-off restarting failed container {name}");
                self.ctx.board.event(EventType::Warning, "BackOff", Some(&self.key), text);
            }
        }
    }
}
