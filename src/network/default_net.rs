//! The network used where `/etc/cni/net.d` has none: a bridge, addresses from host-local, host ports by
//! portmap. Bridge and subnet are chosen once and kept, so that several podlings share a host.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::NetworkError;
use super::cni::NetworkList;
use super::state::{read_json, write_json};
use crate::system::files::Durability;

/// Bridge of the podling that owns the host's own root.
const SYSTEM_BRIDGE: &str = "podling0";
/// Bridges of others, followed by eight hex digits.
const OTHER_PREFIX: &str = "pod-";
/// Spoken by the plugins of Debian 11 and Ubuntu 22.04 as well.
const CNI_VERSION: &str = "0.4.0";

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    address: u32,
    prefix: u8,
}

impl Subnet {
    fn new(address: Ipv4Addr, prefix: u8) -> Self {
        Self { address: u32::from(address), prefix }
    }

    fn mask(prefix: u8) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
    }

    fn overlaps(self, other: Self) -> bool {
        let mask = Self::mask(self.prefix.min(other.prefix));
        self.address & mask == other.address & mask
    }

    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        Some(Self::new(address.parse().ok()?, prefix.parse().ok().filter(|p| *p <= 32)?))
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.address), self.prefix)
    }
}

/// What was chosen, and what of it exists because of us; kept as `default.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultNetwork {
    /// Version of the file.
    pub version: u32,
    /// Name of the bridge, and of the network.
    pub bridge: String,
    /// Its subnet, `10.88.0.0/16`.
    pub subnet: String,
    /// The bridge was not there before us.
    #[serde(default)]
    pub made_bridge: bool,
    /// portmap's top-level chains were not there before us (or another podling).
    #[serde(default)]
    pub made_chains: bool,
}

impl DefaultNetwork {
    fn file(state: &Path) -> PathBuf {
        state.join("default.json")
    }

    /// What was chosen earlier, if anything.
    pub fn load(state: &Path) -> Option<Self> {
        read_json(&Self::file(state)).ok().flatten()
    }

    /// Keeps it.
    pub fn store(&self, state: &Path) -> Result<(), NetworkError> {
        write_json(&Self::file(state), self, Durability::Synced)
    }

    /// What was chosen earlier, unless the host has given that subnet to something else meanwhile and `in_use`
    /// is false; else a new choice, which is kept.
    pub fn choose(state: &Path, system: bool, in_use: bool) -> Result<Self, NetworkError> {
        let before = Self::load(state);
        if in_use && let Some(before) = before {
            return Ok(before);
        }
        let bridge = bridge_name(state, system);
        let taken = taken_subnets(&bridge);
        if let Some(before) = before
            && Subnet::parse(&before.subnet).is_some_and(|s| taken.iter().all(|t| !t.overlaps(s)))
        {
            return Ok(before);
        }
        let free = candidates(state, system).find(|c| taken.iter().all(|t| !t.overlaps(*c)));
        let subnet = free.ok_or(NetworkError::NoSubnet)?.to_string();
        let chosen = Self { version: 1, bridge, subnet, made_bridge: false, made_chains: false };
        chosen.store(state)?;
        Ok(chosen)
    }

