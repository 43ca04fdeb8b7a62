//! The policy file: which requirements an image of some name has to meet.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::identity::Identity;
use super::key::Key;
use super::signature::{Rejected, Signature};
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
    transports: Once<Once<Vec<Entry>>>,
}

/// A requirement as it is written. What is not known refuses the file: it may be what makes it safe.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    key_type: Option<String>,
    key_path: Option<PathBuf>,
    key_paths: Option<Vec<PathBuf>>,
    key_data: Option<String>,
    key_datas: Option<Vec<String>>,
    fulcio: Option<serde_json::Value>,
    pki: Option<serde_json::Value>,
    rekor_public_key_path: Option<serde_json::Value>,
    rekor_public_key_paths: Option<serde_json::Value>,
    rekor_public_key_data: Option<serde_json::Value>,
    rekor_public_key_datas: Option<serde_json::Value>,
    signed_identity: Option<Identity>,
}

/// A mapping in which no key stands twice.
struct Once<T>(BTreeMap<String, T>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Once<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Once<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Once<T>, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry::<String, T>()? {
                    if all.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("{key:?} stands twice")));
                    }
                    all.insert(key, value);
                }
                Ok(Once(all))
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
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
        for (transport, scopes) in file.transports.0 {
            let mut read = BTreeMap::new();
            for (scope, entries) in scopes.0 {
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
        "insecureAcceptAnything" | "reject" if entry.says_more() => {
            return Err(format!("{} takes no further fields", entry.kind));
        }
        "insecureAcceptAnything" => return Ok(Requirement::Accept),
        "reject" => return Ok(Requirement::Reject),
        "sigstoreSigned" => {}
        "signedBy" => return Err("signedBy (GPG) is not supported; use sigstoreSigned with a key".to_owned()),
        other => {
            return Err(format!("type {other:?} is none of insecureAcceptAnything, reject, sigstoreSigned"));
        }
    }
    if let Some(name) = entry.unsupported() {
        return Err(format!("{name} is not supported; use keyPath or keyData alone"));
    }
    let identity = entry.signed_identity.clone().unwrap_or_default();
    identity.check()?;
    Ok(Requirement::Signed { keys: entry.keys()?, identity })
}

impl Entry {
    /// Whether anything but the type is written.
    fn says_more(&self) -> bool {
        self.key_type.is_some()
            || self.sources() > 0
            || self.unsupported().is_some()
            || self.signed_identity.is_some()
    }

    /// How many of the fields that give keys are written.
    fn sources(&self) -> usize {
        [self.key_path.is_some(), self.key_paths.is_some(), self.key_data.is_some(), self.key_datas.is_some()]
            .into_iter()
            .filter(|given| *given)
            .count()
    }

    /// A field that asks for a check that is not made.
    fn unsupported(&self) -> Option<&'static str> {
        let written = [
            ("fulcio (keyless signing)", &self.fulcio),
            ("pki", &self.pki),
            ("rekorPublicKeyPath (a transparency log)", &self.rekor_public_key_path),
            ("rekorPublicKeyPaths (a transparency log)", &self.rekor_public_key_paths),
            ("rekorPublicKeyData (a transparency log)", &self.rekor_public_key_data),
            ("rekorPublicKeyDatas (a transparency log)", &self.rekor_public_key_datas),
        ];
        written.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
    }

    fn keys(self) -> Result<Vec<Key>, String> {
        if self.sources() > 1 {
            return Err("only one of keyPath, keyPaths, keyData and keyDatas can be given".to_owned());
        }
        if self.key_type.is_some() {
            return Err("keyType belongs to signedBy".to_owned());
        }
        let mut keys = Vec::new();
        for path in self.key_path.into_iter().chain(self.key_paths.into_iter().flatten()) {
            let wrong = |why: String| format!("key {}: {why}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
            keys.push(Key::parse(&text).map_err(|e| wrong(e.to_owned()))?);
        }
        for data in self.key_data.into_iter().chain(self.key_datas.into_iter().flatten()) {
            let bytes = STANDARD.decode(data.trim()).map_err(|_| "keyData is not base64".to_owned())?;
            let key = Key::parse(&String::from_utf8_lossy(&bytes));
            keys.push(key.map_err(|e| format!("keyData: {e}"))?);
        }
        match keys.is_empty() {
            true => Err("sigstoreSigned needs keyPath, keyPaths, keyData or keyDatas".to_owned()),
            false => Ok(keys),
        }
    }
}
