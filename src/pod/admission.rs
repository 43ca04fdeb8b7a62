//! Admission: what only one pod of the node can have. Host ports for now are all there is to it: a pod whose
//! ports are taken waits, says by whom, and is tried again the moment they are released.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::manifest::{PodKey, PodManifest};
use crate::network::ports::{self, HostPort};

/// Host ports held by pods. A pod holds its ports until its processes are gone.
#[derive(Clone, Default)]
pub struct Claims {
    held: Arc<Mutex<BTreeMap<PodKey, Vec<HostPort>>>>,
    released: Arc<Notify>,
}

impl Claims {
    /// Takes a pod's host ports, all or none; on refusal the text names the pod or the program that has one.
    pub fn claim(&self, key: &PodKey, manifest: &PodManifest) -> Result<(), String> {
        let wanted = host_ports(manifest);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(key) == Some(&wanted) {
            return Ok(());
        }
        conflict(&held, key, &wanted)?;
        let own = held.get(key).cloned().unwrap_or_default();
        for port in wanted.iter().filter(|p| !own.contains(p)) {
            ports::is_free_on_host(port).map_err(|e| e.to_string())?;
        }
        held.insert(key.clone(), wanted);
        Ok(())
    }

    /// Takes the ports of a pod that runs already: it has them, whatever the books say.
    pub fn adopt(&self, key: &PodKey, manifest: &PodManifest) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), host_ports(manifest));
    }

    /// Whether a changed manifest could take its ports once the pod has given up its old ones.
    pub fn would_fit(&self, key: &PodKey, manifest: &PodManifest) -> Result<(), String> {
        conflict(&self.held.lock().unwrap_or_else(PoisonError::into_inner), key, &host_ports(manifest))
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

fn conflict(held: &BTreeMap<PodKey, Vec<HostPort>>, key: &PodKey, wanted: &[HostPort]) -> Result<(), String> {
    let others: Vec<_> = held.iter().filter(|(k, _)| *k != key).collect();
    match ports::conflict(wanted, &others) {
        Some((port, holder)) => Err(format!("host port {port} is held by pod {holder}; this pod starts when it is released")),
        None => Ok(()),
    }
}

fn host_ports(manifest: &PodManifest) -> Vec<HostPort> {
    manifest.pod.spec.as_ref().map(HostPort::of).unwrap_or_default()
}

/// Whether a pod has any.
pub fn has_host_ports(manifest: &PodManifest) -> bool {
    !host_ports(manifest).is_empty()
}
