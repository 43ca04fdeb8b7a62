//! Where a probe goes: addresses of a pod, ports by number or by name.

use std::io;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;

/// Connects to the first of `hosts` where somebody listens; also says which. Only a refusal leads to the
/// next: an address that does not answer is an answer.
///
/// # Errors
/// What became of the first.
pub async fn connect(hosts: &[String], port: u16) -> io::Result<(TcpStream, &str)> {
    let mut first = None;
    for host in hosts {
        match TcpStream::connect((bare(host), port)).await {
            Ok(stream) => return Ok((stream, host)),
            Err(e) => {
                let refused = e.kind() == io::ErrorKind::ConnectionRefused;
                let e = first.get_or_insert(e);
                if !refused {
                    return Err(io::Error::new(e.kind(), words(e, host, port)));
                }
            }
        }
    }
    let host = hosts.first().map_or("", String::as_str);
    let e = first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(io::Error::new(e.kind(), words(&e, host, port)))
}

/// As the kubelet has it: which connection, what the kernel said.
fn words(e: &io::Error, host: &str, port: u16) -> String {
    let text = match e.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        _ => e.to_string(),
    };
    format!("dial tcp {}: connect: {text}", authority(host, port))
}

/// A host without the brackets of an address of IPv6.
pub fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// `host:port`, with brackets around an address of IPv6.
pub fn authority(host: &str, port: u16) -> String {
    let host = bare(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A port by number or by the name it has in the container.
///
/// # Errors
/// For a name the container does not have, or a number that is none of a port: a line for a person.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|p| p.name.as_deref() == Some(name))
            .map(|p| p.container_port)
            .ok_or_else(|| format!("port {name:?} is not a port of container {}", container.name))?,
    };
    u16::try_from(number).ok().filter(|n| *n != 0).ok_or_else(|| format!("{number} is not a port"))
}
