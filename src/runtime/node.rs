//! The node as the runtime finds it: building the handle, and the upkeep that belongs to no single pod.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;
use tokio::sync::watch;

use super::containerd::{Containerd, adopt_fifos, probe};
use super::downward::Allocatable;
use super::spec::qos;
use super::{Inner, Runtime, apparmor, logs};
use crate::manifest::PodKey;
use crate::network::{Network, NetworkOptions};
use crate::objects::Objects;
use crate::settings::{Paths, RuntimeClass, Settings};
use crate::system::cgroup::CgroupManager;
use crate::system::files::{self, Durability};
use crate::system::node::node_features;

/// The helpers that podling carries.
const LOGGER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/podling-logger"));
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/podling-pause"));

/// Settings that a container start depends on.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Resolver file that pods inherit.
    pub resolv_conf: PathBuf,
    /// Cluster DNS servers.
    pub cluster_dns: Vec<String>,
    /// Cluster domain.
    pub cluster_domain: Option<String>,
    /// RuntimeDefault where no seccomp profile is named.
    pub seccomp_default: bool,
    /// Directory of seccomp profiles.
    pub seccomp_root: PathBuf,
    /// Patterns of sysctls that pods may set beyond the safe ones.
    pub allowed_sysctls: Vec<String>,
    /// Runtimes by the names of RuntimeClasses.
    pub runtime_classes: BTreeMap<String, RuntimeClass>,
    /// Bytes at which a log is rotated.
    pub log_max_size: u64,
    /// Log files kept per container.
    pub log_max_files: u32,
    /// Earlier runs of a container whose logs stay.
    pub logs_kept: usize,
    /// How long logs of removed pods stay.
    pub log_retention: Duration,
    /// The node's name.
    pub node_name: String,
    /// What pods may use of the node.
    pub allocatable: Allocatable,
}

impl RuntimeOptions {
    /// Those of the settings.
    pub fn new(s: &Settings, allocatable: Allocatable) -> Self {
        Self {
            resolv_conf: s.resolv_conf.clone(),
            cluster_dns: s.cluster_dns.clone(),
            cluster_domain: s.cluster_domain.clone(),
            seccomp_default: s.seccomp_default,
            seccomp_root: s.seccomp_root.clone(),
            allowed_sysctls: s.allowed_sysctls.clone(),
            runtime_classes: s.runtime_classes.clone(),
            log_max_size: s.log_max_size,
            log_max_files: s.log_max_files,
            logs_kept: s.logs_kept as usize,
            log_retention: s.log_retention,
            node_name: s.node_name.clone(),
            allocatable,
        }
    }
}

