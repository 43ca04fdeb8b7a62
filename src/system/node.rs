//! What this machine can do, read once at start.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::cgroup::CgroupVersion;

/// Facts about the machine on which the specs of containers depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFeatures {
    /// Numbers of the capabilities that podling, and so a privileged container, can have.
    pub capabilities: BTreeSet<u8>,
    /// Whether `oom_score_adj` may go below podling's own, and limits above the hard ones.
    pub cap_sys_resource: bool,
    /// podling's own `oom_score_adj`: the floor without `CAP_SYS_RESOURCE`.
    pub oom_score_adj: i32,
    /// Number of processors in use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whether there is swap.
    pub swap: bool,
    /// Which cgroups are used.
    pub cgroup_version: CgroupVersion,
    /// Whether the kernel filters system calls.
    pub seccomp: bool,
    /// The kernel's version, its first two numbers.
    pub kernel: (u32, u32),
    /// Whether AppArmor is on.
    pub apparmor: bool,
    /// Whether SELinux is on.
    pub selinux: bool,
    /// The AppArmor profile for containers, where AppArmor is on and the profile is loaded.
    pub apparmor_profile: Option<String>,
    /// `thermal_throttle` directories in `/sys` that containers must not read.
    pub thermal_throttle: Vec<String>,
}

/// The AppArmor profile that podling loads for containers.
pub const APPARMOR_DEFAULT: &str = "podling-default-1";

/// Profiles for containers, the best first: ours, and the one that containerd loads when CRI is used.
const FOR_CONTAINERS: [&str; 2] = [APPARMOR_DEFAULT, "cri-containerd.apparmor.d"];

/// Profiles that the kernel has loaded, one a line; there only with AppArmor and securityfs.
pub const APPARMOR_PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

/// `CAP_SYS_RESOURCE`, from `linux/capability.h`.
const CAP_SYS_RESOURCE: u8 = 24;

/// Looks at the machine. What cannot be read counts as absent, so that a strange host still runs pods.
pub fn node_features() -> NodeFeatures {
    let status = read("/proc/self/status");
    let capabilities = bounding_set(&status);
    let meminfo = read("/proc/meminfo");
    let apparmor = read("/sys/module/apparmor/parameters/enabled");
    NodeFeatures {
        cap_sys_resource: capabilities.contains(&CAP_SYS_RESOURCE),
        capabilities,
        oom_score_adj: read("/proc/self/oom_score_adj").trim().parse().unwrap_or(0),
        cpus: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_bytes: kibibytes(&meminfo, "MemTotal:") * 1024,
        swap: kibibytes(&meminfo, "SwapTotal:") > 0,
        cgroup_version: CgroupVersion::detect(),
        seccomp: status.lines().any(|line| line.starts_with("Seccomp:")),
        kernel: kernel_version(&rustix::system::uname().release().to_string_lossy()).unwrap_or_default(),
        apparmor: apparmor.starts_with('Y'),
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        apparmor_profile: loaded_profile(&apparmor, &read(APPARMOR_PROFILES)),
        thermal_throttle: thermal_throttle(Path::new("/sys/devices/system/cpu")),
    }
}

impl NodeFeatures {
    /// `wanted` where the machine lets podling set it, else the lowest value it can.
    pub fn clamp_oom_score_adj(&self, wanted: i32) -> i32 {
        if self.cap_sys_resource { wanted } else { wanted.max(self.oom_score_adj) }
    }

    /// Sentences on what this machine lacks, for the log and the node's conditions.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.cap_sys_resource {
            notes.push(format!(
                "CAP_SYS_RESOURCE is missing: oom_score_adj of containers is not set below {}",
                self.oom_score_adj
            ));
        }
        if !self.seccomp {
            notes.push("the kernel has no seccomp: containers run without a system call filter".to_owned());
        }
        if self.apparmor && self.apparmor_profile.is_none() {
            let text = "no default AppArmor profile is loaded: containers that name none run unconfined";
            notes.push(text.to_owned());
        }
        notes
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn bounding_set(status: &str) -> BTreeSet<u8> {
    let bits = status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    (0..64).filter(|bit| bits & (1 << bit) != 0).collect()
}

