//! Control groups of pods: where they are, their limits, what runs in them, and their removal.
//!
//! runc makes and removes the leaf, a container's group; everything above it is made and removed here. The
//! tree is the kubelet's (`<root>/pod<uid>`, `<root>/burstable/pod<uid>`, `<root>/besteffort/pod<uid>`) under
//! a root of our own: a kubelet kills what it does not know under `/kubepods`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SystemError, process};

mod groups;
mod v1;
mod v2;

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupVersion {
    /// One hierarchy a controller, also next to a version 2 hierarchy without controllers ("hybrid").
    V1,
    /// One hierarchy for all.
    V2,
}

impl CgroupVersion {
    /// What this machine has; version 2 when nothing can be found out.
    pub fn detect() -> Self {
        let table = super::mounts::read_mountinfo().unwrap_or_default();
        if groups::cgroup_mounts(&table).iter().any(|m| m.controllers().next().is_some()) {
            Self::V1
        } else {
            Self::V2
        }
    }
}

/// Quality of service of a pod: its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosClass {
    /// Every container has equal requests and limits; directly under the root.
    Guaranteed,
    /// Some requests or limits.
    Burstable,
    /// None.
    BestEffort,
}

impl QosClass {
    /// The directory between root and pod.
    fn directory(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        })
    }
}

/// Limits of a pod's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodResources {
    /// Relative weight, 2 to 262144.
    pub cpu_shares: u64,
    /// Microseconds of processor time in each period; None is no limit.
    pub cpu_quota: Option<i64>,
    /// Length of a period in microseconds.
    pub cpu_period: u64,
    /// Memory in bytes; None is no limit.
    pub memory_limit: Option<i64>,
}

/// The lowest weight, which pods without requests get.
pub const MIN_SHARES: u64 = 2;
/// The highest weight.
pub const MAX_SHARES: u64 = 262_144;

/// A group that could not be made, changed, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No cgroup file system at all.
    #[error(
        "no cgroup file system is mounted: mount one on /sys/fs/cgroup (mount -t cgroup2 none /sys/fs/cgroup)"
    )]
    NotMounted,
    /// A limit that this kernel cannot enforce.
    #[error(
        "the cgroup controller {controller} is not available, so a {wanted} cannot be set: enable it in the kernel (cgroup_enable={controller}) or remove the limit"
    )]
    ControllerMissing {
        /// Its name.
        controller: &'static str,
        /// The limit that needs it.
        wanted: String,
    },
    /// A name that would leave the tree.
    #[error("{0:?} cannot be part of a cgroup path: it must not be empty, `.`, `..`, or hold a slash")]
    BadName(String),
    /// Processes that do not end.
    #[error("cannot remove the cgroup {}: it is busy (processes {})", path.display(), list(pids))]
    Busy {
        /// The group.
        path: PathBuf,
        /// What is in it.
        pids: Vec<u32>,
    },
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The mount table could not be read.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl CgroupError {
    /// True when trying again can help; false when the pod or the machine must change first.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Io { .. } | Self::System(_))
    }
}

fn list(pids: &[u32]) -> String {
    if pids.is_empty() {
        return "none listed".to_owned();
    }
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// A pod's group that exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCgroup {
    /// The pod's uid.
    pub uid: String,
    /// Where in the tree it is.
    pub qos: QosClass,
}

/// The groups under one root.
#[derive(Clone, Debug)]
pub struct CgroupManager {
    root: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    V1(v1::V1),
    V2(v2::V2),
}

impl CgroupManager {
    /// Finds out what the machine has. `root` is an absolute path such as `/podling`; nothing is created yet.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`], or a bad root.
    pub fn detect(root: &str) -> Result<Self, CgroupError> {
        let table = super::mounts::read_mountinfo()?;
        Self::from_mounts(root, groups::cgroup_mounts(&table))
    }

    fn from_mounts(root: &str, mounts: Vec<groups::CgroupMount>) -> Result<Self, CgroupError> {
        let names: Vec<&str> = root.split('/').skip(1).collect();
        if !root.starts_with('/') {
            return Err(CgroupError::BadName(root.to_owned()));
        }
        names.iter().try_for_each(|name| check_name(name))?;
        let kind = if mounts.iter().any(|m| m.controllers().next().is_some()) {
            Kind::V1(v1::V1::new(mounts))
        } else {
            let unified = mounts.into_iter().find(|m| m.unified).ok_or(CgroupError::NotMounted)?;
            Kind::V2(v2::V2::new(unified.path))
        };
        Ok(Self { root: root.to_owned(), kind })
    }

