//! Finds the images in what an archive held: which names, which build for this host, which blobs.

use std::path::Path;

use serde_json::Value;

use super::archive::ImportError;
use super::documents::{
    DOCUMENT_MAX, Descriptor, DockerImage, Index, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Platform,
    digest_of, parse_config,
};
use super::ingest::{Compression, Ingested};
use super::platform;
use super::reference::ImageRef;
use crate::runtime::containerd::Containerd;

/// An index in an index in an index is more than any tool writes.
const INDEX_DEPTH: usize = 3;

/// One image of an archive, complete in containerd's content store.
#[derive(Clone, Debug)]
pub(super) struct Assembled {
    pub(super) name: ImageRef,
    /// What the name will point at: the manifest, or the index that leads to it.
    pub(super) target: Descriptor,
    /// Digests from the target to the manifest, both included.
    pub(super) path: Vec<String>,
    pub(super) manifest: Manifest,
    pub(super) config_digest: String,
    pub(super) diff_ids: Vec<String>,
}

/// An image, or why it cannot be had.
type Found = Result<Assembled, ImportError>;

/// All images of the archive at `path`. One without a name gets `name`, else that of the file.
pub(super) async fn assemble(
    client: &Containerd,
    path: &Path,
    name: Option<&str>,
    ingested: &Ingested,
) -> Result<Vec<Found>, ImportError> {
    let assembler = Assembler { client, path, name, ingested };
    if assembler.document::<Value>("manifest.json")?.is_some_and(|list| list.is_object()) {
        return Err(ImportError::DirForm { path: path.to_owned() });
    }
    let docker: Option<Vec<DockerImage>> = assembler.document("manifest.json")?;
    let index: Option<Index> = assembler.document("index.json")?;
    // Newer docker writes both; the index may then lack the names.
    match (index, docker) {
        (Some(index), None) => assembler.oci(index).await,
        (Some(index), Some(_)) if index.manifests.iter().any(|d| stated_name(d).is_some()) => {
            assembler.oci(index).await
        }
        (_, Some(images)) => assembler.docker(images).await,
        (None, None) => Err(ImportError::NotAnImage { path: path.to_owned() }),
    }
}

struct Assembler<'a> {
    client: &'a Containerd,
    path: &'a Path,
    name: Option<&'a str>,
    ingested: &'a Ingested,
}

