//! The images that containerd has.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use oci_spec::image::ImageConfiguration;

use super::documents::{DOCUMENT_MAX, Descriptor, Index, Manifest, chain_ids, parse_config};
use super::pull::PullError;
use super::reference::{ImageRef, InvalidImageName};
use super::unpack::unpack;
use super::{documents, platform};
use crate::runtime::containerd::images::ImageRecord;
use crate::runtime::containerd::{Containerd, ErrorClass, RuntimeError};

/// An image with what is needed to run it.
#[derive(Clone, Debug)]
pub struct Image {
    /// Full name, as recorded in containerd.
    pub name: String,
    /// Digest of what the name points at: a manifest, or an index of several builds.
    pub digest: String,
    /// Bytes of configuration and (compressed) layers.
    pub size: u64,
    /// Name of the snapshot that holds all layers; empty for an image without layers.
    pub chain_id: String,
    /// The configuration.
    pub config: ImageConfiguration,
    /// Digest of the configuration; the image's id in docker's and the kubelet's words.
    pub config_digest: String,
    /// Digest of the manifest for this host; the same as `digest` unless that is an index.
    pub manifest_digest: String,
    /// True when all layers are unpacked.
    pub unpacked: bool,
    manifest: Manifest,
}

/// An image in few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    /// Full name.
    pub name: String,
    /// Digest of what the name points at.
    pub digest: String,
    /// Bytes of configuration and (compressed) layers; none when parts are missing.
    pub size: Option<u64>,
    /// When it was built, as its configuration says.
    pub created: Option<Timestamp>,
    /// Digest of its configuration; none when parts are missing.
    pub id: Option<String>,
    /// Never collected.
    pub pinned: bool,
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] InvalidImageName),
    /// It could not be pulled.
    #[error("cannot pull image \"{name}\": {error}{}", way_out(.error, .namespace))]
    Pull {
        /// Full name.
        name: String,
        /// The namespace that was searched before.
        namespace: String,
        /// Why.
        error: Arc<PullError>,
    },
    /// It could not be pulled, and that is tried again only after a while.
    #[error("back-off {}s pulling image \"{name}\": {error}{}", .delay.as_secs(), way_out(.error, .namespace))]
    BackOff {
        /// Full name.
        name: String,
        /// The namespace that was searched before.
        namespace: String,
        /// The wait.
        delay: Duration,
        /// Why.
        error: Arc<PullError>,
    },
    /// It is not there, and the policy is `Never`.
    #[error(
        "image \"{name}\" is not in containerd namespace \"{namespace}\" and its imagePullPolicy is Never: \
         import it with `podling image import FILE`{}", other_tags(.others)
    )]
    NeverPull {
        /// Full name.
        name: String,
        /// The namespace that was searched.
        namespace: String,
        /// Names of the same repository that are there.
        others: Vec<String>,
    },
    /// Parts of it are missing.
    #[error("image \"{name}\" is incomplete: blob {digest} is missing from containerd; import it again")]
    Incomplete {
        /// Full name.
        name: String,
        /// What is missing.
        digest: String,
    },
    /// It has no build for this host.
    #[error("image \"{name}\" has no build for {want}: it has {have}")]
    Platform {
        /// Full name.
        name: String,
        /// This host.
        want: String,
        /// What is there.
        have: String,
    },
    /// A document of it cannot be read.
    #[error("image \"{name}\" cannot be read: {what}; import it again")]
    Unreadable {
        /// Full name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// containerd failed.
    #[error("image \"{name}\": {source}")]
    Runtime {
        /// Full name.
        name: String,
        /// What failed.
        source: RuntimeError,
    },
}

impl Image {
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Digests and compressed sizes of the layers, the lowest first.
    pub fn layers(&self) -> Vec<(String, u64)> {
        self.manifest.layers.iter().map(|l| (l.digest.clone(), l.size)).collect()
    }
}

impl ImageError {
    /// The kubelet's word for it, which a waiting container shows as its reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "InvalidImageName",
            Self::Pull { error, .. } => error.reason(),
            Self::BackOff { .. } => "ImagePullBackOff",
            Self::NeverPull { .. } => "ErrImageNeverPull",
            _ => "ImageInspectError",
        }
    }

    /// The kind of failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Name(_) | Self::Platform { .. } | Self::Unreadable { .. } => ErrorClass::InvalidArgument,
            Self::NeverPull { .. } | Self::Incomplete { .. } => ErrorClass::NotFound,
            Self::Pull { error, .. } | Self::BackOff { error, .. } => match &**error {
                PullError::Runtime(e) => e.class(),
                _ => ErrorClass::Other,
            },
            Self::Runtime { source, .. } => source.class(),
        }
    }
}

