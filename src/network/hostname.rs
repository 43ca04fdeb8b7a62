//! The name a pod has for itself, with the kubelet's rules.

use k8s_openapi::api::core::v1::PodSpec;

/// The kernel's limit for a host name.
const KERNEL_MAX: usize = 64;
/// A DNS label's limit, to which the kubelet cuts pod names.
const LABEL_MAX: usize = 63;

/// A pod that asks for an impossible name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    /// `setHostnameAsFQDN` with a name that the kernel cannot hold.
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({KERNEL_MAX} \
         characters is the max, {} characters requested): shorten spec.hostname, spec.subdomain or clusterDomain, \
         or leave setHostnameAsFQDN out",
        fqdn.len()
    )]
    TooLong {
        /// The full name.
        fqdn: String,
    },
}

/// The names of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodHostname {
    /// Short name, for `/etc/hosts` and `/etc/hostname`.
    pub hostname: String,
    /// Domain part where the pod has a subdomain.
    pub domain: Option<String>,
    /// What the UTS namespace is set to: the short name, or the full one with `setHostnameAsFQDN`.
    pub kernel: String,
}

/// The names of a pod called `pod_name` that does not use the host's network (one that does has the host's).
pub fn pod_hostname(
    spec: &PodSpec,
    pod_name: &str,
    namespace: &str,
    cluster_domain: Option<&str>,
) -> Result<PodHostname, HostnameError> {
    let set = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
    if let Some(name) = set(&spec.hostname_override) {
        return Ok(PodHostname { hostname: name.clone(), domain: None, kernel: name });
    }
    let hostname = cut(&set(&spec.hostname).unwrap_or_else(|| pod_name.to_owned()));
    let domain = set(&spec.subdomain).map(|subdomain| match cluster_domain.filter(|d| !d.is_empty()) {
        Some(cluster) => format!("{subdomain}.{namespace}.svc.{cluster}"),
        None => format!("{subdomain}.{namespace}.svc"),
    });
    let kernel = match &domain {
        Some(domain) if spec.set_hostname_as_fqdn == Some(true) => {
            let fqdn = format!("{hostname}.{domain}");
            if fqdn.len() > KERNEL_MAX {
                return Err(HostnameError::TooLong { fqdn });
            }
            fqdn
        }
        _ => hostname.clone(),
    };
    Ok(PodHostname { hostname, domain, kernel })
}

/// Pod names may be longer than a host name; what is left must not end in a separator.
fn cut(name: &str) -> String {
    let end = name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= LABEL_MAX).last();
    name[..end.unwrap_or(0)].trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(spec: PodSpec, pod: &str, domain: Option<&str>) -> (String, Option<String>, String) {
        let names = pod_hostname(&spec, pod, "shop", domain).unwrap();
        (names.hostname, names.domain, names.kernel)
    }

    #[test]
    fn the_pods_name_is_the_hostname_unless_the_manifest_gives_one() {
        assert_eq!(names(PodSpec::default(), "web", None), ("web".into(), None, "web".into()));
        let spec = PodSpec { hostname: Some("front".into()), ..PodSpec::default() };
        assert_eq!(names(spec, "web", None), ("front".into(), None, "front".into()));
    }

    #[test]
    fn a_long_pod_name_is_cut_and_ends_in_no_separator() {
        let name = format!("{}-.tail", "a".repeat(61));
        assert_eq!(names(PodSpec::default(), &name, None).0, "a".repeat(61));
    }

    #[test]
    fn a_subdomain_gives_a_domain_and_the_kernel_sees_it_only_when_asked() {
        let mut spec = PodSpec { subdomain: Some("db".into()), ..PodSpec::default() };
        let domain = Some("db.shop.svc.cluster.local".to_owned());
        assert_eq!(names(spec.clone(), "web", Some("cluster.local")), ("web".into(), domain, "web".into()));
        assert_eq!(names(spec.clone(), "web", None).1, Some("db.shop.svc".into()));
        spec.set_hostname_as_fqdn = Some(true);
        assert_eq!(names(spec, "web", None).2, "web.db.shop.svc");
    }

    #[test]
    fn an_override_wins_and_has_no_domain() {
        let spec = PodSpec {
            hostname_override: Some("edge.example.org".into()),
            subdomain: Some("db".into()),
            ..PodSpec::default()
        };
        assert_eq!(names(spec, "web", None), ("edge.example.org".into(), None, "edge.example.org".into()));
    }

    #[test]
    fn a_full_name_that_the_kernel_cannot_hold_is_refused_with_its_length() {
        let spec = PodSpec {
            subdomain: Some("s".repeat(60)),
            set_hostname_as_fqdn: Some(true),
            ..PodSpec::default()
        };
        let error = pod_hostname(&spec, "web", "shop", None).unwrap_err().to_string();
        assert!(error.contains("is too long (64 characters is the max, 73 characters requested)"), "{error}");
    }
}
