//! Limits of what runs, changed in place.

use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxResources};

use super::Runtime;
use crate::system::cgroup::{CgroupVersion, PodResources, QosClass};

impl Runtime {
    /// Sets the limits of a pod's cgroup.
    ///
    /// # Errors
    /// The kernel's word, as a sentence.
    pub async fn limit_pod(&self, uid: &str, qos: QosClass, limits: &PodResources) -> Result<(), String> {
        let (this, uid, limits) = (self.clone(), uid.to_owned(), *limits);
        let job = tokio::task::spawn_blocking(move || this.inner.cgroups.create_pod(&uid, qos, &limits));
        job.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    /// Writes on a container's record that it stands for another entry now, for the day on which the state
    /// directory is lost. In the background: nothing else reads it.
    pub fn relabel(&self, id: &str, container_hash: &str, pod_hash: &str, grace_seconds: u64) {
        let labels = super::labels::in_force(container_hash, pod_hash, grace_seconds);
        let (this, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            if let Err(e) = this.inner.ctd.set_labels(&id, &labels).await {
                tracing::debug!(container = %id, "cannot write its labels anew: {e}");
            }
        });
    }

    /// Sets the limits of a running container, by way of containerd, so that the OCI runtime knows of them.
    ///
    /// # Errors
    /// A sentence: memory that is in use cannot be taken away, or what containerd said.
    pub async fn limit_container(
        &self,
        uid: &str,
        qos: QosClass,
        id: &str,
        from: &PodResources,
        to: &PodResources,
    ) -> Result<(), String> {
        let groups = &self.inner.cgroups;
        groups.check_limits(to).map_err(|e| e.to_string())?;
        let path = groups.container_path(uid, qos, id);
        let in_use = |limit: i64| groups.memory_in_use(&path).filter(|used| *used > limit.unsigned_abs());
        let lower = to.memory_limit.filter(|limit| from.memory_limit.is_none_or(|before| *limit < before));
        let refused = |limit: i64, used: u64| {
            format!("the memory limit cannot go down to {limit} bytes while {used} bytes are in use")
        };
        // Version 2 would take the limit and kill the container for it. Version 1 reclaims what it can, and
        // refuses.
        if groups.version() == CgroupVersion::V2
            && let Some((limit, used)) = lower.and_then(|limit| Some((limit, in_use(limit)?)))
        {
            return Err(refused(limit, used));
        }
        match self.inner.ctd.update_task(id, &resources(from, to)).await {
            Ok(()) => Ok(()),
            Err(e) => Err(match lower.and_then(|limit| Some((limit, in_use(limit)?))) {
                Some((limit, used)) => refused(limit, used),
                None => e.to_string(),
            }),
        }
    }
}

/// Only what changes, so that nothing else can fail; -1 lifts a limit.
fn resources(from: &PodResources, to: &PodResources) -> LinuxResources {
    let mut resources = LinuxResources::default();
    if (from.cpu_shares, from.cpu_quota) != (to.cpu_shares, to.cpu_quota) {
        let mut cpu = LinuxCpu::default();
        cpu.set_shares(Some(to.cpu_shares))
            .set_quota(Some(to.cpu_quota.unwrap_or(-1)))
            .set_period(Some(to.cpu_period));
        resources.set_cpu(Some(cpu));
    }
    if from.memory_limit != to.memory_limit {
        let mut memory = LinuxMemory::default();
        memory.set_limit(Some(to.memory_limit.unwrap_or(-1)));
        resources.set_memory(Some(memory));
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_sent_and_a_lifted_limit_is_minus_one() {
        let old =
            PodResources { cpu_shares: 102, cpu_quota: None, cpu_period: 100_000, memory_limit: Some(1) };
        let json = |to: PodResources| serde_json::to_value(resources(&old, &to)).expect("JSON");
        assert_eq!(
            json(PodResources { memory_limit: None, ..old }),
            serde_json::json!({"memory": {"limit": -1}})
        );
        assert_eq!(
            json(PodResources { cpu_quota: Some(5000), ..old }),
            serde_json::json!({"cpu": {"shares": 102, "quota": 5000, "period": 100_000}})
        );
    }
}
