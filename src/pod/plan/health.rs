//! What the probes say about a running container, as far as decisions hang on it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Instance;

/// Verdicts of a running container's probes. A container without an entry has no probes: while it runs it is
/// started and ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its startup probe has passed, or it has none.
    pub started: bool,
    /// Its readiness probe passes, or it has none; never true before `started`.
    pub ready: bool,
    /// A probe failed for good: the container is to be stopped.
    pub failed: Option<ProbeFailed>,
}

/// A probe that failed as often as its threshold says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailed {
    /// Which probe.
    pub probe: FatalProbe,
    /// What it said last.
    pub message: String,
    /// `terminationGracePeriodSeconds` of the probe; may be longer than the pod's.
    pub grace: Option<Duration>,
}

/// The probes whose failure ends a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalProbe {
    /// `livenessProbe`.
    Liveness,
    /// `startupProbe`.
    Startup,
}

impl FatalProbe {
    /// Why a container is stopped that failed it.
    pub fn why(self) -> &'static str {
        match self {
            Self::Liveness => "failed liveness probe, will be restarted",
            Self::Startup => "failed startup probe, will be restarted",
        }
    }
}

/// Whether a live container has started, in the sense of its startup probe.
pub fn is_started(health: &BTreeMap<String, Health>, instance: &Instance) -> bool {
    health.get(&instance.id).is_none_or(|h| h.started)
}

/// Whether a live container is ready, in the sense of its readiness probe.
pub fn is_ready(health: &BTreeMap<String, Health>, instance: &Instance) -> bool {
    health.get(&instance.id).is_none_or(|h| h.started && h.ready)
}
