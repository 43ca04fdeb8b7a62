//! The JSON documents of images: indexes, manifests, and what `docker save` writes. Lenient on purpose:
//! what registries and tools wrote over ten years must read.

use std::collections::BTreeMap;

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::platform;

/// Largest JSON document that is read into memory, in bytes (registries allow manifests of 4 MiB).
pub(super) const DOCUMENT_MAX: u64 = 8 << 20;

pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A pointer to a blob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
}

impl Descriptor {
    pub(super) fn is_index(&self) -> bool {
        self.media_type == OCI_INDEX || self.media_type == DOCKER_LIST
    }

    pub(super) fn is_manifest(&self) -> bool {
        self.media_type == OCI_MANIFEST || self.media_type == DOCKER_MANIFEST
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

impl From<&Descriptor> for containerd_client::types::Descriptor {
    fn from(d: &Descriptor) -> Self {
        Self {
            media_type: d.media_type.clone(),
            digest: d.digest.clone(),
            size: d.size as i64,
            annotations: Default::default(),
        }
    }
}

/// What an image was built for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) variant: Option<String>,
}

/// An index, or docker's manifest list.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
}

/// One image in the `manifest.json` of `docker save`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(super) layers: Vec<String>,
}

/// The digest of a blob.
pub(super) fn digest_of(data: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(data)))
}

/// Reads an image's configuration. What old builders left out or wrote as null gets the value it stands
/// for, so that the strict type takes it.
pub(super) fn parse_config(data: &[u8]) -> Result<ImageConfiguration, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(data)?;
    if let Some(top) = value.as_object_mut() {
        top.retain(|_, v| !v.is_null());
        top.entry("architecture").or_insert_with(|| platform::host_architecture().into());
        top.entry("os").or_insert_with(|| "linux".into());
        if let Some(config) = top.get_mut("config").and_then(Value::as_object_mut) {
            config.retain(|_, v| !v.is_null());
        }
        let rootfs = top.entry("rootfs").or_insert_with(|| Value::Object(Default::default()));
        if let Some(rootfs) = rootfs.as_object_mut() {
            rootfs.retain(|_, v| !v.is_null());
            rootfs.entry("type").or_insert_with(|| "layers".into());
            rootfs.entry("diff_ids").or_insert_with(|| Value::Array(vec![]));
        }
    }
    serde_json::from_value(value)
}

/// The name of the snapshot that holds all layers of `diff_ids`: each step hashes the name so far and the
/// next layer. Empty without layers.
pub(super) fn chain_ids(diff_ids: &[String]) -> Vec<String> {
    let mut chain: Vec<String> = Vec::with_capacity(diff_ids.len());
    for diff in diff_ids {
        let next = match chain.last() {
            None => diff.clone(),
            Some(parent) => digest_of(format!("{parent} {diff}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_hash_each_layer_onto_those_below() {
        let diffs = ["sha256:a".to_owned(), "sha256:b".to_owned()];
        let chain = chain_ids(&diffs);
        assert_eq!(chain[0], "sha256:a");
        assert_eq!(chain[1], digest_of(b"sha256:a sha256:b"));
        assert!(chain_ids(&[]).is_empty());
    }

    #[test]
    fn a_configuration_with_nulls_and_gaps_reads() {
        let config = parse_config(
            br#"{"history": null, "config": {"Env": null, "Volumes": null, "ExposedPorts": {"80/tcp": {}},
                 "Cmd": ["sh"], "Healthcheck": {"Test": ["NONE"]}, "Labels": null}}"#,
        )
        .unwrap();
        assert!(config.rootfs().diff_ids().is_empty());
        let inner = config.config().clone().unwrap();
        assert_eq!(inner.cmd().clone().unwrap(), ["sh"]);
        assert_eq!(inner.exposed_ports().clone().unwrap(), ["80/tcp"]);
        assert!(parse_config(b"[]").is_err());
    }
}
