//! `certs.d/<host>/hosts.toml`: which servers are asked for the images of a registry, in which order, and
//! how they are spoken to. The format is containerd's, `docs/hosts.md` of its tree; directories that hold
//! only certificates are docker's.

mod file;
mod lint;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hyper::Uri;

use crate::http::connect::ConnectOptions;
use crate::http::tls::TlsOptions;
use file::{Settings, parse};

pub use lint::{lint, lint_all, lint_containerd};

/// What docker.io's images are really served by.
const DOCKER_HUB: &str = "registry-1.docker.io";
const FILE: &str = "hosts.toml";
const DEFAULT_DIR: &str = "_default";

/// What a server may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Content by digest.
    Pull,
    /// What a tag means. A mirror that is not trusted has only the other one.
    Resolve,
}

/// A server that has a registry's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://mirror.example:5000`, without a path.
    pub origin: String,
    /// Path before a repository's name, `/v2` unless overridden.
    pub prefix: String,
    /// Host and port, by which credentials are found.
    pub host: String,
    /// Registry whose images are asked for, when that is another.
    pub mirror_of: Option<String>,
    /// May say what a tag means.
    pub resolves: bool,
    /// May serve content.
    pub pulls: bool,
    /// How it is connected to.
    pub connect: ConnectOptions,
    /// Headers to send along.
    pub headers: Vec<(String, String)>,
    /// The same server by the other scheme, when it is not sure which one it speaks.
    pub alternative: Option<String>,
}

impl Endpoint {
    /// Whether it may be asked for this.
    pub fn can(&self, capability: Capability) -> bool {
        match capability {
            Capability::Pull => self.pulls,
            Capability::Resolve => self.resolves,
        }
    }
}

/// Why the configuration of a registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file says something that it cannot say.
    #[error("{path}: {what}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What, and what would be right.
        what: String,
    },
}

/// Where hosts files are looked for: several directories, the first that knows a registry counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostsConfig {
    /// Such as `/etc/containerd/certs.d`.
    pub dirs: Vec<PathBuf>,
}

impl HostsConfig {
    /// The servers to ask for images of `registry`, as `docker.io` or `reg.example:5000`, in order. Reads
    /// files anew each time, so that an edit needs no restart.
    pub fn endpoints(&self, registry: &str) -> Result<Vec<Endpoint>, HostsError> {
        for base in &self.dirs {
            for name in directory_names(registry) {
                let dir = base.join(name);
                if dir.is_dir() {
                    return of_directory(&dir, registry);
                }
            }
        }
        Ok(upstream(registry, &Settings::default()))
    }
}

/// `reg:5000` may be a directory `reg_5000_`, since not all tools like colons; then `_default`.
fn directory_names(registry: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Some((host, port)) = registry.rsplit_once(':').filter(|(host, _)| !host.is_empty()) {
        names.push(format!("{host}_{port}_"));
    }
    names.extend([registry.to_owned(), DEFAULT_DIR.to_owned()]);
    names
}

fn of_directory(dir: &Path, registry: &str) -> Result<Vec<Endpoint>, HostsError> {
    let file = dir.join(FILE);
    match fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => {
            let (endpoints, unknown) = parse(dir, &file, &text, registry)?;
            for text in unknown {
                tracing::debug!("{text}");
            }
            Ok(endpoints)
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(HostsError::Read { path: file, source: e }),
        _ => {
            let tls = certificates_in(dir).map_err(|source| HostsError::Read { path: dir.into(), source })?;
            let connect = ConnectOptions { tls, ..ConnectOptions::default() };
            Ok(upstream(registry, &Settings { connect, ..Settings::default() }))
        }
    }
}

/// docker's layout: `*.crt` are authorities, `x.cert` and `x.key` are ours.
fn certificates_in(dir: &Path) -> io::Result<TlsOptions> {
    let mut tls = TlsOptions::default();
    let mut paths: Vec<_> =
        fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, io::Error>>()?;
    paths.sort();
    for path in paths {
        match path.extension().and_then(|e| e.to_str()) {
            Some("crt") => tls.authorities.push(path),
            Some("cert") => {
                let key = path.with_extension("key");
                tls.identities.push((path, key));
            }
            _ => {}
        }
    }
    Ok(tls)
}

/// The registry itself, by the rules for one that nothing is said about.
fn upstream(registry: &str, settings: &Settings) -> Vec<Endpoint> {
    if registry == "docker.io" {
        return vec![plain(&format!("https://{DOCKER_HUB}"), DOCKER_HUB, settings)];
    }
    let (https, http) = (format!("https://{registry}"), format!("http://{registry}"));
    if !is_local(registry) {
        return vec![plain(&https, registry, settings)];
    }
    // On the machine itself plain http is the custom; TLS is spoken too, whoever signed the certificate.
    let tls = &settings.connect.tls;
    let certificates = !tls.authorities.is_empty() || !tls.identities.is_empty();
    let (first, second) = if certificates { (https, http) } else { (http, https) };
    let mut endpoint = plain(&first, registry, settings);
    endpoint.connect.tls.skip_verify |= tls.authorities.is_empty();
    endpoint.alternative = Some(second);
    vec![endpoint]
}

fn plain(origin: &str, host: &str, settings: &Settings) -> Endpoint {
    let can = |c| settings.capabilities.as_ref().is_none_or(|all| all.contains(&c));
    Endpoint {
        origin: origin.to_owned(),
        prefix: "/v2".to_owned(),
        host: host.to_owned(),
        mirror_of: None,
        resolves: can(Capability::Resolve),
        pulls: can(Capability::Pull) || can(Capability::Resolve),
        connect: settings.connect.clone(),
        headers: settings.headers.clone(),
        alternative: None,
    }
}

fn endpoint(url: &str, registry: &str, settings: &Settings) -> Result<Endpoint, String> {
    let scheme = if is_local(url.split('/').next().unwrap_or(url)) { "http" } else { "https" };
    let full = if url.contains("://") { url.to_owned() } else { format!("{scheme}://{url}") };
    let uri: Uri = full.parse().map_err(|e| format!("it is no address: {e}"))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(format!("{scheme}:// is not spoken; use https:// or http://"));
    }
    let host = uri.authority().map(|a| a.as_str()).unwrap_or_default();
    if host.contains('@') {
        return Err("credentials do not belong here; put them into a docker config.json".to_owned());
    }
    let host = if host == "docker.io" { DOCKER_HUB } else { host };
    let path = uri.path().trim_end_matches('/');
    let prefix = match settings.override_path {
        true => path.to_owned(),
        // Often written out although it is added.
        false if path.ends_with("/v2") => path.to_owned(),
        false => format!("{path}/v2"),
    };
    let own = host == registry || (registry == "docker.io" && host == DOCKER_HUB);
    // Who speaks of TLS and writes http may mean either, and containerd then tries TLS first.
    let (scheme, alternative) = match scheme == "http" && settings.speaks_of_tls && uri.port_u16() != Some(80)
    {
        true => ("https", Some(format!("http://{host}"))),
        false => (scheme, None),
    };
    Ok(Endpoint {
        prefix,
        mirror_of: (!own).then(|| registry.to_owned()),
        alternative,
        ..plain(&format!("{scheme}://{host}"), host, settings)
    })
}

/// An address as messages show it: without the name and password that somebody may have written into it.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + "://".len()));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}"),
        None => url.to_owned(),
    }
}

/// `localhost` and the loopback's addresses, with or without a port.
fn is_local(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => registry.rsplit_once(':').map_or(registry, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests;
