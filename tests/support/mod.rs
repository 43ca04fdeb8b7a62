//! The harness of the scenario tests: a containerd and a podling of its own for each test.
//!
//! Each [`Instance`] has its own directory, containerd, containerd namespace, cgroup root and network
//! namespace, so tests run in parallel and never touch the host's bridges, firewall or ports. Dropping an
//! instance removes its pods the way a user would, then checks that nothing is left anywhere; whatever is left
//! after a failed test is removed by force.

pub mod clean;
pub mod daemon_containerd;
pub mod fault_proxy;
pub mod faults;
pub mod grpc;
pub mod host;
pub mod image;
pub mod instance;
pub mod layout;
pub mod manifest;
pub mod pods;
pub mod registry;

pub use image::Image;
pub use instance::{Instance, Options, seconds};
pub use manifest::{pod, shell, sleeper};
pub use pods::PodView;