/// What to do where there is no registry.
fn way_out(error: &PullError, namespace: &str) -> String {
    if error.is_unreachable() {
        format!(
            "; it is not in containerd namespace \"{namespace}\" either: without a registry, import it with \
             `podling image import FILE`"
        )
    } else {
        String::new()
    }
}

fn other_tags(others: &[String]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!(" (of this repository there is {})", others.join(", "))
    }
}

impl Containerd {
    /// The image that `reference` names, if it is there. A name with a digest also finds an image of that
    /// repository and digest that was recorded under a tag.
    pub async fn image(&self, reference: &ImageRef) -> Result<Option<Image>, ImageError> {
        let name = reference.name();
        let mut record = self.image_record(&name).await.map_err(|e| runtime(&name, e))?;
        if let (None, Some(digest)) = (&record, reference.digest()) {
            let records = self.image_records().await.map_err(|e| runtime(&name, e))?;
            record = records.into_iter().find(|r| r.digest == digest && same_repository(&r.name, reference));
        }
        match record {
            Some(record) => load(self, record).await.map(Some),
            None => Ok(None),
        }
    }

    /// The image of this name, unpacked, without asking any registry. What is missing is an error that says
    /// how to get it.
    pub async fn local_image(&self, image: &str) -> Result<Image, ImageError> {
        let reference = ImageRef::parse(image)?;
        if let Some(image) = self.image(&reference).await? {
            self.ensure_unpacked(&image).await?;
            return Ok(image);
        }
        let (name, namespace) = (reference.name(), self.namespace().to_owned());
        Err(ImageError::NeverPull { name, namespace, others: self.other_tags(&reference).await })
    }

    /// Names of the same repository that are here: a hint for messages, which are true without it.
    pub(super) async fn other_tags(&self, reference: &ImageRef) -> Vec<String> {
        let records = self.image_records().await.unwrap_or_default();
        let mut others: Vec<String> =
            records.into_iter().map(|r| r.name).filter(|n| same_repository(n, reference)).collect();
        others.sort();
        others
    }

    /// Unpacks what is not unpacked of `image`.
    pub async fn ensure_unpacked(&self, image: &Image) -> Result<(), ImageError> {
        let failed = |e| runtime(&image.name, e);
        if image.unpacked {
            return Ok(());
        }
        let lease = self.lease("unpack").await.map_err(failed)?;
        let diff_ids = image.config.rootfs().diff_ids();
        let result = unpack(lease.client(), &image.manifest, &image.config_digest, diff_ids).await;
        if let Err(e) = lease.release().await {
            tracing::debug!("{e}; it ends by itself within an hour");
        }
        result.map_err(failed)
    }

    /// All images, by name.
    pub async fn images(&self) -> Result<Vec<ImageSummary>, RuntimeError> {
        let mut images = Vec::new();
        for record in self.image_records().await? {
            let (name, digest, pinned) =
                (record.name.clone(), record.digest.clone(), super::collect::is_pinned(&record));
            let (size, created, id) = match load(self, record).await {
                Ok(image) => {
                    let created = image.config.created().as_deref().and_then(built_at);
                    (Some(image.size), created, Some(image.config_digest))
                }
                Err(ImageError::Runtime { source, .. }) => return Err(source),
                Err(e) => {
                    tracing::debug!("{e}");
                    (None, None, None)
                }
            };
            images.push(ImageSummary { name, digest, size, created, id, pinned });
        }
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Removes the name `reference`, and what only it held. False when it was not there.
    pub async fn remove_image(&self, reference: &ImageRef) -> Result<bool, RuntimeError> {
        self.remove_image_record(&reference.name()).await
    }
}

/// The time in an image's configuration; builders that hide it write the start of the epoch.
fn built_at(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().filter(|t| *t > Timestamp::UNIX_EPOCH)
}

fn runtime(name: &str, source: RuntimeError) -> ImageError {
    ImageError::Runtime { name: name.to_owned(), source }
}

fn same_repository(name: &str, reference: &ImageRef) -> bool {
    ImageRef::parse(name).is_ok_and(|r| r.repository() == reference.repository())
}

/// Follows a record to the manifest for this host, its configuration and its layers.
async fn load(client: &Containerd, record: ImageRecord) -> Result<Image, ImageError> {
    let loader = Loader { client, name: &record.name };
    let mut at = Descriptor {
        media_type: record.media_type.clone(),
        digest: record.digest.clone(),
        size: record.size,
        ..Default::default()
    };
    while at.is_index() {
        let index: Index = loader.json(&at.digest).await?;
        at = loader.choose(&index.manifests)?;
    }
    let manifest: Manifest = loader.json(&at.digest).await?;
    let data = loader.blob(&manifest.config.digest).await?;
    let config = parse_config(&data).map_err(|e| loader.unreadable(&manifest.config.digest, e))?;
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() != manifest.layers.len() {
        let why =
            format!("it has {} layers but its configuration lists {}", manifest.layers.len(), diff_ids.len());
        return Err(loader.unreadable(&at.digest, why));
    }
    let chain_id = chain_ids(diff_ids).pop().unwrap_or_default();
    let unpacked =
        chain_id.is_empty() || client.has_snapshot(&chain_id).await.map_err(|e| runtime(&record.name, e))?;
    Ok(Image {
        digest: record.digest,
        size: manifest.config.size + manifest.layers.iter().map(|l| l.size).sum::<u64>(),
        chain_id,
        config_digest: manifest.config.digest.clone(),
        config,
        manifest_digest: at.digest,
        unpacked,
        manifest,
        name: record.name,
    })
}

struct Loader<'a> {
    client: &'a Containerd,
    name: &'a str,
}

