//! Image names as people write them, made complete the way docker does it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A complete image name. `busybox` is `docker.io/library/busybox:latest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A name that cannot be an image's. This is the kubelet's reason `InvalidImageName`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid image name {name:?}: {why}")]
pub struct InvalidImageName {
    /// What was written.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Longest repository name, registry included, in bytes (the distribution specification).
const NAME_MAX: usize = 255;
/// Longest tag, in bytes.
const TAG_MAX: usize = 128;
/// Why a name such as `me:password@registry/app` is none.
pub const NO_CREDENTIALS: &str =
    "a name and a password do not belong into it; put them into imagePullSecrets or a docker config.json";
const DEFAULT_DOMAIN: &str = "docker.io";

impl ImageRef {
    /// Reads a name.
    pub fn parse(name: &str) -> Result<Self, InvalidImageName> {
        match credentials(name) {
            None => parse(name).map_err(|why| InvalidImageName { name: name.to_owned(), why }),
            Some(rest) => Err(InvalidImageName { name: format!("***@{rest}"), why: NO_CREDENTIALS }),
        }
    }

    /// Registry and path, as `docker.io/library/busybox`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The registry, as `docker.io`.
    pub fn registry(&self) -> &str {
        &self.domain
    }

    /// The path within the registry, as `library/busybox`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tag, if the name has one. A name without tag and digest has `latest`.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the name has one.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The name under which containerd keeps it: of a name with tag and digest, the digest decides.
    pub fn name(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("{}@{digest}", self.repository()),
            (None, Some(tag)) => format!("{}:{tag}", self.repository()),
            (None, None) => self.repository(),
        }
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for ImageRef {
    type Err = InvalidImageName;
    fn from_str(name: &str) -> Result<Self, InvalidImageName> {
        Self::parse(name)
    }
}

impl TryFrom<String> for ImageRef {
    type Error = InvalidImageName;
    fn try_from(name: String) -> Result<Self, InvalidImageName> {
        Self::parse(&name)
    }
}

impl From<ImageRef> for String {
    fn from(reference: ImageRef) -> String {
        reference.to_string()
    }
}

/// What follows a name and a password before the registry. A digest has no slash after its `@`.
pub fn credentials(name: &str) -> Option<&str> {
    let end = name
        .rsplit_once('@')
        .filter(|(_, digest)| !digest.contains('/'))
        .map_or(name.len(), |(n, _)| n.len());
    let at = name[..end].rfind('@')?;
    Some(&name[at + 1..]).filter(|rest| rest.contains('/'))
}

fn parse(name: &str) -> Result<ImageRef, &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.contains("://") {
        return Err("an image name has no scheme such as https://");
    }
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(checked_digest(digest)?)),
        None => (name, None),
    };
    // A colon after the last slash starts a tag; before it, a port.
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    let (repository, tag) = match rest[slash..].rfind(':') {
        Some(at) => (&rest[..slash + at], Some(checked_tag(&rest[slash + at + 1..])?)),
        None => (rest, None),
    };
    if repository.len() == 64 && is_hex(repository) {
        return Err("64 hex digits are an image id, which cannot be a name");
    }
    let (domain, path) = split_domain(repository);
    if !valid_domain(&domain) {
        return Err("the registry is not a host name with an optional port");
    }
    if path.chars().any(|c| c.is_ascii_uppercase()) {
        return Err("a repository name must be lowercase");
    }
    if !path.split('/').all(valid_component) {
        return Err("a repository name has only lowercase letters, digits and single '.', '_', '__' or \
                    dashes between them, in parts separated by '/'");
    }
    if domain.len() + 1 + path.len() > NAME_MAX {
        return Err("a repository name holds at most 255 bytes");
    }
    let tag = match (tag, &digest) {
        (None, None) => Some("latest".to_owned()),
        (tag, _) => tag,
    };
    Ok(ImageRef { domain, path, tag, digest })
}

/// Docker's rule: what stands before the first slash is a registry only if it looks like a host.
fn split_domain(repository: &str) -> (String, String) {
    let host =
        |s: &str| s.contains(['.', ':']) || s == "localhost" || s.chars().any(|c| c.is_ascii_uppercase());
    let (domain, path) = match repository.split_once('/') {
        Some((first, rest)) if host(first) => (first, rest),
        _ => (DEFAULT_DOMAIN, repository),
    };
    let domain = if domain == "index.docker.io" { DEFAULT_DOMAIN } else { domain };
    if domain == DEFAULT_DOMAIN && !path.contains('/') {
        return (domain.to_owned(), format!("library/{path}"));
    }
    (domain.to_owned(), path.to_owned())
}

