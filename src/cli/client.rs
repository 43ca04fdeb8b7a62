//! The client's end of the socket.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;

use super::error::CliError;
use crate::server::query::{Query, encode};
use crate::server::{Body, connect, frame};
use crate::settings::Paths;

/// Longest answer that is taken whole; a List of a thousand pods is a tenth of it.
const LONGEST: usize = 64 << 20;

/// Speaks to the daemon of one root; each request has a connection of its own.
#[derive(Clone, Debug)]
pub(super) struct Client {
    paths: Paths,
}

impl Client {
    pub(super) fn new(root: &Path) -> Result<Self, CliError> {
        let root: PathBuf = std::path::absolute(root)?.components().collect();
        Ok(Self { paths: Paths::under(root) })
    }

    /// A path under a pod, or under the pods of a namespace.
    pub(super) fn pod_path(namespace: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", encode(namespace), encode(name))
    }

    /// Gets an object.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<T, CliError> {
        let response = self.send(Method::GET, &query.on(path), Body::Whole(None)).await?;
        decode(response).await
    }

    /// Sends a request and gets an object.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Body,
    ) -> Result<T, CliError> {
        decode(self.send(method, target, body).await?).await
    }

    /// Opens an answer that comes bit by bit.
    pub(super) async fn stream(&self, path: &str, query: &Query) -> Result<Stream, CliError> {
        let response = self.send(Method::GET, &query.on(path), Body::Whole(None)).await?;
        Ok(Stream { body: response.into_body(), rest: Vec::new() })
    }

    /// Gives an order whose answer comes bit by bit.
    pub(super) async fn stream_of(&self, method: Method, target: &str) -> Result<Stream, CliError> {
        let response = self.send(method, target, Body::Whole(None)).await?;
        Ok(Stream { body: response.into_body(), rest: Vec::new() })
    }

    /// Asks for the exec protocol; afterwards the connection is both ends' to write.
    pub(super) async fn upgrade(&self, target: &str) -> Result<TokioIo<Upgraded>, CliError> {
        let request = request(Method::POST, target, Body::Whole(None))?;
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(UPGRADE, hyper::header::HeaderValue::from_static(frame::PROTOCOL));
        parts.headers.insert(CONNECTION, hyper::header::HeaderValue::from_static("upgrade"));
        let response = self.exchange(Request::from_parts(parts, body)).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response).await);
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(broke)?;
        Ok(TokioIo::new(upgraded))
    }

    async fn send(&self, method: Method, target: &str, body: Body) -> Result<Response<Incoming>, CliError> {
        let response = self.exchange(request(method, target, body)?).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Response<Incoming>, CliError> {
        let socket = self.paths.socket();
        let stream = connect(&socket).await.map_err(|e| self.unreachable(&socket, e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.map_err(broke)
    }

    fn unreachable(&self, socket: &Path, error: io::Error) -> CliError {
        let socket = socket.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                CliError::NotRunning { socket, start: self.start_command() }
            }
            io::ErrorKind::PermissionDenied => CliError::Failed(format!(
                "cannot open {socket}: permission denied; the socket is root's, try sudo"
            )),
            _ => CliError::Failed(format!("cannot open {socket}: {error}")),
        }
    }

    fn start_command(&self) -> String {
        let unit = ["/etc/systemd/system", "/usr/lib/systemd/system", "/usr/local/lib/systemd/system"]
            .iter()
            .any(|dir| Path::new(dir).join("podling.service").exists());
        if !self.paths.is_system() {
            format!("podling --root {} run", self.paths.root.display())
        } else if unit {
            "systemctl start podling".to_owned()
        } else {
            "podling run".to_owned()
        }
    }
}

fn request(method: Method, target: &str, body: Body) -> Result<Request<Body>, CliError> {
    Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, "podling")
        .body(body)
        .map_err(|e| CliError::Failed(format!("cannot ask for {target}: {e}")))
}

fn broke(error: hyper::Error) -> CliError {
    CliError::Failed(format!("the connection to podling broke off: {error}"))
}

async fn whole(body: Incoming) -> Result<Bytes, CliError> {
    let limited = http_body_util::Limited::new(body, LONGEST);
    let collected = limited.collect().await;
    collected.map(|c| c.to_bytes()).map_err(|e| CliError::Failed(format!("podling's answer broke off: {e}")))
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, CliError> {
    let bytes = whole(response.into_body()).await?;
    // By way of a Value, so that the API's types are compiled for one deserializer only: they are large.
    let value = serde_json::from_slice::<serde_json::Value>(&bytes);
    value.and_then(serde_json::from_value).map_err(|e| {
        CliError::Failed(format!(
            "podling answered something unexpected ({e}); are client and daemon the same version?"
        ))
    })
}

async fn refusal(response: Response<Incoming>) -> CliError {
    let code = response.status();
    let bytes = match whole(response.into_body()).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    match serde_json::from_slice::<Status>(&bytes) {
        Ok(status) => CliError::Server {
            reason: status.reason.unwrap_or_else(|| code.to_string()),
            message: status.message.unwrap_or_default(),
        },
        Err(_) => CliError::Failed(format!("podling answered {code}")),
    }
}

/// An answer that comes bit by bit.
pub(super) struct Stream {
    body: Incoming,
    rest: Vec<u8>,
}

impl Stream {
    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, CliError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(broke(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The next line with its line break; the last one may lack it.
    pub(super) async fn line(&mut self) -> Result<Option<Vec<u8>>, CliError> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.rest[searched..].iter().position(|b| *b == b'\n') {
                let tail = self.rest.split_off(searched + end + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, tail)));
            }
            searched = self.rest.len();
            match self.chunk().await? {
                Some(data) => self.rest.extend_from_slice(&data),
                None if self.rest.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.rest))),
            }
        }
    }

    /// The next line as an object.
    pub(super) async fn object<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CliError> {
        let Some(line) = self.line().await? else { return Ok(None) };
        let object = serde_json::from_slice::<serde_json::Value>(&line).and_then(serde_json::from_value);
        object.map(Some).map_err(|e| CliError::Failed(format!("podling answered something unexpected: {e}")))
    }
}
