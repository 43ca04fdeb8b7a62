//! Pods: what should run, and the workers that make it so.
//!
//! `sync_loop` takes updates, runtime events and timers; `manager` holds what should be; one `worker`
//! per pod key looks (`look`), asks the pure `plan`, and acts (`act`). Nothing here reads manifests or
//! speaks gRPC.

mod act;
pub mod admission;
pub mod backoff;
pub mod board;
pub mod capacity;
mod changes;
mod cleanup;
pub mod closing;
pub(crate) mod context;
mod data_changes;
mod differences;
pub mod findings;
mod hooks;
mod housekeeping;
mod last_words;
mod look;
mod manager;
mod order;
pub(crate) mod orphans;
pub mod plan;
mod probing;
mod pulls;
mod refresh;
mod renewal;
mod resize;
pub(crate) mod status;
mod stops;
pub(crate) mod sync_loop;
mod tell;
mod uid;
mod update;
mod worker;
