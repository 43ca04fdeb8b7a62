//! The parts of a pod's record that keep what must happen once from happening twice: hooks, stops, restarts of
//! the whole pod, deadlines.

use std::time::Duration;

use jiff::fmt::serde::unsigned_duration::friendly::compact;
use serde::{Deserialize, Serialize};

use super::records::Backoff;
use crate::system::clock::Moment;

/// How far a hook of one run of a container has got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookPhase {
    /// It is to be run.
    Due,
    /// It was begun then. Written before it is, so it is never begun twice.
    Begun(Moment),
    /// It is over; a failed `preStop` changes nothing.
    Done,
    /// It failed, and why.
    Failed(String),
}

/// A stop under way. Moments are of the boot in which the container runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRecord {
    /// When it was begun.
    pub began: Moment,
    /// Time from there, `preStop` included.
    #[serde(with = "compact::required")]
    pub grace: Duration,
    /// The `preStop` hook, if there is one to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<HookPhase>,
    /// The stop signal was sent, and SIGKILL is due then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_until: Option<Moment>,
    /// Why.
    pub cause: StopCause,
}

/// Why a container is stopped, as far as it decides about starting it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopCause {
    /// Its exit code decides.
    #[default]
    Other,
    /// A liveness or startup probe failed: it is restarted unless the policy is Never.
    Probe,
    /// The pod was stopped by order: when it is started again, what was interrupted is, too.
    Order,
}

/// Restarts of all containers of a pod, asked for by a container's restart rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartAll {
    /// The container whose exit asked for the latest.
    pub by: String,
    /// It is under way: everything is stopped, and started when the back-off is over.
    pub under_way: bool,
    /// The back-off of these restarts.
    pub backoff: Backoff,
}

/// How long a pod with `activeDeadlineSeconds` has been active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActiveTime {
    /// Counted so far.
    #[serde(with = "compact::required")]
    pub spent: Duration,
    /// Up to when that is; none while it does not count.
    pub counted: Option<Moment>,
}

impl ActiveTime {
    /// Counts on up to `now`, or, for a pod that is not to run, stops counting there.
    pub fn count(&mut self, now: Moment, active: bool) {
        if let Some(before) = self.counted {
            self.spent += now.since(before);
        }
        self.counted = active.then_some(now);
    }
}

/// A pod that failed as a whole, and stays so until its spec changes or a person restarts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Such as `DeadlineExceeded`.
    pub reason: String,
    /// For a person.
    pub message: String,
}
