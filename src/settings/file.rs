//! The config file: its fields, what each may say, and the findings when it says something else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_saphyr::Spanned;

use super::error::{Finding, SettingsError};
use super::images::{self, FileImages};
use super::tree::Value;
use super::units::{parse_bytes, parse_duration};
use super::{ContainerdChoice, RuntimeClass, check, node, runtime_class};
use crate::manifest::{Quantity, nearest};

/// Every top-level field, as `docs/configuration.md` lists them.
pub(super) const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "staticPodPath",
    "manifestDirs",
    "objectDirs",
    "containerd",
    "containerdNamespace",
    "nodeName",
    "appendNodeName",
    "strict",
    "extensionless",
    "settleTime",
    "fileCheckFrequency",
    "relistPeriod",
    "crashLoopBackOff",
    "seccompDefault",
    "seccompProfileRoot",
    "allowedUnsafeSysctls",
    "runtimeClasses",
    "cgroupRoot",
    "containerLogMaxSize",
    "containerLogMaxFiles",
    "maximumDeadContainersPerContainer",
    "removedPodLogRetention",
    "cniConfDir",
    "cniBinDirs",
    "resolvConf",
    "clusterDNS",
    "clusterDomain",
    "ociRuntime",
    "maxPods",
    "systemReserved",
    "kubeReserved",
    "capacity",
    "nodeLabels",
    "priorityClasses",
];

/// Every top-level field, those of images too.
pub(super) fn fields() -> Vec<&'static str> {
    FIELDS.iter().chain(images::FIELDS).copied().collect()
}

/// Fields under `crashLoopBackOff`.
pub(super) const BACKOFF_FIELDS: &[&str] =
    &["initialContainerRestartPeriod", "maxContainerRestartPeriod", "resetAfter"];

/// What the config file says; `None` where it is silent.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub manifest_dirs: Option<Vec<PathBuf>>,
    pub object_dirs: Option<Vec<PathBuf>>,
    pub containerd: Option<ContainerdChoice>,
    pub namespace: Option<String>,
    pub node_name: Option<String>,
    pub append_node_name: Option<bool>,
    pub strict: Option<bool>,
    pub extensionless: Option<bool>,
    pub settle: Option<Duration>,
    pub file_check: Option<Duration>,
    pub relist: Option<Duration>,
    pub backoff_initial: Option<Duration>,
    pub backoff_max: Option<Duration>,
    pub backoff_reset: Option<Duration>,
    pub seccomp_default: Option<bool>,
    pub seccomp_root: Option<PathBuf>,
    pub allowed_sysctls: Option<Vec<String>>,
    pub runtime_classes: Option<BTreeMap<String, RuntimeClass>>,
    pub cgroup_root: Option<String>,
    pub log_max_size: Option<u64>,
    pub log_max_files: Option<u32>,
    pub logs_kept: Option<u32>,
    pub cni_conf_dir: Option<PathBuf>,
    pub cni_bin_dirs: Option<Vec<PathBuf>>,
    pub resolv_conf: Option<PathBuf>,
    pub cluster_dns: Option<Vec<String>>,
    pub cluster_domain: Option<String>,
    pub runtime: Option<String>,
    pub log_retention: Option<Duration>,
    pub images: FileImages,
    pub max_pods: Option<u32>,
    pub system_reserved: Option<BTreeMap<String, Quantity>>,
    pub kube_reserved: Option<BTreeMap<String, Quantity>>,
    pub capacity: Option<BTreeMap<String, Quantity>>,
    pub node_labels: Option<BTreeMap<String, String>>,
    pub priority_classes: Option<BTreeMap<String, i32>>,
}

/// Reads the text of a config file. All findings are collected before it gives up.
pub(super) fn parse(file: &Path, text: &str) -> Result<FileSettings, SettingsError> {
    let finding = |line, column, text: String| Finding { file: file.to_owned(), line, column, text };
    let tree = match serde_saphyr::from_str::<Option<Spanned<Value>>>(text) {
        Ok(tree) => tree,
        Err(e) => {
            let (line, column) = e.location().map_or((1, 1), |at| (at.line(), at.column()));
            return Err(SettingsError::File(vec![finding(line, column, plain(&e))]));
        }
    };
    let mut reader = Reader { out: FileSettings::default(), findings: Vec::new() };
    match tree.map(|t| t.value) {
        None | Some(Value::Null) => {}
        Some(Value::Map(entries)) => reader.top(&entries),
        Some(other) => reader.findings.push((1, 1, format!("the file must hold a mapping, not {other}"))),
    }
    if reader.findings.is_empty() {
        return Ok(reader.out);
    }
    let findings = reader.findings.into_iter().map(|(line, column, text)| finding(line, column, text));
    Err(SettingsError::File(findings.collect()))
}

/// The parser's message without its place and snippet, which stand elsewhere in the finding.
fn plain(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or("not YAML");
    let first = first.split(" at line ").next().unwrap_or(first);
    first.trim_start_matches("error: ").trim_end_matches('.').to_owned()
}

