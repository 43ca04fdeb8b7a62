//! Which images may be used: a policy file in the form of containers' `policy.json`, and cosign's signatures by
//! key. Checked before anything of an image is unpacked.

mod identity;
mod key;
mod policy;
mod signature;

pub use policy::{Policy, PolicyError};
pub use signature::{Rejected, Signature};

/// Media type of what is signed (cosign's "simple signing").
pub(super) const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation with the signature of a payload.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Largest payload, in bytes.
pub(super) const PAYLOAD_MAX: u64 = 64 << 10;

/// Signatures kept beside an archive, one JSON object a line as `cosign download signature` prints them.
pub(super) fn beside(archive: &std::path::Path) -> Vec<Signature> {
    let mut path = archive.as_os_str().to_owned();
    path.push(".signatures");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(Signature::from_json).collect()
}

/// The tag under which cosign keeps the signatures of an image.
pub(super) fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replacen(':', "-", 1))
}

#[cfg(test)]
mod tests;
