//! Public keys, as `cosign generate-key-pair` and openssl write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm,
};

/// What stands before the key itself in a SubjectPublicKeyInfo (RFC 5280) of its kind, which has one form each.
pub(super) const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const P384: &[u8] = &[
    0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
    0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
];
const EDWARDS: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A public key.
#[derive(Clone)]
pub(super) struct Key {
    algorithm: &'static dyn VerificationAlgorithm,
    point: Vec<u8>,
}

impl Key {
    /// Reads a PEM file's text.
    pub(super) fn parse(pem: &str) -> Result<Self, &'static str> {
        let body = pem.split_once("-----BEGIN PUBLIC KEY-----").map(|(_, rest)| rest);
        let body = body.and_then(|rest| rest.split_once("-----END PUBLIC KEY-----")).map(|(body, _)| body);
        let body = body.ok_or("it holds no PUBLIC KEY in PEM form")?;
        let text: String = body.split_whitespace().collect();
        let der = STANDARD.decode(text).map_err(|_| "its PEM is not base64")?;
        let kinds: [(&[u8], usize, &'static dyn VerificationAlgorithm); 3] = [
            (P256, 65, &ECDSA_P256_SHA256_ASN1),
            (P384, 97, &ECDSA_P384_SHA256_ASN1),
            (EDWARDS, 32, &ED25519),
        ];
        for (prefix, length, algorithm) in kinds {
            if let Some(point) = der.strip_prefix(prefix).filter(|p| p.len() == length) {
                return Ok(Self { algorithm, point: point.to_owned() });
            }
        }
        Err("its kind of key is not supported; use ECDSA (P-256 or P-384) or Ed25519, as cosign makes them")
    }

    pub(super) fn verifies(&self, data: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.algorithm, &self.point).verify(data, signature).is_ok()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", hex::encode(&self.point[..4]))
    }
}
