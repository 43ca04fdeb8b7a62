//! What the checkpoint files hold. Field names and meaning are a format: add, never change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::lifecycle::{ActiveTime, HookPhase, RestartAll, StopCause, StopRecord, Verdict};
use crate::manifest::PodManifest;
use crate::source::DirIdentity;
use crate::system::cgroup::PodResources;
use crate::system::clock::{self, Moment};

/// Version of all files that this podling writes; a file with a higher one is left alone and reported.
pub const VERSION: u32 = 1;

/// A pod as it stands on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRecord {
    /// `pod.json`.
    pub spec: PodSpecRecord,
    /// `status.json`, empty when there is none.
    pub status: StatusRecord,
}

/// `source.json`: which directory each manifest directory was when podling last read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceRecord {
    pub(super) version: u32,
    pub(super) dirs: BTreeMap<PathBuf, DirIdentity>,
}

/// `pods/<uid>/pod.json`: what was accepted, and what was ordered about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpecRecord {
    /// [`VERSION`].
    pub version: u32,
    /// `metadata.uid`.
    pub uid: String,
    /// The source it came from.
    pub source: String,
    /// When the pod was first accepted.
    pub seen: Timestamp,
    /// Stopped by `podling stop`, until `podling start`.
    #[serde(default)]
    pub stopped: bool,
    /// Its removal began; it is carried on after a restart whatever the manifests say.
    #[serde(default)]
    pub removing: bool,
    /// The manifest in force.
    pub manifest: Arc<PodManifest>,
}

/// `pods/<uid>/status.json`: what a restart must know and containerd may have forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusRecord {
    /// [`VERSION`].
    pub version: u32,
    /// The boot in which the [`Moment`]s below were taken and the sandbox was made.
    pub boot_id: String,
    /// The sandbox in use.
    pub sandbox: Option<SandboxRecord>,
    /// Sandboxes made so far.
    pub sandboxes: u32,
    /// When podling first worked on the pod (`status.startTime`).
    pub start_time: Option<Timestamp>,
    /// How long the pod has been active; counted for pods with a deadline only.
    #[serde(skip_serializing_if = "is_default")]
    pub active: ActiveTime,
    /// The pod failed as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Restarts of all containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_all: Option<RestartAll>,
    /// By container name, init containers too.
    /// Boxed, since a map keeps room for eleven entries where most pods have one.
    pub containers: BTreeMap<String, Box<ContainerHistory>>,
    /// Limits in force for the pod's cgroup; none in records from before this was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_limits: Option<PodResources>,
    /// When the conditions last changed: condition type to (status, time).
    pub conditions: BTreeMap<String, (bool, Timestamp)>,
}

impl StatusRecord {
    /// The file was missing or damaged: all that was known of the pod's containers is what containerd knows.
    pub fn is_lost(&self) -> bool {
        self.boot_id.is_empty()
    }
}

impl Default for StatusRecord {
    fn default() -> Self {
        Self {
            version: VERSION,
            boot_id: String::new(),
            sandbox: None,
            sandboxes: 0,
            start_time: None,
            active: ActiveTime::default(),
            verdict: None,
            restart_all: None,
            containers: BTreeMap::new(),
            pod_limits: None,
            conditions: BTreeMap::new(),
        }
    }
}

impl StatusRecord {
    /// The record as it counts now: after a reboot, what was measured on the old boot's clock means nothing
    /// and the sandbox is gone.
    pub fn of_this_boot(mut self) -> Self {
        if self.boot_id == clock::boot_id() {
            return self;
        }
        self.boot_id = clock::boot_id().into();
        for history in self.containers.values_mut() {
            history.backoff = None;
            history.started_at = None;
            history.stop = None;
        }
        self.active.counted = None;
        if let Some(all) = &mut self.restart_all {
            all.backoff = Backoff::default();
        }
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.ready = false;
        }
        self
    }
}

/// The namespaces, network and shared files of a running pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRecord {
    /// 64 hex digits.
    pub id: String,
    /// Pod addresses; empty for hostNetwork.
    pub ips: Vec<String>,
    /// In the host's network.
    pub host_network: bool,
    /// Set once everything of it exists; a sandbox without it is torn down and made anew.
    pub ready: bool,
}

