//! One pull, from the name to the unpacked image.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::blobs::Blobs;
use super::error::PullError;
use super::progress::Progress;
use crate::image::documents::{
    DOCUMENT_MAX, Descriptor, Index, Manifest, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, parse_config,
};
use crate::image::link::link;
use crate::image::platform;
use crate::image::reference::ImageRef;
use crate::image::unpack::{Layers, unpack_from, unpacked_layers};
use crate::image::verify::{self, Policy, Signature};
use crate::registry::secrets::Keyring;
use crate::registry::{
    Answer, Attempt, Client, ClientSource, Failure, FailureClass, RegistryError, Repository,
};
use crate::runtime::containerd::images::ImageRecord;
use crate::runtime::containerd::{Containerd, ErrorClass, Lease, RuntimeError};
use crate::system::clock;

/// On the record of every image that podling pulled.
const PULLED_LABEL: &str = "podling.dev/pulled";
/// How long a registry may take to say whether the image that is here is the newest.
const CHECK: Duration = Duration::from_secs(8);
/// The policy's word for registries.
const TRANSPORT: &str = "docker";
/// Layers of one image fetched at once, as docker and containerd do.
const LAYERS_AT_ONCE: usize = 3;
/// An index in an index in an index is more than any tool writes.
const INDEX_DEPTH: usize = 3;
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1";

/// What every pull of this node needs.
#[derive(Clone)]
pub struct Setup {
    /// containerd.
    pub ctd: Containerd,
    /// Registries.
    pub source: Arc<ClientSource>,
    /// The signature policy's file, which need not exist.
    pub policy: Option<PathBuf>,
    pub(super) blobs: Arc<Blobs>,
}

impl Setup {
    /// For one containerd and the registries that `source` finds.
    pub fn new(ctd: Containerd, source: Arc<ClientSource>, policy: Option<PathBuf>) -> Self {
        Self { ctd, source, policy, blobs: Arc::default() }
    }
}

/// What a pull came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Full name.
    pub name: String,
    /// Digest that the name points at.
    pub digest: String,
    /// Bytes of configuration and layers.
    pub size: u64,
    /// How long it took.
    pub took: Duration,
    /// The registry had nothing newer than what was here.
    pub unchanged: bool,
}

/// Pulls `reference`. With `present`, the digest of the image of that name that is here and whole, nothing
/// is fetched when the registry's is the same.
pub(super) async fn pull(
    setup: &Setup,
    reference: &ImageRef,
    keys: Keyring,
    present: Option<&str>,
    progress: &Arc<Progress>,
) -> Result<Pulled, PullError> {
    let began = clock::now();
    let name = reference.name();
    let repository =
        Repository { registry: reference.registry().to_owned(), path: reference.path().to_owned() };
    let client = Arc::new(setup.source.client(repository, keys)?);
    let done = |digest: &str, size, unchanged| Pulled {
        name: name.clone(),
        digest: digest.to_owned(),
        size,
        took: clock::now().since(began),
        unchanged,
    };
    if let (Some(present), None, Some(tag)) = (present, reference.digest(), reference.tag())
        && check(&client, tag).await?.as_deref() == Some(present)
    {
        return Ok(done(present, 0, true));
    }
    let wanted = reference.digest().or(reference.tag()).unwrap_or("latest");
    let top = client.manifest(wanted).await?;
    if present == Some(top.digest.as_str()) {
        return Ok(done(&top.digest, 0, true));
    }
    verify(setup, &client, reference, &top.digest).await?;
    let lease = setup.ctd.pull_lease(&name).await?;
    let job =
        Job { setup, client, ctd: lease.client().clone(), progress: progress.clone(), name: name.clone() };
    let result = job.run(top).await;
    end(setup, lease, &name, result.as_ref().err()).await;
    result.map(|(digest, size)| done(&digest, size, false))
}

/// Asks what a tag means, with less patience than a pull has: there is an image to run without an answer.
async fn check(client: &Client, tag: &str) -> Result<Option<String>, PullError> {
    match tokio::time::timeout(CHECK, client.digest_of(tag)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let text = format!("no registry answered within {} s", CHECK.as_secs());
            let attempts = vec![Attempt {
                at: client.origin().to_owned(),
                failure: Failure::new(FailureClass::Network, text),
            }];
            Err(RegistryError { what: format!("tag {tag}"), attempts }.into())
        }
    }
}

