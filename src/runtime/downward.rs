//! The downward API: what a pod may ask of itself, in variables and in volumes.
//!
//! Pure functions of the pod and of the facts that only the node knows. Values are what a kubelet gives;
//! the addresses of a pod on the host's network are the host's.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::spec::qos;
use crate::manifest::Quantity;

/// What the node knows of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownwardFacts {
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.nodeName`.
    pub node_name: String,
    /// Addresses of the node, the first of each family.
    pub host_ips: Vec<String>,
    /// Addresses of the pod; the node's for a pod on the host's network.
    pub pod_ips: Vec<String>,
    /// What pods may use of the node: stands for limits that are not set.
    pub allocatable: Allocatable,
}

/// What pods may use of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a processor.
    pub milli_cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of disk.
    pub ephemeral_storage: i64,
}

/// A field that a pod cannot ask for. The manifest's validation says so first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    /// No field of the downward API.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// No resource of the downward API.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// A divisor that is no quantity.
    #[error("divisor {0:?} is no quantity above zero")]
    Divisor(String),
    /// A container that the pod does not have.
    #[error("container {0} not found")]
    Container(String),
}

/// The value of a `fieldRef`. Without a key, labels and annotations are written as lines of `key="value"`.
///
/// # Errors
/// [`DownwardError::Field`] when there is no such field.
pub fn field_ref(pod: &Pod, facts: &DownwardFacts, path: &str) -> Result<String, DownwardError> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((field, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let map = match field {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(DownwardError::Field(path.to_owned())),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => facts.uid.clone(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => facts.node_name.clone(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => first(&facts.host_ips),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => first(&facts.pod_ips),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(DownwardError::Field(path.to_owned())),
    })
}

/// The value of a `resourceFieldRef`: the resource in units of the divisor, rounded up. `container` is the
/// one that asks; the selector may name another.
///
/// # Errors
/// When the selector names no resource, no container of the pod, or no divisor.
pub fn resource_field_ref(
    pod: &Pod,
    container: Option<&Container>,
    facts: &DownwardFacts,
    selector: &ResourceFieldSelector,
) -> Result<String, DownwardError> {
    let container = match selector.container_name.as_deref().filter(|n| !n.is_empty()) {
        Some(name) => named(pod, name).ok_or_else(|| DownwardError::Container(name.to_owned()))?,
        None => container.ok_or_else(|| DownwardError::Container(String::new()))?,
    };
    let unknown = || DownwardError::Resource(selector.resource.clone());
    let (of, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let amount = match of {
        "limits" if known => limit(pod, container, facts, name),
        "requests" if known => units(qos::request(container, name).unwrap_or_default(), name),
        _ => return Err(unknown()),
    };
    let text = selector.divisor.as_ref().map_or("1", |d| d.0.as_str());
    let bad = || DownwardError::Divisor(text.to_owned());
    let divisor = Quantity::parse(text).map_err(|_| bad())?;
    // A divisor of zero is one that was left out.
    let divisor = if divisor.is_zero() { units(one()?, name) } else { units(divisor, name) };
    if divisor <= 0 {
        return Err(bad());
    }
    Ok((amount / divisor + i64::from(amount % divisor > 0)).to_string())
}

fn one() -> Result<Quantity, DownwardError> {
    Quantity::parse("1").map_err(|_| DownwardError::Divisor("1".into()))
}

fn named<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
}

/// A quantity as it is divided: processors in thousandths, all else in whole units.
fn units(quantity: Quantity, resource: &str) -> i64 {
    if resource == "cpu" { quantity.milli() } else { quantity.value() }
}

/// The container's limit, else the pod's, else what the node has.
fn limit(pod: &Pod, container: &Container, facts: &DownwardFacts, name: &str) -> i64 {
    let of_pod = || {
        let limits = pod.spec.as_ref()?.resources.as_ref()?.limits.as_ref()?;
        limits.get(name).and_then(|q| Quantity::parse(&q.0).ok()).filter(|q| !q.is_zero())
    };
    match qos::limit(container, name).or_else(of_pod) {
        Some(limit) => units(limit, name),
        None => match name {
            "cpu" => facts.allocatable.milli_cpu,
            "memory" => facts.allocatable.memory,
            "ephemeral-storage" => facts.allocatable.ephemeral_storage,
            _ => 0,
        },
    }
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// A string as Go's `%q` writes it: programs that read these files unquote by that rule.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if (c as u32) < 0x80 && c.is_control() => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            // Rust's own idea of what is printable is the Unicode one, as is Go's; only the form differs.
            c if c == '\'' || c.escape_debug().count() == 1 => out.push(c),
            c if (c as u32) <= 0xffff => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
#[path = "downward_tests.rs"]
mod tests;
