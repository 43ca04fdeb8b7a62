//! The reading half of the distribution protocol: manifests and blobs of one repository, from the first of
//! its servers that has them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::error::{Attempt, Failure, FailureClass, RegistryError};
use super::hosts::{Capability, Endpoint, HostsConfig, HostsError};
use super::login::{Challenge, TokenAnswer, TokenRequest, basic, challenges};
use super::secrets::{Credential, Keyring};
use crate::http::connect::{self, HttpClient};
use crate::http::proxy::Proxies;
use crate::http::tls::{self, TlsOptions};

/// How long a server may think before it answers.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a body may stand still.
const STALL: Duration = Duration::from_secs(60);
/// Redirects followed for one request.
const REDIRECTS: usize = 5;
/// Largest manifest, in bytes (the specification has registries take 4 MiB).
const MANIFEST_MAX: usize = 8 << 20;
/// Largest answer that is read for its words, in bytes.
const WORDS_MAX: usize = 16 << 10;
/// Longest text taken over from a server, in characters.
const SAID_MAX: usize = 200;

const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";

/// Makes clients; those that live at the same time share connections.
pub struct ClientSource {
    hosts: HostsConfig,
    proxies: Proxies,
    open: Mutex<Vec<(TlsOptions, Weak<HttpClient>)>>,
}

impl ClientSource {
    /// For these hosts files, by these proxies.
    pub fn new(hosts: HostsConfig, proxies: Proxies) -> Self {
        Self { hosts, proxies, open: Mutex::default() }
    }

    /// A client for one repository.
    pub fn client(self: &Arc<Self>, repository: Repository, keys: Keyring) -> Result<Client, HostsError> {
        let endpoints = self.hosts.endpoints(&repository.registry)?;
        Ok(Client {
            source: self.clone(),
            endpoints,
            doors: Mutex::default(),
            keys,
            down: Mutex::default(),
            repository,
        })
    }

    /// Whether the server `origin` answers at all.
    pub async fn answers(&self, origin: &str) -> bool {
        let options = TlsOptions { skip_verify: true, ..TlsOptions::default() };
        let Ok(http) = self.http(&options) else { return false };
        exchange(&http, Request::head(format!("{origin}/v2/")).body(Full::default())).await.is_ok()
    }

    fn http(&self, options: &TlsOptions) -> Result<Arc<HttpClient>, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, http)| http.strong_count() > 0);
        if let Some(http) = open.iter().find(|(o, _)| o == options).and_then(|(_, h)| h.upgrade()) {
            return Ok(http);
        }
        let config = tls::config(options).map_err(|e| Failure::new(FailureClass::Config, e.to_string()))?;
        let http = Arc::new(connect::client(config, self.proxies.clone()));
        open.push((options.clone(), Arc::downgrade(&http)));
        Ok(http)
    }
}

/// Registry and path of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `docker.io`.
    pub registry: String,
    /// `library/busybox`.
    pub path: String,
}

/// Reads one repository.
pub struct Client {
    source: Arc<ClientSource>,
    repository: Repository,
    endpoints: Vec<Endpoint>,
    keys: Keyring,
    /// How each server's door was passed, by origin.
    doors: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Door>>>>,
    /// Servers that could not be reached; asked last from then on.
    down: Mutex<BTreeSet<String>>,
}

/// A manifest or index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its media type, as the server says.
    pub media_type: String,
    /// Its digest, computed here.
    pub digest: String,
    /// It.
    pub data: Vec<u8>,
}

/// What a server wants to see, and what it was shown.
#[derive(Default)]
struct Door {
    candidates: Option<Vec<Option<Credential>>>,
    next: usize,
    challenge: Option<Challenge>,
    authorization: Option<String>,
    /// Why a way in was not one.
    problems: Vec<String>,
}

type Body = Response<Incoming>;

impl Client {
    /// What the tag means by its digest, without fetching it: the registry's answer to HEAD. None when
    /// the server does not say.
    pub async fn digest_of(&self, tag: &str) -> Result<Option<String>, RegistryError> {
        let path = format!("/manifests/{tag}");
        let answer = self.ask(&format!("tag {tag}"), Capability::Resolve, Method::HEAD, &path, None).await?.0;
        let digest = answer.headers().get("docker-content-digest").and_then(|d| d.to_str().ok());
        Ok(digest.filter(|d| d.starts_with("sha256:") && d.len() == 71).map(str::to_owned))
    }

