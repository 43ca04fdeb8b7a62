//! Pods: what should run, and the workers that make it so.
//!
//! `sync_loop` takes updates, runtime events and timers; `manager` holds what should be; one `worker`
//! per pod key observes, asks the pure `plan`, and acts. Nothing here reads manifests or speaks gRPC.

pub mod board;
pub mod daemon;
