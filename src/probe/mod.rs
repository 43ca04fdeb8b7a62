//! Probes: asking containers how they are, over HTTP, TCP, gRPC or by a command in them.
//!
//! `http`, `tcp` and `grpc` ask once, from the daemon, with no process for it. Nothing here decides what a
//! verdict means for a pod.

pub mod http;
pub mod target;

/// The program and version that probes show themselves as: what they mean is that version's.
pub const AGENT: &str = "kube-probe/1.36";
