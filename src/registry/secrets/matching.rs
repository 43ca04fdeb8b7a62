//! Which entry of a keyring is for which image, by the kubelet's rule.

/// Whether `pattern` (`reg.io`, `*.reg.io:5000`, `https://index.docker.io/v1/`, `reg.io/team`) is for `image`
/// (`reg.io/team/app`). Each part of a host may hold `*` and `?`; a path is a prefix of whole parts.
pub(super) fn matches(pattern: &str, image: &str) -> bool {
    let (host, port, path) = split(pattern);
    let (image_host, image_port, image_path) = split(image);
    // docker writes the version of the API behind the host.
    let path = if path == "v1" || path == "v2" { "" } else { path };
    if port != image_port {
        return false;
    }
    let (parts, image_parts): (Vec<_>, Vec<_>) = (host.split('.').collect(), image_host.split('.').collect());
    parts.len() == image_parts.len()
        && parts.iter().zip(&image_parts).all(|(p, t)| glob(p.as_bytes(), t.as_bytes()))
        && (path.is_empty()
            || image_path == path
            || image_path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

fn split(text: &str) -> (&str, &str, &str) {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (authority, path) = text.split_once('/').unwrap_or((text, ""));
    let after_address = authority.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[after_address..].rfind(':') {
        Some(at) => (&authority[..after_address + at], &authority[after_address + at + 1..]),
        None => (authority, ""),
    };
    (host, port, path.trim_end_matches('/'))
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => glob(&pattern[1..], text) || (!text.is_empty() && glob(pattern, &text[1..])),
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &text[1..]),
        (Some(p), Some(t)) => p == t && glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn hosts_ports_globs_and_paths_follow_the_kubelets_rule() {
        for (pattern, image, expected) in [
            ("reg.io", "reg.io/a/b", true),
            ("https://reg.io/", "reg.io/a/b", true),
            ("https://index.docker.io/v1/", "index.docker.io/library/x", true),
            ("reg.io:5000", "reg.io:5000/a", true),
            ("reg.io", "reg.io:5000/a", false),
            ("*.reg.io", "eu.reg.io/a", true),
            ("*.reg.io", "a.eu.reg.io/a", false),
            ("*.reg.io", "reg.io/a", false),
            ("*-docker.pkg.dev", "eu-docker.pkg.dev/a", true),
            ("r?g.io", "rig.io/a", true),
            ("reg.io/team", "reg.io/team/app", true),
            ("reg.io/team", "reg.io/teammate/app", false),
            ("reg.io/team/app", "reg.io/team/app", true),
            ("[::1]:5000", "[::1]:5000/a", true),
            ("other.io", "reg.io/a", false),
        ] {
            assert_eq!(matches(pattern, image), expected, "{pattern} for {image}");
        }
    }
}
