//! The text of a `hosts.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::{Table, Value};

use super::{Capability, Endpoint, HostsError, endpoint, shown, upstream};
use crate::http::connect::ConnectOptions;
use crate::http::proxy;
use crate::http::tls::TlsOptions;
use crate::settings::parse_duration;

/// What can be said of a server.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) connect: ConnectOptions,
    pub(super) headers: Vec<(String, String)>,
    pub(super) capabilities: Option<Vec<Capability>>,
    pub(super) override_path: bool,
    /// Anything is said that concerns connecting by TLS, or connecting at all.
    pub(super) speaks_of_tls: bool,
}

/// The table of one server, and the top of the file.
#[derive(Default, Deserialize)]
struct Fields {
    #[serde(default)]
    server: Option<String>,
    // Read by hand: a reader's message about a text that should have been a table would show the text, which
    // may hold a credential. So is `header`.
    #[serde(default)]
    host: Option<Value>,
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
    header: Option<Value>,
    #[serde(default)]
    dial_timeout: Option<String>,
    #[serde(default)]
    proxy: Option<String>,
    #[serde(flatten)]
    unknown: Table,
}

/// The servers of a hosts file, and what in it is not understood.
pub(super) fn parse(
    dir: &Path,
    file: &Path,
    text: &str,
    registry: &str,
) -> Result<(Vec<Endpoint>, Vec<String>), HostsError> {
    let wrong = |what: String| HostsError::Wrong { path: file.to_owned(), what };
    let top: Fields = toml::from_str(text).map_err(|e| wrong(toml_reason(text, &e)))?;
    let mut unknown = unknown_keys(file, "", &top);
    let mut endpoints = Vec::new();
    for (url, value) in table("host", top.host.as_ref()).map_err(wrong)?.into_iter().flatten() {
        let place = format!("[host.\"{}\"]", shown(url));
        if !value.is_table() {
            return Err(wrong(format!("{place}: must be a table")));
        }
        let fields: Fields = match value.clone().try_into() {
            Ok(fields) => fields,
            Err(e) => return Err(wrong(format!("{place}: {}", first_line(&e.to_string())))),
        };
        unknown.extend(unknown_keys(file, &place, &fields));
        let settings = fields.settings(dir).map_err(|e| wrong(format!("{place}: {e}")))?;
        endpoints.push(endpoint(url, registry, &settings).map_err(|e| wrong(format!("{place}: {e}")))?);
    }
    let settings = top.settings(dir).map_err(wrong)?;
    match top.server.as_deref().filter(|s| !s.is_empty()) {
        Some(server) => endpoints.push(
            endpoint(server, registry, &settings)
                .map_err(|e| wrong(format!("server = \"{}\": {e}", shown(server))))?,
        ),
        None => endpoints.extend(upstream(registry, &settings)),
    }
    Ok((endpoints, unknown))
}

fn unknown_keys(file: &Path, place: &str, fields: &Fields) -> Vec<String> {
    let within = if place.is_empty() { String::new() } else { format!(" in {place}") };
    let text = |key: &String| format!("{}: unknown key {key:?}{within} is ignored", file.display());
    fields.unknown.keys().map(text).collect()
}

fn table<'a>(name: &str, value: Option<&'a Value>) -> Result<Option<&'a Table>, String> {
    value.map(|v| v.as_table().ok_or_else(|| format!("{name}: must be a table"))).transpose()
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
        if let Some(client) = &self.client {
            tls.identities = client_pairs(dir, client)?;
        }
        let mut headers = Vec::new();
        for (name, value) in table("header", self.header.as_ref())?.into_iter().flatten() {
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
        // None of them named means all, as with containerd.
        let names = self.capabilities.as_ref().filter(|names| !names.is_empty());
        let capabilities = names.map(|names| capabilities(names)).transpose()?;
        let dial_timeout = self.dial_timeout()?;
        let speaks_of_tls = self.ca.is_some() || self.client.is_some() || self.skip_verify.is_some();
        Ok(Settings {
            connect: ConnectOptions { tls, dial_timeout, proxy: self.proxy()? },
            headers,
            capabilities,
            override_path: self.override_path == Some(true),
            speaks_of_tls: speaks_of_tls || dial_timeout.is_some(),
        })
    }

    fn dial_timeout(&self) -> Result<Option<Duration>, String> {
        let Some(text) = self.dial_timeout.as_deref().filter(|t| !t.is_empty()) else { return Ok(None) };
        match parse_duration(text) {
            // As in Go, 0 is no limit of its own.
            Some(limit) => Ok(Some(limit).filter(|l| !l.is_zero())),
            None => Err(format!("dial_timeout: {text:?} is no duration such as \"5s\"")),
        }
    }

    /// The text may hold a password, so no message shows it.
    fn proxy(&self) -> Result<Option<proxy::Proxy>, String> {
        let Some(text) = self.proxy.as_deref().filter(|t| !t.is_empty()) else { return Ok(None) };
        let wrong = "proxy: it is not the address of an HTTP proxy such as \"http://proxy:3128\"";
        proxy::parse(text).map(Some).ok_or_else(|| wrong.to_owned())
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

/// `"both.pem"`, `["a.pem", "b.pem"]`, or `[["cert", "key"], ["both.pem", ""]]`.
fn client_pairs(dir: &Path, value: &Value) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let wrong =
        || "client: must be a file, a list of files, or a list of pairs [certificate, key]".to_owned();
    let path = |v: &Value| v.as_str().map(|s| dir.join(s)).ok_or_else(wrong);
    let list = match value {
        Value::String(file) => return Ok(vec![(dir.join(file), dir.join(file))]),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    // A single pair is often written without its list.
    if let [Value::String(certificate), Value::String(key)] = list.as_slice()
        && !holds_both(&dir.join(certificate))
    {
        return Ok(vec![(dir.join(certificate), dir.join(key))]);
    }
    let one = |entry: &Value| match entry {
        Value::String(file) => Ok((dir.join(file), dir.join(file))),
        Value::Array(pair) => {
            let certificate = path(pair.first().ok_or_else(wrong)?)?;
            let key = match pair.get(1).and_then(Value::as_str) {
                None | Some("") => certificate.clone(),
                Some(key) => dir.join(key),
            };
            Ok((certificate, key))
        }
        _ => Err(wrong()),
    };
    list.iter().map(one).collect()
}

fn holds_both(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY"))
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
