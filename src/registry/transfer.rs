//! Single requests to a server: redirects, tokens, refusals in words, bodies within limits.

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
use crate::system::clock::{self, Moment};

/// How long a server may think before it answers.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a body may stand still, or as good as that.
const STALL: Duration = Duration::from_secs(60);
/// Bytes that have to come in that time: a modem brings more, a server that drips on purpose does not.
const LEAST: usize = 1 << 10;
/// Redirects followed for one request.
const REDIRECTS: usize = 5;
/// Largest answer that is read for its words, in bytes.
const WORDS_MAX: usize = 16 << 10;
/// Longest text taken over from a server, in characters.
const SAID_MAX: usize = 200;
const ENDLESS: &str = "it sends from one address to the next without end";
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
            // Like containerd, a credential that is known stands over one in hosts.toml.
            let own = |name: &str| authorization.is_some() && name.eq_ignore_ascii_case("authorization");
            for (name, value) in endpoint.headers.iter().filter(|(name, _)| !own(name)) {
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
    Err(Failure::new(FailureClass::Refused, ENDLESS))
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

/// Where a redirect leads to: an address, or what is left of it when the rest stays (RFC 3986, 4.2).
pub(super) fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
    let wrong = || Failure::new(FailureClass::Refused, "it sends elsewhere, to what is no address");
    let to = headers.get(header::LOCATION).and_then(|l| l.to_str().ok()).ok_or_else(wrong)?;
    let (Some(scheme), Some(authority)) = (from.scheme_str(), from.authority()) else { return Err(wrong()) };
    let to = to.split('#').next().unwrap_or(to);
    let to = match to {
        _ if to.contains("://") && !to.starts_with(['/', '?']) => to.to_owned(),
        _ if to.starts_with("//") => format!("{scheme}:{to}"),
        _ if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        _ => {
            let above = from.path().rsplit_once('/').map_or("", |(above, _)| above);
            format!("{scheme}://{authority}{above}/{to}")
        }
    };
    let uri: Uri = to.parse().map_err(|_| wrong())?;
    match (scheme, uri.scheme_str()) {
        ("https", Some("http")) => Err(Failure::new(
            FailureClass::Refused,
            format!("it sends from https to plain http at {}", uri.host().unwrap_or_default()),
        )),
        (_, Some("http" | "https")) => Ok(uri),
        _ => Err(wrong()),
    }
}

/// Asks for a token; `origin` is the server that wants it.
pub(super) async fn token(http: &HttpClient, origin: &str, request: TokenRequest) -> Result<String, Failure> {
    let realm = shown(&request.url);
    let about = |mut f: Failure| {
        f.text = format!("token server {realm}: {}", f.text);
        f
    };
    if origin.starts_with("https://") && request.url.starts_with("http://") && request.secret() {
        let text = format!("its token server {realm} is plain http; no credential is sent there");
        return Err(Failure::new(FailureClass::Refused, text));
    }
    let answer = ask_for_token(http, request).await.map_err(about)?;
    if !answer.status().is_success() {
        return Err(about(refusal(answer, &[]).await));
    }
    let data = collect(answer, MANIFEST_MAX).await.map_err(about)?;
    let token = serde_json::from_slice::<TokenAnswer>(&data).ok().and_then(TokenAnswer::authorization);
    token.ok_or_else(|| about(Failure::new(FailureClass::Refused, "its answer holds no token")))
}

/// An address as messages show it: without what may be secret in it.
fn shown(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => url.to_owned(),
    }
}

/// Sends the request, over redirects as long as they stay with the server that may see what is shown.
async fn ask_for_token(http: &HttpClient, request: TokenRequest) -> Result<Body, Failure> {
    let no_address = |_| Failure::new(FailureClass::Refused, "it is no address");
    let mut url: Uri = request.url.parse().map_err(no_address)?;
    let home = url.authority().cloned();
    for _ in 0..=REDIRECTS {
        let at_home = url.authority() == home.as_ref();
        let mut builder = Request::builder().uri(url.clone());
        builder = builder.header(header::USER_AGENT, concat!("podling/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = request.authorization.as_ref().filter(|_| at_home) {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        let body = match &request.form {
            None => builder.body(Full::default()),
            Some(_) if !at_home => {
                let text = "it sends to another server, which no credential is shown to";
                return Err(Failure::new(FailureClass::Refused, text));
            }
            Some(form) => builder
                .method(Method::POST)
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(Full::from(form.clone())),
        };
        let answer = exchange(http, body).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        url = redirected(&url, answer.headers())?;
    }
    Err(Failure::new(FailureClass::Refused, ENDLESS))
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
    let mut body = Paced::new(answer.into_body());
    let mut data = Vec::new();
    while let Some(part) = body.next().await? {
        if data.len() + part.len() > max {
            let text = format!("its answer is longer than {max} bytes");
            return Err(Failure::new(FailureClass::Refused, text));
        }
        data.extend_from_slice(&part);
    }
    Ok(data)
}

/// A body that has to keep coming.
pub(super) struct Paced {
    body: Incoming,
    /// Since when `came` is counted.
    since: Moment,
    came: usize,
}

impl Paced {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, since: clock::now(), came: 0 }
    }

    /// The next bytes; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let next = timeout(STALL, self.body.frame()).await;
            let next = next.map_err(|_| {
                Failure::new(FailureClass::Network, format!("nothing came for {} s", STALL.as_secs()))
            })?;
            match next {
                None => return Ok(None),
                Some(Err(e)) => return Err(Failure::transport(&e)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.count(data.len())?;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        self.came += bytes;
        let now = clock::now();
        if self.came >= LEAST {
            (self.since, self.came) = (now, 0);
        } else if now.since(self.since) > STALL {
            let text = format!("only {} bytes came in {} s", self.came, STALL.as_secs());
            return Err(Failure::new(FailureClass::Network, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String, String> {
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        redirected(&from.parse().unwrap(), &headers).map(|u| u.to_string()).map_err(|e| e.text)
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        assert_eq!(shown("https://me:p@a.io/token?key=x"), "https://a.io/token");
        assert_eq!(shown("https://a.io/token"), "https://a.io/token");
    }

    #[test]
    fn redirects_may_leave_out_what_stays() {
        let from = "https://a.io/v2/x/blobs/1?ns=b";
        for (location, expected) in [
            ("https://b.io/x?sign=https://y", "https://b.io/x?sign=https://y"),
            ("//b.io/x", "https://b.io/x"),
            ("/x?u=http://y", "https://a.io/x?u=http://y"),
            ("2", "https://a.io/v2/x/blobs/2"),
            ("/x#part", "https://a.io/x"),
        ] {
            assert_eq!(to(from, location).as_deref(), Ok(expected), "{location}");
        }
        assert_eq!(to(from, "http://b.io/x").unwrap_err(), "it sends from https to plain http at b.io");
        assert_eq!(to(from, "ftp://b.io/x").unwrap_err(), "it sends elsewhere, to what is no address");
    }
}