    /// The manifest or index of a tag or a digest; the latter is checked.
    pub async fn manifest(&self, reference: &str) -> Result<Answer, RegistryError> {
        let by_digest = reference.contains(':');
        let capability = if by_digest { Capability::Pull } else { Capability::Resolve };
        let what = format!("manifest {reference}");
        let path = format!("/manifests/{reference}");
        let (answer, at) = self.ask(&what, capability, Method::GET, &path, None).await?;
        let failed = |failure| RegistryError {
            what: what.clone(),
            attempts: vec![Attempt { at: at.clone(), failure }],
        };
        let media_type = answer.headers().get(header::CONTENT_TYPE).and_then(|t| t.to_str().ok());
        let media_type =
            media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        let data = collect(answer, MANIFEST_MAX).await.map_err(failed)?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&data)));
        if by_digest && digest != reference {
            let text = format!("it sent content with digest {digest}");
            return Err(failed(Failure::new(FailureClass::Damaged, text)));
        }
        Ok(Answer { media_type, digest, data })
    }

    /// Blob `digest` from byte `offset` on.
    pub async fn blob(&self, digest: &str, offset: u64) -> Result<BlobStream, RegistryError> {
        let path = format!("/blobs/{digest}");
        let (answer, at) =
            self.ask(&format!("blob {digest}"), Capability::Pull, Method::GET, &path, Some(offset)).await?;
        // A server may send all of it all the same.
        let skip = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { offset };
        Ok(BlobStream { body: answer.into_body(), skip, at })
    }

    /// The registry itself, which is asked last.
    pub fn origin(&self) -> &str {
        self.endpoints.last().map_or("", |e| &e.origin)
    }

    /// Has the server `origin` asked after all others from now on.
    pub fn avoid(&self, origin: &str) {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).insert(origin.to_owned());
    }

    /// Asks one server after the other; the answer and who gave it.
    async fn ask(
        &self,
        what: &str,
        capability: Capability,
        method: Method,
        path: &str,
        offset: Option<u64>,
    ) -> Result<(Body, String), RegistryError> {
        let mut attempts: Vec<Attempt> = Vec::new();
        for endpoint in self.in_order(capability) {
            // Nobody listens: speaking TLS to nobody tells nothing more.
            let before = attempts.last().map(|a| a.failure.class);
            if endpoint.fallback
                && before != Some(FailureClass::Refused)
                && before != Some(FailureClass::Network)
            {
                continue;
            }
            match self.ask_one(endpoint, &method, path, offset).await {
                Ok(answer) => return Ok((answer, endpoint.origin.clone())),
                Err(failure) => {
                    if failure.class == FailureClass::Network {
                        self.avoid(&endpoint.origin);
                    }
                    attempts.push(Attempt { at: endpoint.origin.clone(), failure });
                }
            }
        }
        Err(RegistryError { what: what.to_owned(), attempts })
    }

    fn in_order(&self, capability: Capability) -> Vec<&Endpoint> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.endpoints.iter().filter(|e| e.can(capability));
        let (late, mut first): (Vec<_>, Vec<_>) = all.partition(|e| down.contains(&e.origin) && !e.fallback);
        first.extend(late);
        first
    }

    async fn ask_one(
        &self,
        endpoint: &Endpoint,
        method: &Method,
        path: &str,
        offset: Option<u64>,
    ) -> Result<Body, Failure> {
        let namespace = endpoint.mirror_of.as_ref().map(|r| format!("?ns={r}")).unwrap_or_default();
        let url = format!("{}{}/{}{path}{namespace}", endpoint.origin, endpoint.prefix, self.repository.path);
        let door = self.door(endpoint);
        let http = self.source.http(&endpoint.tls)?;
        loop {
            let shown = door.lock().await.authorization.clone();
            let answer = send(&http, endpoint, method, &url, offset, shown.as_deref()).await?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            if !matches!(status.as_u16(), 401 | 403) {
                return Err(refusal(answer, &[]).await);
            }
            let asked = challenges(answer.headers());
            let mut door = door.lock().await;
            if door.authorization != shown {
                // Another request has just been let in.
                continue;
            }
            if door.candidates.is_none() {
                let (found, problems) = self.keys.lookup(&endpoint.host, &self.repository.path).await;
                door.problems.extend(problems);
                door.candidates = Some(found.into_iter().map(Some).chain([None]).collect());
            }
            if let Some(challenge) = asked.into_iter().next() {
                door.challenge = Some(challenge);
            }
            if !self.let_in(&http, endpoint, &mut door).await? {
                let secrets = door.secrets();
                let mut failure = refusal(answer, &secrets).await;
                failure.class = FailureClass::Auth;
                failure.text += &door.advice(&endpoint.host);
                return Err(failure);
            }
        }
    }

    /// Tries the next credential; false when there is none left.
    async fn let_in(&self, http: &HttpClient, endpoint: &Endpoint, door: &mut Door) -> Result<bool, Failure> {
        let Some(challenge) = door.challenge.clone() else { return Ok(false) };
        while let Some(candidate) = door.candidates.iter().flatten().nth(door.next).cloned() {
            door.next += 1;
            if let Some(credential) = candidate.as_ref().filter(|c| !c.registry_token.is_empty()) {
                door.authorization = Some(format!("Bearer {}", credential.registry_token));
                return Ok(true);
            }
            match &challenge {
                Challenge::Basic => {
                    if let Some(authorization) = candidate.as_ref().and_then(basic) {
                        door.authorization = Some(authorization);
                        return Ok(true);
                    }
                }
                Challenge::Bearer { realm, service, .. } => {
                    // The registry's own scope may also ask for the right to push.
                    let scope = format!("repository:{}:pull", self.repository.path);
                    let request = TokenRequest::new(realm, service.as_deref(), &scope, candidate.as_ref());
                    match token(http, endpoint, request).await {
                        Ok(authorization) => {
                            door.authorization = Some(authorization);
                            return Ok(true);
                        }
                        Err(failure) if failure.class == FailureClass::Auth => {
                            let text = redacted(failure.text, &door.secrets());
                            door.problems.push(format!("no token: {text}"));
                        }
                        Err(mut failure) => {
                            failure.text = redacted(failure.text, &door.secrets());
                            return Err(failure);
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    fn door(&self, endpoint: &Endpoint) -> Arc<tokio::sync::Mutex<Door>> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.entry(endpoint.origin.clone()).or_default().clone()
    }
}

impl Door {
    fn secrets(&self) -> Vec<String> {
        let credentials = self.candidates.iter().flatten().flatten();
        let own = credentials.flat_map(|c| c.secrets().map(str::to_owned).collect::<Vec<_>>());
        let shown = self.authorization.iter().filter_map(|a| a.split(' ').nth(1)).map(str::to_owned);
        own.chain(shown).collect()
    }

    fn advice(&self, host: &str) -> String {
        let known = self.candidates.iter().flatten().flatten().count();
        let mut text = match known {
            0 => format!(
                "; no credential for {host} is known: name one in imagePullSecrets or in a docker config.json"
            ),
            1 => "; the credential that is known was refused".to_owned(),
            n => format!("; each of the {n} credentials that are known was refused"),
        };
        for problem in &self.problems {
            text += &format!("; {problem}");
        }
        text
    }
}

/// One request, over redirects. Credentials stay with the server they are for.
async fn send(
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

async fn exchange(
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
fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
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

async fn token(http: &HttpClient, endpoint: &Endpoint, request: TokenRequest) -> Result<String, Failure> {
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
async fn refusal(answer: Body, secrets: &[String]) -> Failure {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let data = collect(answer, WORDS_MAX).await.unwrap_or_default();
    let said = words(&data).map(|text| redacted(text, secrets));
    Failure::status(status, &headers, said)
}

/// The first message in the error document of the specification, on one line.
fn words(data: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(data).ok()?;
    let first = value.get("errors").and_then(|e| e.get(0)).unwrap_or(&value);
    let text = ["message", "details", "detail", "error"].iter().find_map(|k| first.get(k)?.as_str())?;
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect();
    (!clean.trim().is_empty()).then(|| clean.trim().to_owned())
}

fn redacted(mut text: String, secrets: &[String]) -> String {
    for secret in secrets.iter().filter(|s| !s.is_empty()) {
        text = text.replace(secret.as_str(), "***");
    }
    text
}

async fn collect(answer: Body, max: usize) -> Result<Vec<u8>, Failure> {
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

async fn frame(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
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

/// A blob on its way.
pub struct BlobStream {
    body: Incoming,
    skip: u64,
    at: String,
}

impl BlobStream {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(mut part) = frame(&mut self.body).await? else { return Ok(None) };
            let skip = usize::try_from(self.skip).unwrap_or(usize::MAX).min(part.len());
            self.skip -= skip as u64;
            let rest = part.split_off(skip);
            if !rest.is_empty() {
                return Ok(Some(rest));
            }
        }
    }

    /// Who sends it.
    pub fn origin(&self) -> &str {
        &self.at
    }
}
