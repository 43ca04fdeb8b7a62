//! Container ports and host ports.

use k8s_openapi::api::core::v1::{Container, ContainerPort};

use super::words::{Refuse, is_ip, one_of, unique};
use crate::manifest::positions::{Findings, Path};

/// Transport protocols.
pub const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const RANGE: &str = "must be between 1 and 65535, inclusive";

/// Whether this is a port number.
pub fn is_port(port: i32) -> bool {
    (1..=65535).contains(&port)
}

/// Why this is no port name, or nothing when it is one.
pub fn name_fault(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    if name.len() > 15 {
        Some("must be no more than 15 characters")
    } else if !bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-') {
        Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    } else if !bytes.iter().any(u8::is_ascii_lowercase) {
        Some("must contain at least one letter (a-z)")
    } else if name.contains("--") {
        Some("must not contain consecutive hyphens")
    } else if name.starts_with('-') || name.ends_with('-') {
        Some("must not begin or end with a hyphen")
    } else {
        None
    }
}

/// Checks the ports of one container.
pub fn check(ports: &[ContainerPort], host_network: bool, path: &Path, findings: &mut Findings<'_>) {
    for (i, port) in ports.iter().enumerate() {
        check_port(port, host_network, &path.index(i), findings);
    }
    let names = ports.iter().enumerate().filter_map(|(i, port)| {
        Some((port.name.as_deref().filter(|name| !name.is_empty())?, path.index(i).field("name")))
    });
    unique(names, |name, at, first| findings.duplicate(at, *name, &first.to_string()));
}

fn check_port(port: &ContainerPort, host_network: bool, path: &Path, findings: &mut Findings<'_>) {
    if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty())
        && let Some(why) = name_fault(name)
    {
        findings.invalid(&path.field("name"), name, why);
    }
    match port.container_port {
        0 => findings.required(&path.field("containerPort"), ""),
        port if !is_port(port) => findings.invalid(&path.field("containerPort"), port, RANGE),
        _ => {}
    }
    match port.host_port {
        None | Some(0) => {}
        Some(host) if !is_port(host) => findings.invalid(&path.field("hostPort"), host, RANGE),
        Some(host) if host_network && host != port.container_port => {
            findings.invalid(
                &path.field("hostPort"),
                host,
                "must match `containerPort` when `hostNetwork` is true",
            );
        }
        Some(_) => {}
    }
    if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty() && !is_ip(ip)) {
        findings.invalid(
            &path.field("hostIP"),
            ip,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
    }
    one_of(findings, &path.field("protocol"), port.protocol.as_deref(), PROTOCOLS);
}

/// Checks that no two of these containers want the same port of the host.
pub fn check_host_ports<'c>(
    containers: impl Iterator<Item = (&'c Container, Path)>,
    findings: &mut Findings<'_>,
) {
    let wanted = containers.flat_map(|(container, path)| {
        container.ports.iter().flatten().enumerate().filter_map(move |(i, port)| {
            let host = port.host_port.filter(|host| *host != 0)?;
            let ip = port.host_ip.as_deref().unwrap_or_default();
            let protocol = port.protocol.as_deref().unwrap_or_default();
            Some(((protocol, ip, host), path.field("ports").index(i).field("hostPort")))
        })
    });
    unique(wanted, |(protocol, ip, host), at, first| {
        let shown =
            if ip.is_empty() { format!("{protocol}/{host}") } else { format!("{protocol}/{ip}/{host}") };
        findings.duplicate(at, shown.as_str(), &first.to_string());
    });
}