struct Reader {
    out: FileSettings,
    findings: Vec<(u64, u64, String)>,
}

type Entry = (Spanned<String>, Spanned<Value>);

impl Reader {
    fn top(&mut self, entries: &[Entry]) {
        for (key, value) in entries {
            if let Err(text) = self.field(&key.value, value) {
                // A wrong value is shown where it stands, an unknown name where the name stands.
                let known = fields().contains(&key.value.as_str());
                let at = if known && value.referenced.line() > 0 { value.referenced } else { key.referenced };
                self.findings.push((at.line(), at.column(), text));
            }
        }
        let named = |name| entries.iter().find(|(k, _)| k.value == name);
        if let (Some(_), Some((key, _))) = (named("staticPodPath"), named("manifestDirs")) {
            let text = "manifestDirs and staticPodPath say the same; keep one of them".to_owned();
            self.findings.push((key.referenced.line(), key.referenced.column(), text));
        }
    }

    fn field(&mut self, name: &str, node: &Spanned<Value>) -> Result<(), String> {
        let (out, value) = (&mut self.out, &node.value);
        match name {
            "apiVersion" => {
                let allowed = ["kubelet.config.k8s.io/v1beta1", "podling.dev/v1"];
                one_of(name, value, &allowed)?;
            }
            "kind" => one_of(name, value, &["KubeletConfiguration", "PodlingConfiguration"])?,
            "staticPodPath" => out.manifest_dirs = Some(vec![path(name, value)?]),
            "manifestDirs" => out.manifest_dirs = Some(non_empty(name, paths(name, value)?)?),
            "objectDirs" => out.object_dirs = Some(non_empty(name, paths(name, value)?)?),
            "containerd" => out.containerd = Some(checked(name, value, check::containerd)?),
            "containerdNamespace" => out.namespace = Some(checked(name, value, check::namespace)?),
            "nodeName" => out.node_name = Some(checked(name, value, check::node_name)?),
            "appendNodeName" => out.append_node_name = Some(boolean(name, value)?),
            "strict" => out.strict = Some(boolean(name, value)?),
            "extensionless" => out.extensionless = Some(boolean(name, value)?),
            "settleTime" => out.settle = Some(duration(name, value, 0, 60_000)?),
            "fileCheckFrequency" => out.file_check = Some(duration(name, value, 100, HOUR)?),
            "relistPeriod" => out.relist = Some(duration(name, value, 100, HOUR)?),
            "crashLoopBackOff" => self.backoff(value)?,
            "seccompDefault" => out.seccomp_default = Some(boolean(name, value)?),
            "seccompProfileRoot" => out.seccomp_root = Some(path(name, value)?),
            "allowedUnsafeSysctls" => out.allowed_sysctls = Some(sysctls(name, value)?),
            "runtimeClasses" => out.runtime_classes = Some(runtime_class::read(name, value)?),
            "cgroupRoot" => out.cgroup_root = Some(checked(name, value, check::cgroup_root)?),
            "containerLogMaxSize" => out.log_max_size = Some(bytes(name, value, 1024)?),
            "removedPodLogRetention" => {
                out.log_retention = Some(duration(name, value, 0, 10 * 365 * 24 * HOUR)?)
            }
            "maximumDeadContainersPerContainer" => out.logs_kept = Some(integer(name, value, 0, 1000)?),
            "containerLogMaxFiles" => out.log_max_files = Some(integer(name, value, 2, 1000)?),
            "cniConfDir" => out.cni_conf_dir = Some(path(name, value)?),
            "cniBinDirs" => out.cni_bin_dirs = Some(non_empty(name, paths(name, value)?)?),
            "resolvConf" => out.resolv_conf = Some(path_or_none(name, value)?),
            "clusterDNS" => out.cluster_dns = Some(addresses(name, value)?),
            "clusterDomain" => out.cluster_domain = Some(checked(name, value, check::domain)?),
            "ociRuntime" => out.runtime = Some(checked(name, value, check::runtime)?),
            "maxPods" => out.max_pods = Some(integer(name, value, 0, i32::MAX as u32)?),
            "systemReserved" => out.system_reserved = Some(node::amounts(name, value)?),
            "kubeReserved" => out.kube_reserved = Some(node::amounts(name, value)?),
            "capacity" => out.capacity = Some(node::amounts(name, value)?),
            "nodeLabels" => out.node_labels = Some(node::labels(name, value)?),
            "priorityClasses" => out.priority_classes = Some(node::classes(name, value)?),
            _ if images::FIELDS.contains(&name) => out.images.field(name, value)?,
            _ => return Err(unknown(name, &fields())),
        }
        Ok(())
    }