    /// The version in use.
    pub fn version(&self) -> CgroupVersion {
        match &self.kind {
            Kind::V1(_) => CgroupVersion::V1,
            Kind::V2(_) => CgroupVersion::V2,
        }
    }

    /// Those of the controllers podling uses (cpu, memory, pids) that the machine lacks.
    pub fn missing_controllers(&self) -> Vec<&'static str> {
        ["cpu", "memory", "pids"].into_iter().filter(|c| !self.has(c)).collect()
    }

    pub fn has(&self, controller: &str) -> bool {
        match &self.kind {
            Kind::V1(v1) => v1.has(controller),
            Kind::V2(v2) => v2.has(controller),
        }
    }

    /// Path of a pod's group, as in `/proc/PID/cgroup`.
    pub fn pod_path(&self, uid: &str, qos: QosClass) -> String {
        match qos.directory() {
            Some(class) => format!("{}/{class}/pod{uid}", self.root),
            None => format!("{}/pod{uid}", self.root),
        }
    }

    /// Path of a container's group: `cgroupsPath` of its spec. runc creates and removes it.
    pub fn container_path(&self, uid: &str, qos: QosClass, id: &str) -> String {
        format!("{}/{id}", self.pod_path(uid, qos))
    }

    /// Creates the group of a pod with all above it and sets the limits. Repeating it changes the limits.
    ///
    /// # Errors
    /// [`CgroupError::ControllerMissing`] for a limit that cannot be enforced (nothing is created then), or
    /// the kernel's.
    pub fn create_pod(&self, uid: &str, qos: QosClass, limits: &PodResources) -> Result<(), CgroupError> {
        check_name(uid)?;
        self.check_limits(limits)?;
        let path = self.pod_path(uid, qos);
        self.create_group(&path)?;
        if qos == QosClass::BestEffort {
            self.set_shares(&format!("{}/besteffort", self.root), MIN_SHARES)?;
        }
        match &self.kind {
            Kind::V1(v1) => v1.limit(&path, limits),
            Kind::V2(v2) => v2.limit(&path, limits),
        }
    }

    /// Whether the machine can enforce these limits, of a pod or of one of its containers. A runtime that is
    /// asked for more fails with words nobody understands.
    ///
    /// # Errors
    /// [`CgroupError::ControllerMissing`] for the first that it cannot.
    pub fn check_limits(&self, limits: &PodResources) -> Result<(), CgroupError> {
        if let Some(quota) = limits.cpu_quota {
            let milli =
                quota.saturating_mul(1000) / i64::try_from(limits.cpu_period.max(1)).unwrap_or(i64::MAX);
            self.require("cpu", || format!("cpu limit of {milli}m"))?;
        }
        if let Some(bytes) = limits.memory_limit {
            self.require("memory", || format!("memory limit of {bytes} bytes"))?;
        }
        Ok(())
    }

    fn require(&self, controller: &'static str, wanted: impl FnOnce() -> String) -> Result<(), CgroupError> {
        if self.has(controller) {
            Ok(())
        } else {
            Err(CgroupError::ControllerMissing { controller, wanted: wanted() })
        }
    }

    /// Creates a group, in every hierarchy, with all above it. For a group of a pod's shim, say.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create_group(&self, path: &str) -> Result<(), CgroupError> {
        match &self.kind {
            Kind::V1(v1) => v1.create(path),
            Kind::V2(v2) => v2.create(path),
        }
    }

    /// Sets the weight of all Burstable pods together: the sum of their requests, as shares. Without such a
    /// pod (no group) nothing happens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_burstable_shares(&self, shares: u64) -> Result<(), CgroupError> {
        self.set_shares(&format!("{}/burstable", self.root), shares)
    }

    fn set_shares(&self, path: &str, shares: u64) -> Result<(), CgroupError> {
        let shares = shares.clamp(MIN_SHARES, MAX_SHARES);
        match &self.kind {
            Kind::V1(v1) => v1.set_shares(path, shares),
            Kind::V2(v2) => v2.set_shares(path, shares),
        }
    }

    /// Removes the group of a pod with all below it, then the groups above it when they are empty, so that
    /// nothing is left when no pod is. Missing ones are no error. Another pod may be created meanwhile.
    ///
    /// # Errors
    /// [`CgroupError::Busy`] when processes do not end within a fraction of a second, or the kernel's.
    pub fn remove_pod(&self, uid: &str, qos: QosClass) -> Result<(), CgroupError> {
        check_name(uid)?;
        let path = self.pod_path(uid, qos);
        let mut first = Ok(());
        let mut patience = groups::Patience::new();
        for mount in self.mount_points() {
            let removed = groups::remove_tree(&groups::below(mount, &path), &mut patience);
            if removed.is_ok() {
                if let Some(class) = qos.directory() {
                    groups::remove_if_empty(&groups::below(mount, &format!("{}/{class}", self.root)));
                }
                groups::remove_if_empty(&groups::below(mount, &self.root));
            }
            if first.is_ok() {
                first = removed;
            }
        }
        first
    }

    /// Groups of pods that exist, in any hierarchy, sorted.
    pub fn pods(&self) -> Vec<PodCgroup> {
        let mut found = BTreeSet::new();
        for mount in self.mount_points() {
            for qos in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
                let dir = match qos.directory() {
                    Some(class) => format!("{}/{class}", self.root),
                    None => self.root.clone(),
                };
                for name in groups::children(&groups::below(mount, &dir)) {
                    if let Some(uid) = name.strip_prefix("pod") {
                        found.insert(PodCgroup { uid: uid.to_owned(), qos });
                    }
                }
            }
        }
        found.into_iter().collect()
    }

    /// Processes in the group and all below it, sorted. Empty when there is no such group.
    pub fn pids(&self, path: &str) -> Vec<u32> {
        let mut all = BTreeSet::new();
        for mount in self.mount_points() {
            groups::collect_pids(&groups::below(mount, path), &mut all);
        }
        all.into_iter().collect()
    }

    /// Sends `signal` to all processes in the group and below it. With SIGKILL it goes on until none is
    /// left or a second has passed, since processes may fork meanwhile. Returns how many are left after
    /// SIGKILL, or were signalled.
    ///
    /// # Errors
    /// [`SystemError::NoSuchSignal`].
    pub fn kill_all(&self, path: &str, signal: i32) -> Result<usize, CgroupError> {
        if super::raw::signal(signal).is_none() {
            return Err(SystemError::NoSuchSignal(signal).into());
        }
        const SIGKILL: i32 = 9;
        if let (Kind::V2(v2), SIGKILL) = (&self.kind, signal) {
            v2.kill(path);
        }
        for _ in 0..100 {
            let pids: Vec<u32> = self.pids(path).into_iter().filter(|pid| process::is_alive(*pid)).collect();
            let mut reached = 0;
            for pid in &pids {
                // A process that ended meanwhile is what was wanted.
                let sent = process::identify(*pid).and_then(|id| process::signal(id, signal));
                reached += usize::from(sent.is_ok());
            }
            if signal != SIGKILL {
                return Ok(reached);
            }
            if pids.is_empty() {
                return Ok(0);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(self.pids(path).len())
    }

    /// How many processes of the container's group the kernel killed for lack of memory. None when the group
    /// or the memory controller is missing. To be read before the task is deleted.
    pub fn oom_kills(&self, path: &str) -> Option<u64> {
        match &self.kind {
            Kind::V1(v1) => v1.oom_kills(path),
            Kind::V2(v2) => v2.oom_kills(path),
        }
    }

    /// Bytes of memory that a group uses, with page cache that could be reclaimed. None without the group or the
    /// controller.
    pub fn memory_in_use(&self, path: &str) -> Option<u64> {
        match &self.kind {
            Kind::V1(v1) => v1.memory_in_use(path),
            Kind::V2(v2) => v2.memory_in_use(path),
        }
    }

    fn mount_points(&self) -> Vec<&std::path::Path> {
        match &self.kind {
            Kind::V1(v1) => v1.mount_points(),
            Kind::V2(v2) => vec![v2.mount_point()],
        }
    }
}

fn check_name(name: &str) -> Result<(), CgroupError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0', '\n']) {
        return Err(CgroupError::BadName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
