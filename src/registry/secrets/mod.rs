//! Credentials: found in docker's configuration files, in Secrets, by helpers and by plugins.

mod docker;
mod helper;
mod matching;
mod plugin;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use docker::{SecretError, of_secret};
pub use plugin::{PluginError, Plugins};

use matching::matches;

/// Who to be at a registry. Its `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credential {
    /// Name.
    pub username: String,
    /// Password.
    pub password: String,
    /// OAuth2 refresh token, instead of the two.
    pub identity_token: String,
    /// Bearer token to be shown as it is.
    pub registry_token: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.username)
    }
}

impl Credential {
    pub(super) fn is_empty(&self) -> bool {
        self.username.is_empty() && self.identity_token.is_empty() && self.registry_token.is_empty()
    }

    /// Texts that must stand in no message.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        [&self.password, &self.identity_token, &self.registry_token]
            .into_iter()
            .map(String::as_str)
            .filter(|s| s.len() > 3)
    }
}

/// Credentials by the images they are for, the most specific first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    entries: Vec<(String, Credential)>,
}

impl Keys {
    fn add(&mut self, pattern: String, credential: Credential) {
        if !credential.is_empty() {
            self.entries.push((pattern, credential));
            // The kubelet's order: of two that match, the longer or later in the alphabet counts first.
            self.entries.sort_by(|a, b| b.0.cmp(&a.0));
        }
    }

    fn of<'a>(&'a self, image: &'a str) -> impl Iterator<Item = &'a Credential> {
        self.entries.iter().filter(move |(pattern, _)| matches(pattern, image)).map(|(_, c)| c)
    }
}

/// Where credentials come from, for one pull.
#[derive(Clone, Default)]
pub struct Keyring {
    /// Of the pod's `imagePullSecrets`; tried first.
    pub pull_secrets: Vec<Keys>,
    /// docker configuration files, those that exist.
    pub files: Vec<PathBuf>,
    /// The kubelet's credential plugins.
    pub plugins: Option<Arc<Plugins>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} pull secrets, {:?})", self.pull_secrets.len(), self.files)
    }
}

/// Docker Hub's names in configuration files.
const HUB_NAMES: [&str; 3] = ["index.docker.io", "docker.io", "registry-1.docker.io"];

impl Keyring {
    /// Credentials for `repository` at the server `host`, the best first, and what went wrong in looking.
    /// Files are read anew each time, and helpers asked.
    pub async fn lookup(&self, host: &str, repository: &str) -> (Vec<Credential>, Vec<String>) {
        let hosts: Vec<&str> = if HUB_NAMES.contains(&host) { HUB_NAMES.to_vec() } else { vec![host] };
        let images: Vec<String> = hosts.iter().map(|h| format!("{h}/{repository}")).collect();
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let mut take = |c: &Credential| {
            if !found.contains(c) {
                found.push(c.clone());
            }
        };
        for keys in &self.pull_secrets {
            images.iter().for_each(|image| keys.of(image).for_each(&mut take));
        }
        for path in &self.files {
            let (keys, wrong) = docker::of_file(path, &hosts).await;
            images.iter().for_each(|image| keys.of(image).for_each(&mut take));
            problems.extend(wrong);
        }
        if let Some(plugins) = &self.plugins {
            // The name that an image of Docker Hub has, by which a kubelet asks.
            let image = if hosts.len() > 1 { format!("docker.io/{repository}") } else { images[0].clone() };
            let (keys, wrong) = plugins.ask(&image).await;
            keys.iter().for_each(|keys| keys.of(&image).for_each(&mut take));
            problems.extend(wrong.into_iter().map(|e| e.to_string()));
        }
        (found, problems)
    }
}

#[cfg(test)]
mod tests;
