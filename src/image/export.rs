//! Export: images as an OCI layout in a tar file, which docker, podman, skopeo, ctr and podling read.

use std::io;
use std::path::Path;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::documents::{DOCUMENT_MAX, Descriptor};
use super::store::{Image, ImageError};
use crate::runtime::containerd::{Containerd, RuntimeError};

const BLOCK: usize = 512;

/// Why an image was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It is not here, or not whole.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// A part of it is not in containerd's store, for example since another image had that layer unpacked.
    #[error(
        "image {image} cannot be exported: blob {digest} is not in containerd's store; pull it again after `podling image rm {image}`"
    )]
    Missing {
        /// The image.
        image: String,
        /// What is missing.
        digest: String,
    },
    /// containerd failed.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// The file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes the images of these names into the tar file `path`, for this host's platform. The file appears when
/// it is whole.
pub async fn export(client: &Containerd, images: &[Image], path: &Path) -> Result<(), ExportError> {
    let failed = |source| ExportError::Write { path: path.display().to_string(), source };
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (file, temporary) = tempfile::NamedTempFile::new_in(dir).map_err(failed)?.into_parts();
    let mut out = Archive { file: tokio::fs::File::from_std(file), path };
    out.put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#).await?;
    let mut seen = Vec::new();
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(add(client, &mut out, image, &mut seen).await?);
    }
    // docker before version 25 knows only this list; podman needs it where there are several images.
    let docker: Vec<_> = images.iter().map(docker_entry).collect();
    out.put("manifest.json", serde_json::Value::from(docker).to_string().as_bytes()).await?;
    let index = json!({"schemaVersion": 2, "mediaType": super::documents::OCI_INDEX, "manifests": manifests});
    out.put("index.json", index.to_string().as_bytes()).await?;
    out.end().await?;
    temporary.persist(path).map_err(|e| failed(e.error))
}

/// Adds an image's blobs; what is left is its entry of the index.
async fn add(
    client: &Containerd,
    out: &mut Archive<'_>,
    image: &Image,
    seen: &mut Vec<String>,
) -> Result<serde_json::Value, ExportError> {
    let manifest = image.manifest();
    let parts = manifest.layers.iter().chain([&manifest.config]);
    let own = Descriptor {
        digest: image.manifest_digest.clone(),
        size: client.blob_size(&image.manifest_digest).await?.unwrap_or_default(),
        ..Descriptor::default()
    };
    for blob in parts.chain([&own]) {
        if seen.contains(&blob.digest) {
            continue;
        }
        seen.push(blob.digest.clone());
        let missing = || ExportError::Missing { image: image.name.clone(), digest: blob.digest.clone() };
        let size = client.blob_size(&blob.digest).await?.ok_or_else(missing)?;
        out.begin(&format!("blobs/{}", blob.digest.replacen(':', "/", 1)), size).await?;
        let mut stream = client.stream_blob(&blob.digest).await?;
        let mut sent = 0;
        while let Some(part) = stream.next().await? {
            sent += part.len() as u64;
            out.write(&part).await?;
        }
        if sent != size {
            return Err(missing());
        }
        out.pad(size).await?;
    }
    let data = client.read_blob(&image.manifest_digest, DOCUMENT_MAX).await?.unwrap_or_default();
    let value: serde_json::Value = serde_json::from_slice(&data).unwrap_or_default();
    let media_type = value["mediaType"].as_str().unwrap_or(super::documents::OCI_MANIFEST);
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    Ok(json!({
        "mediaType": media_type, "digest": own.digest, "size": own.size,
        "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag},
    }))
}

/// An image as `docker save` lists it; one named by digest has no name there.
fn docker_entry(image: &Image) -> serde_json::Value {
    let path = |digest: &str| format!("blobs/{}", digest.replacen(':', "/", 1));
    let layers: Vec<_> = image.manifest().layers.iter().map(|l| path(&l.digest)).collect();
    let tags: Vec<_> = Some(&image.name).filter(|n| !n.contains('@')).into_iter().collect();
    json!({"Config": path(&image.config_digest), "RepoTags": tags, "Layers": layers})
}

struct Archive<'a> {
    file: tokio::fs::File,
    path: &'a Path,
}

impl Archive<'_> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        let written = self.file.write_all(bytes).await;
        written.map_err(|source| ExportError::Write { path: self.path.display().to_string(), source })
    }

    async fn begin(&mut self, name: &str, size: u64) -> Result<(), ExportError> {
        let mut header = tar::Header::new_ustar();
        let set = header.set_path(name);
        set.map_err(|source| ExportError::Write { path: self.path.display().to_string(), source })?;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        self.write(header.as_bytes()).await
    }

    async fn pad(&mut self, size: u64) -> Result<(), ExportError> {
        let rest = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
        self.write(&[0; BLOCK][..rest]).await
    }

    async fn put(&mut self, name: &str, data: &[u8]) -> Result<(), ExportError> {
        self.begin(name, data.len() as u64).await?;
        self.write(data).await?;
        self.pad(data.len() as u64).await
    }

    async fn end(&mut self) -> Result<(), ExportError> {
        self.write(&[0; 2 * BLOCK]).await?;
        let synced = self.file.sync_all().await;
        synced.map_err(|source| ExportError::Write { path: self.path.display().to_string(), source })
    }
}