    fn backoff(&mut self, value: &Value) -> Result<(), String> {
        let Value::Map(entries) = value else {
            return Err(format!(
                "crashLoopBackOff: {value} is not a mapping with {}",
                BACKOFF_FIELDS.join(", ")
            ));
        };
        for (key, node) in entries {
            let name = format!("crashLoopBackOff.{}", key.value);
            let known = BACKOFF_FIELDS.contains(&key.value.as_str());
            let read = || duration(&name, &node.value, 1, 24 * HOUR);
            let result = match key.value.as_str() {
                "initialContainerRestartPeriod" => read().map(|d| self.out.backoff_initial = Some(d)),
                "maxContainerRestartPeriod" => read().map(|d| self.out.backoff_max = Some(d)),
                "resetAfter" => read().map(|d| self.out.backoff_reset = Some(d)),
                other => Err(unknown(other, BACKOFF_FIELDS)),
            };
            if let Err(text) = result {
                let at = if known { node.referenced } else { key.referenced };
                self.findings.push((at.line(), at.column(), text));
            }
        }
        Ok(())
    }
}

pub(super) const HOUR: u64 = 3_600_000;

pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(word) => format!("unknown setting `{name}`; did you mean `{word}`?"),
        None => format!("unknown setting `{name}`; podling knows {}", known.join(", ")),
    }
}

pub(super) fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    match value {
        Value::Text(s) => Ok(s),
        other => Err(format!("{name}: {other} is not a string")),
    }
}

fn checked<T>(name: &str, value: &Value, check: fn(&str) -> Result<T, String>) -> Result<T, String> {
    // A number or a switch where a word is meant (`nodeName: 7`) is taken as written.
    let word = match value {
        Value::Integer(n) => n.to_string(),
        other => text(name, other)?.to_owned(),
    };
    check(&word).map_err(|e| format!("{name}: {e}"))
}

fn one_of(name: &str, value: &Value, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&text(name, value)?) {
        return Ok(());
    }
    Err(format!("{name}: {value} is not {}", allowed.join(" or ")))
}

pub(super) fn boolean(name: &str, value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(b) => Ok(*b),
        other => Err(format!("{name}: {other} is not true or false")),
    }
}

pub(super) fn integer(name: &str, value: &Value, min: u32, max: u32) -> Result<u32, String> {
    match value {
        Value::Integer(n) if (i128::from(min)..=i128::from(max)).contains(n) => Ok(*n as u32),
        other => Err(format!("{name}: {other} is not a whole number from {min} to {max}")),
    }
}

pub(super) fn duration(name: &str, value: &Value, min_ms: u64, max_ms: u64) -> Result<Duration, String> {
    let parsed = match value {
        Value::Text(s) => parse_duration(s),
        Value::Integer(0) => Some(Duration::ZERO),
        _ => None,
    };
    let Some(parsed) = parsed else {
        return Err(format!("{name}: {value} is not a duration such as 20s or 1m30s"));
    };
    let (min, max) = (Duration::from_millis(min_ms), Duration::from_millis(max_ms));
    if parsed < min || parsed > max {
        return Err(format!("{name}: {value} is not between {min:?} and {max:?}"));
    }
    Ok(parsed)
}

fn bytes(name: &str, value: &Value, min: u64) -> Result<u64, String> {
    let parsed = match value {
        Value::Text(s) => parse_bytes(s),
        Value::Integer(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    match parsed {
        Some(n) if n >= min => Ok(n),
        Some(_) => Err(format!("{name}: {value} is less than {min} bytes")),
        None => Err(format!("{name}: {value} is not a size such as 10Mi or 1048576")),
    }
}

pub(super) fn path(name: &str, value: &Value) -> Result<PathBuf, String> {
    let path = Path::new(text(name, value)?);
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(format!("{name}: {value} is not an absolute path"))
    }
}

/// A path, or the empty string.
fn path_or_none(name: &str, value: &Value) -> Result<PathBuf, String> {
    match value {
        Value::Text(text) if text.is_empty() => Ok(PathBuf::new()),
        other => path(name, other),
    }
}

fn list<'a>(name: &str, value: &'a Value) -> Result<&'a [Spanned<Value>], String> {
    match value {
        Value::List(items) => Ok(items),
        other => Err(format!("{name}: {other} is not a list")),
    }
}

pub(super) fn paths(name: &str, value: &Value) -> Result<Vec<PathBuf>, String> {
    list(name, value)?.iter().enumerate().map(|(i, v)| path(&format!("{name}[{i}]"), &v.value)).collect()
}

fn non_empty<T>(name: &str, items: Vec<T>) -> Result<Vec<T>, String> {
    if items.is_empty() {
        Err(format!("{name}: the list is empty; leave it out for the default"))
    } else {
        Ok(items)
    }
}

/// Patterns of sysctls, with dots.
fn sysctls(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let pattern = |(i, item): (usize, &Spanned<Value>)| {
        let name = format!("{name}[{i}]");
        let pattern = text(&name, &item.value)?;
        crate::manifest::sysctl::check_pattern(pattern).map_err(|e| format!("{name}: {e}"))
    };
    list(name, value)?.iter().enumerate().map(pattern).collect()
}

fn addresses(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let address = |(i, item): (usize, &Spanned<Value>)| match &item.value {
        Value::Text(s) if s.parse::<std::net::IpAddr>().is_ok() => Ok(s.clone()),
        other => Err(format!("{name}[{i}]: {other} is not an IP address")),
    };
    list(name, value)?.iter().enumerate().map(address).collect()
}
