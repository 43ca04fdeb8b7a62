//! Streams an archive's blobs into containerd's content store.

use std::collections::HashMap;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::archive::ImportError;
use super::identity::{self, DOCUMENTS};
use super::reader::{self, Piece, ReadError};
use crate::runtime::containerd::content::BlobWriter;
use crate::runtime::containerd::{Containerd, ErrorClass, RuntimeError};

/// What an archive held: its documents in memory, its blobs in containerd.
#[derive(Debug, Default)]
pub(super) struct Ingested {
    documents: HashMap<String, Vec<u8>>,
    blobs: HashMap<String, Stored>,
    links: HashMap<String, String>,
}

/// A blob that was stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) compression: Compression,
}

/// How a blob is compressed, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// What a layer's media type ends with.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => "+gzip",
            Self::Zstd => "+zstd",
        }
    }
}

impl Ingested {
    /// A document at the top of the archive.
    pub(super) fn document(&self, path: &str) -> Option<&[u8]> {
        self.documents.get(self.resolve(path)).map(Vec::as_slice)
    }

    /// By which the content is known again.
    pub(super) fn identity(&self) -> String {
        identity::of(DOCUMENTS.map(|name| self.document(name)))
    }

    /// A blob, by its path in the archive.
    pub(super) fn blob(&self, path: &str) -> Option<&Stored> {
        self.blobs.get(self.resolve(path))
    }

    fn resolve<'a>(&'a self, path: &'a str) -> &'a str {
        let mut at = path;
        // Bounded: links may go round in circles.
        for _ in 0..8 {
            match self.links.get(at) {
                Some(target) => at = target,
                None => break,
            }
        }
        at
    }
}

/// Reads all of `file`, which messages call `path`, into `client`'s content store, which should be under a lease.
pub(super) async fn ingest(client: &Containerd, file: &Path, path: &Path) -> Result<Ingested, ImportError> {
    let mut pieces = reader::start(file.to_owned())
        .map_err(|source| ImportError::Open { path: path.to_owned(), source })?;
    let mut ingested = Ingested::default();
    let mut incoming: Option<Incoming> = None;
    loop {
        // The reader always says how it ended, so silence means that its thread died.
        let piece = pieces
            .recv()
            .await
            .unwrap_or_else(|| Err(ReadError::Damaged("the reading thread ended unexpectedly".to_owned())));
        match piece.map_err(|e| ImportError::from_read(path, e))? {
            Piece::Document { path, data } => {
                ingested.documents.insert(path, data);
            }
            Piece::Link { path, target } => {
                ingested.links.insert(path, target);
            }
            Piece::Blob { path: name, size } => {
                incoming = Some(Incoming::open(client, path, name, size).await?)
            }
            Piece::Data(data) => {
                if let Some(incoming) = &mut incoming {
                    incoming.take(path, data).await?;
                }
            }
            Piece::End => return Ok(ingested),
        }
        if let Some(complete) = incoming.take_if(|i| i.missing == 0) {
            let (name, stored) = complete.close(path).await?;
            ingested.blobs.insert(name, stored);
        }
    }
}

/// A blob on its way.
struct Incoming {
    name: String,
    expected: Option<String>,
    /// None when containerd has it already.
    writer: Option<BlobWriter>,
    hash: Sha256,
    compression: Compression,
    size: u64,
    missing: u64,
}

impl Incoming {
    async fn open(client: &Containerd, path: &Path, name: String, size: u64) -> Result<Self, ImportError> {
        let expected = match name.strip_prefix("blobs/").and_then(|rest| rest.split_once('/')) {
            Some(("sha256", hex)) => Some(format!("sha256:{hex}")),
            Some((algorithm, _)) => {
                let what = format!("{name}: digests of kind {algorithm} are not supported, only sha256");
                return Err(ImportError::Damaged { path: path.to_owned(), what });
            }
            None => None,
        };
        let writer =
            client.blob_writer(size, expected.as_deref()).await.map_err(|e| ImportError::runtime(path, e))?;
        let (hash, compression) = (Sha256::new(), Compression::None);
        Ok(Self { name, expected, writer, hash, compression, size, missing: size })
    }

    async fn take(&mut self, path: &Path, data: Vec<u8>) -> Result<(), ImportError> {
        if self.missing == self.size {
            self.compression = Compression::of(&data);
        }
        self.missing = self.missing.saturating_sub(data.len() as u64);
        if let Some(writer) = &mut self.writer {
            // containerd computes the digest too; ours is needed only where none is known.
            if self.expected.is_none() {
                self.hash.update(&data);
            }
            writer.write(data).await.map_err(|e| ImportError::runtime(path, e))?;
        }
        Ok(())
    }

    async fn close(self, path: &Path) -> Result<(String, Stored), ImportError> {
        let digest = match self.expected {
            Some(digest) => digest,
            None => format!("sha256:{}", hex::encode(self.hash.finalize())),
        };
        if let Some(writer) = self.writer {
            writer.commit(&digest).await.map_err(|e| mismatch(path, &self.name, e))?;
        }
        let stored = Stored { digest, size: self.size, compression: self.compression };
        Ok((self.name, stored))
    }
}

/// containerd refuses a blob whose digest is not the expected one as a failed precondition.
fn mismatch(path: &Path, name: &str, e: RuntimeError) -> ImportError {
    match e.class() {
        ErrorClass::FailedPrecondition => {
            let what = format!("{name}: its content does not have the digest that its name says");
            ImportError::Damaged { path: path.to_owned(), what }
        }
        _ => ImportError::runtime(path, e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_circles_end() {
        let stored = Stored { digest: "d".into(), size: 1, compression: Compression::None };
        let mut ingested = Ingested::default();
        ingested.blobs.insert("a/layer.tar".into(), stored.clone());
        ingested.links.insert("b/layer.tar".into(), "a/layer.tar".into());
        ingested.links.insert("x".into(), "y".into());
        ingested.links.insert("y".into(), "x".into());
        assert_eq!(ingested.blob("b/layer.tar"), Some(&stored));
        assert_eq!(ingested.blob("x"), None);
    }

    #[test]
    fn compression_shows_in_the_media_type() {
        assert_eq!(Compression::of(&[0x1f, 0x8b, 8]).suffix(), "+gzip");
        assert_eq!(Compression::of(&[0x28, 0xb5, 0x2f, 0xfd]).suffix(), "+zstd");
        assert_eq!(Compression::of(b"").suffix(), "");
    }
}
