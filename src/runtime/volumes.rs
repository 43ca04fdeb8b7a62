//! What the volumes of a pod wait for and are made from.

use super::{Runtime, StartError};
use crate::manifest::{PodManifest, references};
use crate::store::SandboxRecord;
use crate::volume::{self, VolumeInput};

impl Runtime {
    /// Before the manifests were read for the first time after a boot nobody can say that an optional object is
    /// missing; a pod that names any waits that long.
    pub(super) fn await_objects(&self, manifest: &PodManifest) -> Result<(), StartError> {
        let named = || references::of_pod(&manifest.pod).into_iter().next();
        match (!self.inner.objects.known()).then(named).flatten() {
            Some(object) => {
                Err(StartError::config(format!("waiting for {object}: the manifests are being read")))
            }
            None => Ok(()),
        }
    }

    /// Which ConfigMaps and Secrets the volumes of a manifest lack, so that an update is held before the old
    /// pod is touched.
    pub fn check_volumes(&self, manifest: &PodManifest) -> Result<(), StartError> {
        let missing = volume::missing(&manifest.pod, &self.inner.objects);
        missing.first().map_or(Ok(()), |e| Err(StartError::new("FailedMount", e.to_string())))
    }

    /// What the pod's volumes are made from.
    pub fn volume_input(&self, manifest: &PodManifest, uid: &str, sandbox: &SandboxRecord) -> VolumeInput {
        VolumeInput {
            pod: manifest.pod.clone(),
            uid: uid.to_owned(),
            dir: self.inner.paths.pod(uid),
            claims: self.inner.paths.claims(),
            objects: self.inner.objects.clone(),
            facts: self.downward_facts(uid, sandbox),
        }
    }
}
