//! Labels on containerd's container records: all that is needed to rebuild the world from containerd alone.

use std::collections::BTreeMap;

use crate::manifest::PodKey;

/// Pod name, as the kubelet labels it.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Pod namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Pod uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Container name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
const ROOT: &str = "podling.dev/root";
const KIND: &str = "podling.dev/kind";
const SANDBOX: &str = "podling.dev/sandbox";
const ATTEMPT: &str = "podling.dev/attempt";
const RESTARTS: &str = "podling.dev/restarts";
const CONTAINER_HASH: &str = "podling.dev/container-hash";
const POD_HASH: &str = "podling.dev/pod-hash";
const STOP_SIGNAL: &str = "podling.dev/stop-signal";
const GRACE: &str = "podling.dev/grace-seconds";
const HOST_NETWORK: &str = "podling.dev/host-network";
const POD_IPS: &str = "podling.dev/pod-ips";

/// Name of the pause container; no container of a pod can have it, since names are DNS labels.
pub const PAUSE: &str = "_pause";

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Holder of the shared process namespace.
    Pause,
    /// Entry of `initContainers`.
    Init,
    /// Entry of `containers`.
    Regular,
}

impl Kind {
    /// The word in the label `podling.dev/kind`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Pause => "pause",
            Kind::Init => "init",
            Kind::Regular => "container",
        }
    }
}

/// What a container record says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The pod.
    pub key: PodKey,
    /// Its uid.
    pub uid: String,
    /// Container name.
    pub name: String,
    /// What it is to its pod.
    pub kind: Kind,
    /// Sandbox id.
    pub sandbox: String,
    /// Number of the run.
    pub attempt: u32,
    /// Restart count.
    pub restarts: u32,
    /// Hash of the container's entry.
    pub container_hash: String,
    /// Hash of the pod without its containers.
    pub pod_hash: String,
    /// Signal that asks it to stop.
    pub stop_signal: i32,
    /// Seconds it is given then.
    pub grace_seconds: u64,
    /// In the host's network.
    pub host_network: bool,
    /// Addresses of its sandbox.
    pub ips: Vec<String>,
}

impl Labels {
    /// As containerd stores them; `root` tells several podlings on one containerd apart.
    pub fn to_map(&self, root: &str) -> BTreeMap<String, String> {
        let pairs = [
            (POD_NAME, self.key.name.clone()),
            (POD_NAMESPACE, self.key.namespace.clone()),
            (POD_UID, self.uid.clone()),
            (CONTAINER_NAME, self.name.clone()),
            (ROOT, root.to_owned()),
            (KIND, self.kind.word().to_owned()),
            (SANDBOX, self.sandbox.clone()),
            (ATTEMPT, self.attempt.to_string()),
            (RESTARTS, self.restarts.to_string()),
            (CONTAINER_HASH, self.container_hash.clone()),
            (POD_HASH, self.pod_hash.clone()),
            (STOP_SIGNAL, self.stop_signal.to_string()),
            (GRACE, self.grace_seconds.to_string()),
            (HOST_NETWORK, self.host_network.to_string()),
        ];
        // containerd keeps no label without a value.
        let ips = (!self.ips.is_empty()).then(|| (POD_IPS, self.ips.join(",")));
        pairs.into_iter().chain(ips).map(|(k, v)| (k.to_owned(), v)).collect()
    }

    /// Back from containerd; none for records that podling did not make.
    pub fn from_map(map: &BTreeMap<String, String>) -> Option<Self> {
        let get = |key: &str| map.get(key).map(String::as_str);
        let kind = match get(KIND)? {
            "pause" => Kind::Pause,
            "init" => Kind::Init,
            "container" => Kind::Regular,
            _ => return None,
        };
        Some(Self {
            key: PodKey::new(get(POD_NAMESPACE)?, get(POD_NAME)?),
            uid: get(POD_UID)?.into(),
            name: get(CONTAINER_NAME)?.into(),
            kind,
            sandbox: get(SANDBOX)?.into(),
            attempt: get(ATTEMPT)?.parse().ok()?,
            restarts: get(RESTARTS)?.parse().ok()?,
            container_hash: get(CONTAINER_HASH)?.into(),
            pod_hash: get(POD_HASH)?.into(),
            stop_signal: get(STOP_SIGNAL)?.parse().ok()?,
            grace_seconds: get(GRACE)?.parse().ok()?,
            host_network: get(HOST_NETWORK)? == "true",
            ips: get(POD_IPS)
                .unwrap_or_default()
                .split(',')
                .filter(|ip| !ip.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// The labels that an update changes on a container that it leaves running.
pub(super) fn in_force(container_hash: &str, pod_hash: &str, grace_seconds: u64) -> BTreeMap<String, String> {
    let pairs = [
        (CONTAINER_HASH, container_hash.to_owned()),
        (POD_HASH, pod_hash.to_owned()),
        (GRACE, grace_seconds.to_string()),
    ];
    // containerd keeps no label without a value.
    pairs.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v)).collect()
}

/// Label filters that select this podling's containers, or those of one of its pods.
pub fn filter<'a>(root: &'a str, uid: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    let mut pairs = vec![(ROOT, root)];
    pairs.extend(uid.map(|uid| (POD_UID, uid)));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        Labels {
            key: PodKey::new("default", "web"),
            uid: "u".into(),
            name: "app".into(),
            kind: Kind::Regular,
            sandbox: "s".into(),
            attempt: 3,
            restarts: 2,
            container_hash: "c".into(),
            pod_hash: "p".into(),
            stop_signal: 15,
            grace_seconds: 30,
            host_network: true,
            ips: vec!["10.0.0.2".into(), "fd00::2".into()],
        }
    }

    #[test]
    fn labels_come_back_as_they_went() {
        assert_eq!(Labels::from_map(&labels().to_map("/")), Some(labels()));
    }

    #[test]
    fn no_label_is_empty_since_containerd_drops_those() {
        let labels = Labels { ips: Vec::new(), ..labels() };
        let map = labels.to_map("/");
        assert!(map.values().all(|value| !value.is_empty()), "{map:?}");
        assert_eq!(Labels::from_map(&map), Some(labels));
    }

    #[test]
    fn a_record_that_lacks_one_is_not_ours() {
        for key in labels().to_map("/").keys().filter(|k| *k != ROOT && *k != POD_IPS) {
            let mut map = labels().to_map("/");
            map.remove(key);
            assert_eq!(Labels::from_map(&map), None, "without {key}");
        }
    }
}
