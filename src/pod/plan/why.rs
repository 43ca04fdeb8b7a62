//! Why a container is stopped.

use super::health::FatalProbe;
use crate::store::StopCause;

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pod is to stop.
    PodStops,
    /// The pod ran to its end, and this container served it.
    PodFinished,
    /// `activeDeadlineSeconds` are over.
    Expired,
    /// The sandbox is gone or not whole.
    SandboxChanged,
    /// No entry of the spec explains it, or another container stands for its entry.
    NotWanted,
    /// Its entry changed.
    Changed,
    /// A probe failed for good.
    Probe(FatalProbe),
    /// Its `postStart` hook failed.
    PostStartFailed,
    /// The restart rules of a container ask for all containers to restart.
    RestartingAll,
}

impl Why {
    /// For events and the log.
    pub fn text(self) -> &'static str {
        match self {
            Self::PodStops => "Stopping",
            Self::PodFinished => "PodFinished",
            Self::Expired => "DeadlineExceeded",
            Self::SandboxChanged => "SandboxChanged",
            Self::NotWanted => "ContainerNotWanted",
            Self::Changed => "ContainerChanged",
            Self::Probe(probe) => probe.why(),
            Self::PostStartFailed => "FailedPostStartHook",
            Self::RestartingAll => "RestartingAllContainers",
        }
    }

    /// What it means for starting the container again.
    pub fn cause(self) -> StopCause {
        match self {
            Self::Probe(_) => StopCause::Probe,
            Self::PodStops => StopCause::Order,
            _ => StopCause::Other,
        }
    }
}
