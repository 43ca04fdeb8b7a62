//! Volumes that hold files with modes: configMap, secret, downwardAPI and projected.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, PodSpec, ResourceFieldSelector, Volume, VolumeProjection,
};

use super::env::{field_ref, resource_field_ref};
use super::volumes::no_dots;
use super::words::Refuse;
use crate::manifest::positions::{Findings, Path};

/// What a file may show of the pod, besides single labels and annotations.
const FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Largest user id.
const MAX_ID: i64 = i32::MAX as i64;

/// Checks a volume of these kinds; another is fine.
pub fn check(volume: &Volume, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    if let Some(source) = &volume.secret {
        let path = path.field("secret");
        required(source.secret_name.as_deref(), &path.field("secretName"), findings);
        defaults(source.default_mode, source.default_user, &path, findings);
        items(source.items.as_deref(), &path, findings);
    }
    if let Some(source) = &volume.config_map {
        let path = path.field("configMap");
        required(Some(&source.name), &path.field("name"), findings);
        defaults(source.default_mode, source.default_user, &path, findings);
        items(source.items.as_deref(), &path, findings);
    }
    if let Some(source) = &volume.downward_api {
        let path = path.field("downwardAPI");
        defaults(source.default_mode, source.default_user, &path, findings);
        fields(source.items.as_deref(), spec, &path, findings);
    }
    if let Some(source) = &volume.projected {
        let path = path.field("projected");
        defaults(source.default_mode, source.default_user, &path, findings);
        let mut taken = HashSet::new();
        for (i, source) in source.sources.iter().flatten().enumerate() {
            let path = path.field("sources").index(i);
            projection(source, spec, &path, findings);
            for (text, path) in paths(source, &path) {
                if !text.is_empty() && !taken.insert(text) {
                    findings.invalid(&path, text, "another source of the volume has this path already");
                }
            }
        }
    }
}

fn projection(source: &VolumeProjection, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let kinds = [
        source.secret.is_some(),
        source.config_map.is_some(),
        source.downward_api.is_some(),
        source.service_account_token.is_some(),
        source.cluster_trust_bundle.is_some(),
        source.pod_certificate.is_some(),
    ];
    if kinds.iter().filter(|set| **set).count() > 1 {
        findings.forbidden(path, "may not specify more than 1 volume type");
    }
    if let Some(secret) = &source.secret {
        let path = path.field("secret");
        required(Some(&secret.name), &path.field("name"), findings);
        items(secret.items.as_deref(), &path, findings);
    }
    if let Some(map) = &source.config_map {
        let path = path.field("configMap");
        required(Some(&map.name), &path.field("name"), findings);
        items(map.items.as_deref(), &path, findings);
    }
    if let Some(source) = &source.downward_api {
        fields(source.items.as_deref(), spec, &path.field("downwardAPI"), findings);
    }
}

/// The paths that a source of a projected volume names, with where they stand.
fn paths<'a>(source: &'a VolumeProjection, path: &Path) -> Vec<(&'a str, Path)> {
    let keys = |items: &'a Option<Vec<KeyToPath>>, field: &str| -> Vec<(&'a str, Path)> {
        let at = path.field(field).field("items");
        let items = items.iter().flatten().enumerate();
        items.map(|(i, item)| (item.path.as_str(), at.index(i).field("path"))).collect()
    };
    let mut all = Vec::new();
    all.extend(source.secret.iter().flat_map(|s| keys(&s.items, "secret")));
    all.extend(source.config_map.iter().flat_map(|s| keys(&s.items, "configMap")));
    let at = path.field("downwardAPI").field("items");
    let fields = source.downward_api.iter().flat_map(|s| s.items.iter().flatten()).enumerate();
    all.extend(fields.map(|(i, item)| (item.path.as_str(), at.index(i).field("path"))));
    all
}

pub(super) fn required(value: Option<&str>, path: &Path, findings: &mut Findings<'_>) {
    if value.is_none_or(str::is_empty) {
        findings.required(path, "");
    }
}

fn items(items: Option<&[KeyToPath]>, path: &Path, findings: &mut Findings<'_>) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = path.field("items").index(i);
        required(Some(&item.key), &path.field("key"), findings);
        relative(&item.path, &path.field("path"), findings);
        mode(item.mode, &path.field("mode"), findings);
        user(item.user, &path.field("user"), findings);
    }
}

fn fields(items: Option<&[DownwardAPIVolumeFile]>, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = path.field("items").index(i);
        relative(&item.path, &path.field("path"), findings);
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(_), Some(_)) => {
                findings.invalid(
                    &path,
                    "",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (None, None) => findings.required(&path, "one of fieldRef and resourceFieldRef is required"),
            (Some(field), None) => field_ref(field, FIELDS, &path.field("fieldRef"), findings),
            (None, Some(resource)) => {
                resource_ref(resource, spec, &path.field("resourceFieldRef"), findings);
            }
        }
        mode(item.mode, &path.field("mode"), findings);
        user(item.user, &path.field("user"), findings);
    }
}

fn resource_ref(resource: &ResourceFieldSelector, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("containerName");
    let name = resource.container_name.as_deref().unwrap_or_default();
    let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    if name.is_empty() {
        findings.required(&at, "");
    } else if !all().any(|container| container.name == name) {
        let known = all().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
        findings.not_found(&at, name, &format!("the containers of this pod are {known}"));
    }
    resource_field_ref(resource, path, findings);
}

fn defaults(default_mode: Option<i32>, default_user: Option<i64>, path: &Path, findings: &mut Findings<'_>) {
    mode(default_mode, &path.field("defaultMode"), findings);
    user(default_user, &path.field("defaultUser"), findings);
}

fn user(user: Option<i64>, path: &Path, findings: &mut Findings<'_>) {
    if let Some(user) = user.filter(|user| !(0..=MAX_ID).contains(user)) {
        findings.invalid(path, user, &format!("must be between 0 and {MAX_ID}, inclusive"));
    }
}

/// A mode that is too large was most likely meant in octal: `600` for `0600`.
fn mode(mode: Option<i32>, path: &Path, findings: &mut Findings<'_>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let octal = format!("{mode}");
        let hint = if mode > 0 && octal.len() <= 3 && octal.bytes().all(|b| b < b'8') {
            format!("; did you mean 0{octal}?")
        } else {
            String::new()
        };
        findings.invalid(
            path,
            mode,
            &format!("must be a number between 0 and 0777 (octal), both inclusive{hint}"),
        );
    }
}

fn relative(text: &str, path: &Path, findings: &mut Findings<'_>) {
    if text.is_empty() {
        findings.required(path, "");
    } else if text.starts_with('/') {
        findings.invalid(path, text, "must be a relative path");
    } else if text.starts_with("..") && text != ".." && !text.starts_with("../") {
        findings.invalid(path, text, "must not start with '..'");
    }
    no_dots(text, path, findings);
}
