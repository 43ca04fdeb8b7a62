//! Single requests to a server: redirects, tokens, refusals in words, bodies within limits.

use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, Uri, header};
use tokio::time::timeout;

use super::client::MANIFEST_MAX;
use super::error::{Failure, FailureClass};
use super::hosts::Endpoint;
use super::login::{TokenAnswer, TokenRequest};
use crate::http::connect::HttpClient;

/// How long a server may think before it answers.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a body may stand still.
const STALL: Duration = Duration::from_secs(60);
/// Redirects followed for one request.
const REDIRECTS: usize = 5;
/// Largest answer that is read for its words, in bytes.
const WORDS_MAX: usize = 16 << 10;
/// Longest text taken over from a server, in characters.
const SAID_MAX: usize = 200;
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";

/// An answer whose body is still to come.
pub(super) type Body = Response<Incoming>;

/// One request, over redirects. Credentials stay with the server they are for.
pub(super) async fn send(
    http: &HttpClient,
    endpoint: &Endpoint,
    method: &Method,
    url: &str,
    offset: Option<u64>,
    authorization: Option<&str>,
) -> Result<Body, Failure> {
    let mut url: Uri =
        url.parse().map_err(|_| Failure::new(FailureClass::Config, format!("{url} is no address")))?;
    let home = url.authority().cloned();
    for _ in 0..=REDIRECTS {
        let at_home = url.authority() == home.as_ref();
        let mut request = Request::builder().method(method.clone()).uri(url.clone());
        request = request.header(header::USER_AGENT, concat!("podling/", env!("CARGO_PKG_VERSION")));
        request = match offset {
            None => request.header(header::ACCEPT, ACCEPT),
            Some(0) => request,
            Some(offset) => request.header(header::RANGE, format!("bytes={offset}-")),
        };
        if at_home {
            for (name, value) in &endpoint.headers {
                request = request.header(name, value);
            }
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
        }
        let answer = exchange(http, request.body(Full::default())).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        url = redirected(&url, answer.headers())?;
    }
    Err(Failure::new(FailureClass::Refused, "it sends from one address to the next without end"))
}

pub(super) async fn exchange(
    http: &HttpClient,
    request: Result<Request<Full<Bytes>>, hyper::http::Error>,
) -> Result<Body, Failure> {
    let request =
        request.map_err(|e| Failure::new(FailureClass::Config, format!("a header is not valid: {e}")))?;
    match timeout(ANSWER, http.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => Err(Failure::transport(&e)),
        Err(_) => {
            let text = format!("no answer within {} s", ANSWER.as_secs());
            Err(Failure::new(FailureClass::Network, text))
        }
    }
}

/// Where a redirect leads to.
pub(super) fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
    let wrong = || Failure::new(FailureClass::Refused, "it sends elsewhere, to what is no address");
    let to = headers.get(header::LOCATION).and_then(|l| l.to_str().ok()).ok_or_else(wrong)?;
    let to = if to.starts_with('/') && !to.starts_with("//") {
        let (Some(scheme), Some(authority)) = (from.scheme_str(), from.authority()) else {
            return Err(wrong());
        };
        format!("{scheme}://{authority}{to}")
    } else {
        to.to_owned()
    };
    let uri: Uri = to.parse().map_err(|_| wrong())?;
    match (from.scheme_str(), uri.scheme_str()) {
        (Some("https"), Some("http")) => Err(Failure::new(
            FailureClass::Refused,
            format!("it sends from https to plain http at {}", uri.host().unwrap_or_default()),
        )),
        (_, Some("http" | "https")) => Ok(uri),
        _ => Err(wrong()),
    }
}

pub(super) async fn token(
    http: &HttpClient,
    endpoint: &Endpoint,
    request: TokenRequest,
) -> Result<String, Failure> {
    let realm = request.url.split('?').next().unwrap_or_default().to_owned();
    let about = |mut f: Failure| {
        f.text = format!("token server {realm}: {}", f.text);
        f
    };
    if endpoint.origin.starts_with("https://") && request.url.starts_with("http://") && request.secret() {
        let text = format!("its token server {realm} is plain http; no credential is sent there");
        return Err(Failure::new(FailureClass::Refused, text));
    }
    let mut builder = Request::builder().uri(&request.url);
    builder = builder.header(header::USER_AGENT, concat!("podling/", env!("CARGO_PKG_VERSION")));
    if let Some(authorization) = &request.authorization {
        builder = builder.header(header::AUTHORIZATION, authorization);
    }
    let body = match request.form {
        None => builder.body(Full::default()),
        Some(form) => builder
            .method(Method::POST)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form)),
    };
    let answer = exchange(http, body).await.map_err(about)?;
    if !answer.status().is_success() {
        return Err(about(refusal(answer, &[]).await));
    }
    let data = collect(answer, MANIFEST_MAX).await.map_err(about)?;
    let token = serde_json::from_slice::<TokenAnswer>(&data).ok().and_then(TokenAnswer::authorization);
    token.ok_or_else(|| about(Failure::new(FailureClass::Refused, "its answer holds no token")))
}

/// The failure that an answer is, with the server's own words.
pub(super) async fn refusal(answer: Body, secrets: &[String]) -> Failure {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let data = collect(answer, WORDS_MAX).await.unwrap_or_default();
    let said = words(&data).map(|text| redacted(text, secrets));
    Failure::status(status, &headers, said)
}

/// The first message in the error document of the specification, on one line.
pub(super) fn words(data: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(data).ok()?;
    let first = value.get("errors").and_then(|e| e.get(0)).unwrap_or(&value);
    let text = ["message", "details", "detail", "error"].iter().find_map(|k| first.get(k)?.as_str())?;
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect();
    (!clean.trim().is_empty()).then(|| clean.trim().to_owned())
}

pub(super) fn redacted(mut text: String, secrets: &[String]) -> String {
    for secret in secrets.iter().filter(|s| !s.is_empty()) {
        text = text.replace(secret.as_str(), "***");
    }
    text
}

pub(super) async fn collect(answer: Body, max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = answer.into_body();
    let mut data = Vec::new();
    while let Some(part) = frame(&mut body).await? {
        if data.len() + part.len() > max {
            let text = format!("its answer is longer than {max} bytes");
            return Err(Failure::new(FailureClass::Refused, text));
        }
        data.extend_from_slice(&part);
    }
    Ok(data)
}

pub(super) async fn frame(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        let next = timeout(STALL, body.frame()).await.map_err(|_| {
            Failure::new(FailureClass::Network, format!("nothing came for {} s", STALL.as_secs()))
        })?;
        match next {
            None => return Ok(None),
            Some(Err(e)) => {
                let cause = e.source().map(ToString::to_string).unwrap_or_else(|| e.to_string());
                return Err(Failure::new(FailureClass::Network, format!("the connection broke: {cause}")));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
