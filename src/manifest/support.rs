//! Fields that are valid but have no effect here, or that podling refuses: the table applied.

use super::fields::{Field, Lit, Object, POD, Shape, Support, VOLUME, resource_support};
use super::node::{Kind, Node, quote};
use super::objects::{Code, ReadOptions, Severity};
use super::podman;
use super::positions::{Findings, Path};

/// Annotations by which the seccomp profile was once chosen; no kubelet reads them any more.
const SECCOMP_ANNOTATIONS: [&str; 2] =
    ["seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/"];
/// Annotations by which the AppArmor profile is chosen; they are still read.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Reports every field of the document that is not honoured.
pub fn check(findings: &mut Findings<'_>, here: &ReadOptions) {
    let root = findings.root();
    object(findings, root, &POD, &Path::root(), here);
    annotations(findings);
    podman::pod(findings);
}

fn object(findings: &mut Findings<'_>, node: &Node, of: &'static Object, path: &Path, here: &ReadOptions) {
    let Kind::Map(entries) = &node.kind else { return };
    for entry in entries {
        let Some(field) = of.field(&entry.key) else { continue };
        let value = &entry.value;
        if is_unset(value, field) || is_known_here(value, field, here) {
            continue;
        }
        let path = path.field(field.name);
        match judge(field, value) {
            (Support::Honoured, _) => below(findings, field, value, &path, here),
            (Support::Partly(what), _) => {
                findings.at_key(Severity::Warning, Code::NoEffect, &path, what);
                below(findings, field, value, &path, here);
            }
            (support, by_value) => report(findings, &path, &subject(of, field, value, by_value), support),
        }
    }
    if of.name == "EmptyDirVolumeSource" {
        empty_dir(findings, node, path);
    }
}

fn below(findings: &mut Findings<'_>, field: &Field, value: &Node, path: &Path, here: &ReadOptions) {
    match field.shape {
        Shape::Object(inner) => object(findings, value, inner, path, here),
        Shape::Objects(inner) => {
            for (i, item) in value.items().iter().enumerate() {
                object(findings, item, inner, &path.index(i), here);
            }
        }
        Shape::QuantityMap => resources(findings, value, path),
        _ => {}
    }
}

/// Whether the field says what is so on this node, or what its settings give a meaning.
fn is_known_here(value: &Node, field: &Field, here: &ReadOptions) -> bool {
    let Some(text) = value.text() else { return false };
    match field.name {
        "nodeName" => text == here.node_name,
        "runtimeClassName" => here.runtime_classes.iter().any(|class| class == text),
        _ => false,
    }
}

/// Whether the field says nothing: null, or a list or free mapping without members.
fn is_unset(value: &Node, field: &Field) -> bool {
    value.is_null() || (value.is_empty_collection() && !matches!(field.shape, Shape::Object(_)))
}

/// What happens to this value, and whether the value decides it rather than the field.
fn judge(field: &Field, value: &Node) -> (Support, bool) {
    let matches = |lit: &Lit| match (lit, &value.kind) {
        (Lit::Bool(a), Kind::Bool(b)) => a == b,
        (Lit::Text(a), Kind::Text(b)) => a == b,
        (Lit::Empty, _) => value.is_empty_collection(),
        (Lit::Optional, _) => value.get("optional").is_some_and(|v| matches!(v.kind, Kind::Bool(true))),
        _ => false,
    };
    match field.except.iter().find(|(lit, _)| matches(lit)) {
        Some((_, support)) => (*support, true),
        None => (field.support, !field.except.is_empty()),
    }
}

/// How a message names what it is about: the field, with its value where that matters.
fn subject(of: &Object, field: &Field, value: &Node, by_value: bool) -> String {
    match &value.kind {
        Kind::Map(_) if of.name == VOLUME.name => format!("volume type {}", field.name),
        Kind::Text(text) if by_value => format!("{}: {}", field.name, quote(text)),
        Kind::Bool(b) if by_value => format!("{}: {b}", field.name),
        _ => field.name.to_owned(),
    }
}

fn report(findings: &mut Findings<'_>, path: &Path, subject: &str, support: Support) {
    match support {
        Support::Honoured => {}
        Support::Partly(what) => {
            findings.at_key(Severity::Warning, Code::NoEffect, path, format!("{subject}: {what}"));
        }
        Support::Warned(why) => {
            findings.at_key(
                Severity::Warning,
                Code::NoEffect,
                path,
                format!("{subject} has no effect: {why}"),
            );
        }
        Support::Refused(why) => {
            findings.at_key(
                Severity::Error,
                Code::Unsupported,
                path,
                format!("{subject} is not supported: {why}"),
            );
        }
    }
}

fn resources(findings: &mut Findings<'_>, node: &Node, path: &Path) {
    let Kind::Map(entries) = &node.kind else { return };
    for entry in entries {
        report(
            findings,
            &path.key(&entry.key),
            &format!("resource {}", quote(&entry.key)),
            resource_support(&entry.key),
        );
    }
}

/// A size limit holds only where the kernel enforces it.
fn empty_dir(findings: &mut Findings<'_>, node: &Node, path: &Path) {
    let in_memory = node.get("medium").and_then(Node::text).is_some_and(|medium| !medium.is_empty());
    if !in_memory && node.get("sizeLimit").is_some() {
        let text = "sizeLimit has no effect on disk: static pods are not evicted; with medium: Memory it is a hard \
            limit";
        findings.at_key(Severity::Warning, Code::NoEffect, &path.field("sizeLimit"), text);
    }
}

/// Whether the pod has a container of this name.
fn is_container(root: &Node, name: &str) -> bool {
    let lists = ["containers", "initContainers"].map(|list| root.get("spec").and_then(|s| s.get(list)));
    let mut all = lists.into_iter().flatten().flat_map(|list| list.items());
    all.any(|container| container.get("name").and_then(Node::text) == Some(name))
}

fn annotations(findings: &mut Findings<'_>) {
    let root = findings.root();
    let Some(Kind::Map(entries)) = root.get("metadata").and_then(|m| m.get("annotations")).map(|a| &a.kind)
    else {
        return;
    };
    let parent = Path::root().field("metadata").field("annotations");
    for entry in entries {
        let path = parent.key(&entry.key);
        if SECCOMP_ANNOTATIONS.iter().any(|name| entry.key.starts_with(name)) {
            let text = "this annotation has no effect: kubelets ignore it since 1.27; use \
                securityContext.seccompProfile";
            findings.at_key(Severity::Warning, Code::NoEffect, &path, text);
        }
        let known = |v: &str| matches!(v, "runtime/default" | "unconfined") || v.starts_with("localhost/");
        if entry.key.starts_with(APPARMOR_ANNOTATION) && !entry.value.text().is_some_and(known) {
            let text = "not an AppArmor profile: write runtime/default, localhost/NAME or unconfined";
            findings.at_key(Severity::Error, Code::Invalid, &path, text);
        }
        if let Some(container) = entry.key.strip_prefix(APPARMOR_ANNOTATION)
            && !is_container(root, container)
        {
            let text = format!("Invalid value: {}: container not found", quote(container));
            findings.at_key(Severity::Error, Code::Invalid, &path, text);
        }
    }
}
