//! Quality of service: the class of a pod, the limits of its group, and the OOM scores of its containers.
//!
//! Quantities were validated when the manifest was read; one that still cannot be read counts as absent here
//! and is an error when the container's spec is built.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::manifest::Quantity;
pub use crate::system::cgroup::{MAX_SHARES, MIN_SHARES, PodResources, QosClass};

/// Length of a scheduling period in microseconds, the kernel's and the kubelet's default.
pub const CPU_PERIOD: u64 = 100_000;
/// The shortest quota the kernel takes, in microseconds.
const MIN_QUOTA: i64 = 1000;
/// `oom_score_adj` of what must outlive all other pods.
const GUARANTEED_OOM_SCORE: i32 = -997;
/// `oom_score_adj` of the sandbox's own process.
pub const SANDBOX_OOM_SCORE: i32 = -998;
/// The priority from which on a pod is critical for the node (`system-node-critical`).
const NODE_CRITICAL_PRIORITY: i32 = 2_000_001_000;

type Amounts = BTreeMap<String, ApiQuantity>;

/// Processor weight for so many thousandths of a processor.
pub fn shares(milli_cpu: i64) -> u64 {
    let milli = u64::try_from(milli_cpu).unwrap_or(0);
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Microseconds in each period for a limit of so many thousandths of a processor; None for no limit.
pub fn quota(milli_cpu: i64) -> Option<i64> {
    let period = CPU_PERIOD as i64;
    (milli_cpu > 0).then(|| (milli_cpu.saturating_mul(period) / 1000).max(MIN_QUOTA))
}

/// The class of a pod: Guaranteed when every container (init containers too) limits processor and memory and
/// requests just as much, BestEffort when nothing is requested or limited, else Burstable. Resources of the
/// pod itself, where given, decide alone.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let all: Vec<Option<&ResourceRequirements>> = match &spec.resources {
        Some(pod_level) => vec![Some(pod_level)],
        None => all_containers(spec).map(|c| c.resources.as_ref()).collect(),
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for name in ["cpu", "memory"] {
            let request = amount(resources.and_then(|r| r.requests.as_ref()), name);
            let limit = amount(resources.and_then(|r| r.limits.as_ref()), name);
            any |= request.is_some() || limit.is_some();
            // A missing request is the limit, by the API's default; a request of 0 is one of its own.
            let given = resources.and_then(|r| r.requests.as_ref()).is_some_and(|r| r.contains_key(name));
            guaranteed &= limit.is_some() && (!given || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// Limits of the pod's group, as the kubelet computes them: weight from the requests; quota and memory when
/// all containers have that limit; the lowest weight for BestEffort.
pub fn pod_resources(spec: &PodSpec) -> PodResources {
    let none =
        PodResources { cpu_shares: MIN_SHARES, cpu_quota: None, cpu_period: CPU_PERIOD, memory_limit: None };
    if qos_class(spec) == QosClass::BestEffort {
        return none;
    }
    let cpu_limit = pod_limit(spec, "cpu");
    let memory_limit = pod_limit(spec, "memory");
    PodResources {
        cpu_shares: shares(pod_request(spec, "cpu").milli()),
        cpu_quota: cpu_limit.and_then(|limit| quota(limit.milli())),
        memory_limit: memory_limit.map(Quantity::value).filter(|bytes| *bytes > 0),
        ..none
    }
}

/// Limits of one container, for [`crate::system::cgroup::CgroupManager::check_limits`].
pub fn container_resources(container: &Container) -> PodResources {
    PodResources {
        cpu_shares: shares(request(container, "cpu").unwrap_or_default().milli()),
        cpu_quota: limit(container, "cpu").and_then(|limit| quota(limit.milli())),
        cpu_period: CPU_PERIOD,
        memory_limit: limit(container, "memory").map(Quantity::value).filter(|bytes| *bytes > 0),
    }
}

/// Weight of all Burstable pods together.
pub fn burstable_shares<'a>(pods: impl IntoIterator<Item = &'a PodSpec>) -> u64 {
    let total = pods
        .into_iter()
        .filter(|spec| qos_class(spec) == QosClass::Burstable)
        .fold(Quantity::default(), |sum, spec| sum + pod_request(spec, "cpu"));
    shares(total.milli())
}

/// `oom_score_adj` of a container, for a machine with so many bytes of memory: -997 for Guaranteed and
/// node-critical pods, 1000 for BestEffort, and between 3 and 999 for Burstable, lower the more is requested.
pub fn oom_score_adj(spec: &PodSpec, container: &Container, memory_bytes: u64) -> i32 {
    let critical = spec.priority_class_name.as_deref() == Some("system-node-critical")
        || spec.priority.is_some_and(|p| p >= NODE_CRITICAL_PRIORITY);
    match qos_class(spec) {
        _ if critical => GUARANTEED_OOM_SCORE,
        QosClass::Guaranteed => GUARANTEED_OOM_SCORE,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let own = burstable_score(memory_request(container) + share_of_the_rest(spec), memory_bytes);
            // A sidecar must not be killed before what it serves.
            let served =
                spec.containers.iter().map(memory_request).min().unwrap_or(0) + share_of_the_rest(spec);
            if is_sidecar(spec, container) { own.min(burstable_score(served, memory_bytes)) } else { own }
        }
    }
}

/// What each container has of the memory that the pod as a whole requests beyond its containers' own requests.
fn share_of_the_rest(spec: &PodSpec) -> i64 {
    let pod_level = spec.resources.as_ref();
    let of_pod = amount(pod_level.and_then(|r| r.requests.as_ref()), "memory")
        .or_else(|| amount(pod_level.and_then(|r| r.limits.as_ref()), "memory"));
    let Some(of_pod) = of_pod else { return 0 };
    let own = pod_total(spec, |c| request(c, "memory"));
    let sidecars = spec.init_containers.iter().flatten().filter(|c| restarts_always(c)).count();
    let containers = i64::try_from(spec.containers.len() + sidecars).unwrap_or(i64::MAX).max(1);
    (of_pod.value() - own.value()).max(0) / containers
}

fn burstable_score(request: i64, memory_bytes: u64) -> i32 {
    let memory = i128::from(memory_bytes.max(1));
    let score = 1000 - 1000 * i128::from(request) / memory;
    i32::try_from(score.clamp(3, 999)).unwrap_or(999)
}

fn memory_request(container: &Container) -> i64 {
    request(container, "memory").map_or(0, Quantity::value)
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn restarts_always(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn is_sidecar(spec: &PodSpec, container: &Container) -> bool {
    restarts_always(container) && spec.init_containers.iter().flatten().any(|c| c.name == container.name)
}

fn amount(amounts: Option<&Amounts>, name: &str) -> Option<Quantity> {
    amounts?.get(name).and_then(|q| Quantity::parse(&q.0).ok()).filter(|q| !q.is_zero())
}

/// What a container requests, which is its limit where it says nothing.
pub fn request(container: &Container, name: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let given = resources.requests.as_ref().is_some_and(|r| r.contains_key(name));
    if given { amount(resources.requests.as_ref(), name) } else { limit(container, name) }
}

/// What a container is limited to.
pub fn limit(container: &Container, name: &str) -> Option<Quantity> {
    amount(container.resources.as_ref()?.limits.as_ref(), name)
}

/// What the pod needs at its peak: all that runs together at the end, or one init container with the
/// sidecars started before it, whichever is more; plus the overhead.
fn pod_total(spec: &PodSpec, of: impl Fn(&Container) -> Option<Quantity>) -> Quantity {
    let of = |container: &Container| of(container).unwrap_or_default();
    let mut sidecars = Quantity::default();
    let mut peak = Quantity::default();
    for container in spec.init_containers.iter().flatten() {
        if restarts_always(container) {
            sidecars = sidecars + of(container);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + of(container));
        }
    }
    spec.containers.iter().fold(sidecars, |sum, c| sum + of(c)).max(peak)
}

/// What the pod requests of a resource, as a scheduler counts it.
pub fn pod_request(spec: &PodSpec, name: &str) -> Quantity {
    let pod_level = spec.resources.as_ref();
    let own = amount(pod_level.and_then(|r| r.requests.as_ref()), name)
        .or_else(|| amount(pod_level.and_then(|r| r.limits.as_ref()), name))
        .unwrap_or_else(|| pod_total(spec, |c| request(c, name)));
    own + amount(spec.overhead.as_ref(), name).unwrap_or_default()
}

/// None unless every container has the limit, or the pod itself.
fn pod_limit(spec: &PodSpec, name: &str) -> Option<Quantity> {
    let own = match amount(spec.resources.as_ref().and_then(|r| r.limits.as_ref()), name) {
        Some(pod_level) => pod_level,
        None if all_containers(spec).all(|c| limit(c, name).is_some()) => pod_total(spec, |c| limit(c, name)),
        None => return None,
    };
    Some(own + amount(spec.overhead.as_ref(), name).unwrap_or_default())
}

#[cfg(test)]
#[path = "qos_tests.rs"]
mod tests;
