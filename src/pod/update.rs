//! Updates: what an edit of a pod's manifest does to the pod that runs.
//!
//! Nothing is touched before the new spec could start. Then what changed decides (`changes`): a record that the
//! running containers now stand for the new entries, new limits (`resize`), containers stopped for their
//! successors, or the pod made anew.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{Fit, Refusal};
use super::board::EventType;
use super::changes::Changes;
use super::status::Waiting;
use super::worker::{Held, Worker};
use crate::manifest::PodManifest;
use crate::runtime::{StartError, entry_hash};
use crate::store::{Farewell, StatusRecord};
use crate::system::clock::{self, Moment};

/// Key under which a held update stands among the held starts.
pub(super) const UPDATE: &str = "(update)";
/// Reason of an update that waits for its images to be pulled.
const PULLING: &str = "Pulling";
/// How often a held update is tried.
const UPDATE_RETRY: Duration = Duration::from_secs(2);

impl Worker {
    /// Applies a changed manifest with the least harm.
    pub(super) async fn update(&mut self, new: &Arc<PodManifest>) {
        let Some(current) = &self.current else { return };
        if current.recreating {
            // What is newest then is taken when the old one is gone.
            return;
        }
        if current.manifest.hashes.manifest == new.hashes.manifest {
            self.said.retain(|name, _| !name.starts_with(UPDATE));
            if self.held.remove(UPDATE).is_some() {
                self.ctx.claims.stays(&self.key);
                tracing::info!(pod = %self.key, "the manifest is again the one that runs: nothing waits");
            }
            return self.accept(new);
        }
        let mut changes = Changes::between(&current.manifest, new);
        if current.status.verdict.is_some() {
            changes.after_deadline();
        }
        let ran = current.status.sandbox.is_some();
        if !ran {
            // What kept the old one from starting may be what was edited.
            self.held.clear();
        }
        if changes.is_harmless() {
            return self.keep_running(new, &changes);
        }
        if !ran {
            self.tell_update(&changes);
            if !changes.keeps_processes() {
                self.forget_runs();
            }
            return self.accept(new);
        }
        // Of each new manifest the registries are asked anew.
        let question = format!("{UPDATE}{}", new.hashes.manifest);
        self.asked.retain(|name, _| !name.starts_with(UPDATE) || *name == question);
        let asked = *self.asked.entry(question).or_insert_with(clock::now);
        match self.could_start(new, &changes, asked).await {
            Ok(Fit::Beside) => {}
            Ok(Fit::Instead) => changes.give_way(),
            Err(refusal) => return self.refuse_update(refusal, &changes),
        }
        self.held.clear();
        self.said.clear();
        self.asked.clear();
        if !changes.recreates() {
            return self.keep_running(new, &changes);
        }
        self.tell_update(&changes);
        if let Some(current) = &mut self.current {
            current.recreating = true;
        }
    }

    fn refuse_update(&mut self, refusal: Refusal, changes: &Changes) {
        if changes.is_resize() {
            let reason = if refusal.never { "Infeasible" } else { "Deferred" };
            let message = refusal.why.message.clone();
            self.resize_pending = Some(Waiting { reason: reason.into(), message });
        }
        self.hold_update(refusal.why);
    }

    /// The new manifest is in force; containers that need no restart stand for their new entries.
    fn keep_running(&mut self, new: &Arc<PodManifest>, changes: &Changes) {
        if !changes.is_empty() {
            self.tell_update(changes);
        }
        let Some(current) = &mut self.current else { return };
        let Some(spec) = &new.pod.spec else { return };
        for (name, history) in &mut current.status.containers {
            let (before, hash) = (entry_hash(&current.manifest, name), entry_hash(new, name));
            // What ends, or is about to end for an edit before this one, ends by the entry it was started from.
            if history.container_id.is_none() || changes.ends(name) || history.hash != before {
                continue;
            }
            let farewell = Farewell::of(spec, name);
            if let Some(id) = history.container_id.as_deref().filter(|_| history.believed_running()) {
                self.ctx.runtime.relabel(id, hash, &new.hashes.pod, farewell.grace_seconds);
            }
            history.farewell = Some(farewell);
            if history.hash != hash {
                history.hash_before = Some(std::mem::replace(&mut history.hash, hash.to_owned()));
            }
        }
        if current.status.sandbox.is_some() {
            self.ctx.claims.adopt(&self.key, new);
        }
        // Before the manifest: until that is saved, too, the hash before counts as well.
        self.save_status_for_good();
        self.accept(new);
    }

