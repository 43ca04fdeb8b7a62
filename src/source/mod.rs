//! Sources: where manifests come from, and the merge and diff that turn them into updates.
//!
//! A source always sends its **complete** set of pods; [`PodConfig`](config) compares it with what
//! that source said before and emits [`PodUpdate`]s. A source that cannot tell what should run (its
//! directory is gone, unreadable, or an empty mount point) sends no set at all: the desired state is
//! frozen, never emptied. Nothing here knows of containerd.

pub mod names;
pub mod update;

pub use update::*;
