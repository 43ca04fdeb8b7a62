//! Fields that the Pod API does not have: what was probably meant.

use super::data::ObjectKind;
use super::fields::{CONFIG_MAP, OBJECT_META, Object, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Shape};
use super::node::{Entry, Kind, Node, quote};
use super::objects::{Code, Severity};
use super::positions::{Findings, Path};
use super::suggest::nearest;

/// Names that occur in too many types to say where they belong.
const COMMON: &[&str] =
    &["name", "type", "path", "key", "value", "mode", "kind", "items", "user", "port", "host"];

/// Reports a field of `object` that the API does not have: a warning, under `strict` an error.
pub fn unknown(
    findings: &mut Findings<'_>,
    object: &'static Object,
    entry: &Entry,
    parent: &Path,
    strict: bool,
) {
    let severity = if strict { Severity::Error } else { Severity::Warning };
    if findings.is_full(severity) {
        return;
    }
    let path = parent.field(&entry.key);
    let effect = if strict { "" } else { ", it has no effect" };
    let hint = hint(object, &entry.key).map(|hint| format!("; {hint}")).unwrap_or_default();
    let text = format!("unknown field {}{effect}{hint}", quote(&entry.key));
    findings.at(severity, Code::Unknown, &path, entry.at, text);
}

/// Reports what a ConfigMap or Secret, or its metadata, has that the API does not.
pub fn unknown_in_data(findings: &mut Findings<'_>, kind: ObjectKind, strict: bool) {
    let root = findings.root();
    let object = match kind {
        ObjectKind::ConfigMap => &CONFIG_MAP,
        ObjectKind::Secret => &SECRET,
    };
    let top = Path::root();
    for (node, object, path) in
        [(Some(root), object, top.clone()), (root.get("metadata"), &OBJECT_META, top.field("metadata"))]
    {
        let Some(Node { kind: Kind::Map(entries), .. }) = node else { continue };
        for entry in entries.iter().filter(|entry| object.field(&entry.key).is_none()) {
            unknown(findings, object, entry, &path, strict);
        }
    }
}

fn hint(object: &'static Object, name: &str) -> Option<String> {
    if name.chars().any(|c| c.is_whitespace() && !c.is_ascii()) {
        return Some(
            "it holds blanks that YAML takes for letters, as pasted from a web page; use plain spaces".into(),
        );
    }
    if let Some(close) = nearest(name, object.fields.iter().map(|field| field.name)) {
        return Some(format!("did you mean {close}?"));
    }
    if let Some(longer) = with_a_prefix(object, name) {
        return Some(format!("did you mean {longer}?"));
    }
    if [&CONFIG_MAP, &SECRET, &PERSISTENT_VOLUME_CLAIM].iter().any(|data| std::ptr::eq(*data, object)) {
        return None;
    }
    let homes = homes(name);
    (!homes.is_empty()).then(|| format!("{name} belongs under {}", homes.join(" or ")))
}

/// The only field that ends with this word, as `secretName` does with `name`.
fn with_a_prefix(object: &'static Object, name: &str) -> Option<&'static str> {
    let end = name.to_ascii_lowercase();
    let ends = |field: &&str| field.to_ascii_lowercase().ends_with(&end);
    let mut longer = object.fields.iter().map(|field| field.name).filter(ends);
    longer.next().filter(|_| longer.next().is_none() && end.len() > 3)
}

/// Where else in a Pod a field of exactly this name stands: the places nearest to the root.
fn homes(name: &str) -> Vec<String> {
    if COMMON.contains(&name) {
        return Vec::new();
    }
    let mut level: Vec<(String, &'static Object)> = vec![(String::new(), &POD)];
    // Three levels reach `spec.containers[].securityContext`.
    for _ in 0..4 {
        let mut found: Vec<String> =
            level.iter().filter(|(_, o)| o.field(name).is_some()).map(|(path, _)| path.clone()).collect();
        // Init containers have the fields of containers; naming one of them is enough.
        found.retain(|path| !path.starts_with("spec.initContainers") && !path.starts_with("spec.ephemeral"));
        if !found.is_empty() {
            found.truncate(3);
            return found;
        }
        level = level.into_iter().flat_map(|(path, object)| below(&path, object)).collect();
    }
    Vec::new()
}

fn below(path: &str, object: &'static Object) -> Vec<(String, &'static Object)> {
    let join = |name: &str, end: &str| {
        if path.is_empty() { format!("{name}{end}") } else { format!("{path}.{name}{end}") }
    };
    object
        .fields
        .iter()
        .filter_map(|field| match field.shape {
            Shape::Object(object) => Some((join(field.name, ""), object)),
            Shape::Objects(object) => Some((join(field.name, "[]"), object)),
            _ => None,
        })
        .collect()
}
