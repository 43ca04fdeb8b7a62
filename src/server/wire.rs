//! The objects under `/podling/v1`, for both ends of the socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::ImageInfo;
pub use crate::image::pull::Reading;
use crate::manifest::{Diagnostic, ObjectKind, PodKey};
use crate::probe::ProbeKind;
use crate::source::SourceReport;

/// `GET /podling/v1/status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// podling's version.
    pub version: String,
    /// The node's name.
    pub node_name: String,
    /// containerd's version, or why it is not known.
    pub containerd: String,
    /// Reports of the sources, by name.
    pub sources: BTreeMap<String, Report>,
    /// Conditions of the node that a person should know: name to message.
    pub node: BTreeMap<String, String>,
}

/// A source's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Findings, in order of path.
    pub problems: Vec<Problem>,
    /// How often inotify's queue overflowed.
    pub overflows: u64,
}

/// One thing that is wrong with a file or a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// A CamelCase word such as `ParseError` or `Frozen`.
    pub reason: String,
    /// One line for a person.
    pub message: String,
    /// The findings behind it.
    pub diagnostics: Vec<Diagnostic>,
    /// Pods that keep running as last accepted because of it.
    pub keeps: Vec<PodKey>,
}

impl Problem {
    /// Whether nothing is wrong and something merely has no effect.
    pub fn is_remark(&self) -> bool {
        Diagnostic::only_warn(&self.diagnostics) && self.keeps.is_empty()
    }
}

impl From<&SourceReport> for Report {
    fn from(report: &SourceReport) -> Self {
        let problem = |p: &crate::source::SourceProblem| Problem {
            path: p.path.clone(),
            reason: p.reason.to_owned(),
            message: p.message.clone(),
            diagnostics: p.diagnostics.clone(),
            keeps: p.keeps.clone(),
        };
        Self { problems: report.problems.iter().map(problem).collect(), overflows: report.overflows }
    }
}

/// `GET /podling/v1/namespaces/{ns}/pods/{name}`: a pod and the manifest behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodDetails {
    /// The v1 Pod.
    pub pod: Pod,
    /// Which source it came from.
    pub source: String,
    /// The manifest file.
    pub file: PathBuf,
    /// 1-based line on which its document begins.
    pub line: u32,
    /// The hash that is in force.
    pub hash: String,
    /// What it was accepted with.
    pub warnings: Vec<Diagnostic>,
    /// The latest result of each probe that has one.
    #[serde(default)]
    pub probes: Vec<ProbeResult>,
    /// Its images that are being pulled.
    #[serde(default)]
    pub pulls: Vec<RunningPull>,
}

/// A pull under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningPull {
    /// Full name of the image.
    pub image: String,
    /// How far it is.
    pub progress: Reading,
}

/// The latest result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// The container.
    pub container: String,
    /// Which of its probes.
    pub probe: ProbeKind,
    /// When it was made.
    pub at: Timestamp,
    /// `passed`, `failed`, or, when it could not be made, `errored`.
    pub outcome: String,
    /// What it said.
    pub message: String,
    /// How many in a row were like it.
    pub streak: u32,
}

/// `GET /podling/v1/images`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImageList {
    /// The images, by name.
    pub items: Vec<ImageInfo>,
}

/// `GET /podling/v1/objects`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObjectList {
    /// ConfigMaps and Secrets in force, by kind, namespace and name.
    pub items: Vec<ObjectInfo>,
}

/// A ConfigMap or Secret without its values.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectInfo {
    /// Which of the two.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `type` of a Secret.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub secret_type: Option<String>,
    /// How many bytes stand under each key.
    pub sizes: BTreeMap<String, usize>,
    /// Whether its data may not change.
    pub immutable: bool,
    /// Since when it is in force.
    pub since: Timestamp,
    /// The file it stands in.
    pub file: PathBuf,
    /// 1-based line on which its document begins.
    pub line: u32,
}

/// `POST /podling/v1/images`: the names an archive held.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// Full names.
    pub names: Vec<String>,
    /// Why others that it held are not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// One line of `POST /podling/v1/images/pull`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PullLine {
    /// How far it is.
    Progress(Reading),
    /// It is here; the last line.
    Done {
        /// Full name.
        name: String,
        /// Digest that it points at.
        digest: String,
        /// Nothing had to be fetched.
        unchanged: bool,
    },
    /// It failed; the last line.
    Error(String),
}

/// One line of a watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchEvent<T> {
    /// `ADDED`, `MODIFIED`, `DELETED`, or `BOOKMARK` after the last object that was there already.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object; of a bookmark only an empty one.
    pub object: T,
}
