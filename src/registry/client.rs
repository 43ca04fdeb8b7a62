//! The reading half of the distribution protocol: manifests and blobs of one repository, from the first of
//! its servers that has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::error::{Attempt, Failure, FailureClass, RegistryError};
use super::hosts::{Capability, Endpoint, HostsConfig, HostsError};
use super::login::{Challenge, TokenRequest, basic, challenges};
use super::secrets::{Credential, Keyring};
use super::transfer::{Body, Paced, collect, exchange, redacted, refusal, send, token};
use crate::http::connect::{self, ConnectOptions, HttpClient};
use crate::http::proxy::Proxies;
use crate::http::tls::{self, TlsOptions};

/// Largest manifest, in bytes (the specification has registries take 4 MiB).
pub(super) const MANIFEST_MAX: usize = 8 << 20;

/// A server's word for the digest of what it sends.
const CONTENT_DIGEST: &str = "docker-content-digest";
/// Length from which the value of a header that hosts.toml names may be a secret.
const SECRET: usize = 8;

/// Makes clients; those that live at the same time share connections.
pub struct ClientSource {
    hosts: HostsConfig,
    proxies: Proxies,
    open: Mutex<Vec<(ConnectOptions, Weak<HttpClient>)>>,
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
        let tls = TlsOptions { skip_verify: true, ..TlsOptions::default() };
        let options = ConnectOptions { tls, ..ConnectOptions::default() };
        let Ok(http) = self.http(&options) else { return false };
        exchange(&http, Request::head(format!("{origin}/v2/")).body(Full::default())).await.is_ok()
    }

    fn http(&self, options: &ConnectOptions) -> Result<Arc<HttpClient>, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, http)| http.strong_count() > 0);
        if let Some(http) = open.iter().find(|(o, _)| o == options).and_then(|(_, h)| h.upgrade()) {
            return Ok(http);
        }
        let config =
            tls::config(&options.tls).map_err(|e| Failure::new(FailureClass::Config, e.to_string()))?;
        let proxies = options.proxy.clone().map_or_else(|| self.proxies.clone(), Proxies::fixed);
        let http = Arc::new(connect::client(config, proxies, options.dial_timeout));
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
    /// The authorization was good for a request.
    good: bool,
    /// Why a way in was not one.
    problems: Vec<String>,
}

impl Client {
    /// What the tag means by its digest, without fetching it: the registry's answer to HEAD. None when
    /// the server does not say.
    pub async fn digest_of(&self, tag: &str) -> Result<Option<String>, RegistryError> {
        let path = format!("/manifests/{tag}");
        let answer = self.ask(&format!("tag {tag}"), Capability::Resolve, Method::HEAD, &path, None).await?.0;
        let digest = answer.headers().get(CONTENT_DIGEST).and_then(|d| d.to_str().ok());
        Ok(digest.filter(|d| d.starts_with("sha256:") && d.len() == 71).map(str::to_owned))
    }

    /// The manifest or index of a tag or a digest. It has to have that digest, or the one that the server says it
    /// has; where it has not, or breaks off, the next server is asked.
    pub async fn manifest(&self, reference: &str) -> Result<Answer, RegistryError> {
        let by_digest = reference.contains(':');
        let capability = if by_digest { Capability::Pull } else { Capability::Resolve };
        let what = format!("manifest {reference}");
        let path = format!("/manifests/{reference}");
        let mut attempts: Vec<Attempt> = Vec::new();
        loop {
            let asked = self.ask(&what, capability, Method::GET, &path, None).await;
            let (answer, at) = match asked {
                Ok(answer) => answer,
                Err(e) => {
                    attempts.extend(e.attempts);
                    return Err(RegistryError { what, attempts });
                }
            };
            let again = attempts.iter().any(|a| a.at == at);
            match read_manifest(answer, by_digest.then_some(reference)).await {
                Ok(answer) => return Ok(answer),
                Err(_) if again => return Err(RegistryError { what, attempts }),
                Err(failure) => {
                    self.avoid(&at);
                    attempts.push(Attempt { at, failure });
                }
            }
        }
    }

