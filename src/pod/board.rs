//! The board: the last published status of each pod, and recent events, for whoever asks.
//!
//! Workers write, the server reads. It is a view: nothing decides by what stands here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::manifest::{PodKey, PodManifest};
use crate::probe::{Last, ProbeKind, Results};
use crate::source::SourceReport;

/// The pod condition that says whether the pod runs what its manifest file says.
pub const APPLIED: &str = "Applied";

/// Events kept in memory.
const EVENTS_KEPT: usize = 1000;

/// A pod as last published by its worker.
#[derive(Clone, Debug)]
pub struct PodView {
    /// The spec that is in force.
    pub manifest: Arc<PodManifest>,
    /// `metadata.uid`.
    pub uid: String,
    /// When the pod was first accepted (`metadata.creationTimestamp`, `kubernetes.io/config.seen`).
    pub seen: Timestamp,
    /// Which source it came from.
    pub source: &'static str,
    /// Set while the pod is being stopped for good (`metadata.deletionTimestamp`).
    pub deleting: Option<Timestamp>,
    /// Full status as kubectl prints it.
    pub status: PodStatus,
}

impl PodView {
    /// The v1 Pod that `get -o json` prints: manifest, uid, `kubernetes.io/config.*`, status.
    pub fn to_pod(&self) -> Pod {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
        let mut pod = self.manifest.pod.clone();
        let meta = &mut pod.metadata;
        meta.uid = Some(self.uid.clone());
        meta.creation_timestamp = Some(Time(self.seen));
        meta.deletion_timestamp = self.deleting.map(Time);
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert("kubernetes.io/config.source".into(), self.source.into());
        annotations.insert("kubernetes.io/config.seen".into(), format!("{:.9}", self.seen));
        annotations.insert("kubernetes.io/config.hash".into(), self.manifest.hashes.manifest.clone());
        pod.status = Some(self.status.clone());
        pod
    }
}

/// `Normal` or `Warning`, as in a v1 Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something that happened to a pod or to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Increases by one with each event; a repeated one gets a new number.
    pub sequence: u64,
    /// First time.
    pub first: Timestamp,
    /// Last time.
    pub last: Timestamp,
    /// How often.
    pub count: u32,
    /// Weight.
    pub kind: EventType,
    /// CamelCase word such as `Started`, `BackOff`, `FailedMount`.
    pub reason: String,
    /// The pod, or none for the node.
    pub pod: Option<PodKey>,
    /// One line.
    pub message: String,
}

/// What `get`, `describe` and `-w` read.
#[derive(Debug, Default, Clone)]
pub struct Snapshot {
    /// Pods by key.
    pub pods: BTreeMap<PodKey, Arc<PodView>>,
    /// Recent events, oldest first.
    pub events: VecDeque<Arc<Event>>,
    /// Last report of each source.
    pub sources: BTreeMap<&'static str, SourceReport>,
    /// Conditions of the node that a person should know (`NoCapSysResource`, `ContainerdUnavailable`):
    /// name to message.
    pub node: BTreeMap<&'static str, String>,
    sequence: u64,
}

/// Shared handle to the board.
#[derive(Clone, Debug)]
pub struct Board {
    state: Arc<watch::Sender<Snapshot>>,
    /// Where to look for the results of probes: they come too often to be news.
    probes: Arc<Mutex<BTreeMap<PodKey, Results>>>,
}

impl Default for Board {
    fn default() -> Self {
        Self { state: Arc::new(watch::channel(Snapshot::default()).0), probes: Arc::default() }
    }
}

