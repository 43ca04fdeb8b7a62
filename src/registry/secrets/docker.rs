//! docker's `config.json` and the older `.dockercfg`, as files and in Secrets.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use super::helper;
use super::{Credential, Keys};

/// Largest configuration file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
    #[serde(default)]
    registrytoken: Option<String>,
}

/// Why a Secret holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It has another type, or lacks its key.
    #[error(
        "it has neither .dockerconfigjson nor .dockercfg; make it with type kubernetes.io/dockerconfigjson"
    )]
    Kind,
    /// It cannot be read.
    #[error("{key} is not what docker writes: {why}")]
    Content {
        /// The key of the Secret.
        key: &'static str,
        /// What is wrong, without the content.
        why: String,
    },
}

/// The credentials in a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`.
pub fn of_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Keys, SecretError> {
    let wrong = |key, why: String| SecretError::Content { key, why };
    if let Some(bytes) = data.get(".dockerconfigjson") {
        let key = ".dockerconfigjson";
        let config: Config = serde_json::from_slice(bytes).map_err(|e| wrong(key, place(&e)))?;
        return keys(config.auths.unwrap_or_default()).map_err(|why| wrong(key, why));
    }
    let Some(bytes) = data.get(".dockercfg") else { return Err(SecretError::Kind) };
    let auths = serde_json::from_slice(bytes).map_err(|e| wrong(".dockercfg", place(&e)))?;
    keys(auths).map_err(|why| wrong(".dockercfg", why))
}

/// serde's message may quote what it read, which here are passwords.
fn place(e: &serde_json::Error) -> String {
    format!("it is not the expected JSON at line {}, column {}", e.line(), e.column())
}

/// The credentials of a file, those of its helpers for `hosts` included, and what went wrong; none when there is no
/// such file. One entry that cannot be used, or a helper that fails, takes nothing from the others.
pub(super) async fn of_file(path: &Path, hosts: &[&str]) -> (Keys, Vec<String>) {
    let mut problems = Vec::new();
    let mut found = Keys::default();
    let config = match config(path) {
        Ok(Some(config)) => config,
        Ok(None) => return (found, problems),
        Err(why) => return (found, vec![format!("{}: {why}", path.display())]),
    };
    for (server, entry) in config.auths.unwrap_or_default() {
        let host = bare(&server);
        match entry.credential() {
            Ok(credential) => found.add(server, credential),
            Err(why) if hosts.contains(&host) => {
                problems.push(format!("{}: auths[{server:?}]: {why}", path.display()));
            }
            // Of no concern here.
            Err(_) => {}
        }
    }
    let helpers = config.cred_helpers.unwrap_or_default();
    for host in hosts {
        let own = helpers.iter().find(|(key, _)| bare(key) == *host);
        let Some((server, helper)) = own.map(|(k, h)| (k.clone(), h)).or_else(|| {
            let server = if *host == "index.docker.io" { "https://index.docker.io/v1/" } else { host };
            config.creds_store.as_ref().filter(|s| !s.is_empty()).map(|s| (server.to_owned(), s))
        }) else {
            continue;
        };
        match helper::get(helper, &server).await {
            Ok(Some(credential)) => found.add((*host).to_owned(), credential),
            Ok(None) => {}
            Err(why) => problems.push(format!("{}: {why}", path.display())),
        }
    }
    (found, problems)
}

fn config(path: &Path) -> Result<Option<Config>, String> {
    let text = match read(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e.to_string()),
    };
    // The older file is the inner table alone.
    let old = path.file_name().is_some_and(|n| n == ".dockercfg");
    let config = match old {
        true => serde_json::from_slice(&text).map(|auths| Config { auths, ..Config::default() }),
        false => serde_json::from_slice::<Config>(&text),
    };
    config.map(Some).map_err(|e| place(&e))
}

fn bare(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.split('/').next().unwrap_or(key)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let size = std::fs::metadata(path)?.len();
    if size > FILE_MAX {
        return Err(io::Error::other(format!("it is {size} bytes long, which no configuration is")));
    }
    std::fs::read(path)
}

fn keys(auths: BTreeMap<String, Entry>) -> Result<Keys, String> {
    let mut keys = Keys::default();
    for (server, entry) in auths {
        let credential = entry.credential().map_err(|why| format!("auths[{server:?}]: {why}"))?;
        keys.add(server, credential);
    }
    Ok(keys)
}

impl Entry {
    fn credential(self) -> Result<Credential, &'static str> {
        let mut credential = Credential {
            username: self.username.unwrap_or_default(),
            password: self.password.unwrap_or_default(),
            identity_token: self.identitytoken.unwrap_or_default(),
            registry_token: self.registrytoken.unwrap_or_default(),
        };
        if let Some(auth) = self.auth.filter(|a| !a.is_empty()) {
            let auth = auth.trim();
            let bytes = STANDARD.decode(auth).or_else(|_| STANDARD_NO_PAD.decode(auth));
            let text = bytes.ok().and_then(|b| String::from_utf8(b).ok());
            let text = text.ok_or("auth is not base64")?;
            let (name, password) = text.split_once(':').ok_or("auth is not base64 of name:password")?;
            credential.username = name.to_owned();
            credential.password = password.trim_end_matches('\0').to_owned();
        }
        Ok(credential)
    }
}
