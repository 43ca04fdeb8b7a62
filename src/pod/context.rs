//! What all pod workers share.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use super::admission::Claims;
use super::board::Board;
use super::capacity::Capacity;
use super::order::Order;
use crate::manifest::PodKey;
use crate::objects::Objects;
use crate::objects::keep::Keep;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::store::Store;

/// Handle on the node; cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Runs things.
    pub runtime: Runtime,
    /// Remembers things.
    pub store: Arc<Store>,
    /// Shows things.
    pub board: Board,
    /// Settings in force; SIGHUP changes them.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// What pods hold of the node.
    pub claims: Claims,
    /// Which pods wait for others.
    pub order: Order,
    /// Which pod a container belongs to, for events that only name the container.
    pub routes: Routes,
    /// Where workers say that they are done.
    pub done: mpsc::UnboundedSender<PodKey>,
    /// Addresses of the node, the first of each family.
    pub host_ips: watch::Receiver<Vec<String>>,
    /// ConfigMaps and Secrets in force.
    pub objects: Objects,
    /// Keeps them over a restart.
    pub keep: Keep,
    /// The machine shuts down: no pod starts.
    pub closing: Arc<AtomicBool>,
}

impl Context {
    /// What the node offers, by the settings in force.
    pub fn capacity(&self) -> Capacity {
        Capacity::of(&self.settings.borrow().clone())
    }
}

/// Container id to pod.
#[derive(Clone, Default)]
pub struct Routes {
    map: Arc<Mutex<HashMap<String, PodKey>>>,
}

impl Routes {
    /// Which pod a container belongs to.
    pub fn get(&self, id: &str) -> Option<PodKey> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Remembers a container.
    pub fn add(&self, id: &str, key: &PodKey) {
        self.map
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(id.to_owned())
            .or_insert_with(|| key.clone());
    }

    /// Forgets a container.
    pub fn remove(&self, id: &str) {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
