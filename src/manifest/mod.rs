//! Manifests: bytes in, typed, defaulted and validated objects out.
//!
//! This folder does no IO and knows nothing of containerd. It owns the kubelet's YAML dialect, the
//! table of fields podling honours, the API defaults, validation, and the hashes that decide what an
//! edit touches. The daemon's file source and `podling check` call the same [`read`].

mod objects;

pub use objects::*;
