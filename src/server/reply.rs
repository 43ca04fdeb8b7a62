//! Answers: bodies with backpressure, JSON, and errors as v1 Status objects.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::Serialize;
use tokio::sync::mpsc;

use super::access::AccessError;

/// The body of an answer.
pub enum Body {
    /// All of it at once.
    Whole(Option<Bytes>),
    /// As it comes. The channel is bounded and read only as fast as the client takes it; it is dropped
    /// when the client goes.
    Stream(mpsc::Receiver<Bytes>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = match self.get_mut() {
            Body::Whole(bytes) => bytes.take(),
            Body::Stream(receiver) => ready!(receiver.poll_recv(cx)),
        };
        Poll::Ready(chunk.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

/// A refusal, with Kubernetes' reason and HTTP code.
#[derive(Debug)]
pub(super) struct Refusal {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

impl Refusal {
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message: message.into() }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, reason: "BadRequest", message: message.into() }
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self { code: StatusCode::CONFLICT, reason: "Conflict", message: message.into() }
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: StatusCode::SERVICE_UNAVAILABLE, reason: "ServiceUnavailable", message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, reason: "InternalError", message: message.into() }
    }

    pub(super) fn method(method: &hyper::Method, path: &str) -> Self {
        let message = format!("{method} is not allowed on {path}");
        Self { code: StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed", message }
    }
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let message = error.to_string();
        match error {
            AccessError::NotFound(_) => Self::not_found(message),
            AccessError::Conflict(_) => Self::conflict(message),
            AccessError::Invalid(_) => Self::bad_request(message),
            AccessError::Unavailable(_) => Self::unavailable(message),
            AccessError::Failed(_) => Self::internal(message),
        }
    }
}

impl Refusal {
    pub(super) fn into_response(self) -> Response<Body> {
        let status = Status {
            status: Some("Failure".to_owned()),
            code: Some(self.code.as_u16().into()),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message),
            ..Status::default()
        };
        let mut response = json(&status);
        *response.status_mut() = self.code;
        response
    }
}

/// What every route answers.
pub(super) type Answer = Result<Response<Body>, Refusal>;

/// A JSON answer with code 200.
pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    // By way of a Value, so that the API's types are compiled for one serializer only: they are large.
    match serde_json::to_value(value).and_then(|value| serde_json::to_vec(&value)) {
        Ok(text) => typed("application/json", Body::Whole(Some(text.into()))),
        Err(e) => {
            let mut response = typed("text/plain", Body::Whole(Some(e.to_string().into())));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// An answer with code 200.
pub(super) fn typed(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

/// An order that was accepted.
pub(super) fn success() -> Response<Body> {
    json(&Status { status: Some("Success".to_owned()), ..Status::default() })
}
