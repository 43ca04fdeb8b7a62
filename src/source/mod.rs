//! Sources: where manifests come from, and the merge and diff that turn them into updates.
//!
//! A source always sends its **complete** set of pods; [`PodConfig`](config) compares it with what
//! that source said before and emits [`PodUpdate`]s. A source that cannot tell what should run (its
//! directory is gone, unreadable, or an empty mount point) sends no set at all: the desired state is
//! frozen, never emptied. Nothing here knows of containerd.

mod aside;
mod claims;
pub mod config;
mod entry;
pub mod file;
mod interest;
mod judge;
mod look;
mod names;
mod scan;
pub mod update;
mod watch;

pub use config::PodConfig;
pub use file::{FILE_SOURCE, FileSource, FileSourceOptions, Seed};
pub use look::{DirIdentity, MAX_FILE};
pub use update::*;
