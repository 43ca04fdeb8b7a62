//! The runtime: how containers are made, watched and ended.

pub mod containerd;
