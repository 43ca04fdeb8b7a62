//! A container's own variables: `envFrom` and `env`, with values from ConfigMaps, Secrets, the pod itself
//! and files of its volumes.
//!
//! `envFrom` comes first, later sources over earlier ones; `env` over all of them, in the order written, each
//! value seeing what stands before it. Values are never logged, and messages never show one.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod};

use super::downward::{self, DownwardError, DownwardFacts};
use super::env_file::{self, EnvFileError};
use super::spec::expand;
use super::{Runtime, StartError, StartOrder};
use crate::objects::{DataObject, ObjectKind, Objects};
use crate::store::SandboxRecord;
use crate::volume::PreparedVolume;

/// All that the variables depend on.
pub struct EnvInput<'a> {
    /// The pod, with defaults.
    pub pod: &'a Pod,
    /// One of its containers.
    pub container: &'a Container,
    /// What the pod may ask about itself.
    pub facts: &'a DownwardFacts,
    /// Where ConfigMaps and Secrets are.
    pub objects: &'a Objects,
    /// Where a volume of the pod is on the host.
    pub volume: &'a dyn Fn(&str) -> Option<PathBuf>,
}

/// A variable that has no value yet; the container waits for it.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// A ConfigMap or Secret that is not there.
    #[error(
        "{} \"{name}\" not found; the container starts when a {} {namespace}/{name} appears in the manifest directories (`podling get pods` names the files that were refused)",
        kind.resource(), kind.as_str()
    )]
    NoObject {
        /// Which of the two.
        kind: ObjectKind,
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A key that it does not have.
    #[error("couldn't find key {key} in {} {namespace}/{name}", kind.as_str())]
    NoKey {
        /// Of which of the two.
        kind: ObjectKind,
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A value that is no text.
    #[error(
        "key {key} in {} {namespace}/{name} is not text (UTF-8 without zero bytes), so it cannot be a variable; mount it as a file",
        kind.as_str()
    )]
    NotText {
        /// Of which of the two.
        kind: ObjectKind,
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A field of the pod.
    #[error("env {variable}: {source}")]
    Downward {
        /// The variable.
        variable: String,
        /// Why.
        source: DownwardError,
    },
    /// A file of a volume.
    #[error("env {variable}: file {path:?} in volume {volume}: {source}")]
    File {
        /// The variable.
        variable: String,
        /// The volume.
        volume: String,
        /// The file in it.
        path: String,
        /// Why.
        source: EnvFileError,
    },
}

/// The variables in order: each name once, where it first stood, with the value that counts.
///
/// # Errors
/// When a value that is not optional is missing.
pub fn environment(input: &EnvInput<'_>) -> Result<Vec<(String, String)>, EnvError> {
    let mut all = Variables::default();
    for source in input.container.env_from.iter().flatten() {
        from_object(input, source, &mut all)?;
    }
    for variable in input.container.env.iter().flatten() {
        let text = variable.value.as_deref().unwrap_or_default();
        let value = match &variable.value_from {
            Some(source) if text.is_empty() => from_source(input, &variable.name, source)?,
            _ => Some(expand(text, |name| all.get(name))),
        };
        // An optional value that is missing defines nothing.
        if let Some(value) = value {
            all.set(&variable.name, value);
        }
    }
    Ok(all.0)
}

#[derive(Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

/// All keys of a ConfigMap or Secret.
fn from_object(input: &EnvInput<'_>, source: &EnvFromSource, all: &mut Variables) -> Result<(), EnvError> {
    let (kind, name, optional) = match (&source.config_map_ref, &source.secret_ref) {
        (Some(map), _) => (ObjectKind::ConfigMap, &map.name, map.optional),
        (None, Some(secret)) => (ObjectKind::Secret, &secret.name, secret.optional),
        (None, None) => return Ok(()),
    };
    let Some(object) = find(input, kind, name, optional)? else { return Ok(()) };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    for (key, value) in object.texts() {
        let name = format!("{prefix}{key}");
        all.set(&name, text(&object, key, value)?);
    }
    Ok(())
}