    fn tell_update(&self, changes: &Changes) {
        let Some(current) = &self.current else { return };
        let text = changes.summary();
        tracing::info!(pod = %self.key, uid = %current.spec.uid, "manifest changed: {text}");
        self.ctx.board.event(EventType::Normal, "Updated", Some(&self.key), text);
    }

    /// The old pod keeps running until the new one could start.
    fn hold_update(&mut self, why: Waiting) {
        let waiting = Waiting {
            reason: why.reason.clone(),
            message: format!("the new manifest waits and the old one keeps running: {}", why.message),
        };
        if self.held.get(UPDATE).is_none_or(|h| h.why != why) {
            let pulling = why.reason == PULLING;
            match self.is_news(&format!("{UPDATE}{pulling}"), &why) {
                true if pulling => tracing::info!(pod = %self.key, "{}", waiting.message),
                true => tracing::warn!(pod = %self.key, "{}: {}", why.reason, waiting.message),
                false => {}
            }
            let weight = if pulling { EventType::Normal } else { EventType::Warning };
            self.ctx.board.event(weight, &why.reason, Some(&self.key), &waiting.message);
        }
        let until = clock::now() + UPDATE_RETRY;
        self.held.insert(UPDATE.into(), Held { until, delay: UPDATE_RETRY, why });
        self.pending_update = Some(waiting);
    }

    pub(super) fn accept(&mut self, new: &Arc<PodManifest>) {
        let Some(current) = &mut self.current else { return };
        current.manifest = new.clone();
        current.spec.manifest = new.clone();
        self.save_spec();
    }

    /// Whether the new spec has all it needs: what other pods have too much of, ConfigMaps and Secrets of its
    /// volumes, images.
    async fn could_start(&self, new: &PodManifest, changes: &Changes, asked: Moment) -> Result<Fit, Refusal> {
        let node = self.ctx.capacity();
        let rank = self.ctx.order.rank(new, &node);
        let fit = self.ctx.claims.would_fit(rank, new, &node, !changes.keeps_processes())?;
        if changes.keeps_processes() {
            return Ok(fit);
        }
        let lacks = |e: StartError| Refusal {
            why: Waiting { reason: if e.pulling { PULLING } else { e.reason }.into(), message: e.message },
            never: false,
        };
        self.ctx.runtime.check_volumes(new).map_err(lacks)?;
        self.ctx.runtime.check_images(new, asked).await.map_err(lacks)?;
        Ok(fit)
    }

    /// The runs of the old spec do not count for the new one; log numbers go on.
    pub(super) fn forget_runs(&mut self) {
        let Some(current) = &mut self.current else { return };
        for history in current.status.containers.values_mut() {
            history.restarts = 0;
            history.backoff = None;
            history.completed = false;
            history.container_id = None;
            history.started = None;
            history.started_at = None;
            history.post_start = None;
            history.stop = None;
        }
        current.status.start_time = None;
        current.status.active = Default::default();
        current.status.verdict = None;
        current.status.restart_all = None;
    }
}

/// A stored status as it goes with the stored manifest: an update whose manifest did not reach the disk did not
/// happen, and what an earlier podling did not note is as the manifest says.
pub(super) fn settled(manifest: &PodManifest, mut status: StatusRecord) -> StatusRecord {
    for (name, history) in &mut status.containers {
        let hash = entry_hash(manifest, name);
        if history.hash != hash && history.hash_before.as_deref() == Some(hash) {
            history.hash = hash.to_owned();
        }
        history.hash_before = None;
        if !history.believed_running() || history.hash != hash {
            continue;
        }
        if let Some(spec) = &manifest.pod.spec {
            history.farewell.get_or_insert_with(|| Farewell::of(spec, name));
        }
        history.resources.get_or_insert_with(|| super::resize::resources(manifest, name));
    }
    if status.sandbox.is_some() && status.pod_limits.is_none() {
        status.pod_limits = manifest.pod.spec.as_ref().map(crate::runtime::spec::qos::pod_resources);
    }
    status
}
