//! What becomes of a file: its documents, and the pods last accepted from it, in; pods and findings out.

use std::path::Path;
use std::sync::Arc;

use crate::manifest::{Diagnostic, Document, PodKey, PodManifest, Severity};

use super::SourceProblem;

/// Kinds that podling takes; any other is not a pod and never was meant for here.
const OUR_KINDS: [&str; 5] = ["Pod", "ConfigMap", "Secret", "List", "PodList"];

/// The verdict on a file.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What the file stands for at present: its accepted pods, and those it keeps.
    pub pods: Vec<Arc<PodManifest>>,
    /// One finding for each refused document.
    pub problems: Vec<SourceProblem>,
    /// Something may be missing: a document was refused or a pod is no longer there. The file may be
    /// half written.
    pub doubtful: bool,
}

/// Judges a file by its documents. `before` are the pods last accepted from it; the ones that no good
/// document redefines are kept as long as any document is refused, since it may be theirs.
pub fn judge(path: &Path, documents: Vec<Document>, before: &[Arc<PodManifest>]) -> Judgement {
    let mut judgement = Judgement::default();
    let mut refused: Vec<(Document, bool)> = Vec::new();
    let mut any_pod = false;
    for document in documents {
        any_pod |= document.kind == "Pod" || document.pod.is_some();
        let mut document = document;
        match document.pod.take() {
            Some(pod) => judgement.pods.push(accept(path, *pod, before)),
            None if document.diagnostics.is_empty() => {}
            None => {
                let foreign = !document.kind.is_empty() && !OUR_KINDS.contains(&document.kind.as_str());
                let counts = document.diagnostics.iter().any(|d| d.severity == Severity::Error) || foreign;
                if counts {
                    refused.push((document, foreign));
                }
            }
        }
    }
    let missing: Vec<&Arc<PodManifest>> =
        before.iter().filter(|old| !judgement.pods.iter().any(|new| new.key == old.key)).collect();
    // A Deployment beside the pods says nothing about them; one in their place does.
    let keep = refused.iter().any(|(_, foreign)| !foreign || !any_pod);
    let mut kept: Vec<Arc<PodManifest>> = Vec::new();
    if keep {
        kept.extend(missing.iter().map(|p| Arc::clone(p)));
    }
    judgement.doubtful = !missing.is_empty() || !refused.is_empty();
    judgement.problems = report(path, refused, &kept, any_pod);
    judgement.pods.extend(kept);
    judgement
}

/// The pod as it was known, when it is the same; else the new one.
fn accept(path: &Path, mut pod: PodManifest, before: &[Arc<PodManifest>]) -> Arc<PodManifest> {
    pod.origin.file = path.to_owned();
    match before.iter().find(|old| ***old == pod) {
        Some(old) => Arc::clone(old),
        None => Arc::new(pod),
    }
}

fn report(
    path: &Path,
    refused: Vec<(Document, bool)>,
    kept: &[Arc<PodManifest>],
    any_pod: bool,
) -> Vec<SourceProblem> {
    let mut left: Vec<PodKey> = kept.iter().map(|p| p.key.clone()).collect();
    let mut keeps: Vec<Vec<PodKey>> = Vec::new();
    for (document, _) in &refused {
        let (own, rest) = left.into_iter().partition(|key| is_about(document, key));
        keeps.push(own);
        left = rest;
    }
    // What no document names goes with the first that may have.
    if let Some(at) = refused.iter().position(|(_, foreign)| !foreign || !any_pod) {
        keeps[at].extend(left);
    }
    let mut problems = Vec::new();
    for ((document, foreign), keeps) in refused.into_iter().zip(keeps) {
        let reason = match () {
            () if foreign => "NotAPod",
            () if document.kind.is_empty() => "ParseError",
            () => "Invalid",
        };
        let message = message(path, &document, &keeps);
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

fn is_about(document: &Document, key: &PodKey) -> bool {
    let name = key.name.strip_prefix(document.name.as_str());
    !document.name.is_empty()
        && document.namespace == key.namespace
        && name.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

fn message(path: &Path, document: &Document, keeps: &[PodKey]) -> String {
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
    text.push_str(&keeping(keeps));
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

/// The half sentence that says which pods run on in spite of a problem; empty when there are none.
pub fn keeping(keeps: &[PodKey]) -> String {
    let names = keeps.iter().map(PodKey::to_string).collect::<Vec<_>>().join(", ");
    match keeps.len() {
        0 => String::new(),
        1 => format!("; {names} stays as last accepted"),
        _ => format!("; {names} stay as last accepted"),
    }
}
