//! What becomes of a file: its documents, and what was last accepted from it, in; pods, objects and findings
//! out.

use std::path::Path;
use std::sync::Arc;

use crate::manifest::{Code, DataObject, Diagnostic, Document, ObjectKey, PodKey, PodManifest, Severity};

use super::SourceProblem;

/// Kinds that podling takes; any other is not a pod and never was meant for here.
const OUR_KINDS: [&str; 6] = ["Pod", "ConfigMap", "Secret", "PersistentVolumeClaim", "List", "PodList"];

/// What was last accepted from a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accepted<'a> {
    /// Its pods.
    pub pods: &'a [Arc<PodManifest>],
    /// Its ConfigMaps and Secrets.
    pub objects: &'a [Arc<DataObject>],
}

/// The verdict on a file.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What the file stands for at present: its accepted pods, and those it keeps.
    pub pods: Vec<Arc<PodManifest>>,
    /// Its ConfigMaps and Secrets, likewise.
    pub objects: Vec<Arc<DataObject>>,
    /// One finding for each refused document, and for each that is no pod and was taken with warnings.
    pub problems: Vec<SourceProblem>,
    /// Something may be missing: a document was refused or a pod is no longer there. The file may be
    /// half written.
    pub doubtful: bool,
}

/// A document that is not taken.
struct Refused {
    document: Document,
    /// Of a kind that podling never takes.
    foreign: bool,
}

/// Judges a file by its documents. What was last accepted from it and no good document redefines is
/// kept as long as any document is refused, since it may be that one's. In a directory for objects
/// only, pods are refused.
pub fn judge(path: &Path, documents: Vec<Document>, before: Accepted<'_>, objects_only: bool) -> Judgement {
    let mut judgement = Judgement::default();
    let mut refused: Vec<Refused> = Vec::new();
    let mut any_ours = false;
    let mut remarks = Vec::new();
    for mut document in documents {
        let (mut pod, mut object) = (document.pod.take(), document.object.take());
        if objects_only && pod.take().is_some() {
            document.diagnostics.push(misplaced(&document));
        }
        if let Some(new) = &object
            && let Some(old) = before.objects.iter().find(|old| old.key == new.key && breaks(old, new))
        {
            document.diagnostics.push(immutable(old, &document));
            object = None;
        }
        any_ours |= pod.is_some() || object.is_some() || document.kind == "Pod";
        if let Some(pod) = pod {
            judgement.pods.push(accept(path, *pod, before.pods));
            continue;
        }
        let foreign = !document.kind.is_empty() && !OUR_KINDS.contains(&document.kind.as_str());
        let warned = !document.diagnostics.is_empty();
        if let Some(object) = object {
            judgement.objects.push(accept_object(path, *object, before.objects));
            remarks.extend(warned.then_some(document));
        } else if document.diagnostics.iter().any(|d| d.severity == Severity::Error) || (foreign && warned) {
            refused.push(Refused { document, foreign });
        } else {
            remarks.extend(warned.then_some(document));
        }
    }
    let missing: Vec<&Arc<PodManifest>> =
        before.pods.iter().filter(|old| !judgement.pods.iter().any(|new| new.key == old.key)).collect();
    let absent: Vec<&Arc<DataObject>> =
        before.objects.iter().filter(|old| !judgement.objects.iter().any(|new| new.key == old.key)).collect();
    // A Deployment beside the pods says nothing about them; one in their place does.
    let keep = refused.iter().any(|r| !r.foreign || !any_ours);
    let (mut kept, mut kept_objects) = (Vec::new(), Vec::new());
    if keep {
        kept.extend(missing.iter().map(|p| Arc::clone(p)));
        kept_objects.extend(absent.iter().map(|o| Arc::clone(o)));
    }
    judgement.doubtful = !missing.is_empty() || !absent.is_empty() || !refused.is_empty();
    judgement.problems = report(path, refused, &kept, &kept_objects, any_ours);
    judgement.problems.extend(remarks.into_iter().flat_map(|document| remark(path, document)));
    judgement.pods.extend(kept);
    judgement.objects.extend(kept_objects);
    judgement
}

/// Whether a new version of an object may not take the old one's place.
fn breaks(old: &DataObject, new: &DataObject) -> bool {
    old.immutable && (old.data != new.data || !new.immutable)
}

fn immutable(old: &DataObject, document: &Document) -> Diagnostic {
    let what = old.key.kind.as_str();
    refusal(
        document,
        Code::Invalid,
        "immutable",
        format!("this {what} is immutable and its data changed; remove the document, then add it again"),
    )
}

fn misplaced(document: &Document) -> Diagnostic {
    let text = "this directory is for ConfigMaps and Secrets only (objectDirs); move the pod to a manifest directory";
    refusal(document, Code::Kind, "kind", text.to_owned())
}

fn refusal(document: &Document, code: Code, path: &str, text: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code,
        path: path.to_owned(),
        line: document.line,
        column: 0,
        text,
    }
}

