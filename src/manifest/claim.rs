//! PersistentVolumeClaims: directories of this node that stand ready for whoever names them. So their documents may
//! lie among the others, are checked, and have no effect of their own.

use super::decode;
use super::fields::PERSISTENT_VOLUME_CLAIM;
use super::node::Node;
use super::objects::Code;
use super::podman;
use super::positions::{Findings, Path};
use super::validate;

/// What of a claim's spec chooses among storage that there is not.
const CHOICES: [&str; 8] = [
    "resources",
    "storageClassName",
    "selector",
    "volumeName",
    "volumeAttributesClassName",
    "dataSource",
    "dataSourceRef",
    "volumeMode",
];

/// Checks a claim, and says in one line what it has no say in here.
pub fn check(findings: &mut Findings<'_>, strict: bool) {
    let root = findings.root();
    decode::check(findings, &PERSISTENT_VOLUME_CLAIM, strict);
    validate::object_name(findings);
    if findings.has_errors() {
        return;
    }
    let text = |name: &str| root.get("metadata").and_then(|m| m.get(name)).and_then(Node::text);
    let namespace = text("namespace").filter(|n| !n.is_empty()).unwrap_or("default");
    let place = format!("claims/{namespace}/{} of the state directory", text("name").unwrap_or_default());
    let spec = root.get("spec");
    let chosen = |name: &&str| match spec.and_then(|s| s.get(name)) {
        Some(node) if *name == "volumeMode" => node.text() == Some("Block"),
        Some(node) => !node.is_null() && !node.is_empty_collection() && node.text() != Some(""),
        None => false,
    };
    let chosen: Vec<&str> = CHOICES.into_iter().filter(|name| chosen(name)).collect();
    if chosen.contains(&"volumeMode") {
        let text = format!("this claim is what {place} is; put a link to the block device there");
        findings.at_key(super::Severity::Warning, Code::NoEffect, &Path::root().field("spec"), text);
    } else if !chosen.is_empty() {
        let which = chosen.join(", ");
        let text = format!("this claim is the directory {place}; what it says under {which} has no effect");
        findings.at_key(super::Severity::Warning, Code::NoEffect, &Path::root().field("spec"), text);
    }
    podman::claim(findings);
}
