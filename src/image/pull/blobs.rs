//! Fetching blobs: resumed where they broke off, each once at a time, verified by containerd.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::error::PullError;
use super::progress::Progress;
use crate::image::documents::Descriptor;
use crate::registry::{Attempt, Client, Failure, FailureClass, RegistryError};
use crate::runtime::containerd::content::BlobWriter;
use crate::runtime::containerd::{Containerd, ErrorClass, RuntimeError};

/// Bytes handed to containerd at a time.
const CHUNK: usize = 256 << 10;
/// Bytes that make a try one that got somewhere.
const PROGRESS: u64 = 64 << 10;
/// Failures in a row that got nowhere, after which a blob is given up.
const TRIES: u32 = 4;
/// Longest wait that a server may ask for within a pull; for longer ones the pull ends and comes back.
const SHORT_WAIT: Duration = Duration::from_secs(20);
/// Blobs on their way at once, over all pulls of the node.
const AT_ONCE: usize = 6;

/// What all pulls share.
pub(super) struct Blobs {
    turns: Semaphore,
    locks: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Default for Blobs {
    fn default() -> Self {
        Self { turns: Semaphore::new(AT_ONCE), locks: Mutex::default() }
    }
}

impl Blobs {
    /// Has `blob` in containerd's store, held by the lease of `ctd`.
    pub(super) async fn fetch(
        &self,
        ctd: &Containerd,
        client: &Client,
        blob: &Descriptor,
        progress: &Progress,
    ) -> Result<(), PullError> {
        if !blob.digest.starts_with("sha256:") {
            let what = format!("blob {}: digests other than sha256 are not supported", blob.digest);
            return Err(PullError::Damaged(what));
        }
        // The same layer in two images is fetched by one pull, and the other finds it.
        let lock = self.lock(&blob.digest);
        let _alone = lock.lock().await;
        ctd.hold("content", &blob.digest).await?;
        if ctd.blob_size(&blob.digest).await?.is_some() {
            progress.fetched(blob.size);
            return Ok(());
        }
        // The semaphore is never closed; without a permit the fetch goes on, unbounded.
        let _turn = self.turns.acquire().await.ok();
        let mut tries = 0;
        loop {
            let mut counted = Counted::default();
            let result = fetch_once(ctd, client, blob, progress, &mut counted).await;
            let Err(e) = result else { return Ok(()) };
            if let Broken::Stream(at, _) = &e {
                // Perhaps another server does better.
                client.avoid(at);
            }
            tries = if counted.came >= PROGRESS && !e.is_damage() { 1 } else { tries + 1 };
            let Some(wait) = e.wait(tries) else { return Err(e.into_error(&blob.digest)) };
            progress.lost(counted.bytes);
            tracing::debug!(blob = blob.digest, "{}; trying again in {wait:?}", e.text());
            tokio::time::sleep(wait).await;
        }
    }