/// Whether the signature policy takes the image. Nothing of it is stored before.
async fn verify(setup: &Setup, client: &Client, reference: &ImageRef, digest: &str) -> Result<(), PullError> {
    let Some(path) = &setup.policy else { return Ok(()) };
    let Some(policy) = Policy::load(path)? else { return Ok(()) };
    let signatures = match policy.wants_signatures(TRANSPORT, reference) {
        true => signatures(client, digest).await?,
        false => Vec::new(),
    };
    Ok(policy.check(TRANSPORT, reference, digest, &signatures)?)
}

/// The signatures that cosign stored beside the image, each a layer with its signature as an annotation.
async fn signatures(client: &Client, digest: &str) -> Result<Vec<Signature>, PullError> {
    let answer = match client.manifest(&verify::signature_tag(digest)).await {
        Ok(answer) => answer,
        Err(e) if e.class() == FailureClass::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let manifest: Manifest = json(&answer.data, &answer.digest)?;
    let mut all = Vec::new();
    for layer in manifest.layers.iter().filter(|l| l.media_type == verify::PAYLOAD) {
        let signature = layer.annotation(verify::SIGNATURE).and_then(|s| STANDARD.decode(s.trim()).ok());
        let Some(signature) = signature.filter(|_| layer.size <= verify::PAYLOAD_MAX) else { continue };
        let mut stream = client.blob(&layer.digest, 0).await?;
        let mut payload = Vec::new();
        loop {
            let broke = |failure| RegistryError {
                what: format!("signature {}", layer.digest),
                attempts: vec![Attempt { at: client.origin().to_owned(), failure }],
            };
            let Some(part) = stream.next().await.map_err(broke)? else { break };
            payload.extend_from_slice(&part);
            if payload.len() as u64 > verify::PAYLOAD_MAX {
                break;
            }
        }
        all.push(Signature { payload, signature });
    }
    Ok(all)
}

/// What a failed pull fetched stays for the next try, unless that cannot come or the disk is full.
async fn end(setup: &Setup, lease: Lease, name: &str, error: Option<&PullError>) {
    let try_again = |e: &PullError| match e {
        PullError::Registry(e) => e.class().is_transient(),
        PullError::Runtime(e) => matches!(e.class(), ErrorClass::Unavailable | ErrorClass::Timeout),
        _ => false,
    };
    if error.is_some_and(try_again) {
        return lease.keep();
    }
    lease.keep();
    if let Err(e) = setup.ctd.end_pull_leases(name).await {
        tracing::debug!("{e}; it ends by itself");
    }
}

struct Job<'a> {
    setup: &'a Setup,
    client: Arc<Client>,
    ctd: Containerd,
    progress: Arc<Progress>,
    name: String,
}

/// A manifest and the way to it.
struct Found {
    target: Descriptor,
    path: Vec<String>,
    manifest: Manifest,
}

