//! Import: an archive or a layout directory becomes images in containerd.

use std::io;
use std::path::{Path, PathBuf};

use super::assemble::{Assembled, assemble};
use super::ingest::{Ingested, ingest};
use super::link::link;
use super::reader::ReadError;
use super::reference::InvalidImageName;
use super::unpack::unpack;
use super::verify::{self, Policy, PolicyError, Rejected};
use crate::runtime::containerd::images::ImageRecord;
use crate::runtime::containerd::{Containerd, ErrorClass, RuntimeError};

/// On the record of every image that podling imported.
const IMPORTED_LABEL: &str = "podling.dev/imported";

/// Keeps it from being collected: nobody could bring it back. The CRI's own label, so that others know it too.
const PINNED_LABEL: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// What precedes the reason why an image is missing though others of its archive were imported.
pub const LEFT_OUT: &str = "left one image out";

/// Why an archive was not imported. Each names the archive.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Open {
        /// The archive.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{path} is not an image archive: it has neither index.json (OCI layout) nor manifest.json (docker \
         save); write one with `docker save`, `podman save`, `skopeo copy` or `ctr image export`"
    )]
    NotAnImage {
        /// The archive.
        path: PathBuf,
    },
    /// It is a directory of the form `dir:`, which keeps neither names nor builds.
    #[error(
        "{path} is of skopeo's form `dir:` (podman's `docker-dir`), not an OCI layout: write it with `skopeo copy \
         … oci:DIR:NAME` or `podman save --format oci-dir`"
    )]
    DirForm {
        /// The archive.
        path: PathBuf,
    },
    /// It is compressed in a way that is not read here.
    #[error("{path} is packed with {how}; podling reads plain, gzip and zstd archives: unpack it first")]
    Packed {
        /// The archive.
        path: PathBuf,
        /// With which program.
        how: &'static str,
    },
    /// It breaks off, or its parts do not fit together.
    #[error("{path} is damaged: {what}; copy or export it again")]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It has no build for this host.
    #[error("{path} has no build of {image} for {want}: it has {have}")]
    Platform {
        /// The archive.
        path: PathBuf,
        /// The image.
        image: String,
        /// This host.
        want: String,
        /// What is there.
        have: String,
    },
    /// Its name is not one that an image can have.
    #[error("{path}: {source}; name the image when exporting it, rename the file, or import it with --name")]
    Name {
        /// The archive.
        path: PathBuf,
        /// What is wrong with the name.
        source: InvalidImageName,
    },
    /// The signature policy cannot be read.
    #[error("cannot import {path}: {source}")]
    Policy {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        source: PolicyError,
    },
    /// The signature policy does not take it.
    #[error("cannot import {image} from {path}: {source}")]
    Rejected {
        /// The archive.
        path: PathBuf,
        /// The image.
        image: String,
        /// Why.
        source: Rejected,
    },
    /// containerd failed.
    #[error("cannot import {path}: {source}")]
    Runtime {
        /// The archive.
        path: PathBuf,
        /// What failed.
        source: RuntimeError,
    },
}

impl ImportError {
    /// The kind of failure; decides whether to try again without the archive having changed.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Runtime { source, .. } => source.class(),
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorClass::NotFound,
            Self::Open { .. } => ErrorClass::Other,
            _ => ErrorClass::InvalidArgument,
        }
    }

    /// True when it lies in what the archive is, so that only another archive can help.
    pub fn is_of_the_archive(&self) -> bool {
        match self {
            Self::Open { source, .. } => source.kind() != io::ErrorKind::NotFound,
            Self::Policy { .. } | Self::Rejected { .. } | Self::Runtime { .. } => false,
            _ => true,
        }
    }

    /// True when it keeps out one image only, so that the others of its archive can be had.
    fn is_of_one_image(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. } | Self::Platform { .. } | Self::Name { .. } | Self::Rejected { .. }
        )
    }

    pub(super) fn runtime(path: &Path, source: RuntimeError) -> Self {
        Self::Runtime { path: path.to_owned(), source }
    }

    pub(super) fn from_read(path: &Path, e: ReadError) -> Self {
        let path = path.to_owned();
        match e {
            ReadError::Open(source) => Self::Open { path, source },
            ReadError::NotTar => Self::NotAnImage { path },
            ReadError::Packed(how) => Self::Packed { path, how },
            ReadError::Damaged(what) => Self::Damaged { path, what },
        }
    }
}

/// What is to be imported.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The archive or layout directory.
    pub file: &'a Path,
    /// What messages call it.
    pub shown: &'a Path,
    /// The name of an image in it that has none; else that is made from the file's.
    pub name: Option<&'a str>,
    /// The signature policy.
    pub policy: Option<&'a Path>,
}

