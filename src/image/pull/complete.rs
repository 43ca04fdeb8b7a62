//! Fetching what a pull left out: the archives of layers that were unpacked already for another image, whose
//! archive of the same layer may be packed in another way.

use std::sync::Arc;

use super::error::PullError;
use super::job::Setup;
use super::progress::Progress;
use super::puller::Puller;
use crate::image::documents::Descriptor;
use crate::image::reference::ImageRef;
use crate::image::store::Image;
use crate::registry::Repository;
use crate::registry::secrets::{Keyring, Keys};
use crate::runtime::containerd::RuntimeError;

impl Puller {
    /// Has the archives of all layers of `image` in containerd's store. Asks no registry when they are there.
    pub async fn complete(&self, image: &Image, keys: &[Keys]) -> Result<(), PullError> {
        let setup = self.setup();
        let missing = missing(setup, image).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let lease = setup.ctd.lease("complete").await?;
        let result = fetch(setup, lease.client(), image, self.keyring(keys), &missing).await;
        // The manifest names its layers by label, so that they stay without the lease.
        if let Err(e) = lease.release().await {
            tracing::debug!("{e}; it ends by itself within an hour");
        }
        result
    }
}

async fn missing(setup: &Setup, image: &Image) -> Result<Vec<Descriptor>, RuntimeError> {
    let mut missing = Vec::new();
    for layer in &image.manifest().layers {
        if setup.ctd.blob_size(&layer.digest).await?.is_none() {
            missing.push(layer.clone());
        }
    }
    Ok(missing)
}

async fn fetch(
    setup: &Setup,
    ctd: &crate::runtime::containerd::Containerd,
    image: &Image,
    keys: Keyring,
    layers: &[Descriptor],
) -> Result<(), PullError> {
    let reference = ImageRef::parse(&image.name).map_err(|e| PullError::NotAnImage(e.to_string()))?;
    let repository =
        Repository { registry: reference.registry().to_owned(), path: reference.path().to_owned() };
    let client = Arc::new(setup.source.client(repository, keys)?);
    for layer in layers {
        setup.blobs.fetch(ctd, &client, layer, &Progress::default()).await?;
    }
    Ok(())
}
