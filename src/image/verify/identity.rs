//! Which name a signature has to be for.

use serde::Deserialize;

use crate::image::reference::ImageRef;

/// `signedIdentity` of a requirement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Identity {
    /// The very name.
    MatchExact,
    /// The very name, or for an image named by digest its repository.
    #[default]
    MatchRepoDigestOrExact,
    /// The repository.
    MatchRepository,
    /// This name.
    ExactReference {
        #[serde(rename = "dockerReference")]
        reference: String,
    },
    /// This repository.
    ExactRepository {
        #[serde(rename = "dockerRepository")]
        repository: String,
    },
    /// As `MatchRepoDigestOrExact`, for the name that the image has where it was signed.
    #[serde(rename = "remapIdentity")]
    Remap {
        prefix: String,
        #[serde(rename = "signedPrefix")]
        signed_prefix: String,
    },
}

impl Identity {
    /// What cannot be meant.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::ExactReference { reference } if Signed::parse(reference).is_none_or(|s| s.bare) => {
                Err(format!("signedIdentity: dockerReference {reference:?} is no name with a tag or digest"))
            }
            Self::ExactRepository { repository } if Signed::parse(repository).is_none_or(|s| !s.bare) => {
                Err(format!("signedIdentity: dockerRepository {repository:?} is no name without a tag"))
            }
            Self::Remap { prefix, signed_prefix } if prefix.is_empty() || signed_prefix.is_empty() => {
                Err("signedIdentity: prefix and signedPrefix must not be empty".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Whether a signature for the name `said` is for `image`.
    pub(super) fn accepts(&self, said: &str, image: &ImageRef) -> bool {
        let Some(signed) = Signed::parse(said) else { return false };
        match self {
            Self::MatchExact => signed.is(image),
            Self::MatchRepoDigestOrExact => signed.is_or_lies_beside(image),
            Self::MatchRepository => signed.name.repository() == image.repository(),
            Self::ExactReference { reference } => {
                Signed::parse(reference).is_some_and(|r| !r.bare && signed.is(&r.name))
            }
            Self::ExactRepository { repository } => {
                Signed::parse(repository).is_some_and(|r| r.name.repository() == signed.name.repository())
            }
            Self::Remap { prefix, signed_prefix } => {
                remapped(image, prefix, signed_prefix).is_some_and(|image| signed.is_or_lies_beside(&image))
            }
        }
    }

    /// Whether it would be, did it name the tag too.
    pub(super) fn accepts_with_a_tag(&self, said: &str, image: &ImageRef) -> bool {
        let tag = image.tag().unwrap_or("latest");
        Signed::parse(said).is_some_and(|s| s.bare) && self.accepts(&format!("{said}:{tag}"), image)
    }
}

/// A name in a signature.
struct Signed {
    name: ImageRef,
    /// Neither a tag nor a digest is written.
    bare: bool,
}

impl Signed {
    fn parse(text: &str) -> Option<Self> {
        let last = text.rsplit('/').next().unwrap_or(text);
        let bare = !last.contains([':', '@']);
        Some(Self { name: ImageRef::parse(text).ok()?, bare })
    }

    /// The very name. An image named by tag and digest is what the digest says, as with podman.
    fn is(&self, image: &ImageRef) -> bool {
        let same = match image.digest() {
            Some(digest) => self.name.digest() == Some(digest),
            None => self.name.digest().is_none() && self.name.tag() == image.tag(),
        };
        !self.bare && same && self.name.repository() == image.repository()
    }

    fn is_or_lies_beside(&self, image: &ImageRef) -> bool {
        match image.digest() {
            Some(_) => !self.bare && self.name.repository() == image.repository(),
            None => self.is(image),
        }
    }
}

/// The image's name with `prefix`, where it has that, replaced.
fn remapped(image: &ImageRef, prefix: &str, signed_prefix: &str) -> Option<ImageRef> {
    let repository = image.repository();
    let rest = repository.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(rest) = rest else { return Some(image.clone()) };
    let end = match (image.digest(), image.tag()) {
        (Some(digest), _) => format!("@{digest}"),
        (None, tag) => format!(":{}", tag.unwrap_or("latest")),
    };
    ImageRef::parse(&format!("{signed_prefix}{rest}{end}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn accepts(identity: &str, said: &str, image: &str) -> bool {
        let identity: Identity = serde_json::from_str(identity).unwrap();
        identity.accepts(said, &ImageRef::parse(image).unwrap())
    }

    #[test]
    fn names_have_to_be_the_same_as_strictly_as_podman_wants_it() {
        let by_digest = format!("r.io/a@{DIGEST}");
        for (kind, said, image, expected) in [
            ("matchExact", "r.io/a:1", "r.io/a:1", true),
            ("matchExact", "r.io/a:2", "r.io/a:1", false),
            ("matchExact", "r.io/a", "r.io/a:latest", false),
            ("matchExact", "r.io/a:1", by_digest.as_str(), false),
            ("matchExact", by_digest.as_str(), by_digest.as_str(), true),
            ("matchExact", "busybox:1", "docker.io/library/busybox:1", true),
            ("matchRepoDigestOrExact", "r.io/a:1", "r.io/a:1", true),
            ("matchRepoDigestOrExact", "r.io/a", "r.io/a:1", false),
            ("matchRepoDigestOrExact", "r.io/a", by_digest.as_str(), false),
            ("matchRepoDigestOrExact", "r.io/a:7", by_digest.as_str(), true),
            ("matchRepoDigestOrExact", "r.io/b:7", by_digest.as_str(), false),
            ("matchRepository", "r.io/a", "r.io/a:1", true),
            ("matchRepository", "r.io/a/b", "r.io/a:1", false),
            ("matchRepository", "no name!", "r.io/a:1", false),
        ] {
            let identity = format!(r#"{{"type": "{kind}"}}"#);
            assert_eq!(accepts(&identity, said, image), expected, "{kind} {said} {image}");
        }
    }

    #[test]
    fn names_may_be_given_or_remapped() {
        let reference = r#"{"type": "exactReference", "dockerReference": "busybox:1"}"#;
        assert!(accepts(reference, "docker.io/library/busybox:1", "m.io/x:9"));
        assert!(!accepts(reference, "docker.io/library/busybox:2", "m.io/x:9"));
        let remap = r#"{"type": "remapIdentity", "prefix": "m:5000/vendor", "signedPrefix": "vendor.io"}"#;
        assert!(accepts(remap, "vendor.io/a/b:1", "m:5000/vendor/a/b:1"));
        assert!(!accepts(remap, "vendor.io/a/b:1", "m:5000/vendors/a/b:1"));
        assert!(!accepts(remap, "m:5000/vendor/a:1", "m:5000/vendor/a:1"));
        assert!(accepts(remap, "other.io/a:1", "other.io/a:1"));
        for wrong in [
            r#"{"type": "exactReference", "dockerReference": "busybox"}"#,
            r#"{"type": "exactRepository", "dockerRepository": "busybox:1"}"#,
            r#"{"type": "remapIdentity", "prefix": "", "signedPrefix": "a"}"#,
        ] {
            assert!(serde_json::from_str::<Identity>(wrong).unwrap().check().is_err(), "{wrong}");
        }
    }
}
