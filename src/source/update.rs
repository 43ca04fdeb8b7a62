//! What flows from a source to the sync loop.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::manifest::{DataObject, Diagnostic, PodKey, PodManifest};

/// Kinds of change, with the kubelet's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Op {
    /// The complete set of a source, sent first: what was accepted before this start.
    Set,
    /// Pods that the source did not have.
    Add,
    /// Pods whose manifest changed.
    Update,
    /// Pods that the source has no more.
    Remove,
    /// Pods of which only the status changed.
    Reconcile,
    /// Pods whose manifest now carries a deletion timestamp.
    Delete,
}

/// A batch of changes of one kind from one source.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// What happened to them.
    pub op: Op,
    /// Which source says so: `file`, `http`.
    pub source: &'static str,
    /// The pods; for [`Op::Remove`] as they were last known.
    pub pods: Vec<Arc<PodManifest>>,
}

/// What a source sends on each look.
#[derive(Clone, Debug)]
pub struct SourceUpdate {
    /// The source's name.
    pub source: &'static str,
    /// The complete set of pods it wants, or `None` while it is frozen.
    pub pods: Option<Vec<Arc<PodManifest>>>,
    /// The complete set of its ConfigMaps and Secrets, or `None` while it is frozen.
    pub objects: Option<Vec<Arc<DataObject>>>,
    /// What a person should know about the files and directories behind it.
    pub report: SourceReport,
}

/// State of a source's files and directories, for `get`, `describe` and the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// Findings, in order of path; empty when all is well.
    pub problems: Vec<SourceProblem>,
    /// How often inotify's queue overflowed since the start (each one triggered a relist).
    pub overflows: u64,
}

/// One thing that is wrong with a file or a directory, or that has no effect in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceProblem {
    /// The file or directory.
    pub path: PathBuf,
    /// `ParseError`, `Invalid`, `Unreadable`, `Duplicate`, `NotAPod`, `Ignored`, `Frozen`, `TooLarge`,
    /// `WorldWritable`, `Missing` (a directory, no pods known in it), `Empty` (a file without content),
    /// `Unwatched` (no inotify; changes are seen late), `ManifestWarning`.
    pub reason: &'static str,
    /// One line for a person: what is wrong, where, and what to do.
    pub message: String,
    /// The findings behind it, with places.
    pub diagnostics: Vec<Diagnostic>,
    /// Pods that keep running as last accepted because of it.
    pub keeps: Vec<PodKey>,
}

impl SourceProblem {
    /// Whether nothing is wrong and something merely has no effect, which is said once and not at each look.
    pub fn is_remark(&self) -> bool {
        Diagnostic::only_warn(&self.diagnostics) && self.keeps.is_empty()
    }
}
