//! Keeping the files of a running pod's volumes up to date: what comes from ConfigMaps, Secrets, labels,
//! annotations and resources follows them, and no container restarts.
//!
//! The worker asks at each look. Nothing is done unless objects or the manifest changed since the last
//! time; then what should be there is compared with what is, so that it also works after podling was away.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::board::EventType;
use super::plan::Goal;
use super::worker::Worker;
use crate::manifest::PodManifest;
use crate::volume::{self, VolumeError};

/// What the files of a pod's volumes were last made from.
pub(super) struct Refresh {
    /// Of all objects.
    generation: u64,
    manifest: Arc<PodManifest>,
    /// What was said to be wrong.
    troubles: BTreeSet<String>,
    /// Everything was written.
    complete: bool,
}

impl Worker {
    /// Has the volumes that are there follow what they come from.
    pub(super) async fn refresh_volumes(&mut self, goal: Goal) {
        // Until they have been read, what is missing says nothing.
        if goal != Goal::Run || !self.ctx.objects.known() {
            return;
        }
        let Some(current) = &self.current else { return };
        let Some(sandbox) = &current.status.sandbox else { return };
        let (manifest, generation) = (current.manifest.clone(), self.ctx.objects.generation());
        let is_same =
            |r: &Refresh| r.complete && r.generation == generation && Arc::ptr_eq(&r.manifest, &manifest);
        if self.refresh.as_ref().is_some_and(is_same) || !volume::has_data_volumes(&manifest.pod) {
            return;
        }
        let input = self.ctx.runtime.volume_input(&manifest, &current.spec.uid, sandbox);
        let done = volume::refresh(input)
            .await
            .unwrap_or_else(|e| volume::Refreshed { failed: vec![e], ..volume::Refreshed::default() });
        if !done.changed.is_empty() {
            let text = format!("new files in volumes: {}", done.changed.join(", "));
            tracing::info!(pod = %self.key, "{text}; no container restarts");
            self.ctx.board.event(EventType::Normal, "VolumesUpdated", Some(&self.key), text);
        }
        let complete = done.failed.is_empty();
        let troubles = self.tell_troubles(&done.kept, &done.failed);
        self.refresh = Some(Refresh { generation, manifest, troubles, complete });
    }

    /// Says what is wrong, each thing once.
    fn tell_troubles(&self, kept: &[VolumeError], failed: &[VolumeError]) -> BTreeSet<String> {
        let all = kept.iter().chain(failed);
        let texts: BTreeSet<String> =
            all.map(|e| format!("{e}; the volume keeps the files it has")).collect();
        let before = self.refresh.as_ref().map(|r| &r.troubles);
        for text in texts.iter().filter(|text| before.is_none_or(|b| !b.contains(*text))) {
            tracing::warn!(pod = %self.key, "{text}");
            self.ctx.board.event(EventType::Warning, "FailedMount", Some(&self.key), text);
        }
        texts
    }
}
