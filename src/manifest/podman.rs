//! What `podman kube play` reads from annotations and paths, and where Kubernetes, and podling, have a place for it.

use super::node::{Kind, Node, quote};
use super::objects::{Code, Severity};
use super::positions::{Findings, Path};

/// Before the names of a container's options.
const OPTION: &str = "io.podman.annotations.";
/// Options, and what gives the same here.
const INSTEAD: &[(&str, &str)] = &[
    ("apparmor", "use securityContext.appArmorProfile"),
    ("init", "use shareProcessNamespace: true, under which the pod's first process takes in orphans"),
    ("kube.image.volumes.mount", "use a volume of type image"),
    ("label", "use securityContext.seLinuxOptions"),
    ("privileged", "use securityContext.privileged"),
    ("publish-all", "use hostPort"),
    ("seccomp", "use securityContext.seccompProfile"),
    ("ulimit", "use podling.dev/ulimits"),
    ("userns", "use hostUsers: false"),
    ("volumes-from", "mount the same volumes in both containers"),
];
/// Options that say how podman keeps its own books.
const ITS_OWN: &[&str] = &["autoremove", "cid-file", "infra.name", "init.container.type"];
/// Labels of SELinux on bind mounts, as `podman kube generate` writes them down.
const RELABEL: &str = "bind-mount-options";
/// Options of a claim's named volume.
const VOLUME: &str = "volume.podman.io/";

/// Warns of the options that a pod's annotations hold.
pub fn pod(findings: &mut Findings<'_>) {
    each(findings, |name, value| {
        if name == RELABEL || name.starts_with("bind-mount-options/") {
            return Some("volumes keep the SELinux labels they have; chcon them on the host".to_owned());
        }
        let option = name.strip_prefix(OPTION)?;
        let option = option.split_once('/').map_or(option, |(option, _)| option);
        let off = value.is_some_and(|v| v.is_empty() || v.eq_ignore_ascii_case("false"));
        if off || ITS_OWN.contains(&option) {
            return None;
        }
        let instead = INSTEAD.iter().find(|(name, _)| *name == option);
        Some(instead.map_or("it is for podman only", |(_, instead)| instead).to_owned())
    });
}

/// Warns of the options of a named volume that a claim's annotations hold.
pub fn claim(findings: &mut Findings<'_>) {
    each(findings, |name, _| {
        let what = "put what the claim shall be, or a link to it, in place of its directory";
        name.starts_with(VOLUME).then(|| what.to_owned())
    });
}

/// Warns of each annotation for which `why` says why it has no effect.
fn each(findings: &mut Findings<'_>, why: impl Fn(&str, Option<&str>) -> Option<String>) {
    let path = Path::root().field("metadata").field("annotations");
    let annotations = findings.root().get("metadata").and_then(|m| m.get("annotations")).map(|a| &a.kind);
    let Some(Kind::Map(entries)) = annotations else { return };
    for entry in entries {
        if let Some(why) = why(&entry.key, Node::text(&entry.value)) {
            let text = format!("{} has no effect: {why}", quote(&entry.key));
            findings.at_key(Severity::Warning, Code::NoEffect, &path.key(&entry.key), text);
        }
    }
}
