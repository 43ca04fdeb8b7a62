//! What a container is given beyond the Pod API: devices, limits on its processes, a time zone.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    LinuxDeviceCgroup, LinuxDeviceType, LinuxHugepageLimit, PosixRlimit, PosixRlimitBuilder, PosixRlimitType,
};

use crate::manifest::annotations::Ulimit;
use crate::system::devices::HostDevice;

/// What others found out for a container; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Read-only files of the host by their place in the container, for where nothing else is mounted.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// One of those files, to be run with the container's command as its arguments.
    pub launcher: Option<PathBuf>,
    /// Variables that win over the image's and lose to the manifest's.
    pub env: Vec<(String, String)>,
    /// Limits on its processes.
    pub ulimits: Vec<Ulimit>,
    /// Devices it may use.
    pub devices: Vec<DeviceGrant>,
    /// Bytes of huge pages, by size as the cgroup names it (`2MB`).
    pub huge_pages: Vec<(String, i64)>,
    /// Out of memory, the kernel kills one process of it and not all (cgroup version 2).
    pub single_process_oom: bool,
}

/// A device that a container may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceGrant {
    /// Which; its path is the one in the container.
    pub device: HostDevice,
    /// What may be done: some of `r`, `w` and `m`.
    pub access: String,
    /// Whether a node is made; else it comes by a mount.
    pub node: bool,
}

/// The rules of the device cgroup for what is granted, behind the general one.
pub(super) fn device_rules(grants: &[DeviceGrant]) -> Vec<LinuxDeviceCgroup> {
    let rule = |grant: &DeviceGrant| {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true)
            .set_typ(Some(if grant.device.block { LinuxDeviceType::B } else { LinuxDeviceType::C }))
            .set_major(Some(grant.device.major.into()))
            .set_minor(Some(grant.device.minor.into()))
            .set_access(Some(grant.access.clone()));
        rule
    };
    let mut rules: Vec<LinuxDeviceCgroup> = Vec::new();
    for new in grants.iter().map(rule) {
        if !rules.contains(&new) {
            rules.push(new);
        }
    }
    rules
}

/// Devices that get a node, each path once: a later grant takes the place of an earlier one, and of one of `host`.
pub(super) fn nodes<'a>(host: &'a [HostDevice], grants: &'a [DeviceGrant]) -> Vec<&'a HostDevice> {
    let mut all: Vec<&HostDevice> = host.iter().collect();
    for grant in grants.iter().filter(|grant| grant.node) {
        all.retain(|known| known.path != grant.device.path);
        all.push(&grant.device);
    }
    all
}

/// `process.rlimits`; none where nothing is asked for, so that those of the shim hold.
pub(super) fn rlimits(ulimits: &[Ulimit]) -> Option<Vec<PosixRlimit>> {
    let limit = |ulimit: &Ulimit| {
        let builder = PosixRlimitBuilder::default().typ(kind(ulimit.name));
        // All fields have defaults, so building cannot fail.
        builder.soft(ulimit.soft).hard(ulimit.hard).build().ok()
    };
    (!ulimits.is_empty()).then(|| ulimits.iter().filter_map(limit).collect())
}

fn kind(name: &str) -> PosixRlimitType {
    match name {
        "as" => PosixRlimitType::RlimitAs,
        "core" => PosixRlimitType::RlimitCore,
        "cpu" => PosixRlimitType::RlimitCpu,
        "data" => PosixRlimitType::RlimitData,
        "fsize" => PosixRlimitType::RlimitFsize,
        "locks" => PosixRlimitType::RlimitLocks,
        "memlock" => PosixRlimitType::RlimitMemlock,
        "msgqueue" => PosixRlimitType::RlimitMsgqueue,
        "nice" => PosixRlimitType::RlimitNice,
        "nproc" => PosixRlimitType::RlimitNproc,
        "rss" => PosixRlimitType::RlimitRss,
        "rtprio" => PosixRlimitType::RlimitRtprio,
        "sigpending" => PosixRlimitType::RlimitSigpending,
        "stack" => PosixRlimitType::RlimitStack,
        _ => PosixRlimitType::RlimitNofile,
    }
}

/// Limits on huge pages; none where none are asked for.
pub(super) fn huge_pages(extras: &Extras) -> Option<Vec<LinuxHugepageLimit>> {
    let limit = |(size, bytes): &(String, i64)| {
        let mut limit = LinuxHugepageLimit::default();
        limit.set_page_size(size.clone()).set_limit(*bytes);
        limit
    };
    (!extras.huge_pages.is_empty()).then(|| extras.huge_pages.iter().map(limit).collect())
}

/// Whether a file of the host may be put at this path: nothing of the pod's own is mounted there or above.
pub(super) fn is_free<'a>(path: &Path, mut mounted: impl Iterator<Item = &'a PathBuf>) -> bool {
    !mounted.any(|taken| path.starts_with(taken))
}
