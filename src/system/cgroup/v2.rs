//! Version 2: one directory for a group, with controllers switched on from the top down.

use std::fs;
use std::path::{Path, PathBuf};

use super::groups;
use super::{CgroupError, MAX_SHARES, MIN_SHARES, PodResources};

#[derive(Clone, Debug)]
pub(super) struct V2 {
    mount: PathBuf,
    controllers: Vec<String>,
}

/// Controllers that containers' limits and statistics use.
const USED: [&str; 6] = ["cpu", "cpuset", "io", "memory", "hugetlb", "pids"];

impl V2 {
    pub fn new(mount: PathBuf) -> Self {
        let controllers = fs::read_to_string(mount.join("cgroup.controllers"))
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Self { mount, controllers }
    }

    pub fn mount_point(&self) -> &Path {
        &self.mount
    }

    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }

    pub fn create(&self, path: &str) -> Result<(), CgroupError> {
        groups::create(&self.mount, path, |dir| {
            // What a level may use is decided by the level above it.
            dir.parent().map_or(Ok(()), |parent| self.delegate(parent))
        })
    }

    /// Hands the controllers on to the children of `dir`. One at a time: one that is refused must not keep
    /// the others away. A limit that then lacks its file says so.
    fn delegate(&self, dir: &Path) -> Result<(), CgroupError> {
        let file = dir.join("cgroup.subtree_control");
        let on = fs::read_to_string(&file).map_err(|e| groups::io("read", &file, e))?;
        for controller in USED.iter().filter(|c| self.has(c)) {
            if !on.split_whitespace().any(|c| c == *controller) {
                match groups::write(&file, &format!("+{controller}")) {
                    Err(CgroupError::Io { source, .. }) if groups::vanished(&source) && !file.exists() => {
                        return Err(groups::io("write to", &file, source));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub fn set_shares(&self, path: &str, shares: u64) -> Result<(), CgroupError> {
        let file = groups::below(&self.mount, path).join("cpu.weight");
        groups::write_if_present(&file, &weight(shares).to_string())
    }

    pub fn limit(&self, path: &str, limits: &PodResources) -> Result<(), CgroupError> {
        let dir = groups::below(&self.mount, path);
        self.set_shares(path, limits.cpu_shares)?;
        let cpu = limits.cpu_quota.map_or_else(|| "max".to_owned(), |q| q.to_string());
        let cpu = format!("{cpu} {}", limits.cpu_period);
        self.limit_one(&dir, "cpu", "cpu.max", &cpu, limits.cpu_quota.is_some())?;
        let memory = limits.memory_limit.map_or_else(|| "max".to_owned(), |m| m.to_string());
        self.limit_one(&dir, "memory", "memory.max", &memory, limits.memory_limit.is_some())
    }

    fn limit_one(
        &self,
        dir: &Path,
        controller: &'static str,
        file: &str,
        value: &str,
        needed: bool,
    ) -> Result<(), CgroupError> {
        match groups::write(&dir.join(file), value) {
            Err(CgroupError::Io { source, .. }) if groups::vanished(&source) && dir.exists() => {
                if needed {
                    let wanted = format!("{controller} limit ({file} = {value})");
                    return Err(CgroupError::ControllerMissing { controller, wanted });
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Kills all at once where the kernel can (5.14); the caller looks for survivors.
    pub fn kill(&self, path: &str) {
        let _ = groups::write(&groups::below(&self.mount, path).join("cgroup.kill"), "1");
    }

    pub fn memory_in_use(&self, path: &str) -> Option<u64> {
        groups::number(&groups::below(&self.mount, path).join("memory.current"))
    }

    pub fn oom_kills(&self, path: &str) -> Option<u64> {
        groups::keyed_number(&groups::below(&self.mount, path).join("memory.events"), "oom_kill")
    }
}

/// Weight (1 to 10000) for shares (2 to 262144), by the kubelet's formula.
pub(super) fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}
