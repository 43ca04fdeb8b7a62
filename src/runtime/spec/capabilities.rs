//! Capabilities: the default set, what a manifest adds and drops, and what the machine has.

use std::collections::HashSet;
use std::str::FromStr;

use oci_spec::runtime::{Capability, LinuxCapabilities};

use super::{SpecError, SpecInput};
use crate::system::node::NodeFeatures;

/// All capabilities in the order of their numbers in `linux/capability.h`.
const BY_NUMBER: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// What containers have without asking: the CRI plugin's fourteen.
const DEFAULT: [Capability; 14] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

/// What the machine has: more than that, a runtime cannot give, and fails with words nobody understands.
fn available(node: &NodeFeatures) -> HashSet<Capability> {
    (0u8..).zip(BY_NUMBER).filter(|(number, _)| node.capabilities.contains(number)).map(|(_, c)| c).collect()
}

/// The capabilities of a container: all there are for a privileged one; else the default ones, with `ALL` in
/// `add` and then in `drop` taken first, then single additions, then single removals.
pub(super) fn of(input: &SpecInput<'_>) -> Result<HashSet<Capability>, SpecError> {
    let available = available(input.node);
    if input.privileged() {
        return Ok(available);
    }
    let wanted = input.container.security_context.as_ref().and_then(|c| c.capabilities.as_ref());
    let add = parse(input, wanted.and_then(|c| c.add.as_deref()).unwrap_or_default())?;
    let drop = parse(input, wanted.and_then(|c| c.drop.as_deref()).unwrap_or_default())?;
    let mut set: HashSet<Capability> = DEFAULT.into_iter().filter(|c| available.contains(c)).collect();
    if add.contains(&None) {
        set.clone_from(&available);
    }
    if drop.contains(&None) {
        set.clear();
    }
    for capability in add.into_iter().flatten() {
        if !available.contains(&capability) {
            return Err(SpecError::CapabilityUnavailable {
                container: input.name(),
                capability: capability.to_string(),
            });
        }
        set.insert(capability);
    }
    for capability in drop.into_iter().flatten() {
        set.remove(&capability);
    }
    Ok(set)
}

/// Reads names, with or without `CAP_`; None stands for `ALL`.
fn parse(input: &SpecInput<'_>, names: &[String]) -> Result<Vec<Option<Capability>>, SpecError> {
    let one = |name: &String| {
        let upper = name.to_uppercase();
        let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if plain == "ALL" {
            return Ok(None);
        }
        Capability::from_str(plain)
            .map(Some)
            .map_err(|_| SpecError::UnknownCapability { container: input.name(), capability: name.clone() })
    };
    names.iter().map(one).collect()
}

/// The sets of a process. Inheritable and ambient stay empty: else programs without file capabilities would
/// get more than their user has.
pub(super) fn sets(set: &HashSet<Capability>) -> LinuxCapabilities {
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(set.clone()))
        .set_effective(Some(set.clone()))
        .set_permitted(Some(set.clone()))
        .set_inheritable(None)
        .set_ambient(None);
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        let number = |c: Capability| BY_NUMBER.iter().position(|b| *b == c).unwrap();
        let known = [Capability::SysAdmin, Capability::SysResource, Capability::AuditWrite, Capability::Bpf];
        assert_eq!(known.map(number), [21, 24, 29, 39]);
        assert_eq!(BY_NUMBER.iter().collect::<HashSet<_>>().len(), 41);
    }
}
