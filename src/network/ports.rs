//! Host ports: which a pod wants, which pods hold them, and who else on the host does.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::manifest::PodKey;

/// Transport protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// From the manifest's word; anything unknown was refused by validation, and none means TCP.
    pub fn from_manifest(word: Option<&str>) -> Self {
        match word {
            Some("UDP") => Self::Udp,
            Some("SCTP") => Self::Sctp,
            _ => Self::Tcp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A port of the host that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// Port on the host.
    pub host_port: u16,
    /// Port in the pod.
    pub container_port: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// Only on this address of the host; none means on all.
    pub host_ip: Option<IpAddr>,
}

impl PortMapping {
    /// In the form of the `portMappings` capability.
    pub fn to_cni(&self) -> Value {
        let mut mapping = json!({
            "hostPort": self.host_port,
            "containerPort": self.container_port,
            "protocol": self.protocol.name(),
        });
        if let Some(ip) = self.host_ip.filter(|ip| !ip.is_unspecified()) {
            mapping["hostIP"] = json!(ip.to_string());
        }
        mapping
    }

    /// Whether both cannot be had at once: same port and protocol, and an address in common.
    pub fn overlaps(&self, other: &PortMapping) -> bool {
        let everywhere = |ip: Option<IpAddr>| ip.is_none_or(|ip| ip.is_unspecified());
        (self.host_port, self.protocol) == (other.host_port, other.protocol)
            && (everywhere(self.host_ip) || everywhere(other.host_ip) || self.host_ip == other.host_ip)
    }
}

impl std::fmt::Display for PortMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host_ip {
            Some(ip) => write!(f, "{}/{}", SocketAddr::new(ip, self.host_port), self.protocol.name()),
            None => write!(f, "{}/{}", self.host_port, self.protocol.name()),
        }
    }
}

/// The host ports a pod takes. On the host's network that is every port it declares, as nothing stands between
/// them and the host. Init containers count only as sidecars, since the others are gone when the pod runs.
pub fn host_ports(pod: &Pod) -> Vec<PortMapping> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let host_network = spec.host_network == Some(true);
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars).flat_map(|c| container_ports(c, host_network)).collect()
}

fn container_ports(container: &Container, host_network: bool) -> impl Iterator<Item = PortMapping> {
    container.ports.iter().flatten().filter_map(move |port| {
        let container_port = u16::try_from(port.container_port).ok()?;
        let host_port = port.host_port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0);
        let host_port = host_port.or(host_network.then_some(container_port))?;
        let host_ip = port.host_ip.as_deref().and_then(|ip| ip.parse().ok());
        let protocol = Protocol::from_manifest(port.protocol.as_deref());
        Some(PortMapping { host_port, container_port, protocol, host_ip })
    })
}

/// A port that another pod holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host port {port} is held by pod {pod}; this pod starts when that one is gone")]
pub struct PortConflict {
    /// Who holds it.
    pub pod: PodKey,
    /// The wanted port.
    pub port: PortMapping,
}

/// Host ports of several pods.
pub struct HostPorts;

impl HostPorts {
    /// The first of the wanted ports that one of the other pods holds. Pods that are still terminating hold
    /// theirs, too: the caller passes them along.
    pub fn conflict<'a>(
        wanted: &[PortMapping],
        held: impl IntoIterator<Item = (&'a PodKey, &'a [PortMapping])>,
    ) -> Option<PortConflict> {
        held.into_iter().find_map(|(pod, ports)| {
            let port = wanted.iter().find(|w| ports.iter().any(|p| p.overlaps(w)))?;
            Some(PortConflict { pod: pod.clone(), port: port.clone() })
        })
    }
}

/// A port that cannot be had from the host.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A process outside any pod of ours listens on it.
    #[error("host port {port} is in use{}", holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default())]
    InUse {
        /// The wanted port.
        port: PortMapping,
        /// `process NAME (pid N)`, when it can be found.
        holder: Option<String>,
    },
    /// The manifest's `hostIP` is no address of this host.
    #[error("host port {port}: hostIP is no address of this host")]
    NoSuchAddress {
        /// The wanted port.
        port: PortMapping,
    },
}

/// Tries whether nothing on the host listens on a port, by binding it for a moment. What binding cannot tell
/// (SCTP, no permission) counts as free.
pub fn is_free_on_host(port: &PortMapping) -> Result<(), PortError> {
    let address = SocketAddr::new(port.host_ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port.host_port);
    let result = match port.protocol {
        Protocol::Tcp => TcpListener::bind(address).map(drop),
        Protocol::Udp => UdpSocket::bind(address).map(drop),
        Protocol::Sctp => Ok(()),
    };
    match result.map_err(|e| e.kind()) {
        Err(io::ErrorKind::AddrInUse) => Err(PortError::InUse { port: port.clone(), holder: holder(port) }),
        Err(io::ErrorKind::AddrNotAvailable) => Err(PortError::NoSuchAddress { port: port.clone() }),
        _ => Ok(()),
    }
}

