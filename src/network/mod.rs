//! The network of pods: addresses, host ports, names.
//!
//! Owns everything under `/var/lib/podling/network`, the bridge of the built-in network, and, through CNI
//! plugins, the interfaces and rules of each sandbox. The order that makes it safe: the record of a sandbox is
//! on disk before ADD and goes only after DEL, so DEL can be repeated until it succeeds, over crashes and
//! reboots. It never decides when a pod starts or ends, and never enters a network namespace itself.

mod check;
pub mod cni;
pub mod default_net;
pub mod dns;
pub mod hostname;
pub mod hosts;
pub mod ports;
mod rules;
mod state;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, RwLock, Semaphore};

use crate::manifest::PodKey;
use crate::system::files::Durability;
use crate::system::programs::find_program;
use crate::system::{clock, link};

use cni::{Attachment, Client, CniError, NetworkList, RuntimeConfig, result_ips};
use default_net::DefaultNetwork;
pub use dns::{DnsNote, HostResolv, resolv_conf};
pub use hostname::{PodHostname, pod_hostname};
pub use hosts::{hosts_file, hosts_file_host_network};
pub use ports::{HostPorts, PortMapping, Protocol, host_ports, is_free_on_host};
use rules::{ChainsOwner, Family, NatTable};
use state::{Known, Record, Records};

/// Plugins run at once. Above four, two cores only wait longer (measured), and iptables has one lock anyway.
const PARALLEL: usize = 4;

/// What goes wrong with a pod's network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Configuration or plugins.
    #[error(transparent)]
    Cni(#[from] CniError),
    /// A plugin failed on a host without iptables, which is why.
    #[error("{source}; iptables is not installed: install the package iptables")]
    NeedsIptables {
        /// The plugin's failure.
        source: CniError,
    },
    /// The configured network cannot do host ports.
    #[error(
        "host port {port} cannot be served: network {network:?} ({}) has no plugin with the capability \
         portMappings; add the plugin portmap to it",
        file.display()
    )]
    NoHostPorts {
        /// The first wanted port.
        port: PortMapping,
        /// The network.
        network: String,
        /// Its configuration file.
        file: PathBuf,
    },
    /// ADD succeeded and gave nothing to reach the pod by.
    #[error(
        "network {network:?} gave no address to pod {pod}; its IPAM plugin may be missing or misconfigured"
    )]
    NoAddress {
        /// The network.
        network: String,
        /// The pod.
        pod: PodKey,
    },
    /// The host uses all of the built-in network's ranges.
    #[error(
        "no free subnet for the built-in network: the host has routes to all candidates; put a CNI \
         configuration into /etc/cni/net.d"
    )]
    NoSubnet,
    /// A file of ours.
    #[error("cannot {action} {}: {source}", path.display())]
    State {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// iptables.
    #[error(transparent)]
    Rules(#[from] rules::RulesError),
    /// The bridge could not be removed.
    #[error("cannot remove the bridge {bridge}: {source}")]
    Bridge {
        /// Its name.
        bridge: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Where things are.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// CNI configurations, `/etc/cni/net.d`.
    pub conf_dir: PathBuf,
    /// Directories of CNI plugins, in order of search.
    pub bin_dirs: Vec<PathBuf>,
    /// Own state, `/var/lib/podling/network`.
    pub state: PathBuf,
    /// podling's root is the host's: it gets the well-known bridge.
    pub system: bool,
}

/// A sandbox to attach.
#[derive(Clone, Debug)]
pub struct SetupRequest<'a> {
    /// Its id, unique for ever.
    pub sandbox_id: &'a str,
    /// The pod.
    pub key: &'a PodKey,
    /// The pod's uid.
    pub uid: &'a str,
    /// Path of its network namespace, in which the loopback is up already.
    pub netns: &'a Path,
    /// Host ports to lead there.
    pub host_ports: Vec<PortMapping>,
}

/// What a sandbox got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetResult {
    /// Its addresses, the first one being the pod's IP.
    pub ips: Vec<IpAddr>,
    /// Name of the network.
    pub network: String,
}

