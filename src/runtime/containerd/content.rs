//! The content store: blobs by digest.

use std::collections::HashMap;

use containerd_client::services::v1::content_client::ContentClient;
use containerd_client::services::v1::{
    AbortRequest, Info, InfoRequest, ReadContentRequest, ReadContentResponse, UpdateRequest, WriteAction,
    WriteContentRequest, WriteContentResponse,
};
use prost_types::FieldMask;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Streaming};

use super::Containerd;
use super::client::{DEADLINE, DEADLINE_RUNTIME, Lane};
use super::error::RuntimeError;

const WRITE: &str = "write blob";

impl Containerd {
    fn content_client(&self) -> ContentClient<Channel> {
        ContentClient::new(self.channel())
    }

    /// The size of blob `digest` in bytes, if it is there.
    pub(crate) async fn blob_size(&self, digest: &str) -> Result<Option<u64>, RuntimeError> {
        let mut client = self.content_client();
        let request = self.request(InfoRequest { digest: digest.to_owned() });
        match self.call("look for blob", digest, DEADLINE, Lane::Store, client.info(request)).await {
            Ok(answer) => Ok(Some(answer.info.map_or(0, |i| u64::try_from(i.size).unwrap_or(0)))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads all of blob `digest`, none if it is not there. Refuses one of more than `max` bytes.
    pub(crate) async fn read_blob(&self, digest: &str, max: u64) -> Result<Option<Vec<u8>>, RuntimeError> {
        let operation = "read blob";
        let Some(size) = self.blob_size(digest).await? else { return Ok(None) };
        if size > max {
            let message = format!("it is {size} bytes long, more than the {max} allowed for a JSON document");
            return Err(RuntimeError::local(operation, digest, message));
        }
        let read = async {
            let mut client = self.content_client();
            let request = self.request(ReadContentRequest { digest: digest.to_owned(), offset: 0, size: 0 });
            let mut stream = client.read(request).await?.into_inner();
            let mut data = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
            while let Some(part) = stream.message().await? {
                data.extend_from_slice(&part.data);
            }
            Ok(Response::new(data))
        };
        match self.call(operation, digest, DEADLINE, Lane::Store, read).await {
            Ok(data) => Ok(Some(data)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads blob `digest` piece by piece.
    pub(crate) async fn stream_blob(&self, digest: &str) -> Result<BlobReader, RuntimeError> {
        let mut client = self.content_client();
        let request = self.request(ReadContentRequest { digest: digest.to_owned(), offset: 0, size: 0 });
        let parts = self.call("read blob", digest, DEADLINE, Lane::Store, client.read(request)).await?;
        Ok(BlobReader { client: self.clone(), digest: digest.to_owned(), parts })
    }

    /// Sets labels of blob `digest`; its other labels stay.
    pub(crate) async fn label_blob(
        &self,
        digest: &str,
        labels: HashMap<String, String>,
    ) -> Result<(), RuntimeError> {
        let paths = labels.keys().map(|k| format!("labels.{k}")).collect();
        let info = Info { digest: digest.to_owned(), labels, ..Default::default() };
        let mut client = self.content_client();
        let request =
            self.request(UpdateRequest { info: Some(info), update_mask: Some(FieldMask { paths }) });
        self.call("label blob", digest, DEADLINE, Lane::Store, client.update(request)).await?;
        Ok(())
    }

    /// Writes a small blob whole.
    pub(crate) async fn write_blob(&self, digest: &str, data: &[u8]) -> Result<(), RuntimeError> {
        let writer = self.blob_writer(data.len() as u64, Some(digest)).await?;
        let Some(mut writer) = writer else { return Ok(()) };
        writer.write(data.to_vec()).await?;
        writer.commit(digest).await
    }

    /// Opens a writer for a blob of `size` bytes. None when `expected` is there already; it is then held
    /// by the client's lease as well.
    pub(crate) async fn blob_writer(
        &self,
        size: u64,
        expected: Option<&str>,
    ) -> Result<Option<BlobWriter>, RuntimeError> {
        let reference = format!("podling-{}", uuid::Uuid::new_v4().simple());
        self.open_writer(reference, size, expected).await
    }

    /// Opens the writer of blob `digest` where an earlier one stopped, be it of a podling that was killed.
    /// None when the blob is there. What is written belongs to no lease: containerd keeps half a blob for
    /// a day. The lease of this client, if any, holds it from its commit on.
    pub(crate) async fn resume_blob(
        &self,
        size: u64,
        digest: &str,
    ) -> Result<Option<BlobWriter>, RuntimeError> {
        let writer = self.without_lease().open_writer(resumable(digest), size, Some(digest)).await?;
        Ok(writer.map(|writer| BlobWriter { client: self.clone(), written: writer.present, ..writer }))
    }

    /// Throws away what [`Containerd::resume_blob`] would go on with.
    pub(crate) async fn abort_blob(&self, digest: &str) -> Result<(), RuntimeError> {
        let mut client = self.content_client();
        let request = self.request(AbortRequest { r#ref: resumable(digest) });
        let abort = client.abort(request);
        match self.call("give up blob", digest, DEADLINE, Lane::Store, abort).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    async fn open_writer(
        &self,
        reference: String,
        size: u64,
        expected: Option<&str>,
    ) -> Result<Option<BlobWriter>, RuntimeError> {
        let (requests, receiver) = mpsc::channel(2);
        let open = WriteContentRequest {
            action: WriteAction::Stat.into(),
            r#ref: reference.clone(),
            total: size as i64,
            expected: expected.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        let id = expected.unwrap_or(&reference).to_owned();
        // Queued before the call: containerd answers nothing, headers included, until it has a request.
        requests.send(open).await.map_err(|e| RuntimeError::local(WRITE, &id, e))?;
        let start = async {
            let mut client = self.content_client();
            let request = self.request(ReceiverStream::new(receiver));
            let mut answers = client.write(request).await?.into_inner();
            let first = answers.message().await?;
            Ok(Response::new((answers, first)))
        };
        match self.call(WRITE, &id, DEADLINE, Lane::Store, start).await {
            Ok((answers, first)) => {
                let offset = first.map_or(0, |f| u64::try_from(f.offset).unwrap_or(0));
                Ok(Some(BlobWriter {
                    client: self.clone(),
                    id,
                    reference,
                    requests,
                    answers,
                    written: 0,
                    present: offset,
                    size,
                }))
            }
            Err(e) if e.is_already_exists() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// One blob on its way out of the store.
pub(crate) struct BlobReader {
    client: Containerd,
    digest: String,
    parts: Streaming<ReadContentResponse>,
}

impl BlobReader {
    /// The next piece; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RuntimeError> {
        let next = async { Ok(Response::new(self.parts.message().await?)) };
        let part = self.client.call("read blob", &self.digest, DEADLINE_RUNTIME, Lane::Store, next).await?;
        Ok(part.map(|p| p.data))
    }
}

/// The name of a blob on its way that is found again.
fn resumable(digest: &str) -> String {
    format!("podling-{digest}")
}

/// One blob on its way into the store.
pub(crate) struct BlobWriter {
    client: Containerd,
    id: String,
    reference: String,
    requests: mpsc::Sender<WriteContentRequest>,
    answers: Streaming<WriteContentResponse>,
    written: u64,
    /// Bytes that containerd had before the first write: all of them when another namespace has the
    /// blob, some of one that is resumed, else none.
    present: u64,
    size: u64,
}

impl BlobWriter {
    /// Bytes that are written.
    pub(crate) fn offset(&self) -> u64 {
        self.written
    }

    /// Appends `data`, at most a few MiB: containerd takes messages of up to 16 MiB.
    pub(crate) async fn write(&mut self, data: Vec<u8>) -> Result<(), RuntimeError> {
        let offset = self.written;
        self.written += data.len() as u64;
        if self.written <= self.present {
            return Ok(());
        }
        let request = WriteContentRequest {
            action: WriteAction::Write.into(),
            r#ref: self.reference.clone(),
            total: self.size as i64,
            offset: offset as i64,
            data,
            ..Default::default()
        };
        self.exchange(request).await
    }

    /// Ends the blob. containerd computes its digest and refuses any other than `digest`.
    pub(crate) async fn commit(mut self, digest: &str) -> Result<(), RuntimeError> {
        self.id = digest.to_owned();
        // When the blob turns out to exist already, containerd forgets to have the lease hold it.
        self.client.hold("content", digest).await?;
        let request = WriteContentRequest {
            action: WriteAction::Commit.into(),
            r#ref: self.reference.clone(),
            total: self.written as i64,
            expected: digest.to_owned(),
            offset: self.written as i64,
            ..Default::default()
        };
        match self.exchange(request).await {
            Err(e) if e.is_already_exists() => Ok(()),
            other => other,
        }
    }

    async fn exchange(&mut self, request: WriteContentRequest) -> Result<(), RuntimeError> {
        let exchange = async {
            // When the stream has ended on containerd's side its status tells why, not the send.
            let _ = self.requests.send(request).await;
            match self.answers.message().await? {
                Some(_) => Ok(Response::new(())),
                None => Err(tonic::Status::aborted("containerd ended the write early")),
            }
        };
        self.client.call(WRITE, &self.id, DEADLINE_RUNTIME, Lane::Store, exchange).await
    }
}
