//! The kernel: namespaces, mounts, cgroups, clocks. The only folder with `unsafe`, all of it in
//! `raw.rs`. Nothing here knows of pods or containerd.

pub mod clock;
pub mod notify;
