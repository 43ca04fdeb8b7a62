//! Orphans: containers of ours that no record explains, after a lost or damaged state directory. Their
//! labels say which pod they belong to. If a manifest wants just that pod they are taken back as they are,
//! with the same processes; else they are stopped with the grace their label names.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

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
}

/// All of them.
#[derive(Default)]
pub struct Orphans {
    pods: Vec<Orphan>,
}

impl Orphans {
    /// Sorts out which of the observed containers belong to no known uid.
    pub fn find(seen: Vec<Observed>, known: &[&str]) -> Self {
        let mut by_uid: BTreeMap<String, Vec<Observed>> = BTreeMap::new();
        for one in seen.into_iter().filter(|o| !known.contains(&o.labels.uid.as_str())) {
            by_uid.entry(one.labels.uid.clone()).or_default().push(one);
        }
        let pods = by_uid
            .into_iter()
            .filter_map(|(uid, mut containers)| {
                containers.sort_by_key(newest_last);
                let key = containers.last()?.labels.key.clone();
                Some(Orphan { key, uid, containers })
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

    /// Those of a pod's name that no manifest describes.
    pub fn take_others(&mut self, key: &PodKey) -> Vec<Orphan> {
        self.pods.extract_if(.., |o| o.key == *key).collect()
    }

    /// Their sandboxes, each with the uid of its pod.
    pub fn sandboxes(&self) -> Vec<(&str, &str)> {
        let all = self.pods.iter().flat_map(|o| o.containers.iter().map(|c| (c, &o.uid)));
        all.map(|(c, uid)| (c.labels.sandbox.as_str(), uid.as_str())).collect()
    }

    /// The status of a pod whose own was lost, as far as its containers' labels tell; none when it has none.
    pub fn status_of(&mut self, spec: &PodSpecRecord) -> Option<StatusRecord> {
        let at = self.pods.iter().position(|o| o.uid == spec.uid)?;
        Some(status_of(&self.pods.swap_remove(at).containers, &spec.manifest))
    }

    /// Those that nothing explained.
    pub fn drain(&mut self) -> Vec<Orphan> {
        std::mem::take(&mut self.pods)
    }
}

/// Order in which a later container says more about its pod.
fn newest_last(one: &Observed) -> (bool, u32) {
    (matches!(one.task, TaskState::Running { .. } | TaskState::Unresponsive), one.labels.attempt)
}

/// What containers, the newest last, tell of their pod's status.
fn status_of(containers: &[Observed], manifest: &PodManifest) -> StatusRecord {
    let mut status = StatusRecord {
        version: VERSION,
        boot_id: clock::boot_id().into(),
        sandboxes: 1,
        ..StatusRecord::default()
    };
    for one in containers {
        let labels = &one.labels;
        status.sandbox = Some(SandboxRecord {
            id: labels.sandbox.clone(),
            ips: labels.ips.clone(),
            host_network: labels.host_network,
            ready: true,
        });
        if labels.kind == Kind::Pause {
            continue;
        }
        let history = ContainerHistory {
            attempt: labels.attempt,
            restarts: labels.restarts,
            hash: labels.container_hash.clone(),
            image: one.image.clone(),
            completed: false,
            ..ContainerHistory::default()
        };
        status.containers.insert(labels.name.clone(), history.into());
    }
    // What a running pod's init containers did is behind it.
    let running =
        |o: &Observed| o.labels.kind == Kind::Regular && matches!(o.task, TaskState::Running { .. });
    if containers.iter().any(running) {
        for init in manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()) {
            status.containers.entry(init.name.clone()).or_default().completed = true;
        }
    }
    status
}

impl Orphan {
    /// The record that was lost, as far as labels tell.
    pub fn into_record(self, desired: &Desired) -> (PodSpecRecord, StatusRecord) {
        let status = status_of(&self.containers, &desired.manifest);
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

    /// A record of a pod on its way out, with as much of a spec as stopping it takes.
    pub fn into_removal(self) -> (PodSpecRecord, StatusRecord) {
        let grace = self.grace();
        let mut pod = self.manifest();
        let named = |kind: Kind| {
            let of_kind = self.containers.iter().filter(move |c| c.labels.kind == kind);
            let names: std::collections::BTreeSet<_> = of_kind.map(|c| c.labels.name.clone()).collect();
            names.into_iter().map(|name| Container { name, ..Container::default() }).collect::<Vec<_>>()
        };
        pod.pod.spec = Some(PodSpec {
            containers: named(Kind::Regular),
            init_containers: Some(named(Kind::Init)),
            termination_grace_period_seconds: Some(grace.try_into().unwrap_or(i64::MAX)),
            host_network: Some(self.containers.iter().any(|c| c.labels.host_network)),
            ..PodSpec::default()
        });
        let status = status_of(&self.containers, &pod);
        let spec = PodSpecRecord {
            version: VERSION,
            uid: self.uid,
            source: "file".into(),
            seen: jiff::Timestamp::now(),
            stopped: false,
            removing: true,
            manifest: pod.into(),
        };
        (spec, status)
    }

    fn grace(&self) -> u64 {
        self.containers.iter().map(|c| c.labels.grace_seconds).max().unwrap_or(30)
    }

    fn manifest(&self) -> PodManifest {
        let mut pod = Pod::default();
        pod.metadata.name = Some(self.key.name.clone());
        pod.metadata.namespace = Some(self.key.namespace.clone());
        PodManifest { uid: Some(self.uid.clone()), ..PodManifest::without_file(self.key.clone(), pod) }
    }

    /// Stops the containers and removes what is left of the pod.
    pub async fn stop(self, ctx: Context) {
        let grace = self.grace();
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

#[cfg(test)]
mod tests;
