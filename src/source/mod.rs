//! Sources: where manifests come from, and the merge and diff that turn them into updates.
//!
//! A source always sends its **complete** set of pods; [`PodConfig`](config) compares it with what
//! that source said before and emits [`PodUpdate`]s. Where a source cannot tell what should run (a
//! directory is gone, unreadable, or an empty mount point) it goes on saying what it last knew: the
//! desired state is frozen, never emptied. Nothing here knows of containerd.

mod aside;
mod claims;
pub mod config;
mod entry;
pub mod file;
mod interest;
mod judge;
mod look;
pub mod names;
mod reading;
mod scan;
pub mod update;
mod watch;

pub use config::PodConfig;
pub use file::{FILE_SOURCE, FileSource, FileSourceOptions, Seed};
pub use look::{DirIdentity, MAX_FILE};
pub use update::*;
