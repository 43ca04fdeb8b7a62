//! Image references: what no registry and no containerd could find is refused at once.

/// Why this is no image reference, or nothing when it is one.
pub fn fault(image: &str) -> Option<&'static str> {
    if image.trim() != image {
        return Some("must not have leading or trailing whitespace");
    }
    if image.contains("://") {
        return Some("an image has no scheme: leave out everything up to ://");
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Some("the digest must be such as sha256: and 64 hexadecimal digits");
    }
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[last..].find(':') {
        Some(at) => (&rest[..last + at], Some(&rest[last + at + 1..])),
        None => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Some(
            "the tag must consist of letters, digits, '_', '.' and '-', and have at most 128 characters",
        );
    }
    if name.len() > 255 {
        return Some("the name must have at most 255 characters");
    }
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    if path.split('/').all(is_component) {
        return None;
    }
    Some(if path.chars().any(|c| c.is_ascii_uppercase()) {
        "the name must be lower case"
    } else {
        "must be a reference such as registry.example.com/path/name:tag"
    })
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty()
            && algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-_".contains(&b))
            && hex.len() >= 32
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
            && (algorithm != "sha256" || hex.len() == 64)
    })
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// The part before the first slash is a host when it looks like one.
fn is_host(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.contains(']');
    }
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let looks =
        host.contains(['.', ':']) || name == "localhost" || name.chars().any(|c| c.is_ascii_uppercase());
    looks
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

/// Lower-case letters and digits, joined by `.`, `_`, `__` or dashes.
fn is_component(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    if !bytes.first().copied().is_some_and(word) || !bytes.last().copied().is_some_and(word) {
        return false;
    }
    part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|join| matches!(join, "" | "." | "_" | "__") || join.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn references_of_every_form_are_taken() {
        for image in [
            "busybox",
            "busybox:1.36",
            "library/busybox",
            "host:5000/a/b:tag",
            "localhost/x",
            "REGISTRY.example.com/x",
            "a.b/c__d/e-f--g.h:T_1.2-x",
            "x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "host/x:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "[::1]:5000/x",
        ] {
            assert_eq!(fault(image), None, "{image}");
        }
    }

    #[test]
    fn what_no_registry_can_have_is_refused() {
        for image in [
            "/bin/bash",
            "https://example.com/x.deb",
            "<your-image>",
            "\u{201c}nginx\u{201d}",
            "Nginx",
            "a//b",
            "a:",
            "a:b:c",
            "a@sha256:12",
            "a b",
            " a",
            "a/",
            "a.-b",
            "-a",
        ] {
            assert!(fault(image).is_some(), "{image}");
        }
    }
}
