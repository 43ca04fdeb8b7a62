//! Which of an image's builds runs on this host.

use super::documents::{Descriptor, Platform};

/// The architecture of this host in the image specification's words (which are Go's).
pub(super) fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        other => other,
    }
}

/// The best of `descriptors` for a host of architecture `host`; none when none runs there. One without a
/// platform, as archives of a single image have, is taken when nothing is known to fit.
pub(super) fn choose<'a>(descriptors: &'a [Descriptor], host: &str) -> Option<&'a Descriptor> {
    // The first of equals, as the order in an index is its author's preference.
    descriptors.iter().rev().filter_map(|d| Some((rank(d, host)?, d))).max_by_key(|(r, _)| *r).map(|(_, d)| d)
}

/// The platforms on offer, for messages.
pub(super) fn names(descriptors: &[Descriptor]) -> String {
    let name = |p: &Platform| match &p.variant {
        Some(variant) => format!("{}/{}/{variant}", p.os, p.architecture),
        None => format!("{}/{}", p.os, p.architecture),
    };
    let mut all: Vec<String> = descriptors
        .iter()
        .filter_map(|d| d.platform.as_ref())
        // Attestations stand in indexes as images of an unknown platform.
        .filter(|p| p.os != "unknown")
        .map(name)
        .collect();
    all.dedup();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// How well it fits; none when it does not run.
fn rank(descriptor: &Descriptor, host: &str) -> Option<u8> {
    let Some(platform) = &descriptor.platform else { return Some(1) };
    if platform.os != "linux" {
        return None;
    }
    let variant = platform.variant.as_deref().unwrap_or_default();
    match (host, platform.architecture.as_str(), variant) {
        ("amd64", "amd64", "" | "v1") => Some(9),
        // Needs processor features that not every host has.
        ("amd64", "amd64", _) => None,
        ("amd64", "386", _) => Some(2),
        ("arm64", "arm64", "" | "v8") => Some(9),
        ("arm64", "arm64", _) => None,
        // Most 64-bit ARM kernels run 32-bit programs.
        ("arm64", "arm", "v7" | "") => Some(4),
        ("arm64", "arm", "v6") => Some(3),
        ("arm64", "arm", "v5") => Some(2),
        ("arm", "arm", "v7" | "") => Some(9),
        ("arm", "arm", "v6") => Some(8),
        ("arm", "arm", "v5") => Some(7),
        (host, arch, _) => (host == arch).then_some(9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(digest: &str, os: &str, architecture: &str, variant: &str) -> Descriptor {
        let variant = Some(variant.to_owned()).filter(|v| !v.is_empty());
        let platform = Some(Platform { os: os.into(), architecture: architecture.into(), variant });
        Descriptor { digest: digest.into(), platform, ..Default::default() }
    }

    #[test]
    fn the_build_for_the_host_is_chosen_with_its_variant() {
        let index = [
            build("windows", "windows", "amd64", ""),
            build("386", "linux", "386", ""),
            build("v3", "linux", "amd64", "v3"),
            build("amd64", "linux", "amd64", ""),
            build("armv6", "linux", "arm", "v6"),
            build("armv7", "linux", "arm", "v7"),
            build("arm64", "linux", "arm64", "v8"),
            build("attestation", "unknown", "unknown", ""),
        ];
        let chosen = |host, of: &[Descriptor]| choose(of, host).map(|d| d.digest.clone());
        assert_eq!(chosen("amd64", &index).as_deref(), Some("amd64"));
        assert_eq!(chosen("arm64", &index).as_deref(), Some("arm64"));
        assert_eq!(chosen("arm", &index).as_deref(), Some("armv7"));
        assert_eq!(chosen("arm64", &index[..6]).as_deref(), Some("armv7"));
        assert_eq!(chosen("amd64", &index[..3]).as_deref(), Some("386"));
        assert_eq!(chosen("riscv64", &index), None);
        assert_eq!(names(&index[5..]), "linux/arm/v7, linux/arm64/v8");
    }

    #[test]
    fn a_single_image_without_platform_is_taken() {
        let only = [Descriptor { digest: "x".into(), ..Default::default() }];
        assert!(choose(&only, "amd64").is_some());
        assert_eq!(names(&only), "none");
    }

    #[test]
    fn the_first_of_two_equal_builds_wins() {
        let two = [build("first", "linux", "s390x", ""), build("second", "linux", "s390x", "")];
        assert_eq!(choose(&two, "s390x").unwrap().digest, "first");
    }
}
