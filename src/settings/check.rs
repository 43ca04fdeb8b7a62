//! What single values may be, for flags and config file alike. Errors name the value and what is allowed.

use std::path::PathBuf;

use super::ContainerdChoice;

/// `auto`, `embedded`, or the absolute path of a socket (`unix://` is taken off).
pub(super) fn containerd(value: &str) -> Result<ContainerdChoice, String> {
    let path = value.strip_prefix("unix://").unwrap_or(value);
    match value {
        "auto" => Ok(ContainerdChoice::Auto),
        "embedded" => Ok(ContainerdChoice::Embedded),
        _ if path.starts_with('/') => Ok(ContainerdChoice::Socket(PathBuf::from(path))),
        _ => Err(format!("`{value}` is not auto, embedded or the absolute path of a socket")),
    }
}

/// containerd's rule for identifiers: at most 76 letters, digits and single `-`, `_`, `.` between them.
pub(super) fn namespace(value: &str) -> Result<String, String> {
    let words = |s: &str| {
        s.split(['-', '_', '.']).all(|w| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric()))
    };
    if value.len() <= 76 && words(value) {
        return Ok(value.to_owned());
    }
    Err(format!(
        "`{value}` is not a containerd namespace: at most 76 letters and digits, with single `-`, `_` or `.` between them"
    ))
}

/// A DNS-1123 subdomain.
pub(super) fn node_name(value: &str) -> Result<String, String> {
    let lower = value.trim().to_lowercase();
    if is_subdomain(&lower) {
        return Ok(lower);
    }
    Err(format!(
        "`{value}` is not a node name: at most 253 letters, digits, `-` and `.`, beginning and ending with a letter or digit"
    ))
}

/// A DNS domain, with or without the final dot.
pub(super) fn domain(value: &str) -> Result<String, String> {
    let bare = value.strip_suffix('.').unwrap_or(value);
    if is_subdomain(&bare.to_lowercase()) {
        return Ok(bare.to_owned());
    }
    Err(format!("`{value}` is not a DNS domain"))
}

fn is_subdomain(value: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let label = |l: &str| {
        edge(l.chars().next())
            && edge(l.chars().last())
            && l.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    value.len() <= 253 && value.split('.').all(label)
}

/// An absolute cgroup path of our own: never the root, never a kubelet's tree, which would kill
/// strangers in it.
pub(super) fn cgroup_root(value: &str) -> Result<String, String> {
    let path = value.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if !path.starts_with('/') || parts.iter().any(|p| p.is_empty() || *p == "." || *p == "..") {
        return Err(format!("`{value}` is not an absolute cgroup path below the root, such as /podling"));
    }
    if parts.first().is_some_and(|p| p.starts_with("kubepods")) {
        return Err(format!(
            "`{value}` belongs to a kubelet, which kills what it does not know there; take another, such as /podling"
        ));
    }
    Ok(path.to_owned())
}

/// A program's name or absolute path.
pub(super) fn runtime(value: &str) -> Result<String, String> {
    if !value.is_empty() && (value.starts_with('/') || !value.contains('/')) {
        return Ok(value.to_owned());
    }
    Err(format!("`{value}` is not runc, crun or the absolute path of an OCI runtime"))
}
