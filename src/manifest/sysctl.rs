//! Names of kernel settings: how they are written, and which belong to a namespace that a pod can have.

/// Settings that a namespace of the pod has of its own; all others are the host's.
const OF_NAMESPACES: [&str; 5] = ["net.*", "kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*"];

/// Names are written with dots; where the first separator is a slash, slashes and dots have changed places.
pub fn normalize(name: &str) -> String {
    let slashes = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    if !slashes {
        return name.to_owned();
    }
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// Whether a pattern means a name; `*` at the end stands for anything.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Whether a namespace of a pod has this setting of its own.
pub fn of_a_namespace(name: &str) -> bool {
    OF_NAMESPACES.iter().any(|pattern| matches(pattern, name))
}

/// Checks a pattern of `allowedUnsafeSysctls`; returns it with dots.
///
/// # Errors
/// Why it cannot stand there.
pub fn check_pattern(pattern: &str) -> Result<String, String> {
    let pattern = normalize(pattern);
    let stem = pattern.strip_suffix('*').unwrap_or(&pattern);
    if stem.is_empty() || stem.contains('*') {
        return Err(format!("`{pattern}` is not the name of a sysctl, with at most a `*` at its end"));
    }
    // A pattern must not reach beyond what namespaces have.
    if !of_a_namespace(stem) {
        return Err(format!(
            "`{pattern}` is of the host and not of a pod's namespaces; those have {}",
            OF_NAMESPACES.join(", ")
        ));
    }
    Ok(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_settings_stay_within_namespaces() {
        assert_eq!(check_pattern("net.core.*"), Ok("net.core.*".into()));
        assert_eq!(check_pattern("net/core/somaxconn"), Ok("net.core.somaxconn".into()));
        for bad in ["*", "vm.*", "kernel.*", "net.*.x", "", "kernel.s*"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slashes_and_dots_change_places() {
        assert_eq!(normalize("net/ipv4/conf/eth0.1/rp_filter"), "net.ipv4.conf.eth0/1.rp_filter");
        assert_eq!(normalize("net.ipv4.conf.eth0/1.rp_filter"), "net.ipv4.conf.eth0/1.rp_filter");
    }
}