impl Assembler<'_> {
    async fn oci(&self, index: Index) -> Result<Vec<Found>, ImportError> {
        if index.manifests.is_empty() {
            return Err(self.damaged("index.json lists no image"));
        }
        let mut images = Vec::new();
        let mut by_name: Vec<(ImageRef, Vec<Descriptor>)> = Vec::new();
        for descriptor in index.manifests {
            let name = match self.name_of(&descriptor) {
                Ok(name) => name,
                Err(e) => {
                    images.push(Err(e));
                    continue;
                }
            };
            match by_name.iter_mut().find(|(n, _)| *n == name) {
                Some((_, builds)) => builds.push(descriptor),
                None => by_name.push((name, vec![descriptor])),
            }
        }
        for (name, builds) in by_name {
            images.push(self.best_of(name, builds).await);
        }
        Ok(images)
    }

    /// Follows the best of `builds` down to its manifest.
    async fn best_of(&self, name: ImageRef, builds: Vec<Descriptor>) -> Result<Assembled, ImportError> {
        let mut at = self.choose(&name, &builds)?.clone();
        let target = Descriptor { platform: None, annotations: None, ..at.clone() };
        let mut path = vec![at.digest.clone()];
        for _ in 0..INDEX_DEPTH {
            if at.is_manifest() {
                break;
            }
            let data = self.json(&at.digest, &name).await?;
            // A descriptor without media type is what its content is.
            let Ok(index) = serde_json::from_slice::<Index>(&data) else { break };
            if index.manifests.is_empty() && !at.is_index() {
                break;
            }
            at = self.choose(&name, &index.manifests)?.clone();
            path.push(at.digest.clone());
        }
        let data = self.json(&at.digest, &name).await?;
        let manifest: Manifest = serde_json::from_slice(&data)
            .map_err(|e| self.damaged(format!("manifest {} of {name}: {e}", at.digest)))?;
        let config = self.json(&manifest.config.digest, &name).await?;
        let diff_ids = self.check_config(&name, &config, &manifest)?;
        for layer in &manifest.layers {
            self.expect_blob(&layer.digest, &name).await?;
        }
        let config_digest = manifest.config.digest.clone();
        let target = self.with_media_type(target, &manifest, path.len() == 1);
        Ok(Assembled { name, target, path, manifest, config_digest, diff_ids })
    }

    async fn docker(&self, listed: Vec<DockerImage>) -> Result<Vec<Found>, ImportError> {
        if listed.is_empty() {
            return Err(self.damaged("manifest.json lists no image"));
        }
        let mut images = Vec::new();
        for image in listed {
            let mut names = Vec::new();
            for name in self.docker_names(&image) {
                match name {
                    Ok(name) => names.push(name),
                    Err(e) => images.push(Err(e)),
                }
            }
            let Some(first) = names.first() else { continue };
            match self.docker_image(&image, first).await {
                Ok(built) => {
                    images.extend(names.into_iter().map(|name| Ok(Assembled { name, ..built.clone() })))
                }
                Err(e) => images.push(Err(e)),
            }
        }
        Ok(images)
    }

    /// An image of a `docker save` archive has no manifest of the kind containerd needs; it is built.
    async fn docker_image(&self, image: &DockerImage, name: &ImageRef) -> Found {
        let (config_digest, config) = self.docker_config(image, name).await?;
        let mut layers = Vec::new();
        let mut plain = Vec::new();
        for layer in &image.layers {
            let stored = self
                .ingested
                .blob(layer)
                .ok_or_else(|| self.damaged(format!("{layer} of {name} is missing")))?;
            plain.push((stored.compression == Compression::None).then_some(&stored.digest));
            layers.push(Descriptor {
                media_type: format!("{OCI_LAYER}{}", stored.compression.suffix()),
                digest: stored.digest.clone(),
                size: stored.size,
                ..Default::default()
            });
        }
        let config_descriptor = Descriptor {
            media_type: OCI_CONFIG.to_owned(),
            digest: config_digest.clone(),
            size: config.len() as u64,
            ..Default::default()
        };
        let media_type = OCI_MANIFEST.to_owned();
        let manifest = Manifest { schema_version: 2, media_type, config: config_descriptor, layers };
        let diff_ids = self.check_config(name, &config, &manifest)?;
        // One that is unpacked already would not be looked into again.
        for (n, (digest, diff_id)) in plain.iter().zip(&diff_ids).enumerate() {
            if digest.is_some_and(|d| d != diff_id) {
                return Err(self.damaged(format!(
                    "{}: its content is not what the configuration of {name} says",
                    image.layers[n]
                )));
            }
        }
        let data = serde_json::to_vec(&manifest).map_err(|e| self.damaged(e))?;
        let digest = digest_of(&data);
        let store = self.client.write_blob(&digest, &data).await;
        store.map_err(|e| ImportError::runtime(self.path, e))?;
        let target = Descriptor {
            media_type: OCI_MANIFEST.to_owned(),
            digest: digest.clone(),
            size: data.len() as u64,
            ..Default::default()
        };
        Ok(Assembled { name: name.clone(), target, path: vec![digest], manifest, config_digest, diff_ids })
    }

    /// The configuration of a docker image, which older docker keeps beside and newer among the blobs.
    async fn docker_config(
        &self,
        image: &DockerImage,
        name: &ImageRef,
    ) -> Result<(String, Vec<u8>), ImportError> {
        if let Some(data) = self.ingested.document(&image.config) {
            let digest = digest_of(data);
            let store = self.client.write_blob(&digest, data).await;
            store.map_err(|e| ImportError::runtime(self.path, e))?;
            return Ok((digest, data.to_vec()));
        }
        let stored = self.ingested.blob(&image.config);
        let stored = stored.ok_or_else(|| self.damaged(format!("{} of {name} is missing", image.config)))?;
        Ok((stored.digest.clone(), self.json(&stored.digest, name).await?))
    }

    fn docker_names(&self, image: &DockerImage) -> Vec<Result<ImageRef, ImportError>> {
        let tags = image.repo_tags.iter().flatten();
        let names: Vec<_> = tags.map(|tag| self.parse_name(tag)).collect();
        if names.is_empty() { vec![self.parse_name(&self.nameless(None))] } else { names }
    }

    /// Checks that the image is for this host and that layers and configuration agree.
    fn check_config(
        &self,
        name: &ImageRef,
        data: &[u8],
        manifest: &Manifest,
    ) -> Result<Vec<String>, ImportError> {
        let config = parse_config(data)
            .map_err(|e| self.damaged(format!("configuration {} of {name}: {e}", manifest.config.digest)))?;
        let built_for = Descriptor {
            platform: Some(Platform {
                os: config.os().to_string(),
                architecture: config.architecture().to_string(),
                variant: config.variant().clone(),
            }),
            ..Default::default()
        };
        self.choose(name, std::slice::from_ref(&built_for))?;
        let diff_ids = config.rootfs().diff_ids().clone();
        if diff_ids.len() != manifest.layers.len() {
            return Err(self.damaged(format!(
                "{name} has {} layers but its configuration lists {}",
                manifest.layers.len(),
                diff_ids.len()
            )));
        }
        Ok(diff_ids)
    }

    fn choose<'d>(&self, name: &ImageRef, builds: &'d [Descriptor]) -> Result<&'d Descriptor, ImportError> {
        let host = platform::host_architecture();
        platform::choose(builds, host).ok_or_else(|| ImportError::Platform {
            path: self.path.to_owned(),
            image: name.to_string(),
            want: format!("linux/{host}"),
            have: platform::names(builds),
        })
    }

    /// A target must have a media type for containerd to follow it.
    fn with_media_type(&self, mut target: Descriptor, manifest: &Manifest, is_manifest: bool) -> Descriptor {
        if target.media_type.is_empty() {
            target.media_type = match is_manifest {
                true if manifest.media_type.is_empty() => OCI_MANIFEST.to_owned(),
                true => manifest.media_type.clone(),
                false => super::documents::OCI_INDEX.to_owned(),
            };
        }
        target
    }

    fn name_of(&self, descriptor: &Descriptor) -> Result<ImageRef, ImportError> {
        match stated_name(descriptor) {
            // By the specification this is a tag; by custom it is often a whole name.
            Some(tag) if !tag.contains(['/', ':', '@']) => self.parse_name(&self.nameless(Some(tag))),
            Some(name) => self.parse_name(name),
            None => self.parse_name(&self.nameless(None)),
        }
    }

    /// The name of an image of which no more than a tag is said.
    fn nameless(&self, tag: Option<&str>) -> String {
        let name = self.name.map_or_else(|| self.stem(), str::to_owned);
        let has_tag = name.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
        match tag {
            Some(tag) if !has_tag => format!("{name}:{tag}"),
            _ => name,
        }
    }

    fn parse_name(&self, name: &str) -> Result<ImageRef, ImportError> {
        ImageRef::parse(name).map_err(|source| ImportError::Name { path: self.path.to_owned(), source })
    }

    /// The file's name without its endings: the name of an image that has no other.
    fn stem(&self) -> String {
        let name = self.path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let known = [".gz", ".zst", ".tgz", ".tar", ".oci", ".docker"];
        let mut stem = name.as_str();
        while let Some(shorter) = known.iter().find_map(|end| stem.strip_suffix(end)) {
            stem = shorter;
        }
        stem.to_owned()
    }

    fn document<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ImportError> {
        let Some(data) = self.ingested.document(name) else { return Ok(None) };
        serde_json::from_slice(data).map(Some).map_err(|e| self.damaged(format!("{name}: {e}")))
    }

    async fn json(&self, digest: &str, name: &ImageRef) -> Result<Vec<u8>, ImportError> {
        let failed = |e| ImportError::runtime(self.path, e);
        self.client.hold("content", digest).await.map_err(failed)?;
        let data = self.client.read_blob(digest, DOCUMENT_MAX).await.map_err(failed)?;
        data.ok_or_else(|| self.damaged(format!("blob {digest} of {name} is missing")))
    }

    async fn expect_blob(&self, digest: &str, name: &ImageRef) -> Result<(), ImportError> {
        let failed = |e| ImportError::runtime(self.path, e);
        // It may be there from an earlier import only, with nothing to keep it.
        self.client.hold("content", digest).await.map_err(failed)?;
        match self.client.blob_size(digest).await.map_err(failed)? {
            Some(_) => Ok(()),
            None => Err(self.damaged(format!("blob {digest} of {name} is missing"))),
        }
    }

    fn damaged(&self, what: impl ToString) -> ImportError {
        ImportError::Damaged { path: self.path.to_owned(), what: what.to_string() }
    }
}

/// The name that an index gives an image.
fn stated_name(descriptor: &Descriptor) -> Option<&str> {
    descriptor
        .annotation("io.containerd.image.name")
        .or_else(|| descriptor.annotation("org.opencontainers.image.ref.name"))
        .filter(|name| !name.is_empty())
}
