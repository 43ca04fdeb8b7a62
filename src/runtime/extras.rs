//! What a container is given beyond the Pod API: the `podling.dev/` annotations that reach it, devices behind hostPath
//! volumes and `volumeDevices`, huge pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use rustix::process::{Resource, getrlimit};

use super::spec::{DeviceGrant, Extras};
use super::{Runtime, StartError, StartOrder};
use crate::manifest::Quantity;
use crate::manifest::annotations::{self, DeviceWish, TimeZone, Ulimit};
use crate::system::devices::{self, HostDevice};
use crate::volume::PreparedVolume;

/// Where the tz database is, on the host and in containers.
const ZONES: &str = "/usr/share/zoneinfo";
/// The host's own time zone.
const LOCALTIME: &str = "/etc/localtime";
/// Most open files that the kernel lets a process have.
const NR_OPEN: &str = "/proc/sys/fs/nr_open";

/// Files of the host behind their places in the container.
type Files = Vec<(PathBuf, PathBuf)>;

/// What the machine allows.
struct Machine {
    /// Limits may be raised above the hard ones.
    pub cap_sys_resource: bool,
    /// Huge pages can be limited.
    pub hugetlb: bool,
}

impl Runtime {
    /// What a container is given beyond the Pod API.
    pub(super) fn extras(
        &self,
        order: &StartOrder<'_>,
        container: &Container,
        volumes: &BTreeMap<String, PreparedVolume>,
    ) -> Result<Extras, StartError> {
        let machine = Machine {
            cap_sys_resource: self.inner.features.cap_sys_resource,
            hugetlb: self.inner.cgroups.has("hugetlb"),
        };
        let mut extras = of(&order.manifest.pod, container, volumes, &machine)?;
        if container.stdin == Some(true) && container.tty != Some(true) {
            hold_stdin(container, &self.inner.pause, &mut extras);
        }
        Ok(extras)
    }
}

/// A container with `stdin: true` waits at its standard input for somebody to attach. The shim that gives output to a
/// logger gives `/dev/null` as input, at whose end such programs end; so a helper opens a pipe in its place, and becomes
/// the program.
fn hold_stdin(container: &Container, helper: &Path, extras: &mut Extras) {
    let mut mounts = container.volume_mounts.iter().flatten();
    // Below /dev nothing is left in the image, unless that is the host's.
    let whole = mounts.any(|m| Path::new("/dev").starts_with(m.mount_path.trim_end_matches('/')));
    let place = PathBuf::from(if whole { "/.podling-stdin" } else { "/dev/.podling-stdin" });
    extras.files.push((place.clone(), helper.to_owned()));
    extras.launcher = Some(place);
}

/// Finds out all of it for one container. Only reads, and only files of the kernel and of `/dev`.
fn of(
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, PreparedVolume>,
    machine: &Machine,
) -> Result<Extras, StartError> {
    let (devices, files) = devices(pod, container, volumes)?;
    let mut extras = Extras {
        files,
        ulimits: ulimits(pod, container, machine)?,
        devices,
        single_process_oom: !annotations::oom_group(pod, &container.name),
        ..Extras::default()
    };
    if machine.hugetlb {
        extras.huge_pages = huge_pages(container);
    }
    if let Some(zone) = annotations::time_zone(pod, &container.name) {
        time_zone(&zone, &container.name, &mut extras)?;
    }
    Ok(extras)
}

fn refuse(container: &str, annotation: &str, text: &str) -> StartError {
    StartError::config(format!(
        "container {container}: annotation {}{annotation}: {text}",
        annotations::PREFIX
    ))
}

/// The limits asked for, if this machine lets podling set them: the OCI runtime would fail without saying why.
fn ulimits(pod: &Pod, container: &Container, machine: &Machine) -> Result<Vec<Ulimit>, StartError> {
    let mut wanted = annotations::ulimits(pod, &container.name);
    let most_files = fs::read_to_string(NR_OPEN).ok().and_then(|text| text.trim().parse::<u64>().ok());
    for limit in &mut wanted {
        let name = limit.name;
        if let (true, Some(most)) = (name == "nofile", most_files) {
            // No process can have more; without this, "unlimited" would be refused by the kernel.
            limit.soft = if limit.soft == u64::MAX { most } else { limit.soft };
            limit.hard = if limit.hard == u64::MAX { most } else { limit.hard };
            if limit.hard > most {
                let text = format!(
                    "nofile {} is above the kernel's limit {most}: raise sysctl fs.nr_open",
                    limit.hard
                );
                return Err(refuse(&container.name, "ulimits", &text));
            }
        }
        let own = hard_limit(name);
        if limit.hard > own && !machine.cap_sys_resource {
            let text = format!(
                "{name} {} is above podling's own hard limit {own}, and podling lacks CAP_SYS_RESOURCE to raise it: raise \
                 the limit that podling and containerd are started with, or ask for at most {own}",
                shown(limit.hard)
            );
            return Err(refuse(&container.name, "ulimits", &text));
        }
    }
    Ok(wanted)
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

fn hard_limit(name: &str) -> u64 {
    let resource = match name {
        "as" => Resource::As,
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "locks" => Resource::Locks,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nice" => Resource::Nice,
        "nproc" => Resource::Nproc,
        "rss" => Resource::Rss,
        "rtprio" => Resource::Rtprio,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        _ => Resource::Nofile,
    };
    getrlimit(resource).maximum.unwrap_or(u64::MAX)
}

/// Devices by annotation, by `volumeDevices`, and behind mounts of hostPath types CharDevice and BlockDevice; and
/// those nodes of the host, each behind its place in the container, that must be mounted there.
fn devices(
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, PreparedVolume>,
) -> Result<(Vec<DeviceGrant>, Files), StartError> {
    let mut grants = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let typed = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).any(|volume| {
            let kind = volume.host_path.as_ref().and_then(|host| host.type_.as_deref());
            volume.name == mount.name && matches!(kind, Some("CharDevice" | "BlockDevice"))
        });
        if let (true, Some(volume)) = (typed, volumes.get(&mount.name)) {
            let access = if mount.read_only == Some(true) { "r" } else { "rw" };
            let found = device_at(&volume.host_path, Path::new(&mount.mount_path));
            grants.extend(found.map(|device| DeviceGrant { device, access: access.to_owned(), node: false }));
        }
    }
    for wanted in container.volume_devices.iter().flatten() {
        let said = |text: String| {
            StartError::config(format!("container {}: volumeDevices {}: {text}", container.name, wanted.name))
        };
        let volume =
            volumes.get(&wanted.name).ok_or_else(|| said("the pod has no volume of this name".to_owned()))?;
        let device =
            device_at(&volume.host_path, Path::new(&wanted.device_path)).filter(|device| device.block);
        let device = device.ok_or_else(|| {
            said(format!(
                "{} is no block device; mount the volume by volumeMounts",
                volume.host_path.display()
            ))
        })?;
        let access = if volume.read_only { "r" } else { "rwm" };
        grants.push(DeviceGrant { device, access: access.to_owned(), node: true });
    }
    // Nobody makes nodes in a user namespace: runc binds the host's there, and looks for it under the same name.
    let by_name = pod.spec.as_ref().is_some_and(|spec| spec.host_users == Some(false));
    let mut mounted = Vec::new();
    for wish in annotations::devices(pod, &container.name) {
        for (mut grant, host) in granted(&wish, &container.name)? {
            if by_name && host != grant.device.path {
                mounted.push((grant.device.path.clone(), host));
                grant.node = false;
            }
            grants.push(grant);
        }
    }
    Ok((grants, mounted))
}