/// Major and minor number in front of a version such as `6.1.0-13-amd64`.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kibibytes(meminfo: &str, key: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|value| value.trim().trim_end_matches("kB").trim().parse().ok())
        .unwrap_or(0)
}

/// Whether the text of [`APPARMOR_PROFILES`] lists a profile, in whatever mode.
pub fn is_loaded(profiles: &str, name: &str) -> bool {
    // The mode in brackets ends the line; names may hold spaces.
    profiles.lines().any(|line| line.rsplit_once(" (").map_or(line, |(profile, _)| profile) == name)
}

fn loaded_profile(enabled: &str, profiles: &str) -> Option<String> {
    let found = FOR_CONTAINERS.into_iter().find(|name| is_loaded(profiles, name));
    found.filter(|_| enabled.starts_with('Y')).map(str::to_owned)
}

fn thermal_throttle(cpus: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(cpus) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|p| p.is_dir())
        .map(|p| p.display().to_string())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_it_runs_on_has_processors_memory_and_capabilities() {
        let node = node_features();
        assert!(node.cpus > 0 && node.memory_bytes > 1 << 20, "{node:?}");
        assert!(node.capabilities.contains(&0), "CAP_CHOWN: {node:?}");
        assert_eq!(node.cap_sys_resource, node.capabilities.contains(&24));
    }

    #[test]
    fn without_cap_sys_resource_the_oom_score_stops_at_our_own() {
        let mut node = node_features();
        (node.cap_sys_resource, node.oom_score_adj) = (false, 100);
        assert_eq!((node.clamp_oom_score_adj(-997), node.clamp_oom_score_adj(500)), (100, 500));
        assert!(node.notes().iter().any(|n| n.contains("not set below 100")), "{:?}", node.notes());
        node.cap_sys_resource = true;
        assert_eq!(node.clamp_oom_score_adj(-997), -997);
    }

    #[test]
    fn a_kernel_without_seccomp_is_said_to_have_none() {
        let mut node = node_features();
        node.seccomp = false;
        assert!(node.notes().iter().any(|n| n.contains("without a system call filter")));
    }

    #[test]
    fn a_host_with_apparmor_but_no_profile_for_containers_says_so() {
        let mut node = node_features();
        (node.apparmor, node.apparmor_profile) = (true, None);
        assert!(node.notes().iter().any(|n| n.contains("no default AppArmor profile is loaded")));
        node.apparmor_profile = Some(APPARMOR_DEFAULT.to_owned());
        assert!(!node.notes().iter().any(|n| n.contains("AppArmor")));
    }

    #[test]
    fn kernel_versions_are_their_first_two_numbers() {
        assert_eq!(kernel_version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(kernel_version("4.8"), Some((4, 8)));
        assert_eq!(kernel_version("six"), None);
    }

    #[test]
    fn a_profile_counts_only_when_apparmor_is_on_and_it_is_loaded() {
        let profiles = "docker-default (enforce)\ncri-containerd.apparmor.d (enforce)\n";
        assert_eq!(loaded_profile("Y\n", profiles).as_deref(), Some("cri-containerd.apparmor.d"));
        let both = format!("{profiles}podling-default-1 (enforce)\n");
        assert_eq!(loaded_profile("Y\n", &both).as_deref(), Some(APPARMOR_DEFAULT));
        assert_eq!(loaded_profile("N\n", profiles), None);
        assert_eq!(loaded_profile("Y\n", "docker-default (enforce)\n"), None);
    }

    #[test]
    fn every_processor_with_thermal_files_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["cpu1/thermal_throttle", "cpu0/thermal_throttle", "cpu2", "cpufreq/thermal_throttle"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let found = thermal_throttle(dir.path());
        let ends: Vec<&str> = found.iter().map(|p| &p[p.len() - 21..]).collect();
        assert_eq!(ends, ["cpu0/thermal_throttle", "cpu1/thermal_throttle"]);
    }
}