fn from_source(
    input: &EnvInput<'_>,
    variable: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, EnvError> {
    let downward = |source| EnvError::Downward { variable: variable.to_owned(), source };
    if let Some(from) = &source.config_map_key_ref {
        return from_key(input, ObjectKind::ConfigMap, &from.name, &from.key, from.optional);
    }
    if let Some(from) = &source.secret_key_ref {
        return from_key(input, ObjectKind::Secret, &from.name, &from.key, from.optional);
    }
    if let Some(field) = &source.field_ref {
        return downward::field_ref(input.pod, input.facts, &field.field_path).map(Some).map_err(downward);
    }
    if let Some(selector) = &source.resource_field_ref {
        let value = downward::resource_field_ref(input.pod, Some(input.container), input.facts, selector);
        return value.map(Some).map_err(downward);
    }
    match &source.file_key_ref {
        Some(selector) => from_file(input, variable, selector),
        None => Ok(Some(String::new())),
    }
}

fn from_key(
    input: &EnvInput<'_>,
    kind: ObjectKind,
    name: &str,
    key: &str,
    optional: Option<bool>,
) -> Result<Option<String>, EnvError> {
    let Some(object) = find(input, kind, name, optional)? else { return Ok(None) };
    match object.texts().find(|(k, _)| *k == key) {
        Some((_, value)) => text(&object, key, value).map(Some),
        None if optional == Some(true) => Ok(None),
        None => Err(EnvError::NoKey {
            kind,
            namespace: object.key.namespace.clone(),
            name: name.to_owned(),
            key: key.to_owned(),
        }),
    }
}

fn find(
    input: &EnvInput<'_>,
    kind: ObjectKind,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<std::sync::Arc<DataObject>>, EnvError> {
    let namespace = input.pod.metadata.namespace.as_deref().unwrap_or_default();
    match input.objects.get(kind, namespace, name) {
        None if optional != Some(true) => {
            Err(EnvError::NoObject { kind, namespace: namespace.to_owned(), name: name.to_owned() })
        }
        found => Ok(found),
    }
}

fn text(object: &DataObject, key: &str, value: &[u8]) -> Result<String, EnvError> {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.contains('\0'));
    text.map(str::to_owned).ok_or_else(|| EnvError::NotText {
        kind: object.key.kind,
        namespace: object.key.namespace.clone(),
        name: object.key.name.clone(),
        key: key.to_owned(),
    })
}

fn from_file(
    input: &EnvInput<'_>,
    variable: &str,
    selector: &FileKeySelector,
) -> Result<Option<String>, EnvError> {
    let failed = |source| EnvError::File {
        variable: variable.to_owned(),
        volume: selector.volume_name.clone(),
        path: selector.path.clone(),
        source,
    };
    let optional = selector.optional == Some(true);
    let dir = (input.volume)(&selector.volume_name).ok_or_else(|| failed(EnvFileError::NoVolume))?;
    let text = match env_file::read(&dir, &selector.path) {
        Ok(text) => text,
        Err(EnvFileError::Io(e)) if optional && e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    // A kubelet takes a key without a value for one that is not there.
    match env_file::value(&text, &selector.key).map_err(failed)?.filter(|value| !value.is_empty()) {
        None if !optional => Err(failed(EnvFileError::NoKey(selector.key.clone()))),
        value => Ok(value),
    }
}

impl Runtime {
    /// The container's own variables. One that has no value yet leaves the container waiting.
    pub(super) fn environment(
        &self,
        order: &StartOrder<'_>,
        container: &Container,
        volumes: &BTreeMap<String, PreparedVolume>,
    ) -> Result<Vec<(String, String)>, StartError> {
        let input = EnvInput {
            pod: &order.manifest.pod,
            container,
            facts: &self.downward_facts(order.uid, order.sandbox),
            objects: &self.inner.objects,
            volume: &|name| volumes.get(name).map(|v| v.host_path.clone()),
        };
        tokio::task::block_in_place(|| environment(&input)).map_err(|e| StartError::config(e.to_string()))
    }

    /// What a container's variables lack at present, as far as can be told while nothing is started: files of
    /// volumes are not looked at.
    pub fn missing_variable(
        &self,
        pod: &Pod,
        uid: &str,
        sandbox: &SandboxRecord,
        container: &Container,
    ) -> Option<EnvError> {
        let facts = self.downward_facts(uid, sandbox);
        let objects = &self.inner.objects;
        match environment(&EnvInput { pod, container, facts: &facts, objects, volume: &|_| None }) {
            Ok(_) | Err(EnvError::File { .. }) => None,
            Err(e) => Some(e),
        }
    }
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
