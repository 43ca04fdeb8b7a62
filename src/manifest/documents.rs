//! Which documents of a file podling runs, and what it says about the others.

use std::path::PathBuf;

use super::claim;
use super::data::{self, ObjectKind};
use super::decode;
use super::defaults;
use super::dialect::{Note, Parsed};
use super::hash;
use super::node::{Kind, Node, quote};
use super::objects::{Code, Document, Origin, PodKey, PodManifest, ReadOptions, Severity};
use super::positions::{Findings, Path};
use super::strict;
use super::support;
use super::validate;

/// Where pods go that name no namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// Kinds whose template holds a pod.
const TEMPLATES: &[&str] = &[
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "ReplicationController",
    "PodTemplate",
];

/// Kinds that say nothing to a node without an API server, and why.
const HARMLESS: &[(&[&str], &str)] = &[
    (&["Namespace"], "a namespace is there as soon as a pod names it"),
    (
        &["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
        "there is no API server to have rights at",
    ),
    (&["StorageClass"], "claims are directories of this node, whatever their class"),
];

/// What a document turns out to be.
enum Class {
    Pod,
    List,
    Data,
    Claim,
    Other,
}

/// Reads what the dialect found.
pub fn read_all(parsed: Vec<Parsed>, opts: &ReadOptions) -> Vec<Document> {
    // A file that holds something podling uses may hold other kinds beside it; a file of other kinds
    // alone was put here by mistake.
    let useful = parsed.iter().any(|document| is_useful(&document.root));
    let beside = if useful { Severity::Warning } else { Severity::Error };
    let is_pod = |document: &Parsed| matches!(classify(&document.root), Class::Pod);
    let second = parsed.iter().enumerate().filter(|(_, d)| is_pod(d)).map(|(i, _)| i).nth(1);
    let pods = parsed.iter().filter(|d| is_pod(d)).count();
    let read = |(i, mut document): (usize, Parsed)| {
        if second == Some(i) {
            document.notes.push(Note {
                path: Path::root(),
                mark: document.root.mark,
                code: Code::NoEffect,
                text: format!("this file holds {pods} Pods: podling runs them all, a kubelet only the first"),
            });
        }
        read_one(document, opts, beside)
    };
    parsed.into_iter().enumerate().flat_map(read).collect()
}

fn is_useful(root: &Node) -> bool {
    match classify(root) {
        Class::Pod | Class::Data | Class::Claim => true,
        Class::Other => false,
        // The items of a PodList need not say what they are.
        Class::List if text(root, "kind") == "PodList" => !items_of(root).is_empty(),
        Class::List => items_of(root).iter().any(is_useful),
    }
}

fn classify(root: &Node) -> Class {
    match text(root, "kind") {
        "Pod" => Class::Pod,
        "List" | "PodList" => Class::List,
        "ConfigMap" | "Secret" => Class::Data,
        "PersistentVolumeClaim" => Class::Claim,
        _ => Class::Other,
    }
}

fn items_of(root: &Node) -> &[Node] {
    root.get("items").map(Node::items).unwrap_or_default()
}

fn read_one(parsed: Parsed, opts: &ReadOptions, beside: Severity) -> Vec<Document> {
    let Parsed { root, notes } = parsed;
    if !matches!(root.kind, Kind::Map(_)) {
        let got = root.describe();
        let mut findings = Findings::new(&root);
        findings.error(
            Code::Type,
            &Path::root(),
            format!("a manifest is a mapping with apiVersion and kind; this is {got}"),
        );
        return vec![document(&root, findings, notes, None)];
    }
    match classify(&root) {
        Class::Pod => vec![read_pod(&root, notes, opts)],
        Class::List => read_list(&root, notes, opts, beside),
        Class::Data => vec![read_data(&root, notes, opts)],
        Class::Claim => vec![read_claim(&root, notes, opts)],
        Class::Other => vec![read_other(&root, notes, beside)],
    }
}

fn read_list(root: &Node, notes: Vec<Note>, opts: &ReadOptions, beside: Severity) -> Vec<Document> {
    let mut findings = Findings::new(root);
    let kind = text(root, "kind");
    if text(root, "apiVersion") != "v1" {
        wrong_version(&mut findings, kind);
    }
    let items = root.get("items");
    match items.map(|items| &items.kind) {
        Some(Kind::List(items)) if !items.is_empty() => {
            let text =
                format!("podling runs the items of this {kind}; a kubelet takes no {kind} from a file");
            findings.at_key(Severity::Warning, Code::NoEffect, &Path::root().field("kind"), text);
        }
        None | Some(Kind::List(_)) => {
            findings.warn(Code::NoEffect, &Path::root(), format!("this {kind} has no items; nothing runs"));
        }
        Some(_) => {
            let got = items.map(Node::describe).unwrap_or_default();
            findings.broken(&Path::root().field("items"), format!("expected a list of objects, got {got}"));
        }
    }
    let items = items_of(root);
    let mut of_items: Vec<Vec<Note>> = vec![Vec::new(); items.len()];
    let mut own = Vec::new();
    for note in notes {
        match note.path.within_item().and_then(|(i, path)| Some((of_items.get_mut(i)?, path))) {
            Some((of_item, path)) => of_item.push(Note { path, ..note }),
            None => own.push(note),
        }
    }
    let mut documents: Vec<Document> = items
        .iter()
        .zip(of_items)
        .map(|(item, notes)| match classify(item) {
            // The items of a PodList need not say what they are.
            Class::Pod => read_pod(item, notes, opts),
            Class::Other if kind == "PodList" && item.get("kind").is_none() => read_pod(item, notes, opts),
            Class::Data => read_data(item, notes, opts),
            Class::Claim => read_claim(item, notes, opts),
            Class::Other | Class::List => read_other(item, notes, beside),
        })
        .collect();
    let list = document(root, findings, own, None);
    if !list.diagnostics.is_empty() {
        documents.insert(0, list);
    }
    documents
}

fn read_pod(root: &Node, notes: Vec<Note>, opts: &ReadOptions) -> Document {
    let mut findings = Findings::new(root);
    match text(root, "apiVersion") {
        "v1" => {}
        "" if root.get("kind").is_none() => {}
        // Of another type: decoding says so.
        "" if root.get("apiVersion").is_some() => {}
        "" => findings.error(Code::Kind, &Path::root(), "apiVersion is missing; write apiVersion: v1"),
        _ => wrong_version(&mut findings, "Pod"),
    }
    let Some(mut pod) = decode::pod(&mut findings, opts.strict) else {
        return document(root, findings, notes, None);
    };
    if let (Some(suffix), Some(name)) = (&opts.name_suffix, pod.metadata.name.as_mut())
        && !name.is_empty()
    {
        *name = format!("{name}-{}", suffix.to_lowercase());
    }
    if pod.metadata.namespace.as_deref().is_none_or(str::is_empty) {
        pod.metadata.namespace = Some(DEFAULT_NAMESPACE.to_owned());
    }
    if let Some(spec) = pod.spec.as_mut().filter(|_| !opts.node_name.is_empty()) {
        spec.node_name = Some(opts.node_name.clone());
    }
    defaults::fill(&mut pod);
    validate::pod(&pod, &mut findings);
    support::check(&mut findings, opts);
    if findings.has_errors() {
        return document(root, findings, notes, None);
    }
    let key = PodKey::new(
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    );
    let manifest = PodManifest {
        uid: pod.metadata.uid.clone().filter(|uid| !uid.is_empty()),
        pod,
        hashes: hash::hashes(root),
        // The file's path is set by who knows it: the source that read the bytes.
        origin: Origin { file: PathBuf::new(), line: root.mark.line },
        warnings: Vec::new(),
        key,
    };
    document(root, findings, notes, Some(manifest))
}

fn read_data(root: &Node, notes: Vec<Note>, opts: &ReadOptions) -> Document {
    let mut findings = Findings::new(root);
    let kind = text(root, "kind");
    if text(root, "apiVersion") != "v1" {
        wrong_version(&mut findings, kind);
    }
    let data_kind = ObjectKind::from_name(kind);
    if let Some(kind) = data_kind {
        strict::unknown_in_data(&mut findings, kind, opts.strict);
    }
    let object = data_kind.and_then(|kind| data::object(kind, &mut findings));
    if kind == ObjectKind::Secret.as_str() && opts.exposed {
        let text = "everybody on this machine can read this file, and with it the Secret; chmod 0600 it";
        findings.error(Code::Exposed, &Path::root(), text);
    }
    let object = object.filter(|_| !findings.has_errors());
    let mut document = document(root, findings, notes, None);
    document.object = object.map(Box::new);
    document
}

fn read_claim(root: &Node, notes: Vec<Note>, opts: &ReadOptions) -> Document {
    let mut findings = Findings::new(root);
    if text(root, "apiVersion") != "v1" {
        wrong_version(&mut findings, text(root, "kind"));
    }
    claim::check(&mut findings, opts.strict);
    document(root, findings, notes, None)
}

fn read_other(root: &Node, notes: Vec<Note>, severity: Severity) -> Document {
    let mut findings = Findings::new(root);
    let kind = text(root, "kind");
    let path = Path::root().field("kind");
    if kind.is_empty() {
        let missing = match root.get("kind") {
            Some(node) => format!("kind must be a string, got {}", node.describe()),
            None if root.get("apiVersion").is_none() => {
                "apiVersion and kind are missing; a pod begins with apiVersion: v1 and kind: Pod".to_owned()
            }
            None => "kind is missing; write kind: Pod".to_owned(),
        };
        findings.error(Code::Kind, &path, missing);
    } else if kind.eq_ignore_ascii_case("pod") || kind.eq_ignore_ascii_case("pods") {
        findings.error(Code::Kind, &path, format!("kind {} is not known; did you mean Pod?", quote(kind)));
    } else if let Some((_, why)) = HARMLESS.iter().find(|(kinds, _)| kinds.contains(&kind)) {
        let text = format!("this {} has no effect: {why}", plain(kind));
        findings.at_key(Severity::Warning, Code::NoEffect, &path, text);
    } else {
        let advice = match kind {
            kind if TEMPLATES.contains(&kind) => "; put its template into a Pod of its own",
            "Service" | "Ingress" => "; publish ports with hostPort or hostNetwork",
            "PersistentVolume" => "; put what it is, or a link to it, in place of the claim's directory",
            "PriorityClass" => "; name it under priorityClasses in the settings",
            "RuntimeClass" => "; name it under runtimeClasses in the settings",
            "NetworkPolicy" => "; nothing enforces it here",
            _ => "",
        };
        let text = format!("podling runs Pods (v1), also in a List; this {} is not run{advice}", plain(kind));
        findings.at_key(severity, Code::Kind, &path, text);
    }
    document(root, findings, notes, None)
}

fn wrong_version(findings: &mut Findings<'_>, kind: &str) {
    let path = Path::root().field("apiVersion");
    let text = match findings.root().get("apiVersion").map(|v| (v.text(), v)) {
        None => "apiVersion is missing; write apiVersion: v1".to_owned(),
        Some((Some(version), _)) => {
            format!("there is no kind {kind} in version {}; write apiVersion: v1", quote(version))
        }
        Some((None, node)) => format!("apiVersion must be the string v1, got {}", node.describe()),
    };
    findings.error(Code::Kind, &path, text);
}

/// A kind as it stands in a sentence; strange ones are quoted.
fn plain(kind: &str) -> String {
    if kind.len() < 64 && kind.chars().all(|c| c.is_ascii_alphanumeric()) {
        kind.to_owned()
    } else {
        quote(kind)
    }
}

/// A string field of a document, empty when it is none.
fn text<'a>(root: &'a Node, name: &str) -> &'a str {
    root.get(name).and_then(Node::text).unwrap_or_default()
}

fn document(root: &Node, mut findings: Findings<'_>, notes: Vec<Note>, pod: Option<PodManifest>) -> Document {
    for note in notes {
        findings.at(Severity::Warning, note.code, &note.path, note.mark, note.text);
    }
    let metadata = root.get("metadata");
    let written =
        |name: &str| metadata.and_then(|m| m.get(name)).and_then(Node::text).unwrap_or_default().to_owned();
    let (mut namespace, mut name) = (written("namespace"), written("name"));
    if namespace.is_empty() && matches!(root.kind, Kind::Map(_)) {
        namespace = DEFAULT_NAMESPACE.to_owned();
    }
    if let Some(pod) = &pod {
        (namespace, name) = (pod.key.namespace.clone(), pod.key.name.clone());
    }
    let diagnostics = findings.into_sorted();
    let pod = pod.map(|pod| Box::new(PodManifest { warnings: diagnostics.clone(), ..pod }));
    let kind = match text(root, "kind") {
        "" if pod.is_some() => "Pod".to_owned(),
        kind => kind.to_owned(),
    };
    Document { line: root.mark.line, kind, namespace, name, diagnostics, pod, object: None }
}