impl Job<'_> {
    async fn run(&self, top: Answer) -> Result<(String, u64), PullError> {
        let Found { target, path, manifest } = self.follow(top).await?;
        self.check_kind(&manifest)?;
        self.fetch_config(&manifest.config).await?;
        let diff_ids = self.diff_ids(&manifest).await?;
        let from = unpacked_layers(&self.ctd, &diff_ids).await?;
        let size = manifest.config.size + manifest.layers.iter().map(|l| l.size).sum::<u64>();
        let missing = manifest.layers.iter().skip(from).map(|l| l.size).sum();
        self.progress.plan(missing, manifest.layers.len());
        self.progress.unpacked(from);
        self.layers(&manifest, &diff_ids, from).await?;
        link(&self.ctd, &path, &manifest).await?;
        // Last, so that a name never points at half an image.
        let record = ImageRecord {
            name: self.name.clone(),
            labels: BTreeMap::from([(PULLED_LABEL.to_owned(), "true".to_owned())]),
            media_type: target.media_type,
            digest: target.digest.clone(),
            size: target.size,
        };
        self.ctd.put_image_record(&record).await?;
        Ok((target.digest, size))
    }

    /// From what the tag means to the manifest for this host, storing the documents on the way.
    async fn follow(&self, top: Answer) -> Result<Found, PullError> {
        let mut at = self.store(top).await?;
        let target = at.0.clone();
        let mut path = vec![at.0.digest.clone()];
        for _ in 0..INDEX_DEPTH {
            if !at.0.is_index() {
                break;
            }
            let index: Index = json(&at.1, &at.0.digest)?;
            let host = platform::host_architecture();
            let chosen = platform::choose(&index.manifests, host).ok_or_else(|| PullError::Platform {
                want: format!("linux/{host}"),
                have: platform::names(&index.manifests),
            })?;
            path.push(chosen.digest.clone());
            at = self.document(chosen).await?;
        }
        let manifest = json(&at.1, &at.0.digest)?;
        Ok(Found { target, path, manifest })
    }

    async fn document(&self, descriptor: &Descriptor) -> Result<(Descriptor, Vec<u8>), PullError> {
        self.ctd.hold("content", &descriptor.digest).await?;
        if let Some(data) = self.ctd.read_blob(&descriptor.digest, DOCUMENT_MAX).await? {
            return Ok((descriptor.clone(), data));
        }
        let mut answer = self.client.manifest(&descriptor.digest).await?;
        if !descriptor.media_type.is_empty() {
            answer.media_type = descriptor.media_type.clone();
        }
        self.store(answer).await
    }

    /// Stores a document as it came, since its digest is of those bytes.
    async fn store(&self, answer: Answer) -> Result<(Descriptor, Vec<u8>), PullError> {
        let value: serde_json::Value = json(&answer.data, &answer.digest)?;
        let version = value.get("schemaVersion").and_then(serde_json::Value::as_u64);
        if answer.media_type.starts_with(DOCKER_SCHEMA_1) || version == Some(1) {
            return Err(PullError::NotAnImage(
                "it has docker's schema 1, which is out of use since 2017; push it again with a newer docker"
                    .to_owned(),
            ));
        }
        let media_type = media_type(&answer.media_type, &value);
        self.ctd.write_blob(&answer.digest, &answer.data).await?;
        let descriptor = Descriptor {
            media_type,
            digest: answer.digest,
            size: answer.data.len() as u64,
            ..Descriptor::default()
        };
        Ok((descriptor, answer.data))
    }

    fn check_kind(&self, manifest: &Manifest) -> Result<(), PullError> {
        let kind = manifest.config.media_type.as_str();
        if matches!(kind, "" | OCI_CONFIG | DOCKER_CONFIG | "application/octet-stream") {
            return Ok(());
        }
        Err(PullError::NotAnImage(format!("its configuration is of type {kind}")))
    }

    async fn fetch_config(&self, config: &Descriptor) -> Result<(), PullError> {
        if config.size > DOCUMENT_MAX {
            return Err(PullError::Damaged(format!("its configuration is {} bytes long", config.size)));
        }
        self.setup.blobs.fetch(&self.ctd, &self.client, config, &Progress::default()).await
    }

    async fn diff_ids(&self, manifest: &Manifest) -> Result<Vec<String>, PullError> {
        let digest = &manifest.config.digest;
        let data = self.ctd.read_blob(digest, DOCUMENT_MAX).await?;
        let data = data.ok_or_else(|| PullError::Damaged(format!("blob {digest} is missing")))?;
        let config = parse_config(&data)
            .map_err(|e| PullError::NotAnImage(format!("its configuration {digest} cannot be read: {e}")))?;
        self.check_platform(&config)?;
        let diff_ids = config.rootfs().diff_ids().clone();
        if diff_ids.len() != manifest.layers.len() {
            return Err(PullError::Damaged(format!(
                "it has {} layers but its configuration lists {}",
                manifest.layers.len(),
                diff_ids.len()
            )));
        }
        Ok(diff_ids)
    }

    /// A manifest that no index led to says in its configuration what it is for.
    fn check_platform(&self, config: &oci_spec::image::ImageConfiguration) -> Result<(), PullError> {
        let built_for = Descriptor {
            platform: Some(crate::image::documents::Platform {
                os: config.os().to_string(),
                architecture: config.architecture().to_string(),
                variant: config.variant().clone(),
            }),
            ..Descriptor::default()
        };
        let host = platform::host_architecture();
        let all = std::slice::from_ref(&built_for);
        match platform::choose(all, host) {
            Some(_) => Ok(()),
            None => Err(PullError::Platform { want: format!("linux/{host}"), have: platform::names(all) }),
        }
    }

    /// Fetches the layers from number `from` on, some at once, and unpacks each as soon as it and those below
    /// it are here.
    async fn layers(&self, manifest: &Manifest, diff_ids: &[String], from: usize) -> Result<(), PullError> {
        let turns = Arc::new(Semaphore::new(LAYERS_AT_ONCE));
        let mut fetches = JoinSet::new();
        for (n, layer) in manifest.layers.iter().enumerate().skip(from) {
            let (blobs, ctd, client) = (self.setup.blobs.clone(), self.ctd.clone(), self.client.clone());
            let (layer, progress, turns) = (layer.clone(), self.progress.clone(), turns.clone());
            fetches.spawn(async move {
                let _turn = turns.acquire().await.ok();
                blobs.fetch(&ctd, &client, &layer, &progress).await.map(|()| n)
            });
        }
        let here = vec![false; manifest.layers.len()];
        let mut fetching = Fetching { fetches, here, progress: &self.progress };
        let config = &manifest.config.digest;
        unpack_from(&self.ctd, manifest, config, diff_ids, from, &mut fetching).await.map_err(damaged)?;
        self.progress.unpacked(manifest.layers.len());
        Ok(())
    }
}