    fn lock(&self, digest: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(digest).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(digest.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// What one try brought.
#[derive(Default)]
struct Counted {
    /// Bytes added to the progress.
    bytes: u64,
    /// Those of them that came over the network.
    came: u64,
}

enum Broken {
    Registry(RegistryError),
    Stream(String, Failure),
    Runtime(RuntimeError),
}

impl From<RegistryError> for Broken {
    fn from(e: RegistryError) -> Self {
        Self::Registry(e)
    }
}

impl From<RuntimeError> for Broken {
    fn from(e: RuntimeError) -> Self {
        Self::Runtime(e)
    }
}

impl Broken {
    /// How long to wait before the next try; none when it is no use.
    fn wait(&self, tries: u32) -> Option<Duration> {
        let (retry, asked) = match self {
            Self::Registry(e) => (e.class().is_transient(), e.retry_after()),
            // Damaged content may come whole from the next server.
            Self::Stream(_, f) => (f.class.is_transient() || f.class == FailureClass::Damaged, None),
            Self::Runtime(e) => (e.class() == ErrorClass::Unavailable, None),
        };
        let wait = asked.unwrap_or(Duration::from_millis(250) * (1 << tries.min(6)));
        (retry && tries < TRIES && wait <= SHORT_WAIT).then_some(wait)
    }

    fn is_damage(&self) -> bool {
        matches!(self, Self::Stream(_, f) if f.class == FailureClass::Damaged)
    }

    fn into_error(self, digest: &str) -> PullError {
        match self {
            Self::Registry(e) => e.into(),
            Self::Stream(at, failure) => {
                RegistryError { what: format!("blob {digest}"), attempts: vec![Attempt { at, failure }] }
                    .into()
            }
            Self::Runtime(e) => e.into(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Registry(e) => e.to_string(),
            Self::Stream(at, f) => format!("{at}: {}", f.text),
            Self::Runtime(e) => e.to_string(),
        }
    }
}

async fn fetch_once(
    ctd: &Containerd,
    client: &Client,
    blob: &Descriptor,
    progress: &Progress,
    counted: &mut Counted,
) -> Result<(), Broken> {
    let Some(mut writer) = ctd.resume_blob(blob.size, &blob.digest).await? else {
        progress.fetched(blob.size);
        return Ok(());
    };
    counted.bytes = writer.offset();
    progress.fetched(counted.bytes);
    if writer.offset() < blob.size {
        let mut stream = match client.blob(&blob.digest, writer.offset()).await {
            Ok(stream) => stream,
            Err(e) => {
                // What is there of it may be what the server does not like (416).
                if writer.offset() > 0 && e.class() == FailureClass::Refused {
                    ctd.abort_blob(&blob.digest).await?;
                }
                return Err(e.into());
            }
        };
        let at = stream.origin().to_owned();
        let copied = copy(&mut stream, &mut writer, blob.size, progress, counted).await;
        if let Err(e) = copied {
            return Err(match e {
                Copy::Read(failure) => Broken::Stream(at, failure),
                Copy::Write(e) => {
                    // Half a blob on a full disk is of no use to anybody.
                    if e.class() == ErrorClass::NoSpace {
                        drop(writer);
                        ctd.abort_blob(&blob.digest).await?;
                    }
                    Broken::Runtime(e)
                }
            });
        }
        return close(ctd, writer, blob, &at).await;
    }
    close(ctd, writer, blob, "containerd").await
}

enum Copy {
    Read(Failure),
    Write(RuntimeError),
}

async fn copy(
    stream: &mut crate::registry::BlobStream,
    writer: &mut BlobWriter,
    size: u64,
    progress: &Progress,
    counted: &mut Counted,
) -> Result<(), Copy> {
    let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK);
    loop {
        // What came before a connection broke is kept: the next try goes on behind it.
        let (part, end) = match stream.next().await {
            Ok(Some(part)) => (part, None),
            Ok(None) => (Default::default(), Some(None)),
            Err(failure) => (Default::default(), Some(Some(failure))),
        };
        chunk.extend_from_slice(&part);
        let full = chunk.len() >= CHUNK || end.is_some();
        if full && !chunk.is_empty() {
            let bytes = chunk.len() as u64;
            if writer.offset() + bytes > size {
                let text = format!("it sent more than the {size} bytes of the blob");
                return Err(Copy::Read(Failure::new(FailureClass::Damaged, text)));
            }
            let next = if end.is_some() { Vec::new() } else { Vec::with_capacity(CHUNK) };
            writer.write(std::mem::replace(&mut chunk, next)).await.map_err(Copy::Write)?;
            progress.fetched(bytes);
            counted.bytes += bytes;
            counted.came += bytes;
        }
        match end {
            None => {}
            Some(Some(failure)) => return Err(Copy::Read(failure)),
            Some(None) if writer.offset() < size => {
                let text = format!("the connection ended after {} of {size} bytes", writer.offset());
                return Err(Copy::Read(Failure::new(FailureClass::Network, text)));
            }
            Some(None) => return Ok(()),
        }
    }
}

/// containerd computes the digest. What has another one is thrown away.
async fn close(ctd: &Containerd, writer: BlobWriter, blob: &Descriptor, at: &str) -> Result<(), Broken> {
    match writer.commit(&blob.digest).await {
        Err(e) if e.class() == ErrorClass::FailedPrecondition => {
            ctd.abort_blob(&blob.digest).await?;
            let text = "it sent content that does not have this digest";
            Err(Broken::Stream(at.to_owned(), Failure::new(FailureClass::Damaged, text)))
        }
        other => other.map_err(Broken::Runtime),
    }
}