fn valid_domain(domain: &str) -> bool {
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port_is_fine = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port_is_fine && address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    port.is_none_or(is_port) && host.split('.').all(label)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn valid_component(component: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().is_some_and(|b| word(*b)) || !bytes.last().is_some_and(|b| word(*b)) {
        return false;
    }
    // What stands between the words: one dot, one or two underscores, any number of dashes.
    component
        .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn checked_tag(tag: &str) -> Result<String, &'static str> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'));
    if fits {
        return Ok(tag.to_owned());
    }
    Err("a tag has 1 to 128 letters, digits, '_', '.' and '-', and starts with none of the last two")
}

fn checked_digest(digest: &str) -> Result<String, &'static str> {
    let fits = match digest.split_once(':') {
        Some(("sha256", hex)) => hex.len() == 64 && is_hex(hex),
        Some(("sha384", hex)) => hex.len() == 96 && is_hex(hex),
        Some(("sha512", hex)) => hex.len() == 128 && is_hex(hex),
        _ => false,
    };
    if fits { Ok(digest.to_owned()) } else { Err("a digest is sha256: and 64 lowercase hex digits") }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_password_in_a_name_is_refused_and_not_shown() {
        let digest = format!("me:secret@reg.io/app@{DIGEST}");
        for name in ["me:secret@reg.io/app", "https://me:secret@reg.io/app", "me:sec@ret@reg.io/app", &digest]
        {
            let e = ImageRef::parse(name).unwrap_err().to_string();
            assert!(
                e.contains("\"***@reg.io/app") && e.contains("a name and a password do not belong"),
                "{e}"
            );
            assert!(!e.contains("secret") && !e.contains("ret@"), "{e}");
        }
    }

    #[test]
    fn short_names_are_completed_as_docker_does() {
        for (written, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("team/app", "docker.io/team/app:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/app:1", "localhost:5000/app:1"),
            ("registry.example.com/a/b/c:v1.2-rc_3", "registry.example.com/a/b/c:v1.2-rc_3"),
            ("ghcr.io/o/x__y--z.w", "ghcr.io/o/x__y--z.w:latest"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("Host/app", "Host/app:latest"),
        ] {
            let parsed = ImageRef::parse(written).unwrap();
            assert_eq!(parsed.name(), full, "{written}");
            assert_eq!(parsed.to_string(), full);
        }
    }

    #[test]
    fn a_digest_decides_and_adds_no_tag() {
        let plain = ImageRef::parse(&format!("busybox@{DIGEST}")).unwrap();
        assert_eq!(plain.name(), format!("docker.io/library/busybox@{DIGEST}"));
        assert_eq!(plain.tag(), None);
        let both = ImageRef::parse(&format!("busybox:1@{DIGEST}")).unwrap();
        assert_eq!(both.name(), plain.name());
        assert_eq!(both.tag(), Some("1"));
        assert_eq!(both.to_string(), format!("docker.io/library/busybox:1@{DIGEST}"));
    }

    #[test]
    fn a_bad_name_says_what_is_wrong() {
        for (bad, why) in [
            ("", "it is empty"),
            ("https://x/y", "no scheme"),
            ("Busybox", "lowercase"),
            ("a//b", "a repository name has only"),
            ("a/b/", "a repository name has only"),
            ("a___b", "a repository name has only"),
            (" busybox", "a repository name has only"),
            ("busybox:", "a tag has"),
            ("busybox:-x", "a tag has"),
            ("busybox@sha256:12", "a digest is"),
            ("-x.io/app", "the registry is not"),
            ("x:y/app", "the registry is not"),
            (&DIGEST[7..], "an image id"),
            (&"a/".repeat(130), "a repository name has only"),
            (&format!("x/{}", "a".repeat(250)), "at most 255"),
        ] {
            let e = ImageRef::parse(bad).unwrap_err();
            assert!(e.why.contains(why), "{bad}: {e}");
            assert!(e.to_string().starts_with(&format!("invalid image name {bad:?}: ")));
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_a_full_name_parses_to_itself(text in "[a-zA-Z0-9:/@._ -]{0,40}|\\PC{0,20}") {
            if let Ok(parsed) = ImageRef::parse(&text) {
                prop_assert_eq!(ImageRef::parse(&parsed.to_string()).unwrap(), parsed);
            }
        }
    }
}