    /// Blob `digest` from byte `offset` on.
    pub async fn blob(&self, digest: &str, offset: u64) -> Result<BlobStream, RegistryError> {
        let path = format!("/blobs/{digest}");
        let (answer, at) =
            self.ask(&format!("blob {digest}"), Capability::Pull, Method::GET, &path, Some(offset)).await?;
        // A server may send all of it all the same.
        let skip = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { offset };
        Ok(BlobStream { body: Paced::new(answer.into_body()), skip, at })
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
            for origin in std::iter::once(&endpoint.origin).chain(&endpoint.alternative) {
                match self.ask_one(endpoint, origin, &method, path, offset).await {
                    Ok(answer) => return Ok((answer, origin.clone())),
                    Err(failure) => {
                        let other = failure.other_scheme();
                        if failure.class == FailureClass::Network {
                            self.avoid(origin);
                        }
                        attempts.push(Attempt { at: origin.clone(), failure });
                        if !other {
                            break;
                        }
                    }
                }
            }
        }
        Err(RegistryError { what: what.to_owned(), attempts })
    }

    fn in_order(&self, capability: Capability) -> Vec<&Endpoint> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.endpoints.iter().filter(|e| e.can(capability));
        let (late, mut first): (Vec<_>, Vec<_>) = all.partition(|e| down.contains(&e.origin));
        first.extend(late);
        first
    }

    async fn ask_one(
        &self,
        endpoint: &Endpoint,
        origin: &str,
        method: &Method,
        path: &str,
        offset: Option<u64>,
    ) -> Result<Body, Failure> {
        let namespace = endpoint.mirror_of.as_ref().map(|r| format!("?ns={r}")).unwrap_or_default();
        let url = format!("{origin}{}/{}{path}{namespace}", endpoint.prefix, self.repository.path);
        let door = self.door(origin);
        let http = self.source.http(&endpoint.connect)?;
        loop {
            let shown = door.lock().await.authorization.clone();
            let answer = send(&http, endpoint, method, &url, offset, shown.as_deref()).await?;
            let status = answer.status();
            if status.is_success() {
                door.lock().await.opened(shown);
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
            door.expire(status);
            if door.candidates.is_none() {
                let (found, problems) = self.keys.lookup(&endpoint.host, &self.repository.path).await;
                door.problems.extend(problems);
                door.candidates = Some(found.into_iter().map(Some).chain([None]).collect());
            }
            if let Some(challenge) = asked.into_iter().next() {
                door.challenge = Some(challenge);
            }
            if !self.let_in(&http, endpoint, origin, &mut door).await? {
                let secrets = door.secrets(endpoint);
                let mut failure = refusal(answer, &secrets).await;
                failure.class = FailureClass::Auth;
                failure.text += &door.advice(&endpoint.host);
                return Err(failure);
            }
        }
    }

    /// Tries the next credential; false when there is none left.
    async fn let_in(
        &self,
        http: &HttpClient,
        endpoint: &Endpoint,
        origin: &str,
        door: &mut Door,
    ) -> Result<bool, Failure> {
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
                    match token(http, origin, request).await {
                        Ok(authorization) => {
                            door.authorization = Some(authorization);
                            return Ok(true);
                        }
                        Err(failure) if failure.class == FailureClass::Auth => {
                            let text = redacted(failure.text, &door.secrets(endpoint));
                            door.problems.push(format!("no token: {text}"));
                        }
                        Err(mut failure) => {
                            failure.text = redacted(failure.text, &door.secrets(endpoint));
                            return Err(failure);
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    fn door(&self, origin: &str) -> Arc<tokio::sync::Mutex<Door>> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.entry(origin.to_owned()).or_default().clone()
    }
}

async fn read_manifest(answer: Body, digest: Option<&str>) -> Result<Answer, Failure> {
    let text = |name| answer.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media_type = text(header::CONTENT_TYPE.as_str()).split(';').next().unwrap_or_default();
    let media_type = media_type.trim().to_owned();
    let said = Some(text(CONTENT_DIGEST)).filter(|d| d.starts_with("sha256:")).map(str::to_owned);
    let data = collect(answer, MANIFEST_MAX).await?;
    let found = format!("sha256:{}", hex::encode(Sha256::digest(&data)));
    match digest.or(said.as_deref()) {
        Some(expected) if expected != found => {
            let text = format!("it sent content with digest {found} for {expected}");
            Err(Failure::new(FailureClass::Damaged, text))
        }
        _ => Ok(Answer { media_type, digest: found, data }),
    }
}

impl Door {
    /// A request with `shown` was let in.
    fn opened(&mut self, shown: Option<String>) {
        self.good |= shown.is_some() && self.authorization == shown;
    }

    /// What was good before is not any more: tokens last a few minutes, a pull may last longer. The same credential
    /// gets another one.
    fn expire(&mut self, status: StatusCode) {
        if self.good && status == StatusCode::UNAUTHORIZED {
            self.good = false;
            self.next = self.next.saturating_sub(1);
        }
    }

    /// Texts that must stand in no message, though the server may repeat them.
    fn secrets(&self, endpoint: &Endpoint) -> Vec<String> {
        let credentials = self.candidates.iter().flatten().flatten();
        let own = credentials.flat_map(|c| c.secrets().map(str::to_owned).collect::<Vec<_>>());
        let shown = self.authorization.iter().filter_map(|a| a.split(' ').nth(1)).map(str::to_owned);
        let headers = endpoint.headers.iter().map(|(_, value)| value.clone()).filter(|v| v.len() >= SECRET);
        own.chain(shown).chain(headers).collect()
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

/// A blob on its way.
pub struct BlobStream {
    body: Paced,
    skip: u64,
    at: String,
}

impl BlobStream {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(mut part) = self.body.next().await? else { return Ok(None) };
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
