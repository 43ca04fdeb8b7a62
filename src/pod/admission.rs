//! Admission: what only one pod of the node can have. Host ports are all there is to it: a pod whose
//! ports are taken waits, says by whom, and is tried again the moment they are released.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::manifest::{PodKey, PodManifest};
use crate::network::{HostPorts, PortMapping, host_ports, is_free_on_host};

/// Host ports held by pods. A pod holds its ports until its processes are gone.
#[derive(Clone, Default)]
pub struct Claims {
    held: Arc<Mutex<BTreeMap<PodKey, Vec<PortMapping>>>>,
    released: Arc<Notify>,
}

impl Claims {
    /// Takes a pod's host ports, all or none; on refusal the text names the pod or the program that has one.
    pub fn claim(&self, key: &PodKey, manifest: &PodManifest) -> Result<(), String> {
        let wanted = host_ports(&manifest.pod);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(key) == Some(&wanted) {
            return Ok(());
        }
        conflict(&held, key, &wanted)?;
        let own = held.get(key).cloned().unwrap_or_default();
        for port in wanted.iter().filter(|p| !own.contains(p)) {
            is_free_on_host(port).map_err(|e| e.to_string())?;
        }
        held.insert(key.clone(), wanted);
        Ok(())
    }

    /// Takes the ports of a pod that runs already: it has them, whatever the books say.
    pub fn adopt(&self, key: &PodKey, manifest: &PodManifest) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), host_ports(&manifest.pod));
    }

    /// Whether a changed manifest could take its ports once the pod has given up its old ones.
    pub fn would_fit(&self, key: &PodKey, manifest: &PodManifest) -> Result<(), String> {
        conflict(&self.held.lock().unwrap_or_else(PoisonError::into_inner), key, &host_ports(&manifest.pod))
    }

    /// Gives a pod's ports up and wakes those that wait.
    pub fn release(&self, key: &PodKey) {
        let had = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if had.is_some_and(|ports| !ports.is_empty()) {
            self.released.notify_one();
        }
    }

    /// Returns when ports were released.
    pub async fn released(&self) {
        self.released.notified().await;
    }
}

fn conflict(
    held: &BTreeMap<PodKey, Vec<PortMapping>>,
    key: &PodKey,
    wanted: &[PortMapping],
) -> Result<(), String> {
    let others = held.iter().filter(|(k, _)| *k != key).map(|(k, ports)| (k, ports.as_slice()));
    HostPorts::conflict(wanted, others).map_or(Ok(()), |taken| Err(taken.to_string()))
}

/// Whether a pod has any.
pub fn has_host_ports(manifest: &PodManifest) -> bool {
    !host_ports(&manifest.pod).is_empty()
}
