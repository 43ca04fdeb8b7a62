//! The kubelet's credential plugins (`CredentialProviderConfig`): programs that are asked by image name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::matching::matches;
use super::{Credential, Keys, helper};
use crate::settings::parse_duration;
use crate::system::clock::{self, Moment};

/// How long a plugin may take (the kubelet's limit).
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a plugin gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The configuration cannot be used.
    #[error("{path}: {why}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A plugin failed.
    #[error("credential provider {name}: {why}")]
    Plugin {
        /// Its name.
        name: String,
        /// What happened.
        why: String,
    },
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    #[serde(default)]
    default_cache_duration: Option<String>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    #[serde(default)]
    token_attributes: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Default, Deserialize)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// The plugins of one configuration file, and what they answered lately.
#[derive(Debug)]
pub struct Plugins {
    providers: Vec<Provider>,
    dir: PathBuf,
    cache: Mutex<BTreeMap<(String, String), (Moment, Keys)>>,
}

impl Plugins {
    /// Reads the configuration `file`; the programs are in `dir`.
    pub fn load(file: &Path, dir: &Path) -> Result<Self, PluginError> {
        let wrong = |why: String| PluginError::Config { path: file.to_owned(), why };
        let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
        let config: Config = serde_saphyr::from_str(&text)
            .map_err(|e| wrong(e.to_string().lines().next().unwrap_or_default().to_owned()))?;
        if config.kind != "CredentialProviderConfig" {
            return Err(wrong(format!("kind is {:?}, not CredentialProviderConfig", config.kind)));
        }
        for provider in &config.providers {
            if provider.name.contains('/') || matches!(provider.name.as_str(), "" | "." | "..") {
                return Err(wrong(format!("provider name {:?} is not that of a file", provider.name)));
            }
            if provider.match_images.is_empty() {
                return Err(wrong(format!("provider {:?} has no matchImages", provider.name)));
            }
        }
        let (skipped, providers): (Vec<_>, Vec<_>) =
            config.providers.into_iter().partition(|p| p.token_attributes.is_some());
        for provider in skipped {
            tracing::warn!(
                "{}: provider {:?} is not asked: tokenAttributes needs tokens that only an API server gives",
                file.display(),
                provider.name
            );
        }
        Ok(Self { providers, dir: dir.to_owned(), cache: Mutex::default() })
    }

    /// Asks each plugin that is for `image`.
    pub(super) async fn ask(&self, image: &str) -> (Vec<Keys>, Vec<PluginError>) {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for provider in self.providers.iter().filter(|p| p.match_images.iter().any(|m| matches(m, image))) {
            if let Some(keys) = self.cached(provider, image) {
                all.push(keys);
                continue;
            }
            match self.run(provider, image).await {
                Ok(keys) => all.push(keys),
                Err(why) => problems.push(PluginError::Plugin { name: provider.name.clone(), why }),
            }
        }
        (all, problems)
    }

    fn cached(&self, provider: &Provider, image: &str) -> Option<Keys> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, (until, _)| clock::now() < *until);
        let registry = image.split('/').next().unwrap_or_default();
        let keys = [image, registry, ""];
        keys.iter().find_map(|k| cache.get(&(provider.name.clone(), (*k).to_owned()))).map(|(_, k)| k.clone())
    }

    async fn run(&self, provider: &Provider, image: &str) -> Result<Keys, String> {
        let version = match provider.api_version.as_str() {
            "" => "credentialprovider.kubelet.k8s.io/v1",
            given => given,
        };
        let request = serde_json::json!({
            "kind": "CredentialProviderRequest", "apiVersion": version, "image": image,
        });
        let mut command = Command::new(self.dir.join(&provider.name));
        command.args(&provider.args).envs(provider.env.iter().map(|v| (&v.name, &v.value)));
        let (code, output) = helper::run(command, request.to_string().as_bytes(), PATIENCE).await?;
        if code != 0 {
            return Err(format!("it ended with {code}"));
        }
        let answer: Response = serde_json::from_slice(&output)
            .map_err(|_| "its answer is not a CredentialProviderResponse".to_owned())?;
        let mut keys = Keys::default();
        for (pattern, auth) in answer.auth.unwrap_or_default() {
            let credential =
                Credential { username: auth.username, password: auth.password, ..Credential::default() };
            keys.add(pattern, credential);
        }
        let duration = answer.cache_duration.or_else(|| provider.default_cache_duration.clone());
        let duration = duration.and_then(|d| parse_duration(&d)).unwrap_or_default();
        let key = match answer.cache_key_type.as_str() {
            "Global" => String::new(),
            "Registry" => image.split('/').next().unwrap_or_default().to_owned(),
            _ => image.to_owned(),
        };
        if !duration.is_zero() {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.insert((provider.name.clone(), key), (clock::now() + duration, keys.clone()));
        }
        Ok(keys)
    }
}
