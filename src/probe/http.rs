//! One GET, as probes and hooks make it: straight to an address, no proxy, no kept connection, no
//! verification of certificates, redirects followed as long as they stay on the host.

use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, ClientConfig, InvalidMessage, pki_types::ServerName};

use super::speak_first::SpeakFirst;
use super::target::{bare, connect};

/// Most of a body that is read, as the kubelet's.
const BODY_MAX: usize = 10 << 10;
/// Most bytes of an answer's head, and most headers in it. Go's client takes more of both than anybody sends.
const HEAD_MAX: (usize, usize) = (256 << 10, 1000);
/// Redirects followed, as Go's client.
const REDIRECTS_MAX: usize = 10;

/// What to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    /// HTTPS instead of HTTP.
    pub tls: bool,
    /// Names or addresses; the next is tried where nobody listens.
    pub hosts: Vec<String>,
    /// Port.
    pub port: u16,
    /// Path, with a query if there is one.
    pub path: String,
    /// Headers beside, or instead of, the usual ones.
    pub headers: Vec<(String, String)>,
    /// `User-Agent`.
    pub agent: &'static str,
}

/// The last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Where it points, if that is another host, to which no request went.
    pub elsewhere: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// It took too long.
    #[error("Get {url:?}: no answer within {} s", .after.as_secs_f32())]
    Timeout {
        /// The address asked.
        url: String,
        /// The limit.
        after: Duration,
    },
    /// No connection.
    #[error("Get {url:?}: {source}")]
    Connect {
        /// The address asked.
        url: String,
        /// What the system said.
        source: io::Error,
    },
    /// The other side speaks no TLS, or none that we do.
    #[error("Get {url:?}: TLS: {source}")]
    Tls {
        /// The address asked.
        url: String,
        /// What the library said.
        source: io::Error,
    },
    /// The answer is none, or broke off.
    #[error("Get {url:?}: {source}")]
    Http {
        /// The address asked.
        url: String,
        /// What the library said.
        source: hyper::Error,
    },
    /// A header of the manifest cannot be sent.
    #[error(
        "Get {url:?}: header {name:?} cannot be sent: its name or its value has characters that may not be there"
    )]
    Header {
        /// The address asked.
        url: String,
        /// The header.
        name: String,
    },
    /// Path or redirect are no address.
    #[error("Get {url:?}: this is no address")]
    Address {
        /// The address.
        url: String,
    },
    /// It goes round in circles.
    #[error("Get {url:?}: stopped after {REDIRECTS_MAX} redirects")]
    Redirects {
        /// The last address asked.
        url: String,
    },
}

