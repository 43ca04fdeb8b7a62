//! Version 1: one directory for a group in every hierarchy.

use std::fs;
use std::path::Path;

use super::groups::{self, CgroupMount};
use super::{CgroupError, PodResources};

#[derive(Clone, Debug)]
pub(super) struct V1 {
    /// All hierarchies, the named ones and a version 2 one beside them included: runc uses them all.
    mounts: Vec<CgroupMount>,
}

impl V1 {
    pub fn new(mounts: Vec<CgroupMount>) -> Self {
        Self { mounts }
    }

    pub fn mount_points(&self) -> Vec<&Path> {
        self.mounts.iter().map(|m| m.path.as_path()).collect()
    }

    pub fn has(&self, controller: &str) -> bool {
        self.mount_of(controller).is_some()
    }

    fn mount_of(&self, controller: &str) -> Option<&Path> {
        self.mounts.iter().find(|m| m.controllers().any(|c| c == controller)).map(|m| m.path.as_path())
    }

    pub fn create(&self, path: &str) -> Result<(), CgroupError> {
        for mount in &self.mounts {
            let cpuset = mount.controllers().any(|c| c == "cpuset");
            groups::create(&mount.path, path, |dir| if cpuset { inherit_cpuset(dir) } else { Ok(()) })?;
        }
        Ok(())
    }

    pub fn set_shares(&self, path: &str, shares: u64) -> Result<(), CgroupError> {
        let Some(mount) = self.mount_of("cpu") else { return Ok(()) };
        groups::write_if_present(&groups::below(mount, path).join("cpu.shares"), &shares.to_string())
    }

    pub fn limit(&self, path: &str, limits: &PodResources) -> Result<(), CgroupError> {
        if let Some(mount) = self.mount_of("cpu") {
            let dir = groups::below(mount, path);
            groups::write(&dir.join("cpu.shares"), &limits.cpu_shares.to_string())?;
            // Kernels without CONFIG_CFS_BANDWIDTH lack the files; that only matters with a limit.
            if limits.cpu_quota.is_some() || dir.join("cpu.cfs_quota_us").exists() {
                // Lifted first, since a shorter period with the old quota could exceed what the parent has.
                groups::write(&dir.join("cpu.cfs_quota_us"), "-1")?;
                groups::write(&dir.join("cpu.cfs_period_us"), &limits.cpu_period.to_string())?;
                groups::write(&dir.join("cpu.cfs_quota_us"), &limits.cpu_quota.unwrap_or(-1).to_string())?;
            }
        }
        if let Some(mount) = self.mount_of("memory") {
            let file = groups::below(mount, path).join("memory.limit_in_bytes");
            groups::write(&file, &limits.memory_limit.unwrap_or(-1).to_string())?;
        }
        Ok(())
    }

    pub fn memory_in_use(&self, path: &str) -> Option<u64> {
        groups::number(&groups::below(self.mount_of("memory")?, path).join("memory.usage_in_bytes"))
    }

    pub fn oom_kills(&self, path: &str) -> Option<u64> {
        let dir = groups::below(self.mount_of("memory")?, path);
        groups::keyed_number(&dir.join("memory.oom_control"), "oom_kill")
    }
}

/// A new cpuset group is empty and takes no process until it has what its parent has.
fn inherit_cpuset(dir: &Path) -> Result<(), CgroupError> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let read = |dir: &Path| {
            let file = dir.join(name);
            fs::read_to_string(&file).map_err(|e| groups::io("read", &file, e))
        };
        if read(dir)?.trim().is_empty() {
            groups::write(&dir.join(name), read(parent)?.trim())?;
        }
    }
    Ok(())
}
