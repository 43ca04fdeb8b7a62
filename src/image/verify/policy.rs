//! The policy file: which requirements an image of some name has to meet.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::key::Key;
use super::signature::{Identity, Rejected, Signature};
use crate::image::reference::ImageRef;

/// Why there is no policy. Nothing is pulled then: a policy that cannot be read allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("signature policy {path}: {why}; no image is taken until it is right")]
pub struct PolicyError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

/// `policy.json`.
#[derive(Clone, Debug)]
pub struct Policy {
    default: Vec<Requirement>,
    transports: BTreeMap<String, BTreeMap<String, Vec<Requirement>>>,
}

#[derive(Clone, Debug)]
enum Requirement {
    Accept,
    Reject,
    Signed { keys: Vec<Key>, identity: Identity },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Vec<Entry>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Entry>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    key_path: Option<PathBuf>,
    #[serde(default)]
    key_paths: Vec<PathBuf>,
    #[serde(default)]
    key_data: Option<String>,
    #[serde(default)]
    key_datas: Vec<String>,
    #[serde(default)]
    fulcio: Option<serde_json::Value>,
    #[serde(default)]
    signed_identity: Option<Identity>,
}

impl Policy {
    /// Reads the file; none when there is none, and then everything is accepted.
    pub fn load(path: &Path) -> Result<Option<Self>, PolicyError> {
        let wrong = |why: String| PolicyError { path: path.to_owned(), why };
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(e.to_string())),
        };
        let file: File = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        let list = |scope: &str, entries: Vec<Entry>| {
            if entries.is_empty() {
                return Err(wrong(format!("{scope}: the list of requirements is empty")));
            }
            let read: Result<Vec<_>, _> = entries.into_iter().map(requirement).collect();
            read.map_err(|why| wrong(format!("{scope}: {why}")))
        };
        let default = list("default", file.default)?;
        let mut transports = BTreeMap::new();
        for (transport, scopes) in file.transports {
            let mut read = BTreeMap::new();
            for (scope, entries) in scopes {
                let at = format!("transports.{transport}.{scope:?}");
                read.insert(scope, list(&at, entries)?);
            }
            transports.insert(transport, read);
        }
        Ok(Some(Self { default, transports }))
    }

    /// Whether signatures decide about this image.
    pub fn wants_signatures(&self, transport: &str, image: &ImageRef) -> bool {
        self.requirements(transport, image).iter().any(|r| matches!(r, Requirement::Signed { .. }))
    }

    /// Whether the image of this name and digest may be used. `signatures` are all that are known of it.
    pub fn check(
        &self,
        transport: &str,
        image: &ImageRef,
        digest: &str,
        signatures: &[Signature],
    ) -> Result<(), Rejected> {
        for requirement in self.requirements(transport, image) {
            match requirement {
                Requirement::Accept => {}
                Requirement::Reject => return Err(Rejected::Policy),
                Requirement::Signed { keys, identity } => {
                    Signature::any(signatures, keys, identity, image, digest)?;
                }
            }
        }
        Ok(())
    }

    /// Those of the most specific scope: the whole name, the repository, each part above it, the domains that the
    /// registry lies in, the transport's own, the default.
    fn requirements(&self, transport: &str, image: &ImageRef) -> &[Requirement] {
        let Some(scopes) = self.transports.get(transport) else { return &self.default };
        let repository = image.repository();
        let mut names = vec![image.to_string(), image.name(), repository.clone()];
        let mut rest = repository.as_str();
        while let Some((above, _)) = rest.rsplit_once('/') {
            names.push(above.to_owned());
            rest = above;
        }
        let mut domain = rest;
        while let Some((_, above)) = domain.split_once('.') {
            names.push(format!("*.{above}"));
            domain = above;
        }
        names.push(String::new());
        names.iter().find_map(|name| scopes.get(name)).unwrap_or(&self.default)
    }
}

fn requirement(entry: Entry) -> Result<Requirement, String> {
    match entry.kind.as_str() {
        "insecureAcceptAnything" => return Ok(Requirement::Accept),
        "reject" => return Ok(Requirement::Reject),
        "sigstoreSigned" => {}
        "signedBy" => return Err("signedBy (GPG) is not supported; use sigstoreSigned with a key".to_owned()),
        other => {
            return Err(format!("type {other:?} is none of insecureAcceptAnything, reject, sigstoreSigned"));
        }
    }
    if entry.fulcio.is_some() {
        return Err(
            "fulcio is not supported, since it cannot be checked offline; use keyPath or keyData".to_owned()
        );
    }
    let mut keys = Vec::new();
    for path in entry.key_path.into_iter().chain(entry.key_paths) {
        let wrong = |why: String| format!("key {}: {why}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
        keys.push(Key::parse(&text).map_err(|e| wrong(e.to_owned()))?);
    }
    for data in entry.key_data.into_iter().chain(entry.key_datas) {
        let bytes = STANDARD.decode(data.trim()).map_err(|_| "keyData is not base64".to_owned())?;
        keys.push(Key::parse(&String::from_utf8_lossy(&bytes)).map_err(|e| format!("keyData: {e}"))?);
    }
    if keys.is_empty() {
        return Err("sigstoreSigned needs keyPath, keyPaths, keyData or keyDatas".to_owned());
    }
    Ok(Requirement::Signed { keys, identity: entry.signed_identity.unwrap_or_default() })
}
