//! What the checkpoint files hold. Field names and meaning are a format: add, never change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::PodManifest;
use crate::source::DirIdentity;
use crate::system::clock::Moment;

/// Version of all files that this podling writes.
pub const VERSION: u32 = 1;

/// A pod as it stands on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRecord {
    /// `pod.json`.
    pub spec: PodSpecRecord,
    /// `status.json`, empty when there is none.
    pub status: StatusRecord,
}

/// `pods/<uid>/pod.json`: what was accepted, and what was ordered about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpecRecord {
    /// [`VERSION`].
    pub version: u32,
    /// The pod's uid, the name of the directory.
    pub uid: String,
    /// Source it came from: `file`, `http`.
    pub source: String,
    /// When it was first accepted.
    pub seen: Timestamp,
    /// Stopped by a person, to stay so until started by one.
    #[serde(default)]
    pub stopped: bool,
    /// Its removal was ordered and is not finished.
    #[serde(default)]
    pub removing: bool,
    /// What was accepted.
    pub manifest: PodManifest,
}

/// `pods/<uid>/status.json`: what a restart must know and containerd may have forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusRecord {
    /// [`VERSION`].
    pub version: u32,
    /// The boot in which it was written; each [`Moment`] in it counts from that boot's start.
    pub boot_id: String,
    /// `status.phase`, kept because a phase once final stays.
    pub phase: Option<String>,
    /// `status.reason`, such as `DeadlineExceeded` or `Evicted`.
    pub reason: Option<String>,
    /// `status.message`.
    pub message: Option<String>,
    /// `status.startTime`: when the pod was first worked on.
    pub start_time: Option<Timestamp>,
    /// The sandbox in use, or last in use.
    pub sandbox: Option<SandboxRecord>,
    /// Containers by name, init containers among them.
    pub containers: BTreeMap<String, ContainerStatusRecord>,
    /// `lastTransitionTime` and value of each condition, by type.
    pub conditions: BTreeMap<String, ConditionRecord>,
}

impl Default for StatusRecord {
    fn default() -> Self {
        Self {
            version: VERSION,
            boot_id: String::new(),
            phase: None,
            reason: None,
            message: None,
            start_time: None,
            sandbox: None,
            containers: BTreeMap::new(),
            conditions: BTreeMap::new(),
        }
    }
}

/// The sandbox of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRecord {
    /// Its id.
    pub id: String,
    /// Counts the sandboxes of this pod, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// Addresses, the first of which is `podIP`.
    #[serde(default)]
    pub ips: Vec<String>,
    /// Uses the host's network.
    #[serde(default)]
    pub host_network: bool,
    /// When it was made.
    pub created: Timestamp,
}

/// Whether a condition holds, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionRecord {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When that last changed.
    pub since: Timestamp,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusRecord {
    /// Its name.
    pub name: String,
    /// An init container.
    pub init: bool,
    /// Number of the present attempt and of its log file; never goes back within a pod's life.
    pub attempt: u32,
    /// `restartCount`.
    pub restarts: u32,
    /// The present or last containerd id.
    pub container_id: Option<String>,
    /// Hash of the entry it was started from, to tell whether an edit touches it.
    pub container_hash: String,
    /// An init container that succeeded, or a container that by its policy is not started again.
    pub completed: bool,
    /// Its newest exit.
    pub last: Option<ExitRecord>,
    /// The exit before, for `lastState` while the newest is `state`.
    pub previous: Option<ExitRecord>,
    /// The crash-loop back-off it is in.
    pub backoff: Option<BackoffRecord>,
}

/// A crash-loop back-off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackoffRecord {
    /// The delay in force, such as `20s`: the next one follows from it.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub delay: Duration,
    /// When the container may start; only means something within the record's boot.
    pub until: Moment,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitRecord {
    /// The containerd id of the attempt that ended.
    pub container_id: String,
    /// Exit code, 128 + signal where a signal ended it.
    pub code: i32,
    /// The signal, where known.
    #[serde(default)]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, …
    pub reason: String,
    /// Termination message.
    #[serde(default)]
    pub message: String,
    /// When it started, by the wall clock.
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// When it ended, by the wall clock: for display.
    pub finished: Timestamp,
    /// When it ended; only means something within the record's boot.
    pub finished_at: Moment,
    /// How long it ran, such as `1m 2s`: decides whether the back-off is forgotten.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub ran_for: Duration,
}

/// `source.json`: which directory each manifest directory was when podling last read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceRecord {
    pub(super) version: u32,
    pub(super) dirs: BTreeMap<PathBuf, DirIdentity>,
}
