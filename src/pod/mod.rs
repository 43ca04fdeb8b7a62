//! Pods: what should run, and the workers that make it so.
//!
//! `sync_loop` takes updates, runtime events and timers; `manager` holds what should be; one `worker`
//! per pod key looks (`look`), asks the pure `plan`, and acts (`act`). Nothing here reads manifests or
//! speaks gRPC.

mod act;
pub mod admission;
pub mod backoff;
pub mod board;
mod cleanup;
mod context;
pub mod daemon;
mod housekeeping;
mod look;
mod manager;
mod node;
mod orphans;
pub mod plan;
mod signals;
mod status;
mod sync_loop;
mod unseen;
mod worker;
