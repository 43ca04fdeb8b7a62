//! Paths hidden from containers, and the choice of the system call filter.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};
use oci_spec::runtime::{Capability, LinuxSeccomp};

use super::{SeccompFile, SpecError, SpecInput, seccomp, seccomp_file};
use crate::system::node::NodeFeatures;

/// Files of the kernel that tell about or change the host.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn masked_paths(node: &NodeFeatures) -> Vec<String> {
    MASKED.iter().map(|p| (*p).to_owned()).chain(node.thermal_throttle.iter().cloned()).collect()
}

pub(super) fn read_only_paths() -> Vec<String> {
    READ_ONLY.iter().map(|p| (*p).to_owned()).collect()
}

/// Whether programs may get more rights than their parent, by setuid bits say.
pub(super) fn no_new_privileges(input: &SpecInput<'_>) -> bool {
    let context = input.container.security_context.as_ref();
    context.and_then(|c| c.allow_privilege_escalation) == Some(false)
}

/// Whether the container sees all of `/proc` and `/sys`, for it runs in a user namespace of its own.
pub(super) fn unmasked_proc(input: &SpecInput<'_>) -> bool {
    let context = input.container.security_context.as_ref();
    context.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked")
}

/// The container's seccomp profile, else the pod's.
fn chosen<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SeccompProfile> {
    let own = container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref());
    let pods = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    own.or(pods.and_then(|p| p.seccomp_profile.as_ref()))
}

/// The path of the seccomp profile that a container takes from a file, below the root of profiles. A
/// privileged container takes none.
pub fn localhost_profile<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a str> {
    if container.security_context.as_ref().and_then(|c| c.privileged) == Some(true) {
        return None;
    }
    let profile = chosen(pod, container).filter(|p| p.type_ == "Localhost")?;
    Some(profile.localhost_profile.as_deref().unwrap_or_default())
}

/// The filter: the container's profile, else the pod's, else the default one or none, as the setting says. A
/// privileged container has none.
pub(super) fn seccomp(
    input: &SpecInput<'_>,
    capabilities: &HashSet<Capability>,
) -> Result<Option<LinuxSeccomp>, SpecError> {
    if input.privileged() {
        return Ok(None);
    }
    let wanted = chosen(input.pod, input.container).map(|p| p.type_.as_str());
    let refuse = |profile: &str, reason| {
        Err(SpecError::Seccomp { container: input.name(), profile: profile.to_owned(), reason })
    };
    match wanted {
        Some("Unconfined") => Ok(None),
        Some(kind @ ("RuntimeDefault" | "Localhost")) if !input.node.seccomp => {
            refuse(kind, "the kernel has no seccomp")
        }
        Some("RuntimeDefault") => Ok(Some(seccomp::default_profile(capabilities))),
        Some("Localhost") => match input.seccomp_file {
            Some(file) => from_file(input, file, capabilities).map(Some),
            None => refuse("Localhost", "its file was not read"),
        },
        None if input.seccomp_default && input.node.seccomp => {
            Ok(Some(seccomp::default_profile(capabilities)))
        }
        None => Ok(None),
        Some(other) => refuse(other, "its type is none of RuntimeDefault, Localhost and Unconfined"),
    }
}

fn from_file(
    input: &SpecInput<'_>,
    file: &SeccompFile,
    capabilities: &HashSet<Capability>,
) -> Result<LinuxSeccomp, SpecError> {
    let target =
        seccomp_file::Target { capabilities, machine: std::env::consts::ARCH, kernel: input.node.kernel };
    seccomp_file::parse(&file.text, &target).map_err(|reason| SpecError::SeccompFile {
        container: input.name(),
        path: file.path.clone(),
        reason,
    })
}