/// One container over all its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerHistory {
    /// Number of the current run; names its log file.
    pub attempt: u32,
    /// Restarts since the container's entry last changed (`restartCount`).
    pub restarts: u32,
    /// Id of the current or latest run, none before the first.
    pub container_id: Option<String>,
    /// Hash of the container entry that run was made from.
    pub hash: String,
    /// Digests of the ConfigMaps and Secrets that run was started with, by their names; none when it was
    /// started by a podling that did not write them down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, String>>,
    /// Image name as written in the manifest.
    pub image: String,
    /// Image digest that runs.
    pub image_id: String,
    /// The signal that run is asked to end with; none in records from before this was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<i32>,
    /// Image name of the runs before an update; kept for the way back.
    pub image_before: Option<String>,
    /// Why that image could not be checked for a newer one, though the policy asks for it.
    pub stale: Option<String>,
    /// When that run was started; none while it is only created.
    pub started: Option<Timestamp>,
    /// The same on the monotonic clock.
    pub started_at: Option<Moment>,
    /// The newest exit.
    pub last: Option<Exit>,
    /// The exit before it.
    pub previous: Option<Exit>,
    /// Crash back-off.
    pub backoff: Option<Backoff>,
    /// Init container that succeeded in the current sandbox.
    pub completed: bool,
    /// The `postStart` hook of the current run; none: no hook, or the run began before podling ran hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<HookPhase>,
    /// The stop of the current run, while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRecord>,
    /// How the current run is to be ended; none in records from before this was kept: as the spec says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub farewell: Option<Farewell>,
    /// The resources in force for the current run; none in records from before this was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The hash that `hash` took the place of by an update that left the process alone: until the manifest of
    /// that update is on disk, too, both stand for the same entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_before: Option<String>,
    /// What the probes last said of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probed: Option<ProbedRecord>,
}

/// How a run is to be ended: by the entry it was started from, as amended by updates that left it running. The
/// entry itself may be another one by the time it is stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Farewell {
    /// `terminationGracePeriodSeconds`, at least one second.
    pub grace_seconds: u64,
    /// `lifecycle.preStop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<LifecycleHandler>,
}

impl Farewell {
    /// What a spec says of one of its containers.
    pub fn of(spec: &PodSpec, container: &str) -> Self {
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let entry = all.into_iter().find(|c| c.name == container);
        Self {
            grace_seconds: spec.termination_grace_period_seconds.unwrap_or(30).max(1).unsigned_abs(),
            pre_stop: entry.and_then(pre_stop),
        }
    }
}

/// The hook with its port as a number: the name may mean another, or none, when it is run.
fn pre_stop(entry: &Container) -> Option<LifecycleHandler> {
    let mut handler = entry.lifecycle.as_ref()?.pre_stop.clone()?;
    if let Some(get) = &mut handler.http_get
        && let IntOrString::String(name) = &get.port
    {
        let named = entry.ports.iter().flatten().find(|p| p.name.as_ref() == Some(name));
        get.port = named.map_or_else(|| get.port.clone(), |p| IntOrString::Int(p.container_port));
    }
    Some(handler)
}

/// The probes' word on a run, kept so that a restart of podling makes nothing unready and starts no startup
/// probe again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbedRecord {
    /// Which run.
    pub container_id: String,
    /// It has started.
    pub started: bool,
    /// It is ready.
    pub ready: bool,
}

impl ContainerHistory {
    /// The newest exit, if it is that of the current run.
    pub fn exit(&self) -> Option<&Exit> {
        self.last.as_ref().filter(|e| Some(&e.container_id) == self.container_id.as_ref())
    }

    /// Whether the current run was started and its exit is not known.
    pub fn believed_running(&self) -> bool {
        self.container_id.is_some() && self.started.is_some() && self.exit().is_none()
    }
}

/// One exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Which run.
    pub container_id: String,
    /// Exit code, 128 + signal for a signal.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// Termination message.
    #[serde(default)]
    pub message: String,
    /// Start, for display.
    pub started: Option<Timestamp>,
    /// End, for display.
    pub finished: Timestamp,
    /// End on the monotonic clock of the boot that saw it.
    pub finished_at: Moment,
    /// Length of the run.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub ran_for: Duration,
    /// Why podling ended it, if it did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cause: StopCause,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where a container stands in its back-off. `until` is only meaningful within the boot it was made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// The wait that follows the latest exit.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub delay: Duration,
    /// When that wait is over.
    pub until: Moment,
}