/// The device at `path`, as it is to appear at `shown`.
fn device_at(path: &Path, shown: &Path) -> Option<HostDevice> {
    HostDevice::of(&fs::metadata(path).ok()?, shown.to_owned())
}

/// What an annotation grants, each with its place on the host.
fn granted(wish: &DeviceWish, container: &str) -> Result<Vec<(DeviceGrant, PathBuf)>, StartError> {
    let host = Path::new(&wish.host);
    let grant = |device| DeviceGrant { device, access: wish.access.clone(), node: true };
    if host.is_dir() {
        let found = devices::host_devices(host);
        if found.is_empty() {
            return Err(refuse(
                container,
                "devices",
                &format!("waiting for devices in {}: there are none", wish.host),
            ));
        }
        let moved = |mut device: HostDevice| {
            let at = device.path.clone();
            if let Ok(rest) = device.path.strip_prefix(host) {
                device.path = Path::new(&wish.container).join(rest);
            }
            (grant(device), at)
        };
        return Ok(found.into_iter().map(moved).collect());
    }
    match device_at(host, Path::new(&wish.container)) {
        Some(device) => Ok(vec![(grant(device), host.to_owned())]),
        None if host.exists() => {
            Err(refuse(container, "devices", &format!("{} is no device; use a hostPath volume", wish.host)))
        }
        None => Err(refuse(container, "devices", &format!("waiting for {}: it does not exist", wish.host))),
    }
}

/// The zone's file at the place where programs look for it by name, and its name in `TZ`. `/etc/localtime` stays the
/// image's: where that is a link, a mount would go to what it points at, and change another zone.
fn time_zone(zone: &TimeZone, container: &str, extras: &mut Extras) -> Result<(), StartError> {
    let (name, file) = match zone {
        TimeZone::Named(name) => (name.clone(), Path::new(ZONES).join(name)),
        TimeZone::Local => local_zone(),
    };
    if file.is_file() {
        extras.files.push((Path::new(ZONES).join(&name), file));
    } else if name != "UTC" {
        let text = format!("{} is not on this host: install tzdata, or correct the name", file.display());
        return Err(refuse(container, "timezone", &text));
    }
    extras.env.push(("TZ".to_owned(), name));
    Ok(())
}

/// Name and file of the host's time zone; a host that says nothing has UTC.
fn local_zone() -> (String, PathBuf) {
    let Ok(file) = fs::canonicalize(LOCALTIME) else {
        return ("UTC".to_owned(), Path::new(ZONES).join("UTC"));
    };
    let named = fs::read_link(LOCALTIME).ok().unwrap_or_else(|| file.clone());
    let named = named.to_string_lossy().into_owned();
    match named.split_once("zoneinfo/") {
        Some((_, name)) => (name.to_owned(), file),
        // A copy: it gets a name that no zone has.
        None => ("podling/local".to_owned(), file),
    }
}

/// Limits on huge pages that the container asks for.
fn huge_pages(container: &Container) -> Vec<(String, i64)> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let wanted = limits.into_iter().flatten().filter_map(|(name, amount)| {
        let size = name.strip_prefix("hugepages-")?;
        let page = u64::try_from(Quantity::parse(size).ok()?.value()).ok()?;
        let bytes = Quantity::parse(&amount.0).ok()?.value();
        Some((page_name(page), bytes))
    });
    wanted.collect()
}

/// A page size as the cgroup's files name it.
fn page_name(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}GB", b >> 30),
        b if b >= 1 << 20 => format!("{}MB", b >> 20),
        b => format!("{}KB", b >> 10),
    }
}

#[cfg(test)]
mod tests;
