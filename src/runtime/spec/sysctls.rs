//! Kernel settings of a pod: which are safe, which the settings allow, and what goes into the spec.
//!
//! They are written by the runtime into the pod's namespaces at each start of a container, before it runs.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::PodSpec;

use crate::manifest::sysctl::{matches, normalize, of_a_namespace};

/// What a kubelet lets any pod set: of its own namespaces, and without a way to harm others.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// A pod that asks for a setting it may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// Neither safe nor allowed.
    #[error(
        "forbidden sysctl: {name:?} not allowlisted; to let pods of this node set it, add it to \
         allowedUnsafeSysctls in the settings"
    )]
    NotAllowed {
        /// Its name, with dots.
        name: String,
    },
    /// One of the host.
    #[error(
        "forbidden sysctl: {name:?} is not of a pod's own namespaces, so it would change the whole host; set it \
         on the host itself"
    )]
    OfHost {
        /// Its name, with dots.
        name: String,
    },
    /// One of a namespace that the pod shares with the host.
    #[error("forbidden sysctl: {name:?} not allowed with {field} enabled")]
    HostNamespace {
        /// Its name, with dots.
        name: String,
        /// `hostNetwork` or `hostIPC`.
        field: &'static str,
    },
}

/// Checks the sysctls of a pod against the safe ones and `allowed`, patterns from the settings.
///
/// # Errors
/// The first that the pod may not have.
pub fn check(spec: &PodSpec, allowed: &[String]) -> Result<(), SysctlError> {
    for (name, _) in wanted(spec) {
        if !of_a_namespace(&name) {
            return Err(SysctlError::OfHost { name });
        }
        if !SAFE.contains(&name.as_str()) && !allowed.iter().any(|pattern| matches(pattern, &name)) {
            return Err(SysctlError::NotAllowed { name });
        }
        let (field, shared) = if name.starts_with("net.") {
            ("hostNetwork", spec.host_network)
        } else {
            ("hostIPC", spec.host_ipc)
        };
        if shared == Some(true) {
            return Err(SysctlError::HostNamespace { name, field });
        }
    }
    Ok(())
}

fn wanted(spec: &PodSpec) -> impl Iterator<Item = (String, String)> + '_ {
    let all = spec.security_context.as_ref().and_then(|c| c.sysctls.as_deref()).unwrap_or_default();
    all.iter().map(|s| (normalize(&s.name), s.value.clone()))
}

/// What containers of a pod with these namespaces of its own get. In a network of its own, low ports and ping
/// need no capability unless the pod says otherwise, as the CRI plugin has it; the group range of ping cannot
/// be set in a user namespace.
pub(super) fn of(spec: Option<&PodSpec>, own_network: bool, user_namespace: bool) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let mut set = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    if own_network {
        set("net.ipv4.ip_unprivileged_port_start", "0");
        if !user_namespace {
            set("net.ipv4.ping_group_range", "0 2147483647");
        }
    }
    all.extend(spec.into_iter().flat_map(wanted));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(names: &[&str], more: serde_json::Value) -> PodSpec {
        let sysctls: Vec<_> = names.iter().map(|n| json!({"name": n, "value": "1"})).collect();
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn safe_ones_need_no_leave_and_others_one_by_name_or_pattern() {
        let check = |names: &[&str], allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(|a| (*a).to_owned()).collect();
            super::check(&pod(names, json!({})), &allowed).map_err(|e| e.to_string())
        };
        assert_eq!(check(&SAFE, &[]), Ok(()));
        assert_eq!(check(&["net/ipv4/tcp_syncookies"], &[]), Ok(()));
        let text = check(&["kernel.msgmax"], &["net.*", "kernel.shm*"]).unwrap_err();
        assert!(text.starts_with("forbidden sysctl: \"kernel.msgmax\" not allowlisted;"), "{text}");
        assert_eq!(check(&["kernel.msgmax", "net.core.somaxconn"], &["kernel.msg*", "net.*"]), Ok(()));
        let host = check(&["vm.swappiness"], &[]).unwrap_err();
        assert!(host.contains("would change the whole host"), "{host}");
    }

    #[test]
    fn those_of_a_shared_namespace_are_refused() {
        let net = pod(&["net.ipv4.tcp_syncookies"], json!({"hostNetwork": true}));
        let text = super::check(&net, &[]).unwrap_err().to_string();
        assert_eq!(
            text,
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with hostNetwork enabled"
        );
        let ipc = pod(&["kernel.shm_rmid_forced"], json!({"hostIPC": true}));
        assert!(super::check(&ipc, &[]).unwrap_err().to_string().ends_with("hostIPC enabled"));
    }

    #[test]
    fn a_pods_own_value_wins_over_what_pods_get_anyway() {
        let spec = pod(&["net.ipv4.ping_group_range"], json!({}));
        let all = of(Some(&spec), true, false);
        assert_eq!(all["net.ipv4.ping_group_range"], "1");
        assert_eq!(all["net.ipv4.ip_unprivileged_port_start"], "0");
        assert!(!of(None, true, true).contains_key("net.ipv4.ping_group_range"));
        assert!(of(None, false, false).is_empty());
    }
}
