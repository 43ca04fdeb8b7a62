//! The API's own rules: what an API server, and with it a kubelet, refuses.
//!
//! Runs on the Pod with defaults filled in and reports everything it finds, with the field's path. A
//! field that podling does not support is checked too where that is cheap: a typing error in it is
//! better named than the lack of support.

mod container;
mod data;
mod env;
mod files;
mod image;
mod mounts;
mod node_affinity;
mod ports;
mod probes;
mod resources;
mod security;
mod spec;
#[cfg(test)]
mod tests;
mod unfilled;
mod volumes;
mod words;

use k8s_openapi::api::core::v1::Pod;

use super::annotations;
use super::objects::Code;
use super::positions::{Findings, Path};
pub use data::{data_key, data_object, object_name, secret_data};
use words::{Refuse, SUBDOMAIN, is_subdomain, label, labels, qualified};

/// Most bytes that all annotations may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Checks a Pod, defaults filled in.
pub fn pod(pod: &Pod, findings: &mut Findings<'_>) {
    metadata(pod, findings);
    let path = Path::root().field("spec");
    match &pod.spec {
        Some(spec) => spec::check(spec, &path, findings),
        None => findings.required(&path.field("containers"), "a pod needs spec.containers"),
    }
}

fn metadata(pod: &Pod, findings: &mut Findings<'_>) {
    let path = Path::root().field("metadata");
    let meta = &pod.metadata;
    match meta.name.as_deref() {
        None | Some("") => {
            let made = meta.generate_name.as_deref().is_some_and(|name| !name.is_empty());
            let why = if made {
                "name is needed; generateName only works with an API server"
            } else {
                "name is needed"
            };
            findings.required(&path.field("name"), why);
        }
        Some(name) if !is_subdomain(name) => findings.invalid(&path.field("name"), name, SUBDOMAIN),
        Some(_) => {}
    }
    if let Some(namespace) = meta.namespace.as_deref() {
        label(findings, &path.field("namespace"), namespace);
    }
    if let Some(map) = &meta.labels {
        labels(findings, &path.field("labels"), map);
    }
    if let Some(uid) = meta.uid.as_deref().filter(|uid| !uid.is_empty()) {
        // It becomes a directory name and part of container names.
        let fine = uid.len() <= 128 && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !fine {
            findings.invalid(
                &path.field("uid"),
                uid,
                "must consist of alphanumeric characters or '-', and have at most 128",
            );
        }
    }
    if let Some(annotations) = &meta.annotations {
        let path = path.field("annotations");
        for key in annotations.keys() {
            qualified(findings, &path.key(key), &key.to_lowercase());
        }
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > MAX_ANNOTATIONS {
            findings.error(
                Code::Invalid,
                &path,
                format!("Too long: {size} bytes: may have at most {MAX_ANNOTATIONS}"),
            );
        }
    }
    annotations::check(pod, findings);
}
