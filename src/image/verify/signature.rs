//! cosign's signatures: a payload that names an image and its digest, signed by a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::identity::Identity;
use super::key::Key;
use crate::image::reference::ImageRef;

/// A payload and its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What is signed, as it came.
    pub payload: Vec<u8>,
    /// The signature's bytes.
    pub signature: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Kept {
    #[serde(rename = "Base64Signature")]
    signature: String,
    payload: String,
}

/// Why an image may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The policy says so.
    #[error("the signature policy rejects it")]
    Policy,
    /// It has no signature.
    #[error("the signature policy wants it signed, and it has no signature")]
    Unsigned,
    /// It has some, and none that counts.
    #[error("the signature policy wants it signed, and no signature counts: {0}")]
    Unfit(String),
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    identity: Named,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl Signature {
    pub(super) fn from_json(line: &str) -> Option<Self> {
        let kept: Kept = serde_json::from_str(line).ok()?;
        let signature = STANDARD.decode(kept.signature).ok()?;
        Some(Self { payload: STANDARD.decode(kept.payload).ok()?, signature })
    }

    /// Whether any of them is by one of the keys, and for this image.
    pub(super) fn any(
        all: &[Self],
        keys: &[Key],
        identity: &Identity,
        image: &ImageRef,
        digest: &str,
    ) -> Result<(), Rejected> {
        let mut why = None;
        for signature in all {
            match signature.counts(keys, identity, image, digest) {
                Ok(()) => return Ok(()),
                Err(e) => why = Some(e),
            }
        }
        Err(why.map_or(Rejected::Unsigned, Rejected::Unfit))
    }

    fn counts(
        &self,
        keys: &[Key],
        identity: &Identity,
        image: &ImageRef,
        digest: &str,
    ) -> Result<(), String> {
        if !keys.iter().any(|key| key.verifies(&self.payload, &self.signature)) {
            return Err("it is by another key".to_owned());
        }
        let payload: Payload =
            serde_json::from_slice(&self.payload).map_err(|e| format!("its payload cannot be read: {e}"))?;
        let critical = payload.critical;
        if critical.kind != "cosign container image signature" {
            return Err(format!("it is a {:?}", critical.kind));
        }
        if critical.image.digest != digest {
            return Err(format!("it is for {}", critical.image.digest));
        }
        let said = &critical.identity.reference;
        match identity.accepts(said, image) {
            true => Ok(()),
            false if identity.accepts_with_a_tag(said, image) => Err(format!(
                "it is for {said:?} without a tag, as cosign makes them; \"signedIdentity\": {{\"type\": \
                 \"matchRepository\"}} takes it for every tag"
            )),
            false => Err(format!("it is for an image named {said:?}")),
        }
    }
}