    /// The configuration list. Without `masquerade` pods reach the host but nothing beyond.
    pub fn list(&self, state: &Path, masquerade: bool) -> NetworkList {
        let bridge = json!({
            "type": "bridge",
            "bridge": self.bridge,
            "isGateway": true,
            "ipMasq": masquerade,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": state.join("leases"),
                "ranges": [[{ "subnet": self.subnet }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        });
        let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
        NetworkList {
            name: self.bridge.clone(),
            cni_version: CNI_VERSION.to_owned(),
            disable_check: false,
            plugins: vec![bridge, portmap],
            file: None,
        }
    }
}

/// Whether a network of this name is the default one of some podling.
pub fn is_default_name(name: &str) -> bool {
    let hex = |s: &str| s.len() == 8 && s.bytes().all(|b| b.is_ascii_hexdigit());
    name == SYSTEM_BRIDGE || name.strip_prefix(OTHER_PREFIX).is_some_and(hex)
}

fn digest(state: &Path) -> [u8; 32] {
    Sha256::digest(state.as_os_str().as_encoded_bytes()).into()
}

fn bridge_name(state: &Path, system: bool) -> String {
    if system {
        return SYSTEM_BRIDGE.to_owned();
    }
    format!("{OTHER_PREFIX}{}", hex::encode(&digest(state)[..4]))
}

/// Subnets to try, in order: a /16 of 10.88 to 10.127 for the system's podling; else a /24 of 10.128 to 10.191,
/// beginning at one that depends on the path, so that two that start at once choose differently.
fn candidates(state: &Path, system: bool) -> Box<dyn Iterator<Item = Subnet>> {
    if system {
        return Box::new((88..128).map(|second| Subnet::new(Ipv4Addr::new(10, second, 0, 0), 16)));
    }
    const COUNT: u32 = 64 * 256;
    let [.., a, b] = digest(state);
    let first = u32::from(u16::from_be_bytes([a, b]));
    Box::new((0..COUNT).map(move |step| {
        let index = (first + step) % COUNT;
        Subnet { address: u32::from(Ipv4Addr::new(10, 128, 0, 0)) + (index << 8), prefix: 24 }
    }))
}

/// Networks the host has routes to or addresses in, other than those behind our own bridge.
fn taken_subnets(own_bridge: &str) -> Vec<Subnet> {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let addresses = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let own: Vec<Subnet> = parse_routes(&routes, |link| link == own_bridge);
    let mut taken = parse_routes(&routes, |link| link != own_bridge);
    let foreign = |address: &Subnet| own.iter().all(|o| !o.overlaps(*address));
    taken.extend(parse_addresses(&addresses).into_iter().filter(foreign));
    taken
}

/// `/proc/net/route`: link, destination and (in the eighth column) mask, as hex of the machine's own order.
fn parse_routes(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Subnet> {
    let number = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::from_be);
    let rows = text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|row| {
        let (link, address, mask) = (row.first()?, number(row.get(1)?)?, number(row.get(7)?)?);
        let prefix = u8::try_from(mask.leading_ones()).ok()?;
        // The default route leads everywhere and takes nothing.
        (wanted(link) && prefix > 0).then_some(Subnet { address, prefix })
    })
    .collect()
}

/// Local addresses of `/proc/net/fib_trie`: a leaf `|-- ADDRESS` followed by `/32 host LOCAL`.
fn parse_addresses(text: &str) -> Vec<Subnet> {
    let mut last = None;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.map(|address| Subnet::new(address, 32)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_another_root_get_different_bridges_and_subnets() {
        let state = Path::new("/srv/t/var/lib/podling/network");
        assert_eq!(bridge_name(state, true), "podling0");
        let other = bridge_name(state, false);
        assert_eq!(other.len(), 12);
        assert!(is_default_name(&other) && is_default_name("podling0"));
        assert!(!is_default_name("pod-12345") && !is_default_name("cni0"));
        let first = |state: &str, system| candidates(Path::new(state), system).next().unwrap().to_string();
        assert_eq!(first("/x", true), "10.88.0.0/16");
        assert_ne!(first("/a", false), first("/b", false));
    }

    #[test]
    fn candidates_stay_in_their_range_and_never_repeat() {
        let all: Vec<String> = candidates(Path::new("/a"), false).map(|s| s.to_string()).collect();
        let unique: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!((all.len(), unique.len()), (16384, 16384));
        let range = Subnet::parse("10.128.0.0/10").unwrap();
        assert!(all.iter().all(|s| Subnet::parse(s).unwrap().overlaps(range)));
    }

    #[test]
    fn routes_are_read_without_the_default_one() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                    eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                    podling0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let shown = |subnets: Vec<Subnet>| subnets.iter().map(Subnet::to_string).collect::<Vec<_>>();
        assert_eq!(shown(parse_routes(text, |link| link != "podling0")), ["192.0.2.0/24"]);
        assert_eq!(shown(parse_routes(text, |link| link == "podling0")), ["10.88.0.0/16"]);
    }

    #[test]
    fn local_addresses_are_read_from_the_trie() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                    |-- 10.88.0.1\n        /32 host LOCAL\n     |-- 10.88.0.255\n        /32 link BROADCAST\n";
        assert_eq!(parse_addresses(text), [Subnet::new(Ipv4Addr::new(10, 88, 0, 1), 32)]);
    }

    #[test]
    fn a_choice_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let chosen = DefaultNetwork::choose(dir.path(), false, false).unwrap();
        assert_eq!(DefaultNetwork::choose(dir.path(), false, false).unwrap(), chosen);
        assert_eq!(DefaultNetwork::load(dir.path()), Some(chosen));
    }

    #[test]
    fn a_kept_subnet_that_the_host_uses_elsewhere_is_given_up_unless_pods_are_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut chosen = DefaultNetwork::choose(dir.path(), false, false).unwrap();
        // The loopback is an address of every host.
        chosen.subnet = "127.0.0.0/24".to_owned();
        chosen.store(dir.path()).unwrap();
        assert_eq!(DefaultNetwork::choose(dir.path(), false, true).unwrap(), chosen);
        assert_ne!(DefaultNetwork::choose(dir.path(), false, false).unwrap().subnet, chosen.subnet);
    }
}