/// The pods' network.
#[derive(Debug)]
pub struct Network {
    options: NetworkOptions,
    client: Client,
    records: Records,
    adds: Semaphore,
    dels: Semaphore,
    /// One sandbox is worked on by one task at a time.
    locks: std::sync::Mutex<HashMap<String, Arc<Mutex<()>>>>,
    /// Sandboxes that are being detached or should have been.
    closing: std::sync::Mutex<HashSet<String>>,
    /// Shared by attaching; exclusive for removing what all share.
    gate: RwLock<()>,
    default: Mutex<()>,
}

impl Network {
    /// A network with its state at `options.state`.
    pub fn new(options: NetworkOptions) -> Self {
        Self {
            client: Client::new(options.bin_dirs.clone()),
            records: Records::new(&options.state),
            options,
            adds: Semaphore::new(PARALLEL),
            dels: Semaphore::new(PARALLEL),
            locks: std::sync::Mutex::default(),
            closing: std::sync::Mutex::default(),
            gate: RwLock::default(),
            default: Mutex::default(),
        }
    }

    /// Attaches a sandbox. When it fails nothing stays behind, or its id is in [`Network::pending`] and
    /// [`Network::teardown`] is to be repeated. Trying again with the same id starts over.
    pub async fn setup(&self, request: &SetupRequest<'_>) -> Result<NetResult, NetworkError> {
        let _gate = self.gate.read().await;
        let lock = self.lock_of(request.sandbox_id);
        let _locked = lock.lock().await;
        self.detach_predecessors(request).await?;
        self.detach(request.sandbox_id, Some(request.netns)).await?;
        let network = self.network_for(&request.host_ports).await?;
        let mut record = Record {
            version: 1,
            key: request.key.clone(),
            uid: request.uid.to_owned(),
            netns: request.netns.to_owned(),
            boot_id: clock::boot_id().to_owned(),
            network,
            runtime: RuntimeConfig { port_mappings: request.host_ports.clone(), ips: Vec::new() },
            result: None,
        };
        self.records.store(request.sandbox_id, &record, Durability::Synced)?;
        match self.add(request.sandbox_id, &mut record).await {
            Ok(result) => Ok(result),
            Err(error) => {
                if let Err(undo) = self.detach(request.sandbox_id, Some(request.netns)).await {
                    // The error itself is told by whoever asked; this is for who wants to know more.
                    tracing::debug!(pod = %request.key, error = %undo, "attaching failed and cannot be undone yet");
                }
                Err(error)
            }
        }
    }

    async fn add(&self, sandbox: &str, record: &mut Record) -> Result<NetResult, NetworkError> {
        let attachment = attachment(sandbox, record, record.netns.display().to_string());
        let permit = self.adds.acquire().await;
        let result = self.client.add(&record.network, &record.runtime, &attachment).await;
        drop(permit);
        let result = result.map_err(explain)?;
        let ips = result_ips(&result);
        record.result = Some(result);
        self.records.store(sandbox, record, Durability::Lazy)?;
        let network = record.network.name.clone();
        if ips.is_empty() {
            return Err(NetworkError::NoAddress { network, pod: record.key.clone() });
        }
        Ok(NetResult { ips, network })
    }

    /// Detaches a sandbox and forgets it; one that is not attached is fine. `netns` is where its namespace is, if
    /// it still is; without it (after a reboot, say) addresses are freed and rules removed all the same.
    pub async fn teardown(&self, sandbox_id: &str, netns: Option<&Path>) -> Result<(), NetworkError> {
        self.closing().insert(sandbox_id.to_owned());
        let lock = self.lock_of(sandbox_id);
        {
            let _locked = lock.lock().await;
            self.detach(sandbox_id, netns).await?;
        }
        self.closing().remove(sandbox_id);
        drop(lock);
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Ok(())
    }

    /// Ids of sandboxes that were attached and not yet detached.
    pub fn pending(&self) -> Vec<String> {
        self.records.ids()
    }

