//! Updates: what an edit of a pod's manifest does to the pod that runs.

use std::sync::Arc;
use std::time::Duration;

use super::board::EventType;
use super::status::Waiting;
use super::worker::{Held, Worker};
use crate::manifest::PodManifest;
use crate::system::clock;

/// Key under which a held update stands among the held starts.
const UPDATE: &str = "(update)";
/// How often a held update is tried.
const UPDATE_RETRY: Duration = Duration::from_secs(2);

impl Worker {
    /// Applies a changed manifest with the least harm: metadata at once, containers one by one, anything
    /// else by making the pod anew. Nothing is touched before the new spec could start.
    pub(super) async fn update(&mut self, new: &Arc<PodManifest>) {
        let Some(current) = &mut self.current else { return };
        let (old, fresh) = (&current.manifest.hashes, &new.hashes);
        if old.pod == fresh.pod && old.containers == fresh.containers {
            if old.manifest != fresh.manifest {
                tracing::info!(pod = %self.key, uid = %current.spec.uid, "metadata changed; no container restarts");
            }
            return self.accept(new);
        }
        let ran = current.status.sandbox.is_some();
        if ran && let Err(why) = self.could_start(new).await {
            let waiting = Waiting {
                reason: why.reason.clone(),
                message: format!("the new manifest waits and the old one keeps running: {}", why.message),
            };
            if self.held.get(UPDATE).is_none_or(|h| h.why != why) {
                self.ctx.board.event(EventType::Warning, &why.reason, Some(&self.key), &waiting.message);
            }
            self.held
                .insert(UPDATE.into(), Held { until: clock::now() + UPDATE_RETRY, delay: UPDATE_RETRY, why });
            self.pending_update = Some(waiting);
            return;
        }
        self.held.clear();
        let Some(current) = &mut self.current else { return };
        let same_pod = current.manifest.hashes.pod == new.hashes.pod;
        if same_pod && ran {
            let text =
                format!("containers changed: {}", changed_containers(&current.manifest, new).join(", "));
            tracing::info!(pod = %self.key, uid = %current.spec.uid, "{text}");
            self.ctx.board.event(EventType::Normal, "Updated", Some(&self.key), text);
            return self.accept(new);
        }
        if ran {
            current.recreating = true;
            self.ctx.board.event(
                EventType::Normal,
                "Updated",
                Some(&self.key),
                "spec changed: the pod is made anew",
            );
            return;
        }
        self.forget_runs();
        self.accept(new);
    }

    pub(super) fn accept(&mut self, new: &Arc<PodManifest>) {
        let Some(current) = &mut self.current else { return };
        current.manifest = new.clone();
        current.spec.manifest = new.clone();
        self.save_spec();
    }

    /// Whether the new spec has all it needs: images, host ports.
    async fn could_start(&self, new: &PodManifest) -> Result<(), Waiting> {
        let wait = |reason: &str, message: String| Waiting { reason: reason.into(), message };
        self.ctx.claims.would_fit(&self.key, new).map_err(|e| wait("HostPortConflict", e))?;
        self.ctx.runtime.check_images(new).await.map_err(|e| wait(e.reason, e.message))
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

fn changed_containers(old: &PodManifest, new: &PodManifest) -> Vec<String> {
    let (old, new) = (&old.hashes.containers, &new.hashes.containers);
    let mut names: Vec<_> =
        new.iter().filter(|(n, h)| old.get(*n) != Some(h)).map(|(n, _)| n.clone()).collect();
    names.extend(old.keys().filter(|n| !new.contains_key(*n)).map(|n| format!("{n} (removed)")));
    names
}
