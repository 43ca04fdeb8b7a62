//! Volumes.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{PodSpec, Volume};

use super::files::{self, required};
use super::words::{LABEL, Refuse, SUBDOMAIN, is_label, is_subdomain, one_of, unique};
use crate::manifest::fields::VOLUME;
use crate::manifest::positions::{Findings, Path, members};
use crate::manifest::quantity::Quantity;

/// What `hostPath.type` may be; empty means no check.
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks the volumes of a pod and answers their names.
pub fn check<'s>(spec: &'s PodSpec, path: &Path, findings: &mut Findings<'_>) -> HashSet<&'s str> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let path = path.field("volumes");
    for (i, volume) in volumes.iter().enumerate() {
        check_volume(volume, spec, &path.index(i), findings);
    }
    let names = volumes.iter().enumerate().filter(|(_, volume)| !volume.name.is_empty());
    let names = names.map(|(i, volume)| (volume.name.as_str(), path.index(i).field("name")));
    unique(names, |name, at, first| findings.duplicate(at, *name, &first.to_string()));
    volumes.iter().map(|volume| volume.name.as_str()).collect()
}

fn check_volume(volume: &Volume, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    if volume.name.is_empty() {
        findings.required(&path.field("name"), "");
    } else if !is_label(&volume.name) {
        findings.invalid(&path.field("name"), volume.name.as_str(), LABEL);
    }
    one_source(path, findings);
    if let Some(host) = &volume.host_path {
        let path = path.field("hostPath");
        if host.path.is_empty() {
            findings.required(&path.field("path"), "");
        }
        no_dots(&host.path, &path.field("path"), findings);
        // A path without any slash is the name of a volume, as podman has it.
        let named = is_subdomain(&host.path) && host.type_.as_deref().is_none_or(str::is_empty);
        if !host.path.is_empty() && !host.path.starts_with('/') && !named {
            let why = "must be an absolute path, or without a type the name of a claim";
            findings.invalid(&path.field("path"), host.path.as_str(), why);
        }
        one_of(findings, &path.field("type"), host.type_.as_deref(), HOST_PATH_TYPES);
    }
    if let Some(empty) = &volume.empty_dir {
        let path = path.field("emptyDir");
        if let Some(limit) = &empty.size_limit {
            match Quantity::parse(&limit.0) {
                Err(_) => findings.invalid(
                    &path.field("sizeLimit"),
                    limit.0.as_str(),
                    "must be a quantity such as 64Mi",
                ),
                Ok(size) if size.is_negative() => {
                    findings.invalid(
                        &path.field("sizeLimit"),
                        limit.0.as_str(),
                        "must be a valid resource quantity of 0 or more",
                    );
                }
                Ok(_) => {}
            }
        }
        if let Some(mode) = empty.mode.filter(|mode| !(0..=0o1777).contains(mode)) {
            findings.invalid(
                &path.field("mode"),
                mode,
                "must be a number between 0 and 01777 (octal), both inclusive",
            );
        }
        let medium = empty.medium.as_deref().filter(|medium| !is_huge(medium));
        one_of(
            findings,
            &path.field("medium"),
            medium,
            &["", "Memory", "HugePages", "HugePages-2Mi", "HugePages-1Gi"],
        );
    }
    files::check(volume, spec, path, findings);
    if let Some(claim) = &volume.persistent_volume_claim {
        let path = path.field("persistentVolumeClaim").field("claimName");
        if claim.claim_name.is_empty() {
            findings.required(&path, "");
        } else if !is_subdomain(&claim.claim_name) {
            findings.invalid(&path, claim.claim_name.as_str(), SUBDOMAIN);
        }
    }
    if let Some(nfs) = &volume.nfs {
        let path = path.field("nfs");
        required(Some(&nfs.server), &path.field("server"), findings);
        required(Some(&nfs.path), &path.field("path"), findings);
        if !nfs.path.is_empty() && !nfs.path.starts_with('/') {
            findings.invalid(&path.field("path"), nfs.path.as_str(), "must be an absolute path");
        }
        if nfs.server.starts_with('-') || nfs.server.contains(|c: char| c.is_whitespace() || c == ',') {
            findings.invalid(&path.field("server"), nfs.server.as_str(), "must be a host name or an address");
        }
    }
    if let Some(image) = &volume.image {
        let path = path.field("image");
        required(image.reference.as_deref(), &path.field("reference"), findings);
        one_of(
            findings,
            &path.field("pullPolicy"),
            image.pull_policy.as_deref(),
            &["Always", "IfNotPresent", "Never"],
        );
    }
    if volume.ephemeral.as_ref().is_some_and(|claim| claim.volume_claim_template.is_none()) {
        findings.required(&path.field("ephemeral").field("volumeClaimTemplate"), "");
    }
}

/// `HugePages`, alone or with a size.
fn is_huge(medium: &str) -> bool {
    match medium.strip_prefix("HugePages") {
        Some("") => true,
        Some(size) => size.strip_prefix('-').is_some_and(|size| Quantity::parse(size).is_ok()),
        None => false,
    }
}

fn one_source(path: &Path, findings: &mut Findings<'_>) {
    let Some(written) = members(findings.root(), path) else { return };
    let known = |name: &String| name != "name" && VOLUME.field(name).is_some();
    let mut sources = written.into_iter().filter(known);
    if let (Some(first), Some(second)) = (sources.next(), sources.next()) {
        findings.forbidden(
            &path.field(&second),
            &format!("may not specify more than 1 volume type; {first} is set already"),
        );
    }
}

pub(super) fn no_dots(text: &str, path: &Path, findings: &mut Findings<'_>) {
    if text.split('/').any(|part| part == "..") {
        findings.invalid(path, text, "must not contain '..'");
    }
}
