//! containerd over its native gRPC API. The only folder that speaks gRPC.
//!
//! [`Containerd`] has one method a call, with deadlines, bounded bursts and errors for people. It works
//! unchanged on containerd 1.6, 1.7 and 2.x: no Transfer service, no sandbox API. Events are hints
//! ([`events`]); what is true comes from listing and waiting ([`pleg`] turns both into wake-ups).
//! [`embedded`] starts a private containerd where the machine has none running.
//!
//! This folder decides nothing about pods: restart, back-off and order live in `pod`.

mod client;
mod containers;
pub(crate) mod content;
pub mod embedded;
mod error;
pub mod events;
pub mod exec;
pub(crate) mod images;
mod lanes;
mod leases;
mod mounts;
mod options;
pub mod pleg;
pub mod probe;
mod snapshots;
mod tasks;

pub use client::Containerd;
pub use containers::{ContainerRecord, NewContainer};
pub use embedded::{ContainerdHandle, Embedded, EmbeddedError, resolve};
pub use error::{ErrorClass, RuntimeError, SUN_PATH_MAX};
pub use events::RuntimeEvent;
pub use exec::{ExecOutput, ExecRequest, ExecSession, ExecState, ExecStdin, adopt_fifos};
pub use lanes::{Permit, Rank, RankedQueue, with_rank};
pub use leases::Lease;
pub use mounts::Mount;
pub use options::OciRuntime;
pub use pleg::{Wake, WakeKind};
pub use tasks::{Exit, TaskInfo, TaskIo, TaskStatus};

/// A timestamp of containerd's as one of ours; none when it is absent or out of range.
fn timestamp(at: Option<prost_types::Timestamp>) -> Option<jiff::Timestamp> {
    let at = at?;
    // Go's zero time is year 1: nothing happened yet.
    if at.seconds <= 0 && at.nanos == 0 {
        return None;
    }
    jiff::Timestamp::new(at.seconds, at.nanos).ok()
}
