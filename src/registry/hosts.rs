//! `certs.d/<host>/hosts.toml`: which servers are asked for the images of a registry, in which order, and
//! how they are spoken to. The format is containerd's, `docs/hosts.md` of its tree; directories that hold
//! only certificates are docker's.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hyper::Uri;
use serde::Deserialize;
use toml::{Table, Value};

use crate::http::tls::TlsOptions;

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
    /// TLS settings.
    pub tls: TlsOptions,
    /// Headers to send along.
    pub headers: Vec<(String, String)>,
    /// Tried only when the one before it on the same host does not speak TLS the same way.
    pub fallback: bool,
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

/// Findings about the files below `dir` that make containerd and podling not see what was meant.
pub fn lint(dir: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_dir() {
            if name.ends_with(".toml") {
                findings.push(format!(
                    "{} is not read: it belongs into a directory named after the registry, as {}",
                    path.display(),
                    dir.join("docker.io").join(FILE).display()
                ));
            }
            continue;
        }
        findings.extend(lint_directory(&path, &name));
    }
    findings
}

fn lint_directory(dir: &Path, name: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if name.contains("://") || name.starts_with("http:") || name.starts_with("https:") {
        findings.push(format!("{} is not read: a directory's name has no scheme", dir.display()));
    }
    if matches!(name, "index.docker.io" | "registry-1.docker.io" | "hub.docker.com") {
        findings.push(format!(
            "{} is not read: images of Docker Hub are those of docker.io, so name it {}",
            dir.display(),
            dir.with_file_name("docker.io").display()
        ));
    }
    for wrong in ["host.toml", "hosts.tml", "hosts.conf", "hosts.yaml", "config.toml"] {
        let path = dir.join(wrong);
        if path.exists() && !dir.join(FILE).exists() {
            findings.push(format!("{} is not read: the file must be named {FILE}", path.display()));
        }
    }
    let file = dir.join(FILE);
    if let Ok(text) = fs::read_to_string(&file) {
        match parse(dir, &file, &text, name) {
            Ok((_, unknown)) => findings.extend(unknown),
            Err(e) => findings.push(e.to_string()),
        }
    }
    findings
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
        Ok(text) => {
            let (endpoints, unknown) = parse(dir, &file, &text, registry)?;
            for text in unknown {
                tracing::debug!("{text}");
            }
            Ok(endpoints)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let tls = certificates_in(dir).map_err(|source| HostsError::Read { path: dir.into(), source })?;
            Ok(upstream(registry, &Settings { tls, ..Settings::default() }))
        }
        Err(source) => Err(HostsError::Read { path: file, source }),
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
            Some("cert") if tls.identity.is_none() => {
                let key = path.with_extension("key");
                tls.identity = Some((path, key));
            }
            _ => {}
        }
    }
    Ok(tls)
}

/// What can be said of a server.
#[derive(Clone, Default)]
struct Settings {
    tls: TlsOptions,
    headers: Vec<(String, String)>,
    capabilities: Option<Vec<Capability>>,
    override_path: bool,
}

/// The table of one server, and the top of the file.
#[derive(Default, Deserialize)]
struct Fields {
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    host: Option<Table>,
    #[serde(default)]
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    ca: Option<Value>,
    #[serde(default)]
    client: Option<Value>,
    #[serde(default)]
    skip_verify: Option<bool>,
    #[serde(default)]
    override_path: Option<bool>,
    #[serde(default)]
    header: BTreeMap<String, Value>,
    #[serde(default, rename = "dial_timeout")]
    _dial_timeout: Option<String>,
    #[serde(flatten)]
    unknown: Table,
}

/// The servers of a hosts file, and what in it is not understood.
fn parse(
    dir: &Path,
    file: &Path,
    text: &str,
    registry: &str,
) -> Result<(Vec<Endpoint>, Vec<String>), HostsError> {
    let wrong = |what: String| HostsError::Wrong { path: file.to_owned(), what };
    let top: Fields = toml::from_str(text).map_err(|e| wrong(toml_reason(text, &e)))?;
    let mut unknown = unknown_keys(file, "", &top);
    let mut endpoints = Vec::new();
    for (url, value) in top.host.iter().flatten() {
        let fields: Fields = match value.clone().try_into() {
            Ok(fields) => fields,
            Err(e) => return Err(wrong(format!("[host.\"{url}\"]: {}", first_line(&e.to_string())))),
        };
        unknown.extend(unknown_keys(file, url, &fields));
        let settings = fields.settings(dir).map_err(|e| wrong(format!("[host.\"{url}\"]: {e}")))?;
        let at = endpoint(url, registry, &settings).map_err(|e| wrong(format!("[host.\"{url}\"]: {e}")))?;
        endpoints.push(at);
    }
    let settings = top.settings(dir).map_err(wrong)?;
    match top.server.as_deref().filter(|s| !s.is_empty()) {
        Some(server) => endpoints.push(
            endpoint(server, registry, &settings)
                .map_err(|e| wrong(format!("server = \"{server}\": {e}")))?,
        ),
        None => endpoints.extend(upstream(registry, &settings)),
    }
    Ok((endpoints, unknown))
}

