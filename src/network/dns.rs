//! `/etc/resolv.conf` of a pod: the four DNS policies, `dnsConfig`, the limits of resolvers, and the local
//! stubs that mean nothing inside a pod.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};

/// Where systemd-resolved lists the servers it asks itself.
const RESOLVED_UPSTREAM: &str = "/run/systemd/resolve/resolv.conf";
/// glibc reads three servers; the other limits are the kubelet's.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_LINE: usize = 2048;
const MAX_SEARCH: usize = 253;

/// Why a pod gets no resolver file.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The host's file is there but cannot be read.
    #[error("cannot read {} (setting resolvConf): {source}", path.display())]
    Unreadable {
        /// The host's file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A policy that does not exist.
    #[error("dnsPolicy {0:?} is none of ClusterFirst, ClusterFirstWithHostNet, Default, None")]
    UnknownPolicy(String),
    /// Policy `None` and nothing to ask.
    #[error("dnsPolicy None needs at least one server in spec.dnsConfig.nameservers")]
    NoServers,
}

/// What a person should know about a pod's resolver, for an event of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsNote {
    /// The kubelet's word: `DNSConfigForming` or `MissingClusterDNS`.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl DnsNote {
    fn forming(message: String) -> Self {
        Self { reason: "DNSConfigForming", message }
    }
}

/// The values of a resolver file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses of servers, in order.
    pub servers: Vec<String>,
    /// Search domains, in order.
    pub searches: Vec<String>,
    /// Options as `name` or `name:value`.
    pub options: Vec<String>,
}

/// The host's resolver, as it is for pods on the host's network and as it is for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostResolv {
    /// The file's own values, with stubs on loopback addresses.
    pub own: Resolver,
    /// The same without servers that only answer on the host's loopback.
    pub upstream: Resolver,
    /// What a person should know.
    pub notes: Vec<String>,
    /// The settings say that pods inherit no resolver.
    pub none: bool,
}

impl HostResolv {
    /// Reads the host's file. One that does not exist gives empty values and a note: a pod can run without DNS.
    /// The empty path means that pods inherit nothing, and by default look no names up.
    pub fn load(path: &Path) -> Result<Self, DnsError> {
        if path.as_os_str().is_empty() {
            let own = Resolver {
                servers: vec!["127.0.0.1".into()],
                searches: vec![".".into()],
                options: Vec::new(),
            };
            return Ok(Self { upstream: own.clone(), own, notes: Vec::new(), none: true });
        }
        Self::load_with(path, Path::new(RESOLVED_UPSTREAM))
    }

    fn load_with(path: &Path, resolved: &Path) -> Result<Self, DnsError> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let note =
                    format!("{} does not exist: pods get no DNS servers from the host", path.display());
                return Ok(Self { notes: vec![note], ..Self::default() });
            }
            Err(source) => return Err(DnsError::Unreadable { path: path.to_owned(), source }),
        };
        let own = parse(&text);
        let mut notes = Vec::new();
        let mut upstream = own.clone();
        upstream.servers.retain(|server| !is_loopback(server));
        if upstream.servers.is_empty() && !own.servers.is_empty() {
            upstream.servers = fs::read_to_string(resolved).map(|t| parse(&t).servers).unwrap_or_default();
            upstream.servers.retain(|server| !is_loopback(server));
            if upstream.servers.is_empty() {
                notes.push(format!(
                    "{} names only servers on the host's loopback ({}), which pods cannot reach, and {} names \
                     no others; set resolvConf to a file with real servers",
                    path.display(),
                    own.servers.join(", "),
                    resolved.display()
                ));
            }
        }
        Ok(Self { own, upstream, notes, none: false })
    }
}

fn is_loopback(server: &str) -> bool {
    let address = server.split('%').next().unwrap_or(server);
    address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn parse(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        match words.next() {
            Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
            // The last line wins.
            Some("search") => {
                let names = words.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty());
                resolver.searches = names.map(str::to_owned).collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut resolver.options, option)),
            _ => {}
        }
    }
    resolver
}

/// Options are known by their name; a later one replaces an earlier one in its place.
fn set_option(options: &mut Vec<String>, option: &str) {
    let name = |o: &str| o.split(':').next().unwrap_or(o).to_owned();
    match options.iter_mut().find(|o| name(o) == name(option)) {
        Some(old) => *old = option.to_owned(),
        None => options.push(option.to_owned()),
    }
}