impl<'a> Source<'a> {
    /// A file that is called by its path.
    pub fn file(path: &'a Path, policy: Option<&'a Path>) -> Self {
        Self { file: path, shown: path, name: None, policy }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Imported {
    /// Full names of the images.
    pub names: Vec<String>,
    /// Why others of the archive are not among them.
    pub left_out: Vec<ImportError>,
    /// By which the content is known again.
    pub(super) identity: String,
}

/// [`import`] of a file, for the names alone.
pub async fn import_path(
    client: &Containerd,
    path: &Path,
    policy: Option<&Path>,
) -> Result<Vec<String>, ImportError> {
    Ok(import(client, &Source::file(path, policy)).await?.names)
}

/// Imports an OCI layout (tar file or directory) or a `docker save` archive, plain or compressed with
/// gzip or zstd, and unpacks what runs on this host. Names that existed point at the new images from then on;
/// running containers keep what they have.
///
/// With a signature policy, an image that it does not accept is not unpacked and gets no name.
///
/// An image that cannot be had does not keep out the others of its archive. One that is alone in it fails.
pub async fn import(client: &Containerd, source: &Source<'_>) -> Result<Imported, ImportError> {
    let path = source.shown;
    let policy = match source.policy.map(Policy::load) {
        None => None,
        Some(loaded) => loaded.map_err(|source| ImportError::Policy { path: path.to_owned(), source })?,
    };
    let failed = |e| ImportError::runtime(path, e);
    client.ensure_namespace().await.map_err(failed)?;
    let lease = client.lease("import").await.map_err(failed)?;
    let imported = import_held(lease.client(), source, policy.as_ref()).await;
    // Also after a failure: the blobs of half an import go at once.
    if let Err(e) = lease.release().await {
        tracing::debug!("{e}; it ends by itself within an hour");
    }
    imported
}

async fn import_held(
    client: &Containerd,
    source: &Source<'_>,
    policy: Option<&Policy>,
) -> Result<Imported, ImportError> {
    let ingested = ingest(client, source.file, source.shown).await?;
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    for image in assemble(client, source.shown, source.name, &ingested).await? {
        let admitted = match image {
            Ok(image) => admit(client, source, policy, &ingested, image).await,
            Err(e) => Err(e),
        };
        match admitted {
            Ok(name) => names.push(name),
            Err(e) if e.is_of_one_image() => left_out.push(e),
            Err(e) => return Err(e),
        }
    }
    match left_out.pop() {
        Some(only) if names.is_empty() && left_out.is_empty() => return Err(only),
        last => left_out.extend(last),
    }
    Ok(Imported { names, left_out, identity: ingested.identity() })
}

/// Checks, unpacks and names one image.
async fn admit(
    client: &Containerd,
    source: &Source<'_>,
    policy: Option<&Policy>,
    ingested: &Ingested,
    image: Assembled,
) -> Result<String, ImportError> {
    let path = source.shown;
    let failed = |e| ImportError::runtime(path, e);
    if let Some(policy) = policy {
        let signatures = verify::beside(source.file);
        let transport = transport(source.file.is_dir(), ingested);
        let checked = policy.check(transport, &image.name, &image.target.digest, &signatures);
        checked.map_err(|source| ImportError::Rejected {
            path: path.to_owned(),
            image: image.name.to_string(),
            source,
        })?;
    }
    link(client, &image.path, &image.manifest).await.map_err(failed)?;
    unpack(client, &image.manifest, &image.config_digest, &image.diff_ids).await.map_err(|e| {
        if e.class() == ErrorClass::InvalidArgument {
            return ImportError::Damaged { path: path.to_owned(), what: format!("{}: {e}", image.name) };
        }
        ImportError::runtime(path, e)
    })?;
    // Last, so that a name never points at half an image.
    let record = ImageRecord {
        name: image.name.name(),
        labels: [(IMPORTED_LABEL, "true"), PINNED_LABEL].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        media_type: image.target.media_type,
        digest: image.target.digest,
        size: image.target.size,
    };
    client.put_image_record(&record).await.map_err(failed)?;
    tracing::debug!(image = record.name, archive = %path.display(), "imported");
    Ok(record.name)
}

/// What a signature policy calls what was imported. An archive that is of both forms is read as a layout.
fn transport(is_dir: bool, ingested: &Ingested) -> &'static str {
    match ingested.document("index.json") {
        Some(_) if is_dir => "oci",
        Some(_) => "oci-archive",
        None => "docker-archive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_import_names_the_archive_and_the_way_out() {
        let path = PathBuf::from("/img/a.tar");
        let text = |e: ImportError| e.to_string();
        assert!(
            text(ImportError::from_read(&path, ReadError::NotTar))
                .starts_with("/img/a.tar is not an image archive: it has neither index.json")
        );
        let damaged = ImportError::from_read(&path, ReadError::Damaged("x: 3 of 9 bytes are missing".into()));
        assert_eq!(
            text(damaged),
            "/img/a.tar is damaged: x: 3 of 9 bytes are missing; copy or export it again"
        );
        let open = ImportError::from_read(&path, ReadError::Open(io::ErrorKind::NotFound.into()));
        assert_eq!(open.class(), ErrorClass::NotFound);
        assert!(text(open).starts_with("cannot read /img/a.tar: "));
        let name = super::super::ImageRef::parse("Bad").unwrap_err();
        assert_eq!(
            text(ImportError::Name { path, source: name }),
            "/img/a.tar: invalid image name \"Bad\": a repository name must be lowercase; name the image when \
             exporting it, rename the file, or import it with --name"
        );
    }
}
