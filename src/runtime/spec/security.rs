//! Paths hidden from containers, and the choice of the system call filter.

use std::collections::HashSet;

use oci_spec::runtime::{Capability, LinuxSeccomp};

use super::{SpecError, SpecInput, seccomp};
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

/// The filter: the container's profile, else the pod's, else the default one or none, as the setting says. A
/// privileged container has none.
pub(super) fn seccomp(
    input: &SpecInput<'_>,
    capabilities: &HashSet<Capability>,
) -> Result<Option<LinuxSeccomp>, SpecError> {
    if input.privileged() {
        return Ok(None);
    }
    let own = input.container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref());
    let pods = input.pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let chosen = own.or(pods.and_then(|p| p.seccomp_profile.as_ref())).map(|p| p.type_.as_str());
    let refuse = |profile: &str, reason| {
        Err(SpecError::Seccomp { container: input.name(), profile: profile.to_owned(), reason })
    };
    match chosen {
        Some("Unconfined") => Ok(None),
        Some("RuntimeDefault") if !input.node.seccomp => {
            refuse("RuntimeDefault", "the kernel has no seccomp")
        }
        Some("RuntimeDefault") => Ok(Some(seccomp::default_profile(capabilities))),
        None if input.seccomp_default && input.node.seccomp => {
            Ok(Some(seccomp::default_profile(capabilities)))
        }
        None => Ok(None),
        Some(other) => refuse(other, "only RuntimeDefault and Unconfined are supported"),
    }
}