/// The process that has the port open, found by the socket's inode.
fn holder(port: &PortMapping) -> Option<String> {
    let name = port.protocol.name();
    let tables = [format!("/proc/net/{name}"), format!("/proc/net/{name}6")];
    let inodes: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|e| e.file_name());
    let mut pids = processes.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| has_socket(*pid, &inodes))?;
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {} (pid {pid})", comm.trim()))
}

fn has_socket(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|fd| {
        fs::read_link(fd.path()).is_ok_and(|to| inodes.iter().any(|inode| to.as_os_str() == inode.as_str()))
    })
}

/// Inodes of the sockets of a `/proc/net/{tcp,udp}` table that listen on the port.
fn listening(table: &str, port: &PortMapping) -> Vec<String> {
    // TCP_LISTEN; an unconnected UDP socket is in TCP_CLOSE.
    let state = if port.protocol == Protocol::Tcp { "0A" } else { "07" };
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| {
        let local = row.get(1).and_then(|local| local.rsplit(':').next());
        let number = local.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        number == Some(port.host_port) && row.get(3) == Some(&state)
    })
    .filter_map(|row| row.get(9).map(|inode| (*inode).to_owned()))
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

    use super::*;

    fn port(host_port: u16, ip: &str) -> PortMapping {
        let host_ip = (!ip.is_empty()).then(|| ip.parse().unwrap());
        PortMapping { host_port, container_port: 80, protocol: Protocol::Tcp, host_ip }
    }

    #[test]
    fn ports_clash_when_an_address_is_common() {
        for (a, b, clash) in [
            (port(80, ""), port(80, ""), true),
            (port(80, ""), port(81, ""), false),
            (port(80, "0.0.0.0"), port(80, "10.0.0.1"), true),
            (port(80, "10.0.0.1"), port(80, ""), true),
            (port(80, "10.0.0.1"), port(80, "10.0.0.2"), false),
            (port(80, "::"), port(80, "10.0.0.2"), true),
            (port(80, ""), PortMapping { protocol: Protocol::Udp, ..port(80, "") }, false),
        ] {
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (clash, clash), "{a} {b}");
        }
    }

    #[test]
    fn a_conflict_names_the_port_and_the_pod_that_holds_it() {
        let (first, second) = (PodKey::new("default", "a"), PodKey::new("default", "b"));
        let held = [(first, vec![port(81, "")]), (second, vec![port(82, ""), port(8080, "")])];
        let held = || held.iter().map(|(key, ports)| (key, ports.as_slice()));
        let conflict = HostPorts::conflict(&[port(80, ""), port(8080, "127.0.0.1")], held()).unwrap();
        assert_eq!(
            conflict.to_string(),
            "host port 127.0.0.1:8080/tcp is held by pod default/b; this pod starts when that one is gone"
        );
        assert_eq!(HostPorts::conflict(&[port(80, "")], held()), None);
    }

    fn with_port(name: &str, container_port: i32, host_port: Option<i32>) -> Container {
        let port = ContainerPort {
            container_port,
            host_port,
            protocol: Some("UDP".into()),
            ..ContainerPort::default()
        };
        Container { name: name.into(), ports: Some(vec![port]), ..Container::default() }
    }

    #[test]
    fn a_pod_takes_its_host_ports_and_on_the_hosts_network_all_its_ports() {
        let sidecar =
            Container { restart_policy: Some("Always".into()), ..with_port("side", 9000, Some(9001)) };
        let mut spec = PodSpec {
            containers: vec![with_port("a", 53, Some(5353)), with_port("b", 54, None)],
            init_containers: Some(vec![sidecar, with_port("once", 70, Some(71))]),
            ..PodSpec::default()
        };
        let ports = |spec: &PodSpec| {
            let ports = host_ports(&Pod { spec: Some(spec.clone()), ..Pod::default() });
            ports.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(ports(&spec), ["5353/udp", "9001/udp"]);
        spec.host_network = Some(true);
        assert_eq!(ports(&spec), ["5353/udp", "54/udp", "9001/udp"]);
    }

    #[test]
    fn a_port_in_use_names_the_process_that_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let error = is_free_on_host(&port(number, "127.0.0.1")).unwrap_err().to_string();
        let begin = format!("host port 127.0.0.1:{number}/tcp is in use by process ");
        assert!(error.starts_with(&begin), "{error}");
        assert!(error.ends_with(&format!("(pid {})", std::process::id())), "{error}");
        drop(listener);
        is_free_on_host(&port(number, "127.0.0.1")).unwrap();
    }

    #[test]
    fn a_udp_port_in_use_is_found_too() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = socket.local_addr().unwrap().port();
        let wanted = PortMapping { protocol: Protocol::Udp, ..port(number, "") };
        let error = is_free_on_host(&wanted).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
    }

    #[test]
    fn an_address_that_is_not_the_hosts_is_said() {
        let error = is_free_on_host(&port(8080, "198.51.100.77")).unwrap_err().to_string();
        assert_eq!(error, "host port 198.51.100.77:8080/tcp: hostIP is no address of this host");
    }
}