    /// Addresses that an attached sandbox was given; none when nothing is known of it.
    pub fn addresses(&self, sandbox_id: &str) -> Vec<String> {
        match self.records.load(sandbox_id) {
            Ok(Known::Record(record)) => record
                .result
                .as_ref()
                .map(result_ips)
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Whether pods can be attached: the configuration is readable and its plugins are installed.
    pub fn status(&self) -> Result<(), NetworkError> {
        let Some(network) = cni::load_dir(&self.options.conf_dir)? else {
            for plugin in ["bridge", "host-local"] {
                self.client.find(plugin, "built-in")?;
            }
            return Ok(());
        };
        let ipam = network.plugins.iter().filter_map(|p| p["ipam"]["type"].as_str());
        for plugin in network.types().chain(ipam) {
            self.client.find(plugin, &network.name)?;
        }
        Ok(())
    }

    /// Removes the bridge and the chains that all pods shared, if they are of our making and no pod is left.
    /// True when nothing of ours is left behind.
    pub async fn cleanup_if_unused(&self) -> Result<bool, NetworkError> {
        let _gate = self.gate.write().await;
        let Some(mut default) = DefaultNetwork::load(&self.options.state) else { return Ok(true) };
        if !self.pending().is_empty() {
            return Ok(false);
        }
        if default.made_bridge {
            if has_ports(&default.bridge) {
                return Ok(false);
            }
            let bridge = default.bridge.clone();
            link::delete_bridge(&bridge).map_err(|source| NetworkError::Bridge { bridge, source })?;
            default.made_bridge = false;
        }
        if default.made_chains {
            let table = NatTable::read(Family::V4).await?;
            default.made_chains = match table {
                Some(table) => !table.remove_host_port_chains().await?,
                None => false,
            };
        }
        if DefaultNetwork::load(&self.options.state).as_ref() != Some(&default) {
            default.store(&self.options.state)?;
        }
        Ok(!default.made_chains)
    }

    /// The network to attach to now.
    async fn network_for(&self, ports: &[PortMapping]) -> Result<NetworkList, NetworkError> {
        if let Some(network) = cni::load_dir(&self.options.conf_dir)? {
            if let Some(port) = ports.first()
                && !network.has_capability("portMappings")
            {
                let file = network.file.clone().unwrap_or_default();
                return Err(NetworkError::NoHostPorts { port: port.clone(), network: network.name, file });
            }
            return Ok(network);
        }
        let _one = self.default.lock().await;
        let state = &self.options.state;
        let mut default = DefaultNetwork::choose(state, self.options.system, !self.pending().is_empty())?;
        let before = default.clone();
        if !default.made_bridge {
            // Not being able to tell means not claiming it.
            default.made_bridge = !link::exists(&default.bridge).unwrap_or(true);
        }
        if !ports.is_empty() && !default.made_chains {
            let table = NatTable::read(Family::V4).await?;
            let owner = table.map(|t| t.host_port_chains(default_net::is_default_name));
            default.made_chains = matches!(owner, Some(ChainsOwner::None | ChainsOwner::Ours));
        }
        if default != before {
            default.store(state)?;
        }
        let masquerade = find_program("iptables").or_else(|| find_program("nft")).is_some();
        let mut network = default.list(state, masquerade);
        if ports.is_empty() {
            // A plugin that would do nothing still costs its start.
            network.plugins.truncate(1);
        }
        Ok(network)
    }

    /// A rule of a dead sandbox for the same port would win over ours, as it comes first.
    async fn detach_predecessors(&self, request: &SetupRequest<'_>) -> Result<(), NetworkError> {
        if request.host_ports.is_empty() {
            return Ok(());
        }
        for id in self.pending().into_iter().filter(|id| id != request.sandbox_id) {
            let Known::Record(record) = self.records.load(&id)? else { continue };
            let wanted = &request.host_ports;
            let overlap = record.runtime.port_mappings.iter().any(|p| wanted.iter().any(|w| w.overlaps(p)));
            let dead = record.key == *request.key || self.closing().contains(&id);
            if overlap && dead {
                let lock = self.lock_of(&id);
                let _locked = lock.lock().await;
                self.detach(&id, None).await?;
            }
        }
        Ok(())
    }

    /// DEL, and all that it leaves behind. The caller holds the sandbox's lock.
    async fn detach(&self, sandbox: &str, netns: Option<&Path>) -> Result<(), NetworkError> {
        let (record, here) = match self.records.load(sandbox)? {
            Known::Nothing => return Ok(()),
            Known::Record(record) => {
                let here = record.boot_id == clock::boot_id();
                (*record, here)
            }
            Known::Damaged => (self.unknown_record().await?, true),
        };
        let netns = netns.unwrap_or(&record.netns);
        let netns = if here && is_namespace(netns) { netns.display().to_string() } else { String::new() };
        let gone = netns.is_empty();
        let attachment = attachment(sandbox, &record, netns);
        let mut network = record.network.clone();
        if find_program("iptables").is_none() && find_program("nft").is_none() {
            // portmap cannot even look for rules then, and there are none.
            network.plugins.retain(|plugin| cni::plugin_type(plugin) != "portmap");
        }
        let permit = self.dels.acquire().await;
        let result = record.result.as_ref();
        let mut ended = self.client.del(&network, &record.runtime, &attachment, result).await;
        if let Err(error @ CniError::Plugin { .. }) = &ended {
            // The rules are not as the plugin made them (one stands twice, say), and it stops at the first
            // that it cannot remove: with all of them out of its way it can do the rest.
            tracing::debug!(%sandbox, %error, "removing the rules and detaching again");
            remove_rules(sandbox).await?;
            ended = self.client.del(&network, &record.runtime, &attachment, result).await;
        }
        ended.map_err(explain)?;
        drop(permit);
        if gone && here {
            // Plugins return early without a namespace, and their rules stay.
            remove_rules(sandbox).await?;
        }
        self.records.remove(sandbox)
    }

    /// Stands in for a damaged record: DEL by id alone still frees addresses.
    async fn unknown_record(&self) -> Result<Record, NetworkError> {
        Ok(Record {
            version: 1,
            key: PodKey::new("", ""),
            uid: String::new(),
            netns: PathBuf::new(),
            boot_id: clock::boot_id().to_owned(),
            network: self.network_for(&[]).await?,
            runtime: RuntimeConfig::default(),
            result: None,
        })
    }

    fn lock_of(&self, sandbox: &str) -> Arc<Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(sandbox.to_owned()).or_default().clone()
    }

    fn closing(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what iptables holds of a sandbox.
async fn remove_rules(sandbox: &str) -> Result<(), NetworkError> {
    for family in [Family::V4, Family::V6] {
        if let Some(table) = NatTable::read(family).await? {
            table.remove_sandbox(sandbox).await?;
        }
    }
    Ok(())
}

fn attachment(sandbox: &str, record: &Record, netns: String) -> Attachment {
    // The names that plugins written for Kubernetes look for.
    let args = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &record.key.namespace),
        ("K8S_POD_NAME", &record.key.name),
        ("K8S_POD_INFRA_CONTAINER_ID", sandbox),
        ("K8S_POD_UID", &record.uid),
    ];
    let args = args.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    Attachment { container_id: sandbox.to_owned(), netns, args }
}

fn explain(source: CniError) -> NetworkError {
    match source {
        CniError::Plugin { .. } if find_program("iptables").is_none() => {
            NetworkError::NeedsIptables { source }
        }
        source => source.into(),
    }
}

/// True when a network namespace is mounted at the path; a pin left over from before is a plain file.
fn is_namespace(path: &Path) -> bool {
    const NSFS: u64 = 0x6e73_6673;
    rustix::fs::statfs(path).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|magic| magic == NSFS))
}

/// True when something is still plugged into a bridge.
fn has_ports(bridge: &str) -> bool {
    let ports = std::fs::read_dir(format!("/sys/class/net/{bridge}/brif"));
    ports.is_ok_and(|mut ports| ports.next().is_some())
}

#[cfg(test)]
mod tests;
