//! Giving the volumes of a pod their group before a container starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::PodSpec;

use super::{Runtime, StartError};
use crate::store::SandboxRecord;
use crate::volume::{FsGroup, PreparedVolume, fs_group::Target};

/// Ends the walk when nobody waits for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runtime {
    /// Applies `fsGroup`. A volume of millions of files takes its time, in a thread of its own that holds up
    /// this pod only. All files are looked at once for each instance of the pod, not at each start of a
    /// container.
    pub(super) async fn apply_fs_group(
        &self,
        spec: &PodSpec,
        uid: &str,
        sandbox: &SandboxRecord,
        volumes: &BTreeMap<String, PreparedVolume>,
    ) -> Result<(), StartError> {
        let Some(mut group) = FsGroup::of(spec) else { return Ok(()) };
        let done = self.lock_fs_groups().get(uid).is_some_and(|id| *id == sandbox.id);
        group.on_root_mismatch |= done;
        let mut targets = Vec::new();
        for volume in spec.volumes.iter().flatten() {
            if let (Some(read_only), Some(ready)) = (FsGroup::applies(volume), volumes.get(&volume.name)) {
                targets.push(Target { path: ready.host_path.clone(), read_only });
            }
        }
        if targets.is_empty() {
            return Ok(());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stop.clone());
        let walk = tokio::task::spawn_blocking(move || {
            targets.iter().try_for_each(|target| {
                // What is only read is small, and files that came meanwhile do not show in its directory.
                let whole =
                    FsGroup { on_root_mismatch: group.on_root_mismatch && !target.read_only, ..group };
                whole.apply(target, &stop)
            })
        });
        let failed = |e: String| StartError::new("FailedMount", e);
        walk.await.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        self.lock_fs_groups().insert(uid.to_owned(), sandbox.id.clone());
        Ok(())
    }
}