/// The pod as it was known, when it is the same; else the new one.
fn accept(path: &Path, mut pod: PodManifest, before: &[Arc<PodManifest>]) -> Arc<PodManifest> {
    pod.origin.file = path.to_owned();
    match before.iter().find(|old| ***old == pod) {
        Some(old) => Arc::clone(old),
        None => Arc::new(pod),
    }
}

/// The same for a ConfigMap or Secret.
fn accept_object(path: &Path, mut object: DataObject, before: &[Arc<DataObject>]) -> Arc<DataObject> {
    object.origin.file = path.to_owned();
    match before.iter().find(|old| ***old == object) {
        Some(old) => Arc::clone(old),
        None => Arc::new(object),
    }
}

fn report(
    path: &Path,
    refused: Vec<Refused>,
    kept: &[Arc<PodManifest>],
    kept_objects: &[Arc<DataObject>],
    any_ours: bool,
) -> Vec<SourceProblem> {
    let mut left: Vec<PodKey> = kept.iter().map(|p| p.key.clone()).collect();
    let mut left_objects: Vec<ObjectKey> = kept_objects.iter().map(|o| o.key.clone()).collect();
    let mut keeps: Vec<(Vec<PodKey>, Vec<ObjectKey>)> = Vec::new();
    for Refused { document, .. } in &refused {
        let (own, rest) = left.into_iter().partition(|key| is_about(document, key));
        let (own_objects, rest_objects) =
            left_objects.into_iter().partition(|key| is_about_object(document, key));
        keeps.push((own, own_objects));
        (left, left_objects) = (rest, rest_objects);
    }
    // What no document names goes with the first that may have.
    if let Some(at) = refused.iter().position(|r| !r.foreign || !any_ours) {
        keeps[at].0.extend(left);
        keeps[at].1.extend(left_objects);
    }
    let mut problems = Vec::new();
    for (Refused { document, foreign }, (keeps, objects)) in refused.into_iter().zip(keeps) {
        let reason = match () {
            () if foreign => "NotAPod",
            () if document.kind.is_empty() => "ParseError",
            () => "Invalid",
        };
        let message = message(path, &document, &keeping(&keeps, &objects));
        problems.push(SourceProblem {
            path: path.to_owned(),
            reason,
            message,
            diagnostics: document.diagnostics,
            keeps,
        });
    }
    problems
}

/// What was found about a document that was taken; pods carry theirs with them.
fn remark(path: &Path, document: Document) -> Vec<SourceProblem> {
    let line = document.line;
    let one = |d: Diagnostic| SourceProblem {
        path: path.to_owned(),
        reason: "ManifestWarning",
        message: format!("{}: {}", position(path, &d, line), finding(&d)),
        diagnostics: vec![d],
        keeps: Vec::new(),
    };
    document.diagnostics.into_iter().map(one).collect()
}

fn is_about_object(document: &Document, key: &ObjectKey) -> bool {
    document.kind == key.kind.as_str() && document.name == key.name && document.namespace == key.namespace
}

fn is_about(document: &Document, key: &PodKey) -> bool {
    let name = key.name.strip_prefix(document.name.as_str());
    !document.name.is_empty()
        && document.namespace == key.namespace
        && name.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

fn message(path: &Path, document: &Document, keeping: &str) -> String {
    let worst = document.diagnostics.iter().max_by_key(|d| (d.severity, std::cmp::Reverse(d.line)));
    let mut text = match worst {
        Some(d) => format!("{}: {}", position(path, d, document.line), finding(d)),
        None => format!("{}:{}: {} is not run", path.display(), document.line, document.kind),
    };
    let more =
        document.diagnostics.iter().filter(|d| d.severity == Severity::Error).count().saturating_sub(1);
    if more > 0 {
        text.push_str(&format!(" (and {more} more)"));
    }
    text.push_str(keeping);
    text
}

fn position(path: &Path, d: &Diagnostic, document: u32) -> String {
    let line = if d.line == 0 { document } else { d.line };
    match d.column {
        0 => format!("{}:{line}", path.display()),
        column => format!("{}:{line}:{column}", path.display()),
    }
}

fn finding(d: &Diagnostic) -> String {
    // One line for a person: parsers' own snippets go to `check`.
    let text = d.text.lines().next().unwrap_or_default();
    if d.path.is_empty() { text.to_owned() } else { format!("{}: {text}", d.path) }
}

/// The half sentence that says what stays in spite of a problem; empty when there is nothing.
pub fn keeping(pods: &[PodKey], objects: &[ObjectKey]) -> String {
    let pods = pods.iter().map(PodKey::to_string);
    let names: Vec<String> = pods.chain(objects.iter().map(ObjectKey::to_string)).collect();
    match names.len() {
        0 => String::new(),
        1 => format!("; {} stays as last accepted", names[0]),
        _ => format!("; {} stay as last accepted", names.join(", ")),
    }
}
