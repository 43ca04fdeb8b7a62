//! Probes: asking containers how they are, over HTTP, TCP, gRPC or by a command in them.
//!
//! A [`ProbeSet`] watches the containers of one pod, in one task: it makes each probe when it is due, counts
//! what comes of it (`state`, pure) and says when a verdict changes. `check` is one run; `http`, `tcp` and
//! `grpc` ask once, from the daemon, with no process for it. Nothing here decides what a verdict means for
//! the pod.

mod check;
pub mod grpc;
pub mod http;
mod set;
mod speak_first;
mod state;
pub mod target;
mod tcp;

pub use check::Outcome;
pub use set::{Listener, ProbeSet, Results, Watch};
pub use state::{Last, Restored, Target, Verdict};

use k8s_openapi::api::core::v1::{Container, Probe};
use serde::{Deserialize, Serialize};

use crate::runtime::ExecPurpose;

/// The program and version that probes show themselves as: what they mean is that version's.
pub const AGENT: &str = "kube-probe/1.36";

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// `startupProbe`.
    Startup,
    /// `livenessProbe`.
    Liveness,
    /// `readinessProbe`.
    Readiness,
}

impl ProbeKind {
    /// All, in the order in which they matter.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// This probe of a container, if it has one.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }

    /// As events and `describe` have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    fn purpose(self) -> ExecPurpose {
        match self {
            Self::Startup => ExecPurpose::Startup,
            Self::Liveness => ExecPurpose::Liveness,
            Self::Readiness => ExecPurpose::Readiness,
        }
    }
}

/// Whether a container has any probe.
pub fn has_probes(container: &Container) -> bool {
    ProbeKind::ALL.iter().any(|kind| kind.of(container).is_some())
}
