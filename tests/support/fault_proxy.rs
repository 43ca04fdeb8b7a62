//! A proxy between podling and containerd that breaks calls on request.
//!
//! It passes HTTP/2 through unchanged, streams and trailers included, except for calls whose path matches a
//! rule. That shows podling what a real containerd does only on its bad days.

use std::convert::Infallible;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::http::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};

use super::faults::{Faults, Served, serve};

/// gRPC status codes.
pub const NOT_FOUND: u16 = 5;
pub const FAILED_PRECONDITION: u16 = 9;
pub const UNAVAILABLE: u16 = 14;

/// What happens to a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No answer, ever. For `Subscribe` that is the same as losing all events.
    Hang,
    /// This status, and containerd never hears of the call.
    Status(u16, &'static str),
    /// containerd carries the call out, the caller gets this status.
    LoseReply(u16),
    /// An answer, this much later.
    Delay(Duration),
}

/// A running proxy; it ends when dropped.
pub struct FaultProxy {
    faults: Faults<Fault>,
    _served: Served,
}

impl FaultProxy {
    /// Listens on `socket` and forwards to `upstream`.
    pub fn start(socket: &Path, upstream: &Path) -> Self {
        let faults = Faults::default();
        let (rules, socket, upstream) = (faults.clone(), socket.to_path_buf(), upstream.to_path_buf());
        let listen = move || UnixListener::bind(socket).expect("the proxy's socket can be bound");
        let served = serve(None, listen, |listener| accept(listener, rules, upstream));
        Self { faults, _served: served }
    }
}

impl Deref for FaultProxy {
    type Target = Faults<Fault>;
    fn deref(&self) -> &Self::Target {
        &self.faults
    }
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// The connection to containerd behind one client connection; made anew when containerd comes back.
struct Upstream {
    socket: PathBuf,
    current: tokio::sync::Mutex<Option<SendRequest<Incoming>>>,
}

impl Upstream {
    async fn sender(&self) -> Option<SendRequest<Incoming>> {
        let mut current = self.current.lock().await;
        if current.as_ref().is_none_or(SendRequest::is_closed) {
            *current = connect(&self.socket).await;
        }
        current.clone()
    }
}

async fn accept(listener: UnixListener, faults: Faults<Fault>, upstream: PathBuf) {
    while let Ok((client, _)) = listener.accept().await {
        let faults = faults.clone();
        let server = Arc::new(Upstream { socket: upstream.clone(), current: tokio::sync::Mutex::default() });
        tokio::spawn(async move {
            // Without a containerd behind it the connection closes, as containerd's own would.
            if server.sender().await.is_none() {
                return;
            }
            let service = service_fn(move |request| {
                let (faults, server) = (faults.clone(), Arc::clone(&server));
                async move { Ok::<_, Infallible>(answer(request, &faults, &server).await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // An error here is the client closing the connection.
            let _ = builder.serve_connection(TokioIo::new(client), service).await;
        });
    }
}

async fn connect(socket: &Path) -> Option<SendRequest<Incoming>> {
    let stream = UnixStream::connect(socket).await.ok()?;
    let io = TokioIo::new(stream);
    let (server, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.ok()?;
    tokio::spawn(connection);
    Some(server)
}

async fn answer(request: Request<Incoming>, faults: &Faults<Fault>, server: &Upstream) -> Answer {
    let path = request.uri().path();
    match faults.meets(path.to_owned(), |end| path.ends_with(end)) {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Status(code, message)) => status(code, message),
        Some(Fault::LoseReply(code)) => {
            // The call is over only when its body has ended.
            let _ = forward(request, server).await.into_body().collect().await;
            status(code, "the reply was lost")
        }
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            forward(request, server).await
        }
        None => forward(request, server).await,
    }
}

async fn forward(request: Request<Incoming>, server: &Upstream) -> Answer {
    let Some(mut sender) = server.sender().await else {
        return status(UNAVAILABLE, "containerd is not there");
    };
    match sender.send_request(request).await {
        Ok(reply) => reply.map(|body| body.boxed()),
        Err(_) => status(UNAVAILABLE, "containerd closed the connection"),
    }
}

/// A gRPC answer that is only a status.
fn status(code: u16, message: &'static str) -> Answer {
    let body = Empty::new().map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    headers.insert("grpc-message", HeaderValue::from_static(message));
    response
}