fn unknown_keys(file: &Path, host: &str, fields: &Fields) -> Vec<String> {
    let within = if host.is_empty() { String::new() } else { format!(" in [host.\"{host}\"]") };
    let text = |key: &String| format!("{}: unknown key {key:?}{within} is ignored", file.display());
    fields.unknown.keys().map(text).collect()
}

impl Fields {
    fn settings(&self, dir: &Path) -> Result<Settings, String> {
        let mut tls = TlsOptions { skip_verify: self.skip_verify == Some(true), ..TlsOptions::default() };
        match &self.ca {
            None => {}
            Some(Value::String(path)) => tls.authorities.push(dir.join(path)),
            Some(Value::Array(paths)) => {
                for path in paths {
                    let path = path.as_str().ok_or("ca: each entry must be the path of a file")?;
                    tls.authorities.push(dir.join(path));
                }
            }
            Some(_) => return Err("ca: must be the path of a file, or a list of such".to_owned()),
        }
        tls.identity = self.client.as_ref().map(|v| client_pair(dir, v)).transpose()?.flatten();
        let mut headers = Vec::new();
        for (name, value) in &self.header {
            let values = match value {
                Value::String(s) => vec![s.clone()],
                Value::Array(list) => list
                    .iter()
                    .map(|v| v.as_str().map(str::to_owned))
                    .collect::<Option<_>>()
                    .ok_or_else(|| format!("header.{name}: must be text or a list of texts"))?,
                _ => return Err(format!("header.{name}: must be text or a list of texts")),
            };
            headers.extend(values.into_iter().map(|v| (name.clone(), v)));
        }
        let capabilities = self.capabilities.as_ref().map(|names| capabilities(names)).transpose()?;
        Ok(Settings { tls, headers, capabilities, override_path: self.override_path == Some(true) })
    }
}

fn capabilities(names: &[String]) -> Result<Vec<Capability>, String> {
    let mut all = Vec::new();
    for name in names {
        match name.to_lowercase().as_str() {
            "pull" => all.push(Capability::Pull),
            "resolve" => all.push(Capability::Resolve),
            // podling never pushes.
            "push" => {}
            _ => return Err(format!("capabilities: {name:?} is none; there are pull, resolve and push")),
        }
    }
    Ok(all)
}

/// `"both.pem"`, `["a.pem"]`, or `[["cert", "key"]]`; the first counts.
fn client_pair(dir: &Path, value: &Value) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let wrong =
        || "client: must be a file, a list of files, or a list of pairs [certificate, key]".to_owned();
    let path = |v: &Value| v.as_str().map(|s| dir.join(s)).ok_or_else(wrong);
    match value {
        Value::String(file) => Ok(Some((dir.join(file), dir.join(file)))),
        Value::Array(list) => match list.first() {
            None => Ok(None),
            // A single pair is often written without its list.
            Some(Value::String(_)) if list.len() == 2 && !holds_both(&path(&list[0])?) => {
                Ok(Some((path(&list[0])?, path(&list[1])?)))
            }
            Some(Value::String(file)) => Ok(Some((dir.join(file), dir.join(file)))),
            Some(Value::Array(pair)) => {
                let certificate = path(pair.first().ok_or_else(wrong)?)?;
                let key = match pair.get(1).and_then(Value::as_str) {
                    None | Some("") => certificate.clone(),
                    Some(key) => dir.join(key),
                };
                Ok(Some((certificate, key)))
            }
            Some(_) => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn holds_both(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY"))
}

/// The registry itself, by the rules for one that nothing is said about.
fn upstream(registry: &str, settings: &Settings) -> Vec<Endpoint> {
    if registry == "docker.io" {
        return vec![plain(&format!("https://{DOCKER_HUB}"), DOCKER_HUB, settings)];
    }
    if !is_local(registry) {
        return vec![plain(&format!("https://{registry}"), registry, settings)];
    }
    // On the machine itself plain http is the custom; TLS is spoken too, whoever signed the certificate.
    let mut tls = plain(&format!("https://{registry}"), registry, settings);
    tls.tls.skip_verify |= tls.tls.authorities.is_empty();
    let mut http = plain(&format!("http://{registry}"), registry, settings);
    if settings.tls.authorities.is_empty() && settings.tls.identity.is_none() {
        tls.fallback = true;
        vec![http, tls]
    } else {
        http.fallback = true;
        vec![tls, http]
    }
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
        tls: settings.tls.clone(),
        headers: settings.headers.clone(),
        fallback: false,
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
    Ok(Endpoint {
        prefix,
        mirror_of: (!own).then(|| registry.to_owned()),
        ..plain(&format!("{scheme}://{host}"), host, settings)
    })
}

/// `localhost` and the loopback's addresses, with or without a port.
fn is_local(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => registry.rsplit_once(':').map_or(registry, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
}

fn toml_reason(text: &str, e: &toml::de::Error) -> String {
    let line = e.span().map(|s| text[..s.start.min(text.len())].lines().count().max(1));
    match line {
        Some(line) => format!("line {line}: {}", first_line(e.message())),
        None => first_line(e.message()).to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

#[cfg(test)]
mod tests;