impl Board {
    /// Wakes at each change; `borrow()` it only briefly.
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.state.subscribe()
    }

    /// Says where to look for the results of a pod's probes, or that it has none any more.
    pub fn probes(&self, key: &PodKey, results: Option<Results>) {
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        match results {
            Some(results) => drop(probes.insert(key.clone(), results)),
            None => drop(probes.remove(key)),
        }
    }

    /// The latest results of a pod's probes: container, probe, result.
    pub fn probe_results(&self, key: &PodKey) -> Vec<(String, ProbeKind, Last)> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.get(key).map(Results::read).unwrap_or_default()
    }

    /// Publishes a pod's status; unchanged ones wake nobody.
    pub fn publish(&self, view: PodView) {
        let key = view.manifest.key.clone();
        self.state.send_if_modified(|s| {
            let same = s.pods.get(&key).is_some_and(|old| {
                old.status == view.status
                    && old.uid == view.uid
                    && old.deleting == view.deleting
                    && Arc::ptr_eq(&old.manifest, &view.manifest)
            });
            if !same {
                s.pods.insert(key.clone(), Arc::new(view));
            }
            !same
        });
    }

    /// Says of a pod that was just ordered to stop that it is not ready; its worker says the rest.
    pub fn not_ready(&self, key: &PodKey) {
        self.state.send_if_modified(|s| {
            let Some(view) = s.pods.get_mut(key) else { return false };
            let mut changed = (**view).clone();
            let ready = |c: &&mut PodCondition| {
                matches!(c.type_.as_str(), "Ready" | "ContainersReady") && c.status == "True"
            };
            let mut any = false;
            for condition in changed.status.conditions.iter_mut().flatten().filter(ready) {
                condition.status = "False".into();
                condition.reason = Some("PodStopping".into());
                any = true;
            }
            if any {
                *view = Arc::new(changed);
            }
            any
        });
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, key: &PodKey) {
        self.state.send_if_modified(|s| s.pods.remove(key).is_some());
    }

    /// Replaces a source's report.
    pub fn report(&self, source: &'static str, report: SourceReport) {
        self.state.send_if_modified(|s| {
            let changed = s.sources.get(source) != Some(&report);
            if changed {
                s.sources.insert(source, report);
            }
            changed
        });
    }

    /// Sets or clears a condition of the node.
    pub fn node(&self, name: &'static str, message: Option<String>) {
        self.state.send_if_modified(|s| match message {
            Some(m) => s.node.insert(name, m.clone()).as_ref() != Some(&m),
            None => s.node.remove(name).is_some(),
        });
    }

    /// Records an event; one that says the same of the same pod as a recent one only raises its count.
    pub fn event(&self, kind: EventType, reason: &str, pod: Option<&PodKey>, message: impl Into<String>) {
        let (now, message) = (Timestamp::now(), message.into());
        self.state.send_modify(|s| {
            s.sequence += 1;
            let same = |e: &Arc<Event>| e.reason == reason && e.pod.as_ref() == pod && e.message == message;
            let (first, count) = match s.events.iter().rposition(same) {
                Some(i) => s.events.remove(i).map_or((now, 1), |e| (e.first, e.count + 1)),
                None => (now, 1),
            };
            s.events.push_back(Arc::new(Event {
                sequence: s.sequence,
                first,
                last: now,
                count,
                kind,
                reason: reason.into(),
                pod: pod.cloned(),
                message,
            }));
            if s.events.len() > EVENTS_KEPT {
                s.events.pop_front();
            }
        });
    }
}

/// What the server may ask of the sync loop. The answer comes when the order is accepted and stored,
/// not when it is carried out.
#[derive(Debug)]
pub enum Control {
    /// Stop a pod with its grace and keep it stopped until `Start`.
    Stop(PodKey, oneshot::Sender<Result<(), String>>),
    /// Start a stopped pod.
    Start(PodKey, oneshot::Sender<Result<(), String>>),
    /// Stop with grace, then start afresh.
    Restart(PodKey, oneshot::Sender<Result<(), String>>),
    /// The machine shuts down: stop all pods in order within this time, and start none.
    Shutdown(Duration, oneshot::Sender<Result<(), String>>),
    /// Look at the manifest directories and at the settings again.
    Reload(oneshot::Sender<Result<(), String>>),
}

/// How orders reach the sync loop.
pub type ControlSender = mpsc::Sender<Control>;
