//! Scenarios on a real containerd: what a user does, and what must come of it.
//!
//! One binary, so that the harness compiles once and all scenarios share the machine's cores. Each test has a
//! containerd and a podling of its own; see `tests/support`. They need root and the packages of `make deps`.

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod adoption;
mod archives;
mod cli;
mod collect;
mod control_plane;
mod data_volumes;
mod directory;
mod environment;
mod faults;
mod harness;
mod isolation;
mod lifecycle;
mod logs;
mod mounts;
mod names;
mod network;
mod pods;
mod power_cut;
mod probes;
mod pull;
mod pull_images;
mod registries;
mod restarts;
mod security;
mod shutdown;
mod signatures;
mod updates;
mod words;
