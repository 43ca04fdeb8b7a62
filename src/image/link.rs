//! The labels by which containerd's garbage collector goes from an image's name to all that belongs to it.

use std::collections::HashMap;

use super::documents::Manifest;
use crate::runtime::containerd::{Containerd, RuntimeError};

/// Ties each document of `path` (from what the name points at down to the manifest, both included) to the
/// next, and the manifest to configuration and layers.
pub(super) async fn link(
    client: &Containerd,
    path: &[String],
    manifest: &Manifest,
) -> Result<(), RuntimeError> {
    for (parent, child) in path.windows(2).map(|w| (&w[0], &w[1])) {
        let label = ("containerd.io/gc.ref.content.m.0".to_owned(), child.clone());
        client.label_blob(parent, HashMap::from([label])).await?;
    }
    let Some(last) = path.last() else { return Ok(()) };
    let mut labels: HashMap<String, String> = manifest
        .layers
        .iter()
        .enumerate()
        .map(|(n, layer)| (format!("containerd.io/gc.ref.content.l.{n}"), layer.digest.clone()))
        .collect();
    labels.insert("containerd.io/gc.ref.content.config".to_owned(), manifest.config.digest.clone());
    client.label_blob(last, labels).await
}