/// Layers on their way.
struct Fetching<'a> {
    fetches: JoinSet<Result<usize, PullError>>,
    here: Vec<bool>,
    progress: &'a Progress,
}

impl Layers for Fetching<'_> {
    type Error = PullError;
    async fn ready(&mut self, n: usize) -> Result<(), PullError> {
        self.progress.unpacked(n);
        while !self.here[n] {
            match self.fetches.join_next().await {
                Some(Ok(done)) => self.here[done?] = true,
                Some(Err(e)) => return Err(RuntimeError::local("fetch layer", "", e).into()),
                None => return Err(PullError::Damaged(format!("layer {n} was not fetched"))),
            }
        }
        Ok(())
    }
}

/// containerd refuses a layer that is no archive, or another one than the configuration says.
fn damaged(e: PullError) -> PullError {
    match e {
        PullError::Runtime(e) if e.class() == ErrorClass::InvalidArgument => {
            PullError::Damaged(e.to_string())
        }
        e => e,
    }
}

fn json<T: serde::de::DeserializeOwned>(data: &[u8], digest: &str) -> Result<T, PullError> {
    serde_json::from_slice(data).map_err(|e| PullError::NotAnImage(format!("{digest}: {e}")))
}

/// What a document is: by itself, by its sender, by its content.
fn media_type(said: &str, value: &serde_json::Value) -> String {
    if let Some(own) = value.get("mediaType").and_then(|m| m.as_str()).filter(|m| !m.is_empty()) {
        return own.to_owned();
    }
    match (said, value.get("manifests").is_some()) {
        (said, _) if said.contains("manifest") || said.contains("index") => said.to_owned(),
        (_, true) => OCI_INDEX.to_owned(),
        (_, false) => OCI_MANIFEST.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_what_it_says_then_what_its_sender_says_then_what_it_holds() {
        let of = |said: &str, text: &str| media_type(said, &serde_json::from_str(text).unwrap());
        assert_eq!(of("text/plain", r#"{"mediaType": "a/b", "manifests": []}"#), "a/b");
        assert_eq!(
            of("application/vnd.docker.distribution.manifest.v2+json", "{}"),
            "application/vnd.docker.distribution.manifest.v2+json"
        );
        assert_eq!(of("application/json", r#"{"manifests": []}"#), OCI_INDEX);
        assert_eq!(of("", r#"{"config": {}}"#), OCI_MANIFEST);
    }
}
