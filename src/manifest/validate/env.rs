//! Variables of a container: their names, their values, and where values come from.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, ResourceFieldSelector,
};

use super::container::MAX_ARG;
use super::words::{Refuse, SUBDOMAIN, is_qualified, is_subdomain};
use crate::manifest::Quantity;
use crate::manifest::positions::{Findings, Path};

const NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// Fields of the pod that a variable can have.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Units that all resources but `cpu` can be given in.
const UNITS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Checks one entry of `env`. `empty_dirs` are the volumes that files of variables can be in.
pub fn variable(env: &EnvVar, empty_dirs: &HashSet<&str>, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("name");
    if env.name.is_empty() {
        findings.required(&at, "");
    } else if !is_name(&env.name) {
        findings.invalid(&at, env.name.as_str(), NAME);
    }
    let value = env.value.as_deref().unwrap_or_default();
    if value.contains('\0') {
        findings.invalid(&path.field("value"), value, "must not contain NUL");
    } else if env.name.len() + 1 + value.len() >= MAX_ARG {
        let why = format!("is too long: the kernel takes variables of less than {MAX_ARG} bytes");
        findings.invalid(&path.field("value"), value, &why);
    }
    if let Some(from) = &env.value_from {
        source(from, value, empty_dirs, &path.field("valueFrom"), findings);
    }
}

fn source(
    from: &EnvVarSource,
    value: &str,
    empty_dirs: &HashSet<&str>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let sources = [
        from.config_map_key_ref.is_some(),
        from.field_ref.is_some(),
        from.file_key_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.secret_key_ref.is_some(),
    ];
    match sources.iter().filter(|set| **set).count() {
        0 => findings.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
            `fileKeyRef`",
        ),
        1 if !value.is_empty() => {
            findings.invalid(path, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => findings.invalid(path, "", "may not have more than one field specified at a time"),
    }
    if let Some(from) = &from.config_map_key_ref {
        key_of(&from.name, &from.key, &path.field("configMapKeyRef"), findings);
    }
    if let Some(from) = &from.secret_key_ref {
        key_of(&from.name, &from.key, &path.field("secretKeyRef"), findings);
    }
    if let Some(from) = &from.field_ref {
        field_ref(from, FIELDS, &path.field("fieldRef"), findings);
    }
    if let Some(from) = &from.resource_field_ref {
        resource_field_ref(from, &path.field("resourceFieldRef"), findings);
    }
    if let Some(from) = &from.file_key_ref {
        file_key_ref(from, empty_dirs, &path.field("fileKeyRef"), findings);
    }
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

fn key_of(name: &str, key: &str, path: &Path, findings: &mut Findings<'_>) {
    object_name(name, path, findings);
    match key {
        "" => findings.required(&path.field("key"), ""),
        key => super::data_key(key, &path.field("key"), findings),
    }
}

fn object_name(name: &str, path: &Path, findings: &mut Findings<'_>) {
    let path = path.field("name");
    if name.is_empty() {
        findings.required(&path, "");
    } else if !is_subdomain(name) {
        findings.invalid(&path, name, SUBDOMAIN);
    }
}

/// Checks a `fieldRef`; `whole` are the fields it can name, besides single labels and annotations.
pub fn field_ref(from: &ObjectFieldSelector, whole: &[&str], path: &Path, findings: &mut Findings<'_>) {
    if let Some(version) = from.api_version.as_deref().filter(|v| !v.is_empty() && *v != "v1") {
        findings.unsupported(&path.field("apiVersion"), version, &["v1"]);
    }
    let at = path.field("fieldPath");
    let field = from.field_path.as_str();
    if let Some((map, key)) = field.strip_suffix("']").and_then(|f| f.split_once("['")) {
        // Keys of annotations may have upper case in the part before the slash.
        let key = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
        if !matches!(map, "metadata.labels" | "metadata.annotations") {
            findings.invalid(&at, field, "only metadata.labels and metadata.annotations have keys");
        } else if !is_qualified(&key) {
            findings.invalid(&at, field, "the key is none that a label or annotation can have");
        }
    } else if field.is_empty() {
        findings.required(&at, "");
    } else if !whole.contains(&field) {
        let mut allowed = vec!["metadata.annotations['<KEY>']", "metadata.labels['<KEY>']"];
        allowed.extend(whole);
        findings.unsupported(&at, field, &allowed);
    }
}

/// Checks a `resourceFieldRef`.
pub fn resource_field_ref(from: &ResourceFieldSelector, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("resource");
    let known = match from.resource.split_once('.') {
        Some(("limits" | "requests", name)) => {
            matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
        }
        _ => false,
    };
    if from.resource.is_empty() {
        return findings.required(&at, "");
    } else if !known {
        let allowed = ["limits", "requests"].map(|of| {
            ["cpu", "ephemeral-storage", "hugepages-<size>", "memory"].map(|name| format!("{of}.{name}"))
        });
        let allowed: Vec<&str> = allowed.iter().flatten().map(String::as_str).collect();
        return findings.unsupported(&at, &from.resource, &allowed);
    }
    let Some(divisor) = from.divisor.as_ref() else { return };
    let cpu = from.resource.ends_with(".cpu");
    let units = if cpu { &["1m", "1"][..] } else { UNITS };
    let same = |unit: &str| Quantity::parse(unit).ok() == Quantity::parse(&divisor.0).ok();
    // Zero stands for one that was left out.
    let zero = Quantity::parse(&divisor.0).is_ok_and(Quantity::is_zero);
    if !zero && !units.iter().any(|unit| same(unit)) {
        let resource = from.resource.split_once('.').map_or("", |(_, name)| name);
        let why =
            format!("only divisor's values {} are supported with the {resource} resource", units.join(", "));
        findings.invalid(&path.field("divisor"), divisor.0.as_str(), &why);
    }
}

fn file_key_ref(
    from: &FileKeySelector,
    empty_dirs: &HashSet<&str>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let (volume, file, key) = (path.field("volumeName"), path.field("path"), path.field("key"));
    match from.volume_name.as_str() {
        "" => findings.required(&volume, ""),
        name if !empty_dirs.contains(name) => {
            findings.not_found(&volume, name, "it must name an emptyDir volume of the pod");
        }
        _ => {}
    }
    match from.path.as_str() {
        "" => findings.required(&file, ""),
        path if path.starts_with('/') || path.split('/').any(|step| step == "..") => {
            findings.invalid(&file, path, "must be a relative path without '..'");
        }
        _ => {}
    }
    match from.key.as_str() {
        "" => findings.required(&key, ""),
        name if !is_name(name) => findings.invalid(&key, name, NAME),
        _ => {}
    }
}

/// Checks one entry of `envFrom`.
pub fn env_from(from: &EnvFromSource, path: &Path, findings: &mut Findings<'_>) {
    match (&from.config_map_ref, &from.secret_ref) {
        (None, None) => findings.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
        (Some(_), Some(_)) => {
            findings.invalid(path, "", "may not have more than one field specified at a time");
        }
        (Some(map), None) => object_name(&map.name, &path.field("configMapRef"), findings),
        (None, Some(secret)) => object_name(&secret.name, &path.field("secretRef"), findings),
    }
    if let Some(prefix) = from.prefix.as_deref().filter(|prefix| !is_name(prefix)) {
        findings.invalid(&path.field("prefix"), prefix, NAME);
    }
}
