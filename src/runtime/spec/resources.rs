//! Limits of a container's own cgroup, and which devices it may use.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxResources};

use super::{SpecError, SpecInput, extras, qos};
use crate::manifest::Quantity;
use crate::system::cgroup::CgroupVersion;

pub(super) fn of(input: &SpecInput<'_>) -> Result<LinuxResources, SpecError> {
    check(input)?;
    let limits = qos::container_resources(input.container);
    let mut devices = device_rules(input.privileged());
    devices.extend(extras::device_rules(&input.extras.devices));
    let mut resources = LinuxResources::default();
    resources
        .set_devices(Some(devices))
        .set_cpu(Some(cpu(&limits)))
        .set_memory(memory(&limits))
        .set_hugepage_limits(extras::huge_pages(input.extras))
        .set_unified(unified(input));
    Ok(resources)
}

/// Quantities that cannot be read must not pass as "no limit".
fn check(input: &SpecInput<'_>) -> Result<(), SpecError> {
    let Some(resources) = &input.container.resources else { return Ok(()) };
    for (kind, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, amount) in amounts.iter().flatten() {
            Quantity::parse(&amount.0).map_err(|source| SpecError::Quantity {
                container: input.name(),
                resource: format!("{kind}.{name}"),
                source,
            })?;
        }
    }
    Ok(())
}

fn cpu(limits: &qos::PodResources) -> LinuxCpu {
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(Some(limits.cpu_shares))
        .set_quota(limits.cpu_quota)
        .set_period(limits.cpu_quota.map(|_| limits.cpu_period));
    cpu
}

fn memory(limits: &qos::PodResources) -> Option<LinuxMemory> {
    let mut memory = LinuxMemory::default();
    memory.set_limit(Some(limits.memory_limit?));
    Some(memory)
}

/// Version 2 only: a container out of memory dies as a whole unless the manifest says otherwise, and containers do
/// not swap.
fn unified(input: &SpecInput<'_>) -> Option<HashMap<String, String>> {
    if input.node.cgroup_version != CgroupVersion::V2 {
        return None;
    }
    let whole = if input.extras.single_process_oom { "0" } else { "1" };
    let mut files = HashMap::from([("memory.oom.group".to_owned(), whole.to_owned())]);
    if input.node.swap {
        files.insert("memory.swap.max".to_owned(), "0".to_owned());
    }
    Some(files)
}

/// No device, but for what the runtime itself adds for every container (null, zero, tty, ptmx and such);
/// all of them for a privileged one.
pub(super) fn device_rules(privileged: bool) -> Vec<LinuxDeviceCgroup> {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(privileged).set_access(Some("rwm".to_owned()));
    vec![rule]
}
