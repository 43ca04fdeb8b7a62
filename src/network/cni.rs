//! Speaks to CNI plugins: finds the configuration, runs the plugins of a list one after the other, and turns
//! what they say into one line.
//!
//! A plugin is a program that gets `CNI_*` variables and JSON on stdin and answers with JSON on stdout.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::ports::PortMapping;
use crate::system::programs::search_path;

/// Debian's package with the standard plugins.
const PLUGINS_PACKAGE: &str = "containernetworking-plugins";
/// Interface name inside a pod, as with any Kubernetes node.
pub const IFNAME: &str = "eth0";
/// A plugin that answers nothing for so long is ended. Some wait for a lock or a daemon, so this is generous.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Versions of the protocol this client can read the answers of.
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// What goes wrong with configurations and plugins.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// A configuration file cannot be used.
    #[error("CNI configuration {}: {reason}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A plugin is not installed.
    #[error(
        "CNI plugin {plugin:?} of network {network:?} is in none of {}; install the package {PLUGINS_PACKAGE}",
        list(searched)
    )]
    PluginMissing {
        /// Its type.
        plugin: String,
        /// The network that needs it.
        network: String,
        /// Directories looked into.
        searched: Vec<PathBuf>,
    },
    /// A plugin could not be run at all.
    #[error("CNI plugin {plugin:?} ({}) cannot be run: {source}", binary.display())]
    Run {
        /// Its type.
        plugin: String,
        /// Its path.
        binary: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A plugin gave no answer.
    #[error("CNI plugin {plugin:?} ({}) did not finish {command} within {} s", binary.display(), limit.as_secs())]
    Timeout {
        /// Its type.
        plugin: String,
        /// Its path.
        binary: PathBuf,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// The time it had.
        limit: Duration,
    },
    /// A plugin answered with an error.
    #[error("CNI plugin {plugin:?} ({}) failed {command}: {message} (code {code})", binary.display())]
    Plugin {
        /// Its type.
        plugin: String,
        /// Its path.
        binary: PathBuf,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// The protocol's error code; 11 means "try again later".
        code: i64,
        /// Its words.
        message: String,
    },
}

