//! Orphans: containers of ours that no record explains, after a lost or damaged state directory. Their
//! labels say which pod they belong to. If a manifest wants just that pod they are taken back as they are,
//! with the same processes; else they are stopped with the grace their label names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use super::worker::Desired;
use crate::manifest::{PodKey, PodManifest};
use crate::runtime::{Kind, Observed, StopStep, TaskState};
use crate::store::{ContainerHistory, PodSpecRecord, SandboxRecord, StatusRecord, VERSION};
use crate::system::clock;

/// How often a stopping orphan is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Time a SIGKILL gets.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// The containers of one uid without a record.
pub struct Orphan {
    /// The pod their labels name.
    pub key: PodKey,
    /// The uid their labels name.
    pub uid: String,
    containers: Vec<Observed>,
    ips: Vec<String>,
}

/// All of them.
#[derive(Default)]
pub struct Orphans {
    pods: Vec<Orphan>,
}

impl Orphans {
    /// Sorts out which of the observed containers belong to no known uid; `ips` tells a sandbox's addresses.
    pub fn find(seen: Vec<Observed>, known: &[&str], ips: impl Fn(&str) -> Vec<String>) -> Self {
        let mut by_uid: BTreeMap<String, Vec<Observed>> = BTreeMap::new();
        for one in seen.into_iter().filter(|o| !known.contains(&o.labels.uid.as_str())) {
            by_uid.entry(one.labels.uid.clone()).or_default().push(one);
        }
        let pods = by_uid
            .into_iter()
            .filter_map(|(uid, containers)| {
                let labels = &containers.first()?.labels;
                let (key, ips) = (labels.key.clone(), ips(&labels.sandbox));
                Some(Orphan { key, uid, containers, ips })
            })
            .collect();
        Self { pods }
    }

    /// The orphan that a new manifest describes exactly, if there is one.
    pub fn take(&mut self, manifest: &PodManifest) -> Option<Orphan> {
        let fits = |o: &Orphan| {
            o.key == manifest.key
                && manifest.uid.as_ref().is_none_or(|uid| *uid == o.uid)
                && o.containers.iter().all(|c| c.labels.pod_hash == manifest.hashes.pod)
        };
        let at = self.pods.iter().position(fits)?;
        Some(self.pods.swap_remove(at))
    }

    /// Those that nothing explained.
    pub fn drain(&mut self) -> Vec<Orphan> {
        std::mem::take(&mut self.pods)
    }
}

impl Orphan {
    /// The record that was lost, as far as labels tell.
    pub fn into_record(self, desired: &Desired) -> (PodSpecRecord, StatusRecord) {
        let mut status = StatusRecord {
            version: VERSION,
            boot_id: clock::boot_id().into(),
            sandboxes: 1,
            ..StatusRecord::default()
        };
        for one in &self.containers {
            let labels = &one.labels;
            status.sandbox = Some(SandboxRecord {
                id: labels.sandbox.clone(),
                ips: self.ips.clone(),
                host_network: labels.host_network,
                ready: true,
            });
            if labels.kind == Kind::Pause {
                continue;
            }
            let history = status.containers.entry(labels.name.clone()).or_default();
            *history = ContainerHistory {
                attempt: labels.attempt,
                restarts: labels.restarts,
                hash: labels.container_hash.clone(),
                image: one.image.clone(),
                completed: false,
                ..ContainerHistory::default()
            };
        }
        // What a running pod's init containers did is behind it.
        let running =
            |o: &Observed| o.labels.kind == Kind::Regular && matches!(o.task, TaskState::Running { .. });
        if self.containers.iter().any(running) {
            for init in desired.manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()) {
                status.containers.entry(init.name.clone()).or_default().completed = true;
            }
        }
        let spec = PodSpecRecord {
            version: VERSION,
            uid: self.uid,
            source: desired.source.into(),
            seen: desired.seen,
            stopped: false,
            removing: false,
            manifest: desired.manifest.clone(),
        };
        (spec, status)
    }

    /// Stops the containers and removes what is left of the pod.
    pub async fn stop(self, ctx: Context) {
        let grace = self.containers.iter().map(|c| c.labels.grace_seconds).max().unwrap_or(30);
        let start = clock::now();
        self.signal(&ctx, StopStep::Signal).await;
        let (mut step, mut until) = (StopStep::Signal, start + Duration::from_secs(grace.max(2)));
        while self.any_live(&ctx).await {
            if clock::now() >= until {
                step = if step == StopStep::Signal { StopStep::Kill } else { StopStep::Force };
                self.signal(&ctx, step).await;
                until = clock::now() + KILL_PATIENCE;
            }
            tokio::time::sleep(LOOK).await;
        }
        super::cleanup::clean_up(ctx, self.key, self.uid).await;
    }

    async fn signal(&self, ctx: &Context, step: StopStep) {
        for one in &self.containers {
            if let Err(e) = ctx.runtime.stop(one, step).await {
                tracing::warn!(pod = %self.key, container = %one.labels.name, "cannot stop orphan: {e}");
            }
        }
    }

    async fn any_live(&self, ctx: &Context) -> bool {
        match ctx.runtime.observe(&self.uid).await {
            Ok(seen) => seen
                .iter()
                .any(|o| matches!(o.task, TaskState::Running { alive: true, .. } | TaskState::Unresponsive)),
            // Nobody to ask: not gone.
            Err(_) => true,
        }
    }
}
