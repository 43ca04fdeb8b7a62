//! ConfigMaps and Secrets: their names, their keys, and what the types of Secrets ask for.

use std::collections::BTreeMap;

use super::words::{Refuse, SUBDOMAIN, is_subdomain, label};
use crate::manifest::data::ObjectKind;
use crate::manifest::node::Kind;
use crate::manifest::positions::{Findings, Path};

/// Longest key.
const MAX_KEY: usize = 253;

/// Types of Secrets with keys of their own: the type, and of which keys one at least must be there.
const TYPES: &[(&str, &[&[&str]])] = &[
    ("kubernetes.io/dockercfg", &[&[".dockercfg"]]),
    ("kubernetes.io/dockerconfigjson", &[&[".dockerconfigjson"]]),
    ("kubernetes.io/basic-auth", &[&["username", "password"]]),
    ("kubernetes.io/ssh-auth", &[&["ssh-privatekey"]]),
    ("kubernetes.io/tls", &[&["tls.crt"], &["tls.key"]]),
];

/// Checks name and namespace of an object.
pub fn object_name(findings: &mut Findings<'_>) {
    let root = findings.root();
    let metadata = Path::root().field("metadata");
    for field in ["name", "namespace"] {
        let path = metadata.field(field);
        match root.get("metadata").and_then(|m| m.get(field)).map(|node| (node.text(), node)) {
            None if field == "name" => findings.required(&path, "name is needed"),
            None => {}
            Some((Some(text), _)) if field == "namespace" => label(findings, &path, text),
            Some((Some(name), _)) if is_subdomain(name) => {}
            Some((Some(name), _)) => findings.invalid(&path, name, SUBDOMAIN),
            Some((None, node)) => findings
                .broken(&path, format!("expected a string, got {}; put it in quotes", node.describe())),
        }
    }
}

/// Checks a ConfigMap or Secret: name, namespace, and keys that stand in two places.
pub fn data_object(kind: ObjectKind, findings: &mut Findings<'_>) {
    object_name(findings);
    let root = findings.root();
    if kind == ObjectKind::ConfigMap {
        let keys = |field: &str| match root.get(field).map(|map| &map.kind) {
            Some(Kind::Map(entries)) => entries.iter().map(|e| e.key.as_str()).collect(),
            _ => Vec::new(),
        };
        let plain = keys("data");
        for key in keys("binaryData").into_iter().filter(|key| plain.contains(key)) {
            findings.invalid(&Path::root().field("binaryData").key(key), key, "stands in data as well");
        }
    }
}

/// Checks a key: it becomes a file name or the name of a variable.
pub fn data_key(key: &str, path: &Path, findings: &mut Findings<'_>) {
    let shape = !key.is_empty()
        && key.len() <= MAX_KEY
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !shape || key == "." || key.starts_with("..") {
        findings.invalid(
            path,
            key,
            "a key must consist of alphanumeric characters, '-', '_' or '.', have at most 253 of them, and not \
             begin with '..'",
        );
    }
}

/// Checks that a Secret holds what its type promises.
pub fn secret_data(secret_type: &str, data: &BTreeMap<String, Vec<u8>>, findings: &mut Findings<'_>) {
    let Some((_, groups)) = TYPES.iter().find(|(name, _)| *name == secret_type) else { return };
    for keys in groups.iter().filter(|keys| !keys.iter().any(|key| data.contains_key(*key))) {
        let path = Path::root().field("data").key(keys[0]);
        let keys = keys.join(" or ");
        findings.required(&path, &format!("a Secret of type {secret_type} needs {keys}"));
    }
}