/// The node cannot run pods.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// cgroups are not usable.
    #[error("{0}")]
    Cgroup(#[from] crate::system::cgroup::CgroupError),
    /// A helper could not be put in place.
    #[error("cannot write {path}: {source}")]
    Helper {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// containerd refused.
    #[error("{0}")]
    Containerd(#[from] super::containerd::RuntimeError),
}

impl Runtime {
    /// Finds out what the node can do and puts the helpers in place.
    pub async fn new(
        ctd: Containerd,
        settings: &Settings,
        allocatable: Allocatable,
        objects: Objects,
        host_ips: watch::Receiver<Vec<String>>,
    ) -> Result<Self, NodeError> {
        let paths = settings.paths.clone();
        ctd.ensure_namespace().await?;
        ctd.end_stale_leases().await?;
        let helpers = install_helpers(&paths)?;
        ctd.set_exec_dir(exec_dir(&paths)?);
        let network = Network::new(NetworkOptions {
            conf_dir: settings.cni_conf_dir.clone(),
            bin_dirs: settings.cni_bin_dirs.clone(),
            state: paths.network(),
            system: paths.is_system(),
        });
        let mut features = node_features();
        apparmor::load(&mut features, &paths.run()).await;
        let inner = Inner {
            puller: super::images::puller(&ctd, settings),
            suspicion: super::mend::Suspicion::at_start(&paths),
            oci: probe::probe(settings.runtime.as_deref(), &paths).await,
            cgroups: CgroupManager::detect(&settings.cgroup_root)?,
            network,
            root_label: paths.root.to_string_lossy().into_owned(),
            features,
            options: RuntimeOptions::new(settings, allocatable),
            logger: helpers.logger,
            pause: helpers.pause,
            pause_rootfs: helpers.pause_rootfs,
            users: Mutex::new(BTreeMap::new()),
            shims_due: Default::default(),
            notes: super::shims::Notes::new(paths.run().join("shims")),
            discarding: Mutex::new(HashSet::new()),
            burstable_shares: AtomicU64::new(qos::burstable_shares([])),
            id_ranges: Mutex::new(()),
            fs_groups: Mutex::new(HashMap::new()),
            objects,
            host_ips,
            sandboxes: Mutex::new(HashMap::new()),
            ctd,
            paths,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What a person should know about this node: missing controllers, missing capabilities.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.inner.features.notes();
        let missing = self.inner.cgroups.missing_controllers();
        if !missing.is_empty() {
            notes.push(format!(
                "cgroup controllers missing: {}; their limits are refused",
                missing.join(", ")
            ));
        }
        notes
    }

    /// The OCI runtime in use, for display.
    pub fn oci_runtime(&self) -> &str {
        self.inner.oci.binary.as_deref().unwrap_or("runc")
    }

    /// Whether the kernel killed something of the container for want of memory. Ask before deleting it.
    pub fn oom_killed(&self, uid: &str, id: &str) -> bool {
        let path = self.find_cgroup(uid, id);
        path.and_then(|p| self.inner.cgroups.oom_kills(&p)).is_some_and(|n| n > 0)
    }

    /// The cgroup of a container, wherever its pod's QoS class put it.
    pub(super) fn find_cgroup(&self, uid: &str, id: &str) -> Option<String> {
        let pod = self.inner.cgroups.pods().into_iter().find(|p| p.uid == uid)?;
        Some(self.inner.cgroups.container_path(uid, pod.qos, id))
    }

    /// Kills what is left in a pod's cgroup and removes it.
    pub async fn remove_cgroup(&self, uid: &str) -> Result<(), String> {
        let (this, uid) = (self.clone(), uid.to_owned());
        let job = tokio::task::spawn_blocking(move || {
            let groups = &this.inner.cgroups;
            for pod in groups.pods().into_iter().filter(|p| p.uid == uid) {
                let path = groups.pod_path(&pod.uid, pod.qos);
                if !groups.pids(&path).is_empty() {
                    groups.kill_all(&path, libc::SIGKILL).map_err(|e| e.to_string())?;
                }
                groups.remove_pod(&pod.uid, pod.qos).map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        job.await.map_err(|e| e.to_string())?
    }

    /// A sandbox that a pod's record names.
    pub fn adopt_sandbox(&self, id: &str, uid: &str) {
        self.lock_sandboxes().insert(id.to_owned(), uid.to_owned());
    }

    pub(super) fn lock_sandboxes(&self) -> MutexGuard<'_, HashMap<String, String>> {
        // A panic while holding the lock cannot leave the map half-changed.
        self.inner.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_fs_groups(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.inner.fs_groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sandboxes of a pod that are not taken down yet.
    pub fn sandboxes_of(&self, uid: &str) -> Vec<String> {
        self.lock_sandboxes().iter().filter(|(_, u)| *u == uid).map(|(id, _)| id.clone()).collect()
    }

    /// Whether a pod has a sandbox that is not taken down yet.
    pub fn has_sandbox(&self, uid: &str) -> bool {
        self.lock_sandboxes().values().any(|u| u == uid)
    }

    /// Sandboxes on this node that no pod has.
    pub fn stray_sandboxes(&self) -> Vec<String> {
        // In this order: one that is made meanwhile is in the map before anything of it is on disk.
        let found = self.sandboxes_on_disk();
        let known = self.lock_sandboxes();
        found.into_iter().filter(|id| !known.contains_key(id)).collect()
    }

    /// Puts host port rules back that something else on the host flushed.
    pub async fn restore_host_ports(&self) {
        match self.inner.network.check_all().await {
            Ok(restored) => {
                for id in restored {
                    tracing::warn!(sandbox = %id, "network rules were gone and are back");
                }
            }
            Err(e) => tracing::warn!("cannot check the network rules: {e}"),
        }
    }

    /// Weighs the Burstable pods together by what they request, as the kubelet does: without it the kernel
    /// would give the whole class what it gives a single group.
    pub fn weigh_burstable<'a>(&self, pods: impl Iterator<Item = &'a PodSpec>) {
        self.inner.burstable_shares.store(qos::burstable_shares(pods), Ordering::Relaxed);
        self.apply_burstable_weight();
    }

    /// Until there is a Burstable pod there is nothing to weigh.
    pub(super) fn apply_burstable_weight(&self) {
        let shares = self.inner.burstable_shares.load(Ordering::Relaxed);
        if let Err(e) = self.inner.cgroups.set_burstable_shares(shares) {
            tracing::warn!("cannot weigh the Burstable pods: {e}");
        }
    }

    /// Removes what all pods shared of the network once the last one is gone.
    pub async fn leave_network(&self) {
        if self.lock_sandboxes().is_empty()
            && let Err(e) = self.inner.network.cleanup_if_unused().await
        {
            tracing::warn!("cannot remove the pod network: {e}");
        }
    }

    /// Removes the links to a removed pod's logs; the logs stay for a time.
    pub fn forget_logs(&self, key: &PodKey, uid: &str) {
        logs::remove_links(&self.inner.paths, key, uid);
    }

    /// The end of a run's log, as its termination message: at most 80 lines and 2048 bytes, as the kubelet.
    pub fn log_tail(&self, key: &PodKey, uid: &str, name: &str, attempt: u32) -> String {
        let path = logs::log_path(&self.inner.paths, key, uid, name, attempt);
        let text = crate::system::files::tail(&path, 64 << 10);
        let lines: Vec<String> = text
            .lines()
            .filter_map(|line| logs::LogLine::parse(line.as_bytes()))
            .map(|line| String::from_utf8_lossy(line.text).into_owned() + if line.full { "\n" } else { "" })
            .collect();
        let tail = lines[lines.len().saturating_sub(80)..].concat();
        let mut from = tail.len().saturating_sub(2048);
        while !tail.is_char_boundary(from) {
            from += 1;
        }
        tail[from..].to_owned()
    }

    /// Removes logs of pods that have been gone for long.
    pub fn expire_logs(&self, known: &HashSet<String>) {
        let dirs = fs::read_dir(self.inner.paths.pod_logs()).into_iter().flatten().flatten();
        for entry in dirs {
            let name = entry.file_name();
            let uid = name.to_str().and_then(|n| n.rsplit('_').next()).unwrap_or_default();
            let age = entry
                .metadata()
                .and_then(|m| m.modified())
                .ok()
                .and_then(|t| std::time::SystemTime::now().duration_since(t).ok());
            if !uid.is_empty()
                && !known.contains(uid)
                && age.is_some_and(|a| a > self.inner.options.log_retention)
                && let Err(e) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!("cannot remove old logs {}: {e}", entry.path().display());
            }
        }
    }
}

/// Puts the helpers where the shim and runc find them; running ones keep their old file. The pause
/// container's root is an empty directory.
fn install_helpers(paths: &Paths) -> Result<Helpers, NodeError> {
    let dir = paths.helpers();
    let helpers = Helpers {
        logger: dir.join("podling-logger"),
        pause: dir.join("podling-pause"),
        pause_rootfs: dir.join("pause-rootfs"),
    };
    install(&helpers.logger, LOGGER)?;
    install(&helpers.pause, PAUSE)?;
    let rootfs = &helpers.pause_rootfs;
    fs::create_dir_all(rootfs).map_err(|source| NodeError::Helper { path: rootfs.clone(), source })?;
    Ok(helpers)
}

struct Helpers {
    logger: PathBuf,
    pause: PathBuf,
    pause_rootfs: PathBuf,
}

/// Where exec keeps its FIFOs; those that a killed podling left are seen to.
fn exec_dir(paths: &Paths) -> Result<PathBuf, NodeError> {
    let dir = paths.run().join("exec");
    fs::create_dir_all(&dir).map_err(|source| NodeError::Helper { path: dir.clone(), source })?;
    adopt_fifos(&dir);
    Ok(dir)
}

fn install(path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        // Compared with what podling carries at each start, so a power cut costs nothing.
        files::replace(path, bytes, 0o755, Durability::Lazy)
    };
    write().map_err(|source| NodeError::Helper { path: path.to_owned(), source })
}
