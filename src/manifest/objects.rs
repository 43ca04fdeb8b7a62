//! The objects the rest of podling works with once a manifest has been read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::data::DataObject;

/// Identity of a pod: namespace and name. Two manifests with the same key are the same pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// Kubernetes namespace, `default` where the manifest has none.
    pub namespace: String,
    /// `metadata.name`, with the node suffix where the settings ask for it.
    pub name: String,
}

impl PodKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a pod came from: for error messages and for "who had it first".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The manifest file.
    pub file: PathBuf,
    /// 1-based line on which the document begins.
    pub line: u32,
}

/// Hashes over the canonical form of what the user wrote, so that an upgrade of podling, a comment
/// or another key order changes none of them. `hash.rs` documents the canonical form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hashes {
    /// Over the whole manifest; this is the annotation `kubernetes.io/config.hash`.
    pub manifest: String,
    /// Over `spec` without `containers`: a change here re-creates the pod.
    pub pod: String,
    /// Over each entry of `containers`, by name: a change restarts that container only.
    pub containers: BTreeMap<String, String>,
    /// Over each entry of `initContainers`, by name; empty in records from before this was kept.
    #[serde(default)]
    pub init_containers: BTreeMap<String, String>,
}

/// A pod that was read, defaulted and validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodManifest {
    /// Namespace and name.
    pub key: PodKey,
    /// `metadata.uid` where the manifest gives one.
    pub uid: Option<String>,
    /// The object with the API defaults filled in. `metadata.uid` and the `kubernetes.io/config.*`
    /// annotations are set later, by the pod manager.
    #[serde(with = "by_value")]
    pub pod: Pod,
    /// What the spec hash and its parts are.
    pub hashes: Hashes,
    /// Where it stands.
    pub origin: Origin,
    /// What was accepted with a warning (unknown fields, fields without effect here).
    pub warnings: Vec<Diagnostic>,
}

impl PodManifest {
    /// One that stands in no file: it has no hashes, no origin, and nothing was said of it.
    pub fn without_file(key: PodKey, pod: Pod) -> Self {
        let (hashes, origin) = (Hashes::default(), Origin::default());
        Self { key, uid: None, pod, hashes, origin, warnings: Vec::new() }
    }
}

/// How much a diagnostic weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pod runs; what is named has no effect or another one than may be expected.
    Warning,
    /// The document is refused.
    Error,
}

/// What kind of finding a diagnostic is: what tools and tests switch on instead of reading its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The bytes are no YAML or JSON, or break a limit on size, depth or nodes.
    Syntax,
    /// The document is of a kind or version that podling does not run.
    Kind,
    /// A value of the wrong type.
    Type,
    /// A field that the Pod API does not have.
    Unknown,
    /// A key that stands twice in one mapping.
    Duplicate,
    /// A value that the Pod API's own rules refuse.
    #[default]
    Invalid,
    /// A Secret in a file that everybody on the machine can read.
    Exposed,
    /// A valid field that podling refuses, since dropping it would change what the pod does.
    Unsupported,
    /// A valid manifest whose pod this node cannot or may not run: it waits until node, settings or manifest change.
    Admission,
    /// A valid field or value that has no effect here, or another one than may be expected.
    NoEffect,
}

/// One finding in a manifest, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Weight.
    pub severity: Severity,
    /// Kind of finding.
    #[serde(default)]
    pub code: Code,
    /// Field path such as `spec.containers[0].ports[1].hostPort`; empty for syntax errors.
    pub path: String,
    /// 1-based line in the file; 0 when unknown.
    pub line: u32,
    /// 1-based column; 0 when unknown.
    pub column: u32,
    /// What is wrong and what is allowed: lower case, no final period.
    pub text: String,
}

impl Diagnostic {
    /// Whether these are findings that refuse nothing.
    pub fn only_warn(all: &[Self]) -> bool {
        !all.is_empty() && all.iter().all(|d| d.severity == Severity::Warning)
    }
}

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Runs as written.
    Ok,
    /// Runs, or is skipped, with something to say about it.
    Warn,
    /// Refused.
    Reject,
}

/// One YAML or JSON document of a file (an item of a `List` counts as one).
#[derive(Clone, Debug)]
pub struct Document {
    /// 1-based line on which it begins.
    pub line: u32,
    /// `kind` as written, empty when unreadable.
    pub kind: String,
    /// `metadata.namespace` after defaulting, empty when unreadable.
    pub namespace: String,
    /// `metadata.name`, empty when unreadable.
    pub name: String,
    /// All findings, in order of place.
    pub diagnostics: Vec<Diagnostic>,
    /// The pod, when the document is one and is accepted.
    pub pod: Option<Box<PodManifest>>,
    /// The ConfigMap or Secret, when the document is one and is accepted.
    pub object: Option<Box<DataObject>>,
}

impl Document {
    /// The verdict that `check` prints.
    pub fn verdict(&self) -> Verdict {
        match self.diagnostics.iter().map(|d| d.severity).max() {
            Some(Severity::Error) => Verdict::Reject,
            Some(Severity::Warning) => Verdict::Warn,
            None => Verdict::Ok,
        }
    }
}

/// How to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Unknown fields are errors instead of warnings.
    pub strict: bool,
    /// Appended to the pod's name as `-<suffix>`, as the kubelet does with its node name.
    pub name_suffix: Option<String>,
    /// `spec.nodeName` of the pods.
    pub node_name: String,
    /// Names of RuntimeClasses that the settings know.
    pub runtime_classes: Vec<String>,
    /// Everybody on the machine can read the file: its Secrets are refused.
    pub exposed: bool,
}

/// A Pod in a file, by way of a JSON value: the type is large, and this way it is compiled for one serializer
/// and one deserializer only.
mod by_value {
    use k8s_openapi::api::core::v1::Pod;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
    use serde_json::Value;

    pub fn serialize<S: Serializer>(pod: &Pod, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::to_value(pod).map_err(ser::Error::custom)?.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pod, D::Error> {
        serde_json::from_value(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
