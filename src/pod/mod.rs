//! Pods: what should run, and the workers that make it so.
//!
//! `sync_loop` takes updates, runtime events and timers; `manager` holds what should be; one `worker`
//! per pod key looks (`look`), asks the pure `plan`, and acts (`act`). Nothing here reads manifests or
//! speaks gRPC.

mod act;
pub mod admission;
pub mod backoff;
pub mod board;
mod changes;
mod cleanup;
pub(crate) mod context;
mod data_changes;
mod differences;
mod findings;
mod housekeeping;
mod look;
mod manager;
pub(crate) mod orphans;
pub mod plan;
mod refresh;
mod resize;
pub(crate) mod status;
pub(crate) mod sync_loop;
mod tell;
mod update;
mod worker;