impl Loader<'_> {
    async fn json<T: serde::de::DeserializeOwned>(&self, digest: &str) -> Result<T, ImageError> {
        let data = self.blob(digest).await?;
        serde_json::from_slice(&data).map_err(|e| self.unreadable(digest, e))
    }

    async fn blob(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let data = self.client.read_blob(digest, DOCUMENT_MAX).await.map_err(|e| runtime(self.name, e))?;
        data.ok_or_else(|| ImageError::Incomplete { name: self.name.to_owned(), digest: digest.to_owned() })
    }

    fn choose(&self, builds: &[documents::Descriptor]) -> Result<Descriptor, ImageError> {
        let host = platform::host_architecture();
        platform::choose(builds, host).cloned().ok_or_else(|| ImageError::Platform {
            name: self.name.to_owned(),
            want: format!("linux/{host}"),
            have: platform::names(builds),
        })
    }

    fn unreadable(&self, digest: &str, why: impl std::fmt::Display) -> ImageError {
        ImageError::Unreadable { name: self.name.to_owned(), what: format!("{digest}: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_image_names_the_namespace_searched_and_the_way_out() {
        let mut others = vec![];
        let missing = |others: &[String]| ImageError::NeverPull {
            name: "docker.io/library/web:2".into(),
            namespace: "podling".into(),
            others: others.to_vec(),
        };
        let plain = "image \"docker.io/library/web:2\" is not in containerd namespace \"podling\" and its \
                     imagePullPolicy is Never: import it with `podling image import FILE`";
        assert_eq!(missing(&others).to_string(), plain);
        others.push("docker.io/library/web:1".to_owned());
        assert_eq!(
            missing(&others).to_string(),
            format!("{plain} (of this repository there is docker.io/library/web:1)")
        );
    }

    #[test]
    fn a_failed_pull_and_the_wait_after_it_have_their_own_reasons() {
        let error = || Arc::new(PullError::Damaged("x".into()));
        let pull = ImageError::Pull { name: "n".into(), namespace: "x".into(), error: error() };
        assert_eq!(
            (pull.reason(), pull.to_string().as_str()),
            ("ErrImagePull", "cannot pull image \"n\": it is damaged: x")
        );
        let wait = ImageError::BackOff {
            name: "n".into(),
            namespace: "x".into(),
            delay: Duration::from_secs(20),
            error: error(),
        };
        assert_eq!(wait.reason(), "ImagePullBackOff");
        assert_eq!(wait.to_string(), "back-off 20s pulling image \"n\": it is damaged: x");
    }

    #[test]
    fn every_failure_has_the_kubelets_reason() {
        let name = || "n".to_owned();
        let never = ImageError::NeverPull { name: name(), namespace: "x".into(), others: vec![] };
        assert_eq!(never.reason(), "ErrImageNeverPull");
        assert!(never.to_string().contains("its imagePullPolicy is Never"));
        let invalid = ImageError::from(ImageRef::parse("A").unwrap_err());
        assert_eq!((invalid.reason(), invalid.class()), ("InvalidImageName", ErrorClass::InvalidArgument));
        let incomplete = ImageError::Incomplete { name: name(), digest: "sha256:1".into() };
        assert_eq!(incomplete.reason(), "ImageInspectError");
        assert_eq!(
            incomplete.to_string(),
            "image \"n\" is incomplete: blob sha256:1 is missing from containerd; import it again"
        );
    }

    #[test]
    fn a_hidden_build_time_is_none() {
        assert_eq!(built_at("1970-01-01T00:00:00Z"), None);
        assert_eq!(built_at("0001-01-01T00:00:00Z"), None);
        assert!(built_at("2024-05-01T10:00:00.5+02:00").is_some());
        assert_eq!(built_at("yesterday"), None);
    }
}
