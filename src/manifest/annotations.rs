//! Annotations under `podling.dev/`: what operators of single nodes need and the Pod API has no field for.
//!
//! [`ANNOTATIONS`] is the one list of them. It drives the checks (with the place in the file), the search for
//! mistyped names, and what a change of a value makes anew. Each value has a parser below; the daemon reads
//! values with the same parser that checked them.

mod devices;
mod mountpoint;
mod oom_group;
mod shm;
mod start_after;
mod time_zone;
mod ulimits;

use k8s_openapi::api::core::v1::Pod;

use super::node::{Kind, Node};
use super::objects::{Code, Severity};
use super::positions::{Findings, Path};
use super::suggest::nearest;

pub use devices::{DeviceWish, devices};
pub use mountpoint::required_mount_points;
pub use oom_group::oom_group;
pub use shm::shm_size;
pub use start_after::start_after;
pub use time_zone::{TimeZone, time_zone};
pub use ulimits::{Ulimit, ulimits};

/// Before the name of each of them.
pub const PREFIX: &str = "podling.dev/";

/// What is made anew when the value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing: it is read when it is needed.
    Nothing,
    /// The containers it holds for.
    Containers,
    /// The pod.
    Pod,
}

/// One annotation.
pub struct Annotation {
    /// Its name without [`PREFIX`].
    pub name: &'static str,
    /// Whether `podling.dev/NAME.CONTAINER` is one too, for that container alone.
    pub per_container: bool,
    /// What a change of it makes anew.
    pub reach: Reach,
    /// Checks a value; the error is a sentence on what is wrong with it and what would be right.
    check: fn(&str, &Pod) -> Result<(), String>,
}

/// All annotations that podling knows, by name.
pub static ANNOTATIONS: &[Annotation] = &[
    Annotation { name: "devices", per_container: true, reach: Reach::Containers, check: devices::check },
    Annotation { name: "oom-group", per_container: true, reach: Reach::Containers, check: oom_group::check },
    Annotation {
        name: "require-mountpoint",
        per_container: false,
        reach: Reach::Nothing,
        check: mountpoint::check,
    },
    Annotation { name: "restart-on-change", per_container: false, reach: Reach::Nothing, check: check_flag },
    Annotation { name: "shm-size", per_container: false, reach: Reach::Pod, check: shm::check },
    Annotation {
        name: "start-after",
        per_container: false,
        reach: Reach::Nothing,
        check: start_after::check,
    },
    Annotation { name: "timezone", per_container: true, reach: Reach::Containers, check: time_zone::check },
    Annotation { name: "ulimits", per_container: true, reach: Reach::Containers, check: ulimits::check },
];

fn check_flag(value: &str, _: &Pod) -> Result<(), String> {
    match value {
        "true" | "false" => Ok(()),
        _ => Err("it must be \"true\" or \"false\"".into()),
    }
}

/// The annotation behind a name without prefix, and the container it names.
fn find(name: &str) -> Option<(&'static Annotation, Option<&str>)> {
    let exact = ANNOTATIONS.iter().find(|a| a.name == name).map(|a| (a, None));
    exact.or_else(|| {
        let (name, container) = name.split_once('.')?;
        let found = ANNOTATIONS.iter().find(|a| a.per_container && a.name == name)?;
        Some((found, Some(container)))
    })
}

/// What a change of the annotation with this full name makes anew, and which container alone it is for; none for
/// one that podling does not know.
pub fn reach(key: &str) -> Option<(Reach, Option<&str>)> {
    let (annotation, container) = find(key.strip_prefix(PREFIX)?)?;
    Some((annotation.reach, container))
}

/// The value of the annotation for the whole pod.
pub fn value<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(&format!("{PREFIX}{name}")).map(String::as_str)
}

/// The value for one container: its own where there is one, else the pod's.
pub fn container_value<'a>(pod: &'a Pod, name: &str, container: &str) -> Option<&'a str> {
    value(pod, &format!("{name}.{container}")).or_else(|| value(pod, name))
}

/// Checks all of a pod's annotations under the prefix.
pub(super) fn check(pod: &Pod, findings: &mut Findings<'_>) {
    let parent = Path::root().field("metadata").field("annotations");
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        let Some(name) = key.strip_prefix(PREFIX) else { continue };
        let path = parent.key(key);
        let Some((annotation, container)) = find(name) else {
            findings.at_key(Severity::Warning, Code::Unknown, &path, unknown(name));
            continue;
        };
        if let Some(container) = container.filter(|c| !has_container(pod, c)) {
            let text = format!("Invalid value: the pod has no container {container:?}");
            findings.at_key(Severity::Error, Code::Invalid, &path, text);
        }
        if let Err(why) = (annotation.check)(value, pod) {
            findings.error(Code::Invalid, &path, format!("Invalid value: {value:?}: {why}"));
        }
    }
}

fn unknown(name: &str) -> String {
    let base = name.split('.').next().unwrap_or(name);
    match nearest(base, ANNOTATIONS.iter().map(|a| a.name)) {
        Some(meant) => format!(
            "podling knows no annotation {PREFIX}{base}; did you mean {PREFIX}{meant}? It has no effect"
        ),
        None => {
            let known: Vec<&str> = ANNOTATIONS.iter().map(|a| a.name).collect();
            format!(
                "podling knows no annotation {PREFIX}{base}, so it has no effect; there are {}",
                known.join(", ")
            )
        }
    }
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.init_containers.iter().flatten().chain(&spec.containers).any(|c| c.name == name)
}

/// The annotations of a document whose change makes the pod anew (`container` none), or one container of it, as
/// they are written: what hashes must cover beside the spec. Sorted by key.
pub(super) fn reaching<'n>(root: &'n Node, container: Option<&str>) -> Vec<(&'n str, &'n Node)> {
    let Some(Kind::Map(entries)) = root.get("metadata").and_then(|m| m.get("annotations")).map(|a| &a.kind)
    else {
        return Vec::new();
    };
    let matters = |key: &str| {
        let Some((annotation, of)) = key.strip_prefix(PREFIX).and_then(find) else { return false };
        match (annotation.reach, container) {
            (Reach::Pod, None) => true,
            (Reach::Containers, Some(container)) => of.is_none_or(|of| of == container),
            _ => false,
        }
    };
    let mut all: Vec<_> =
        entries.iter().filter(|e| matters(&e.key)).map(|e| (e.key.as_str(), &e.value)).collect();
    all.sort_by_key(|(key, _)| *key);
    all
}

#[cfg(test)]
mod tests;
