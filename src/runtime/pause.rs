//! The container that a pod with a shared process namespace has besides its own.

use super::containerd::TaskIo;
use super::sandbox::pod_spec;
use super::spec::{self, ResolvedUser, qos};
use super::start::{StartError, StartOrder, Started};
use super::{Runtime, new_id};

impl Runtime {
    /// Creates the container that holds the process namespace of a pod.
    pub(super) async fn create_pause(&self, order: &StartOrder<'_>) -> Result<Started, StartError> {
        let sandbox = self.sandbox_paths(order.manifest, order.uid, order.sandbox, None)?;
        let qos = qos::qos_class(pod_spec(order.manifest)?);
        let id = new_id();
        let sandbox_dir = self.inner.paths.sandbox(&order.sandbox.id);
        let mapped = sandbox.user.is_some();
        // Root in a user namespace cannot pass through podling's directories, but through containerd's.
        let rootfs = if mapped { "rootfs".into() } else { self.inner.pause_rootfs.clone() };
        let mut oci = spec::pause(&spec::PauseInput {
            pod: &order.manifest.pod,
            uid: order.uid,
            sandbox: &sandbox,
            rootfs: &rootfs,
            binary: &self.inner.pause,
            cgroup_path: &self.inner.cgroups.container_path(order.uid, qos, &id),
            node: &self.inner.features,
        });
        if mapped {
            self.check_user_namespaces()?;
            self.map_sources(&mut oci, &sandbox_dir, &id, &ResolvedUser::default())?;
        }
        let image = "podling-pause".to_owned();
        let new = self.new_container(order, id.clone(), image.clone(), libc::SIGKILL, oci, false).await?;
        self.create_record(new, None).await?;
        self.note_shim(order, &id)?;
        let runtime = self.oci_runtime_of(pod_spec(order.manifest)?)?;
        let mounts = match mapped {
            true => vec![self.map_dir(&self.inner.pause_rootfs, &sandbox_dir, &id)?],
            false => Vec::new(),
        };
        let created = self.inner.ctd.create_task(&id, &mounts, &TaskIo::Null, &runtime).await;
        if mapped {
            self.unmap(&sandbox_dir, &id);
        }
        let pid = created.map_err(|e| StartError::rpc("CreateContainerError", &e))?;
        Ok(Started {
            id,
            image,
            image_id: String::new(),
            pid,
            stop_signal: libc::SIGKILL,
            stale: None,
            pulled: None,
            refused: None,
        })
    }
}
