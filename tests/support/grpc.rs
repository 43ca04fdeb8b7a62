//! A gRPC health server, as small as one can be, that answers as it is told.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

#[derive(Default)]
struct State {
    /// `ServingStatus`; none answers UNIMPLEMENTED.
    status: Option<u8>,
    service: String,
    agent: String,
}

/// The server; it ends with the test.
pub struct HealthServer {
    state: Arc<Mutex<State>>,
}

impl HealthServer {
    pub fn start(listener: TcpListener) -> Self {
        let state = Arc::new(Mutex::new(State { status: Some(1), ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
            runtime.block_on(serve(listener, shared));
        });
        Self { state }
    }

    /// Answers with this status from now on.
    pub fn answer(&self, status: u8) {
        self.lock().status = Some(status);
    }

    pub fn unimplemented(&self) {
        self.lock().status = None;
    }

    pub fn last_service(&self) -> String {
        self.lock().service.clone()
    }

    pub fn last_agent(&self) -> String {
        self.lock().agent.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    listener.set_nonblocking(true).expect("a socket can be");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket can be");
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let service = hyper::service::service_fn(move |request| answer(request, state.clone()));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

/// What is sent, piece by piece.
struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Frames>, Infallible> {
    let agent =
        request.headers().get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let right = request.uri().path() == "/grpc.health.v1.Health/Check";
    let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let mut state = state.lock().expect("no test panics with it");
    state.agent = agent;
    // Five bytes of frame, then field 1 with its length.
    state.service = String::from_utf8_lossy(body.get(7..).unwrap_or_default()).into_owned();
    let mut trailers = HeaderMap::new();
    let mut frames = VecDeque::new();
    match state.status.filter(|_| right) {
        Some(status) => {
            frames.push_back(Frame::data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status])));
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        None => drop(trailers.insert("grpc-status", HeaderValue::from_static("12"))),
    }
    frames.push_back(Frame::trailers(trailers));
    let mut response = Response::new(Frames(frames));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}