fn add_unique(list: &mut Vec<String>, values: impl IntoIterator<Item = String>) {
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

/// The text of a pod's resolver file, and notes for a person about what is not as the manifest may suggest.
pub fn resolv_conf(
    spec: &PodSpec,
    namespace: &str,
    host: &HostResolv,
    cluster_dns: &[String],
    cluster_domain: Option<&str>,
) -> Result<(String, Vec<DnsNote>), DnsError> {
    let mut notes = Vec::new();
    let mut resolver = base(spec, namespace, host, cluster_dns, cluster_domain, &mut notes)?;
    if let Some(config) = &spec.dns_config {
        apply(config, &mut resolver);
    }
    if spec.dns_policy.as_deref() == Some("None") && resolver.servers.is_empty() {
        return Err(DnsError::NoServers);
    }
    limit(&mut resolver, &mut notes);
    Ok((render(&resolver), notes))
}

fn base(
    spec: &PodSpec,
    namespace: &str,
    host: &HostResolv,
    cluster_dns: &[String],
    cluster_domain: Option<&str>,
    notes: &mut Vec<DnsNote>,
) -> Result<Resolver, DnsError> {
    let host_network = spec.host_network == Some(true);
    let policy = spec.dns_policy.as_deref().filter(|p| !p.is_empty()).unwrap_or("ClusterFirst");
    let cluster = match policy {
        "None" => return Ok(Resolver::default()),
        "Default" => false,
        "ClusterFirst" => !host_network,
        "ClusterFirstWithHostNet" => true,
        other => return Err(DnsError::UnknownPolicy(other.to_owned())),
    };
    let from_host = if host_network { &host.own } else { &host.upstream };
    if cluster && !cluster_dns.is_empty() {
        let mut searches = Vec::new();
        if let Some(domain) = cluster_domain.filter(|d| !d.is_empty()) {
            let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
            add_unique(&mut searches, own);
        }
        if !host.none {
            add_unique(&mut searches, from_host.searches.iter().cloned());
        }
        return Ok(Resolver { servers: cluster_dns.to_vec(), searches, options: vec!["ndots:5".into()] });
    }
    // ClusterFirst is also what a manifest has that says nothing of DNS: no news for it.
    if policy == "ClusterFirstWithHostNet" {
        let message =
            "dnsPolicy ClusterFirstWithHostNet: clusterDNS is not set, so the pod gets what Default gives";
        notes.push(DnsNote { reason: "MissingClusterDNS", message: message.to_owned() });
    }
    if !host_network {
        notes.extend(host.notes.iter().cloned().map(DnsNote::forming));
    }
    Ok(from_host.clone())
}

fn apply(config: &PodDNSConfig, resolver: &mut Resolver) {
    add_unique(&mut resolver.servers, config.nameservers.iter().flatten().cloned());
    add_unique(&mut resolver.searches, config.searches.iter().flatten().cloned());
    for option in config.options.iter().flatten() {
        let Some(name) = option.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => set_option(&mut resolver.options, &format!("{name}:{value}")),
            None => set_option(&mut resolver.options, name),
        }
    }
}

/// Cuts what resolvers would ignore anyway, and says so.
fn limit(resolver: &mut Resolver, notes: &mut Vec<DnsNote>) {
    if resolver.servers.len() > MAX_SERVERS {
        let left_out = resolver.servers.split_off(MAX_SERVERS);
        notes.push(DnsNote::forming(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line \
             is: {}; left out: {}",
            resolver.servers.join(" "),
            left_out.join(" ")
        )));
    }
    let mut left_out = Vec::new();
    let mut line = 0;
    let mut count = 0;
    let mut full = false;
    resolver.searches.retain(|search| {
        let short = search.len() <= MAX_SEARCH;
        // What comes after the first that has no more room is left out too: order matters in a search.
        full |=
            short && (count == MAX_SEARCHES || line + search.len() + usize::from(line > 0) > MAX_SEARCH_LINE);
        let fits = short && !full;
        if fits {
            line += search.len() + usize::from(line > 0);
            count += 1;
        } else {
            left_out.push(search.clone());
        }
        fits
    });
    if !left_out.is_empty() {
        notes.push(DnsNote::forming(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: \
             {}; a pod has at most {MAX_SEARCHES} of {MAX_SEARCH} characters, {MAX_SEARCH_LINE} together; left \
             out: {}",
            resolver.searches.join(" "),
            left_out.join(" ")
        )));
    }
}

fn render(resolver: &Resolver) -> String {
    let mut text = String::new();
    if !resolver.searches.is_empty() {
        text += &format!("search {}\n", resolver.searches.join(" "));
    }
    for server in &resolver.servers {
        text += &format!("nameserver {server}\n");
    }
    if !resolver.options.is_empty() {
        text += &format!("options {}\n", resolver.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests;
