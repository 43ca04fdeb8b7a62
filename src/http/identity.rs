//! Certificates to show to a server that asks for one.

use std::sync::Arc;

use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::sign::CertifiedKey;

/// Several certificates, of which the server gets one that an authority it knows has signed. When it names none of
/// them, it gets the first, and says itself that it does not take it.
#[derive(Debug)]
pub(super) struct Identities(pub(super) Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identities {
    fn resolve(&self, authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let usable = || self.0.iter().filter(|k| k.key.choose_scheme(schemes).is_some());
        let known = usable().find(|k| k.cert.iter().any(|c| signed_by_one_of(c, authorities)));
        known.or_else(|| usable().next()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

fn signed_by_one_of(certificate: &[u8], authorities: &[&[u8]]) -> bool {
    issuer(certificate).is_some_and(|issuer| authorities.contains(&issuer))
}

/// The name of a certificate's issuer as it is encoded (RFC 5280, 4.1). Also of old certificates without extensions,
/// which the library reads nothing of and `openssl x509 -req` makes.
fn issuer(certificate: &[u8]) -> Option<&[u8]> {
    let body = content(content(certificate)?)?;
    // A version, which old ones lack; a number; an algorithm.
    let body = if body.first() == Some(&0xa0) { split(body)?.1 } else { body };
    let (_, body) = split(body)?;
    let (_, body) = split(body)?;
    Some(split(body)?.0)
}

/// What the first of these DER values holds, without its tag and length.
fn content(der: &[u8]) -> Option<&[u8]> {
    let (value, _) = split(der)?;
    let &first = value.get(1)?;
    value.get(if first < 0x80 { 2 } else { 2 + usize::from(first & 0x7f) }..)
}

/// The first of these DER values, and the others.
fn split(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let &first = der.get(1)?;
    let (start, length) = match first {
        0x00..=0x7f => (2, usize::from(first)),
        0x81..=0x84 => {
            let start = 2 + usize::from(first & 0x7f);
            (start, der.get(2..start)?.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)))
        }
        _ => return None,
    };
    der.split_at_checked(start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::issuer;

    #[test]
    fn the_issuer_stands_behind_version_number_and_algorithm() {
        let old = [0x30, 13, 0x30, 11, 0x02, 1, 5, 0x30, 1, 9, 0x30, 3, 1, 2, 3];
        assert_eq!(issuer(&old), Some(&[0x30, 3, 1, 2, 3][..]));
        let new = [0x30, 16, 0x30, 14, 0xa0, 1, 2, 0x02, 1, 5, 0x30, 1, 9, 0x30, 3, 1, 2, 3];
        assert_eq!(issuer(&new), Some(&[0x30, 3, 1, 2, 3][..]));
        for end in 0..old.len() {
            assert_eq!(issuer(&old[..end]), None, "{end}");
        }
        assert_eq!(issuer(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