impl HttpError {
    /// Whether HTTPS was tried on a server of plain HTTP.
    pub fn is_plain_http(&self) -> bool {
        let Self::Tls { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        matches!(inner, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
    }
}

/// Gets it, within `limit`.
///
/// # Errors
/// [`HttpError`]; an answer of any status is none.
pub async fn get(request: &HttpGet, limit: Duration) -> Result<HttpAnswer, HttpError> {
    let first = Url::first(request);
    let url = first.to_string();
    let follow = follow(request, first);
    timeout(limit, follow).await.unwrap_or(Err(HttpError::Timeout { url, after: limit }))
}

async fn follow(request: &HttpGet, first: Url) -> Result<HttpAnswer, HttpError> {
    let mut url = first;
    for _ in 0..=REDIRECTS_MAX {
        let (status, location) = ask(request, &url).await?;
        let moved = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let answer = HttpAnswer { status: status.as_u16(), elsewhere: None };
        let Some(location) = location.filter(|_| moved) else { return Ok(answer) };
        let next = url.join(&location).ok_or(HttpError::Address { url: location })?;
        if next.host != url.host {
            return Ok(HttpAnswer { elsewhere: Some(next.to_string()), ..answer });
        }
        url = next;
    }
    Err(HttpError::Redirects { url: url.to_string() })
}

/// One request and its answer: status, and where it points.
async fn ask(request: &HttpGet, url: &Url) -> Result<(StatusCode, Option<String>), HttpError> {
    let message = message(request, url)?;
    // A redirect stays on the host, and on the address that answered for it.
    let (tcp, _) = connect(&request.hosts, url.port)
        .await
        .map_err(|source| HttpError::Connect { url: url.to_string(), source })?;
    if !url.tls {
        return exchange(tcp, message, url).await;
    }
    let failed = |source| HttpError::Tls { url: url.to_string(), source };
    let name = ServerName::try_from(bare(&url.host).to_owned());
    let name = name.map_err(|_| HttpError::Address { url: url.to_string() })?;
    let stream = TlsConnector::from(config()).connect(name, tcp).await.map_err(failed)?;
    exchange(stream, message, url).await
}

fn config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    CONFIG.get_or_init(crate::http::tls::unverified).clone()
}

fn message(request: &HttpGet, url: &Url) -> Result<Request<Empty<Bytes>>, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let bad = || HttpError::Header { url: url.to_string(), name: name.clone() };
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
    }
    let usual = [(USER_AGENT, request.agent), (ACCEPT, "*/*"), (CONNECTION, "close"), (HOST, "")];
    for (name, value) in usual {
        match headers.get(&name).map(|given| given.is_empty()) {
            // Given empty it is left out.
            Some(true) => drop(headers.remove(&name)),
            Some(false) => {}
            None => drop(headers.insert(name, HeaderValue::from_static(value))),
        }
    }
    let bad = || HttpError::Address { url: url.to_string() };
    if headers.get(HOST).is_none_or(HeaderValue::is_empty) {
        headers.insert(HOST, url.authority().parse().map_err(|_| bad())?);
    }
    let target: Uri = url.path.parse().map_err(|_| bad())?;
    let mut message = Request::new(Empty::new());
    *message.uri_mut() = target;
    *message.headers_mut() = headers;
    Ok(message)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    message: Request<Empty<Bytes>>,
    url: &Url,
) -> Result<(StatusCode, Option<String>), HttpError> {
    let failed = |source| HttpError::Http { url: url.to_string(), source };
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_MAX.0).max_headers(HEAD_MAX.1);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(SpeakFirst::new(stream))).await.map_err(failed)?;
    let answer = async {
        let response = sender.send_request(message).await?;
        read(response).await
    };
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map_err(failed),
            // What failed there fails the answer too.
            _ = &mut connection, if open => open = false,
        }
    }
}

async fn read(mut response: Response<Incoming>) -> Result<(StatusCode, Option<String>), hyper::Error> {
    let mut read = 0;
    while read < BODY_MAX && !response.body().is_end_stream() {
        let Some(frame) = response.body_mut().frame().await else { break };
        read += frame?.data_ref().map_or(0, Bytes::len);
    }
    let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok()).map(str::to_owned);
    Ok((response.status(), location))
}

/// An address, as far as requests need it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    tls: bool,
    host: String,
    port: u16,
    /// With the query, fit for a request line.
    path: String,
}

impl Url {
    fn first(request: &HttpGet) -> Self {
        let host = request.hosts.first().map_or("", |h| bare(h)).to_owned();
        Self { tls: request.tls, host, port: request.port, path: request_target(&request.path) }
    }

    /// Host and port; an address of IPv6 in brackets.
    fn authority(&self) -> String {
        super::target::authority(&self.host, self.port)
    }

    /// Where a `Location` found here points.
    fn join(&self, location: &str) -> Option<Self> {
        let other = |rest: &str, tls: bool| {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let authority: hyper::http::uri::Authority = authority.parse().ok()?;
            let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
            Some(Self { tls, host: bare(authority.host()).to_owned(), port, path: request_target(path) })
        };
        let lower = location.get(..8).unwrap_or(location).to_ascii_lowercase();
        if lower.starts_with("https://") {
            return other(&location[8..], true);
        }
        if lower.starts_with("http://") {
            return other(&location[7..], false);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return other(rest, self.tls);
        }
        let here = self.path.split('?').next().unwrap_or_default();
        let path = match location.chars().next() {
            Some('/') => location.to_owned(),
            Some('?') => format!("{here}{location}"),
            _ => format!("{}/{location}", here.rsplit_once('/').map_or("", |(dir, _)| dir)),
        };
        Some(Self { path: request_target(&without_dots(&path)), ..self.clone() })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// A path as written by a person as it goes into a request: with a slash before it, without a fragment,
/// what may not stand there encoded.
fn request_target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        target.push('/');
    }
    let bytes = path.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        let encoded = || bytes.get(i + 1..i + 3).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit));
        let fits = match byte {
            b'%' => encoded(),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            _ => byte.is_ascii_graphic(),
        };
        if fits {
            target.push(char::from(*byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

/// `/a/../b/./c` is `/b/c`.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut parts: Vec<&str> = Vec::new();
    let last = path.rsplit('/').next().unwrap_or_default();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if matches!(last, "." | "..") { "/" } else { "" };
    format!("/{}{end}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests;
