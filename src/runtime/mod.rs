//! The runtime: what the pod workers see of containerd, sandboxes, cgroups and logs.
//!
//! `containerd/` speaks gRPC, `spec/` builds OCI specs, and the files here join them with `network`,
//! `volume` and `system` into the few verbs a worker needs: observe, make and drop a sandbox, start, stop
//! and discard a container. Each verb is safe to repeat. Nothing here decides what should run.

mod apparmor;
pub mod containerd;
mod declared_volumes;
pub mod downward;
mod env_file;
pub mod environment;
mod exec;
mod extras;
mod fs_group;
mod image_mounts;
mod images;
mod labels;
pub mod logs;
mod mend;
mod mounts;
mod node;
mod notes;
mod observe;
mod pause;
pub mod profiles;
mod resize;
mod runtime_class;
mod sandbox;
mod shims;
pub mod spec;
mod start;
mod stop;
mod userns;
mod volumes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

pub use self::exec::{ExecError, ExecPurpose, ExecResult};
pub use self::labels::{Kind, Labels, PAUSE, filter as label_filter};
pub use self::node::RuntimeOptions;
pub use self::notes::Note;
pub use self::observe::{Observed, TaskState};
pub use self::start::{StartError, StartOrder, Started, entry_hash};
pub use self::stop::StopStep;
use tokio::sync::watch;

use crate::image::pull::Puller;
use crate::network::Network;
use crate::objects::Objects;
use crate::runtime::containerd::{Containerd, OciRuntime};
use crate::runtime::downward::DownwardFacts;
use crate::runtime::spec::ResolvedUser;
use crate::settings::Paths;
use crate::store::SandboxRecord;
use crate::system::cgroup::CgroupManager;
use crate::system::node::NodeFeatures;

/// Handle on everything that runs pods on this node; cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    ctd: Containerd,
    puller: Puller,
    /// Whether a power cut may have damaged images.
    suspicion: mend::Suspicion,
    oci: OciRuntime,
    cgroups: CgroupManager,
    network: Network,
    paths: Paths,
    /// Value of the label that tells several podlings on one containerd apart.
    root_label: String,
    features: NodeFeatures,
    options: RuntimeOptions,
    logger: PathBuf,
    pause: PathBuf,
    pause_rootfs: PathBuf,
    /// Users looked up in images: (chain id, what was asked) to the answer; an image never changes.
    users: Mutex<BTreeMap<(String, String), ResolvedUser>>,
    /// Containers whose shims may be left behind.
    notes: shims::Notes,
    /// A look for them is under way.
    shims_due: std::sync::atomic::AtomicBool,
    /// Containers being deleted behind the scenes.
    discarding: Mutex<HashSet<String>>,
    /// Weight of all Burstable pods together, for when the first of them makes their group.
    burstable_shares: AtomicU64,
    /// Held while ids are chosen for a pod (`hostUsers: false`).
    id_ranges: Mutex<()>,
    /// Pods whose volumes have their group (`fsGroup`), with the sandbox they got it for.
    fs_groups: Mutex<HashMap<String, String>>,
    /// ConfigMaps and Secrets in force.
    objects: Objects,
    /// Addresses of the node.
    host_ips: watch::Receiver<Vec<String>>,
    /// Sandboxes that exist, with the uid of their pod.
    sandboxes: Mutex<HashMap<String, String>>,
}

impl Runtime {
    /// The containerd client.
    pub fn containerd(&self) -> &Containerd {
        &self.inner.ctd
    }

    /// The pod network.
    pub fn network(&self) -> &Network {
        &self.inner.network
    }

    /// ConfigMaps and Secrets in force.
    pub fn objects(&self) -> &Objects {
        &self.inner.objects
    }

    /// What a pod may ask about itself and the node, beyond its manifest.
    pub fn downward_facts(&self, uid: &str, sandbox: &SandboxRecord) -> DownwardFacts {
        let host_ips = self.inner.host_ips.borrow().clone();
        DownwardFacts {
            uid: uid.to_owned(),
            node_name: self.inner.options.node_name.clone(),
            pod_ips: if sandbox.host_network { host_ips.clone() } else { sandbox.ips.clone() },
            host_ips,
            allocatable: self.inner.options.allocatable,
        }
    }

    /// The cgroups.
    pub fn cgroups(&self) -> &CgroupManager {
        &self.inner.cgroups
    }
}

/// 64 random hex digits, the form of container and sandbox ids.
pub fn new_id() -> String {
    let half = || uuid::Uuid::new_v4().simple().to_string();
    half() + &half()
}
