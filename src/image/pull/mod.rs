//! Pulling: from a registry into containerd's content store, and on into snapshots.
//!
//! `job` does one pull from beginning to end, `blobs` fetches what it needs, `puller` sees to it that each
//! image is pulled once however many pods want it, and when one that failed is tried again. A pull keeps
//! nothing bigger than a manifest in memory.

mod blobs;
mod complete;
mod error;
mod job;
mod progress;
mod puller;

pub use error::PullError;
pub use job::{Pulled, Setup};
pub use progress::{Progress, Reading};
pub use puller::{NotReady, Puller, PullerOptions, Ready, Want};
