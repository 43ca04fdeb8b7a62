//! Public keys, as `cosign generate-key-pair` and openssl write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
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
/// What names the kind of an RSA key in one, whose lengths differ.
const RSA: &[u8] =
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

type Algorithms = &'static [&'static dyn VerificationAlgorithm];

static P256_ALGORITHMS: [&dyn VerificationAlgorithm; 1] = [&ECDSA_P256_SHA256_ASN1];
static P384_ALGORITHMS: [&dyn VerificationAlgorithm; 2] = [&ECDSA_P384_SHA256_ASN1, &ECDSA_P384_SHA384_ASN1];
static EDWARDS_ALGORITHMS: [&dyn VerificationAlgorithm; 1] = [&ED25519];
static RSA_ALGORITHMS: [&dyn VerificationAlgorithm; 1] = [&RSA_PKCS1_2048_8192_SHA256];

/// A public key.
#[derive(Clone)]
pub(super) struct Key {
    /// Any of them: cosign hashed by SHA-256 for every curve, and later by the one that belongs to it.
    algorithms: Algorithms,
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
        let kinds: [(&[u8], usize, Algorithms); 3] =
            [(P256, 65, &P256_ALGORITHMS), (P384, 97, &P384_ALGORITHMS), (EDWARDS, 32, &EDWARDS_ALGORITHMS)];
        for (prefix, length, algorithms) in kinds {
            if let Some(point) = der.strip_prefix(prefix).filter(|p| p.len() == length) {
                return Ok(Self { algorithms, point: point.to_owned() });
            }
        }
        if let Some(point) = rsa(&der) {
            return Ok(Self { algorithms: &RSA_ALGORITHMS, point: point.to_owned() });
        }
        Err("its kind of key is not supported; use ECDSA (P-256 or P-384), Ed25519 or RSA")
    }

    pub(super) fn verifies(&self, data: &[u8], signature: &[u8]) -> bool {
        let by = |algorithm: &&'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(*algorithm, &self.point).verify(data, signature).is_ok()
        };
        self.algorithms.iter().any(by)
    }
}

/// The key in the SubjectPublicKeyInfo of an RSA key.
fn rsa(der: &[u8]) -> Option<&[u8]> {
    let inner = value(der, 0x30)?.strip_prefix(RSA)?;
    // A string of bits, of which none is unused.
    value(inner, 0x03)?.strip_prefix(&[0])
}

/// What the DER value at the start of `der` holds, when it has this tag and nothing follows.
fn value(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (&first, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match first {
        0x00..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    (rest.len() == length).then_some(rest)
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", hex::encode(self.point.get(..4).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by openssl, of the text "payload".
    const RSA_KEY: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAn3Vn0SmJnjzCgep94PUcHoPFnJmYw00L6E62DLgnw54zNh\
         /pwddRnTMV/t+rgIcik488FY7U9FpCDpMo9/bZfiWOTukwYWtjls5ZicxennaKmqRSlscM3nmzoO6aLwIgNtczegJN\
         q18RSvWwHVbRZHC7LzM4Lq0WEcRZI2mWTiQvD7qyi+hCeZYQzsBHzEDqciOkieArirSBYYkrFqI1wiDfm9a5Es0cNo\
         3rs/Qqo34eERmHP6oAR0R0bNKcxab/nBav6/sM+aRQTWa7cluU0thOgJUXnM6Czo8+uw6B+e/QU/Oc6Gx/CdG2euN1\
         GazGt3oYq03zhbmL3/cp6Je2DQIDAQAB";
    const RSA_SIGNATURE: &str = "FBRA9iu9BYHaYXvRYHZdrF910Beu/JMvp0ugU7a5l2V+qgnP29uK3urNK2UPImZjqeiIsmJ/7DD/Lq6DSSSiarqRIg\
         rqGS8LbecpKvALalGe+zDHXO9qLLKQumNAYQdl0jH77KGUW7cXt+iFoPWzqMI5x6bBaZC7QEdtGJ+oJm1dP7hkk6DY\
         nO720nneR2ZOt9l7KnmRAYVh/CPtMkqOJNxyRFZF6Cwv8AA929BQufiWA3Ji6iY6njAWoFpfoQWRhqYaTonM/yttaY\
         7vjGAB3AmEHfW6nujybvZcJYGWQwmq6+gS/HO/hMJHvE6AyNQvHN9GqD7MiFfXQmt1dbqGjg==";
    const P384_KEY: &str = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEZVun7Ji/X46DwNptMzRHNsOFqGwmx9V3Jv7PSLMp3JBR7GVGIvXO+DmZAB\
         aT9beTUKpOlc2GLUTwbPZb/8y2UogXjoHZdJlYODrXTE+Et2R0ZeMD+xAAolovreQVvKq0";
    const P384_BY_SHA256: &str = "MGQCMAc/I7p8w953fnbj9PdKPOm1nFAXi09Bk9A0C4ZHKb2gl6SBfkFGWCJSuyPMcSINmwIwPj/9ZA9/7/4D6KnIYV\
         cnFK9EtPRtiVYgr0mRu3RVBcfN+Qt/G4CnYFIymIkXGp8Z";
    const P384_BY_SHA384: &str = "MGUCMFd4Z+cLygWVoNvbaJxP1fPfg7PO63Xe7mwNIlYj+aS8vbqoXIxtE7FX94eXAOSa3gIxAKrieyeGWkoRfBf6IR\
         gNhZ0CUOXhDv0+EqRdc7WzJjlIhux60iiGxBoefwNUeStyMQ==";

    fn key(base64: &str) -> Result<Key, &'static str> {
        Key::parse(&format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n"))
    }

    #[test]
    fn keys_of_openssl_verify_what_it_signed() {
        for (public, signature) in
            [(RSA_KEY, RSA_SIGNATURE), (P384_KEY, P384_BY_SHA256), (P384_KEY, P384_BY_SHA384)]
        {
            let signature = STANDARD.decode(signature).unwrap();
            assert!(key(public).unwrap().verifies(b"payload", &signature));
            assert!(!key(public).unwrap().verifies(b"payloads", &signature));
        }
    }

    #[test]
    fn a_key_that_is_cut_off_or_of_another_kind_is_refused() {
        let der = STANDARD.decode(RSA_KEY).unwrap();
        for end in [0, 1, 3, 4, 20, der.len() - 1] {
            assert!(key(&STANDARD.encode(&der[..end])).is_err(), "{end}");
        }
        assert!(Key::parse("hello").is_err());
    }
}