fn list(directories: &[PathBuf]) -> String {
    directories.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A network: the plugins to run, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkList {
    /// Its name, unique on the host.
    pub name: String,
    /// Version of the protocol its plugins are spoken to in.
    pub cni_version: String,
    /// CHECK is not to be used.
    #[serde(default)]
    pub disable_check: bool,
    /// One object a plugin, as written.
    pub plugins: Vec<Value>,
    /// The file it was read from; none for the built-in one.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

impl NetworkList {
    /// True when some plugin says that it can do `capability`, such as `portMappings`.
    pub fn has_capability(&self, capability: &str) -> bool {
        self.plugins.iter().any(|p| p["capabilities"][capability] == json!(true))
    }

    /// Types of the plugins, in order.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(plugin_type)
    }
}

/// The `type` of a plugin's configuration.
pub fn plugin_type(plugin: &Value) -> &str {
    plugin["type"].as_str().unwrap_or_default()
}

/// Reads the first usable configuration of a directory, by file name: `.conflist`, or a single `.conf` or
/// `.json`. `Ok(None)` when there is none at all; an error when there are some and none can be used.
pub fn load_dir(directory: &Path) -> Result<Option<NetworkList>, CniError> {
    let mut files: Vec<PathBuf> = match fs::read_dir(directory) {
        Ok(entries) => entries.flatten().map(|e| e.path()).filter(|p| has_config_name(p)).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(CniError::Config { file: directory.to_owned(), reason: e.to_string() }),
    };
    files.sort();
    let mut first_error = None;
    for file in files {
        match load_file(&file) {
            Ok(network) => {
                if let Some(error) = first_error {
                    say_skipped(&error, &file);
                }
                return Ok(Some(network));
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(None), Err)
}

/// Configurations are read for each pod, so what is wrong with one that another stands in for is said when it
/// is new.
fn say_skipped(error: &CniError, instead: &Path) {
    static SAID: Mutex<String> = Mutex::new(String::new());
    let text = error.to_string();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != text {
        tracing::warn!("{text}; {} is used in its place", instead.display());
        *said = text;
    }
}

fn has_config_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
    !hidden && matches!(extension, "conflist" | "conf" | "json")
}

fn load_file(file: &Path) -> Result<NetworkList, CniError> {
    let bad = |reason: String| CniError::Config { file: file.to_owned(), reason };
    let bytes = fs::read(file).map_err(|e| bad(e.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| bad(format!("not JSON: {e}")))?;
    parse_config(&value, file).map_err(bad)
}

fn parse_config(value: &Value, file: &Path) -> Result<NetworkList, String> {
    let object = value.as_object().ok_or("not a JSON object")?;
    let text = |key: &str| object.get(key).and_then(Value::as_str).filter(|s| !s.is_empty());
    let name = text("name").ok_or("\"name\" is missing")?.to_owned();
    // The oldest version is the one that had no field for it.
    let cni_version = text("cniVersion").unwrap_or("0.1.0").to_owned();
    if !VERSIONS.contains(&cni_version.as_str()) {
        return Err(format!("cniVersion {cni_version:?} is none of {}", VERSIONS.join(", ")));
    }
    let plugins = match object.get("plugins") {
        Some(Value::Array(plugins)) => plugins.clone(),
        Some(_) => return Err("\"plugins\" is not a list".to_owned()),
        None => vec![value.clone()],
    };
    if plugins.is_empty() {
        return Err("\"plugins\" is empty".to_owned());
    }
    if let Some(at) = plugins.iter().position(|p| plugin_type(p).is_empty()) {
        return Err(format!("plugin {} has no \"type\"", at + 1));
    }
    if let Some(plugin) = plugins.iter().find(|p| plugin_type(p).contains('/')) {
        return Err(format!("plugin type {:?} is a path; only a name is allowed", plugin_type(plugin)));
    }
    let disable_check = object.get("disableCheck").and_then(Value::as_bool).unwrap_or(false);
    Ok(NetworkList { name, cni_version, disable_check, plugins, file: Some(file.to_owned()) })
}

/// What plugins with the capability for it get as `runtimeConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeConfig {
    /// Host ports.
    #[serde(default)]
    pub port_mappings: Vec<PortMapping>,
    /// Addresses asked for, in CIDR form.
    #[serde(default)]
    pub ips: Vec<String>,
}

impl RuntimeConfig {
    fn for_plugin(&self, plugin: &Value) -> Option<Value> {
        let mut config = Map::new();
        let can = |name: &str| plugin["capabilities"][name] == json!(true);
        if can("portMappings") && !self.port_mappings.is_empty() {
            config
                .insert("portMappings".into(), self.port_mappings.iter().map(PortMapping::to_cni).collect());
        }
        if can("ips") && !self.ips.is_empty() {
            config.insert("ips".into(), json!(self.ips));
        }
        (!config.is_empty()).then_some(Value::Object(config))
    }
}

/// The container a plugin is run for.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    /// Sandbox id.
    pub container_id: String,
    /// Path of the network namespace; empty when it is gone (DEL only).
    pub netns: String,
    /// `CNI_ARGS`: `KEY=value` pairs.
    pub args: Vec<(String, String)>,
}

/// Runs plugins.
#[derive(Clone, Debug)]
pub struct Client {
    bin_dirs: Vec<PathBuf>,
    limit: Duration,
}

impl Client {
    /// One that searches these directories for plugins, in order.
    pub fn new(bin_dirs: Vec<PathBuf>) -> Self {
        Self { bin_dirs, limit: PLUGIN_TIMEOUT }
    }

    /// Path of a plugin.
    pub fn find(&self, plugin: &str, network: &str) -> Result<PathBuf, CniError> {
        let found = self.bin_dirs.iter().map(|d| d.join(plugin)).find(|p| p.is_file());
        found.ok_or_else(|| CniError::PluginMissing {
            plugin: plugin.to_owned(),
            network: network.to_owned(),
            searched: self.bin_dirs.clone(),
        })
    }

    /// ADD of the whole list; the result of the last plugin.
    pub async fn add(
        &self,
        network: &NetworkList,
        runtime: &RuntimeConfig,
        to: &Attachment,
    ) -> Result<Value, CniError> {
        let mut result = None;
        for plugin in &network.plugins {
            let answer = self.run("ADD", network, plugin, runtime, to, result.as_ref()).await?;
            result = answer.or(result);
        }
        Ok(result.unwrap_or(Value::Null))
    }

    /// DEL of the whole list, last plugin first. One that fails does not keep the others from running (so that
    /// an address is given back whatever happened to a rule); the first error is returned.
    pub async fn del(
        &self,
        network: &NetworkList,
        runtime: &RuntimeConfig,
        to: &Attachment,
        result: Option<&Value>,
    ) -> Result<(), CniError> {
        let mut outcome = Ok(());
        // Plugins before 0.4.0 know no result at DEL.
        let result = result.filter(|_| !network.cni_version.starts_with("0.3") && !old(network));
        for plugin in network.plugins.iter().rev() {
            let done = self.run("DEL", network, plugin, runtime, to, result).await.map(|_| ());
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Runs one plugin of a network; what it answered, if anything.
    pub async fn run(
        &self,
        command: &'static str,
        network: &NetworkList,
        plugin: &Value,
        runtime: &RuntimeConfig,
        to: &Attachment,
        previous: Option<&Value>,
    ) -> Result<Option<Value>, CniError> {
        let name = plugin_type(plugin);
        let binary = self.find(name, &network.name)?;
        let input = config_for(network, plugin, runtime, previous).to_string();
        let call = Call { command, plugin: name, binary: &binary, limit: self.limit };
        call.run(self.environment(command, to), input).await
    }

    fn environment(&self, command: &str, to: &Attachment) -> Vec<(&'static str, String)> {
        let args = to.args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let path = self.bin_dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>();
        vec![
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", to.container_id.clone()),
            ("CNI_NETNS", to.netns.clone()),
            ("CNI_IFNAME", IFNAME.to_owned()),
            ("CNI_ARGS", args.join(";")),
            ("CNI_PATH", path.join(":")),
            ("PATH", search_path()),
        ]
    }
}

fn old(network: &NetworkList) -> bool {
    matches!(network.cni_version.as_str(), "0.1.0" | "0.2.0")
}

fn config_for(
    network: &NetworkList,
    plugin: &Value,
    runtime: &RuntimeConfig,
    previous: Option<&Value>,
) -> Value {
    let mut config = plugin.as_object().cloned().unwrap_or_default();
    config.insert("name".into(), json!(network.name));
    config.insert("cniVersion".into(), json!(network.cni_version));
    if let Some(runtime) = runtime.for_plugin(plugin) {
        config.insert("runtimeConfig".into(), runtime);
    }
    if let Some(previous) = previous {
        config.insert("prevResult".into(), previous.clone());
    }
    Value::Object(config)
}

/// One run of one plugin.
struct Call<'a> {
    command: &'static str,
    plugin: &'a str,
    binary: &'a Path,
    limit: Duration,
}

impl Call<'_> {
    async fn run(&self, env: Vec<(&'static str, String)>, input: String) -> Result<Option<Value>, CniError> {
        let failed =
            |source| CniError::Run { plugin: self.plugin.to_owned(), binary: self.binary.to_owned(), source };
        let mut child = Command::new(self.binary)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Plugins start others (IPAM, iptables); at a timeout all of them must go.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id();
        let stdin = child.stdin.take();
        let work = async {
            if let Some(mut stdin) = stdin {
                // One that does not read its input has its reasons, and its answer says which.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let Ok(output) = timeout(self.limit, work).await else {
            if let Some(pid) = group.and_then(|id| Pid::from_raw(id.cast_signed())) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            return Err(CniError::Timeout {
                plugin: self.plugin.to_owned(),
                binary: self.binary.to_owned(),
                command: self.command,
                limit: self.limit,
            });
        };
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).ok());
        }
        Err(self.error(&output))
    }

    /// The plugin's own words, from its JSON or from whatever it printed.
    fn error(&self, output: &std::process::Output) -> CniError {
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let code = said["code"].as_i64().unwrap_or_else(|| i64::from(output.status.code().unwrap_or(-1)));
        let text = |key: &str| said[key].as_str().map(str::trim).filter(|s| !s.is_empty());
        let message = match (text("msg"), text("details")) {
            (Some(msg), Some(details)) => format!("{msg}: {details}"),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => printed(output),
        };
        CniError::Plugin {
            plugin: self.plugin.to_owned(),
            binary: self.binary.to_owned(),
            command: self.command,
            code,
            message: message.replace('\n', " "),
        }
    }
}

fn printed(output: &std::process::Output) -> String {
    let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let text: String = String::from_utf8_lossy(text).trim().chars().take(300).collect();
    if text.is_empty() { format!("{} without a word", output.status) } else { text }
}

/// Addresses in a result, of any version of the protocol, without their prefix lengths.
pub fn result_ips(result: &Value) -> Vec<IpAddr> {
    let address = |value: &Value| value.as_str()?.split('/').next()?.parse().ok();
    let listed = result["ips"].as_array().into_iter().flatten().filter(|ip| in_pod(result, ip));
    let listed = listed.filter_map(|ip| address(&ip["address"]));
    let old = ["ip4", "ip6"].into_iter().filter_map(|key| address(&result[key]["ip"]));
    listed.chain(old).collect()
}

/// An address may belong to an interface on the host's side; those name no sandbox.
fn in_pod(result: &Value, ip: &Value) -> bool {
    let Some(index) = ip["interface"].as_u64().and_then(|i| usize::try_from(i).ok()) else { return true };
    match result["interfaces"].get(index) {
        Some(interface) => interface["sandbox"].as_str().is_some_and(|s| !s.is_empty()),
        None => true,
    }
}

#[cfg(test)]
mod tests;
