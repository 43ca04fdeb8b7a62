//! What this node offers to pods: amounts, labels, priority classes, and whether a pod can ever run on it.
//!
//! Everything here follows from manifest, settings and machine alone, so `podling check` says the same as the
//! daemon. What depends on the other pods is in `admission`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};

use super::status::Waiting;
use crate::manifest::Quantity;
use crate::runtime::downward::Allocatable;
use crate::runtime::spec::qos::pod_request;
use crate::runtime::spec::sysctls;
use crate::settings::Settings;
use crate::system::machine::Machine;

/// The priority of `system-cluster-critical`.
pub const CLUSTER_CRITICAL: i32 = 2_000_000_000;
/// The priority of `system-node-critical`.
const NODE_CRITICAL: i32 = 2_000_001_000;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// What the node offers.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    /// All there is, by the machine or the settings.
    pub total: Amounts,
    /// What of it pods may request: the total less the reserves.
    pub allocatable: Amounts,
    /// Most pods at a time.
    pub max_pods: u32,
    labels: BTreeMap<String, String>,
    /// The settings give labels, so those of a cluster can be compared with something.
    labelled: bool,
    classes: BTreeMap<String, i32>,
    allowed_sysctls: Vec<String>,
    node_name: String,
}

impl Capacity {
    /// By the settings, on the machine it runs on.
    pub fn of(settings: &Settings) -> Self {
        Self::on(settings, &Machine::detect(&settings.paths.state()))
    }

    /// By the settings, on a given machine.
    pub fn on(settings: &Settings, machine: &Machine) -> Self {
        let mut total: Amounts = BTreeMap::from([
            ("cpu".to_owned(), Quantity::whole(u64::from(machine.cpus))),
            ("memory".to_owned(), Quantity::whole(machine.memory)),
            ("ephemeral-storage".to_owned(), Quantity::whole(machine.disk)),
        ]);
        total.extend(machine.huge_pages.iter().map(|(name, bytes)| (name.clone(), Quantity::whole(*bytes))));
        total.extend(settings.capacity.clone());
        let mut allocatable = total.clone();
        for (name, reserved) in settings.system_reserved.iter().chain(&settings.kube_reserved) {
            if let Some(amount) = allocatable.get_mut(name) {
                *amount = amount.less(*reserved);
            }
        }
        let mut labels = BTreeMap::new();
        for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
            labels.insert(format!("{prefix}/os"), "linux".to_owned());
            labels.insert(format!("{prefix}/arch"), machine.arch.to_owned());
        }
        labels.insert("kubernetes.io/hostname".into(), settings.node_name.clone());
        labels.extend(settings.node_labels.clone());
        Self {
            total,
            allocatable,
            max_pods: settings.max_pods,
            labels,
            labelled: !settings.node_labels.is_empty(),
            classes: settings.priority_classes.clone(),
            allowed_sysctls: settings.allowed_sysctls.clone(),
            node_name: settings.node_name.clone(),
        }
    }

    /// A pod's priority: that of its class, else its own number, else none at all, which is 0.
    ///
    /// # Errors
    /// A class that the settings do not define although they define some. Where they define none, nobody set this
    /// node up for classes, and the number counts alone.
    pub fn priority(&self, spec: &PodSpec) -> Result<i32, Waiting> {
        match spec.priority_class_name.as_deref().unwrap_or_default() {
            "" => Ok(spec.priority.unwrap_or(0)),
            "system-node-critical" => Ok(NODE_CRITICAL),
            "system-cluster-critical" => Ok(CLUSTER_CRITICAL),
            _ if self.classes.is_empty() => Ok(spec.priority.unwrap_or(0)),
            name => self.classes.get(name).copied().ok_or_else(|| self.no_class(name)),
        }
    }

    fn no_class(&self, name: &str) -> Waiting {
        let mut known = vec!["system-cluster-critical", "system-node-critical"];
        known.extend(self.classes.keys().map(String::as_str));
        let text = format!(
            "spec.priorityClassName: there is no priority class {name:?}; define it under priorityClasses in the settings, or use one of {}",
            known.join(", ")
        );
        Waiting { reason: "PriorityClassNotFound".into(), message: text }
    }

    /// What a cluster would hold against the pod and this node does not, since its settings give no labels or classes
    /// to compare with.
    pub fn overlooked(&self, pod: &Pod) -> Vec<Waiting> {
        let Some(spec) = &pod.spec else { return Vec::new() };
        let mut all = Vec::new();
        if !self.labelled && self.selected(spec, false).is_ok() {
            all.extend(self.selected(spec, true).err());
        }
        let class = spec.priority_class_name.as_deref().unwrap_or_default();
        if self.classes.is_empty()
            && !["", "system-node-critical", "system-cluster-critical"].contains(&class)
        {
            all.push(self.no_class(class));
        }
        for one in &mut all {
            one.message.push_str("; the pod runs in any case");
        }
        all
    }

    /// Whether a pod could run here if it were alone.
    ///
    /// # Errors
    /// The first thing that keeps it away, with the kubelet's reason.
    pub fn could_hold(&self, pod: &Pod) -> Result<(), Waiting> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        self.right_system(pod, spec)?;
        sysctls::check(spec, &self.allowed_sysctls).map_err(|e| Waiting {
            reason: "SysctlForbidden".into(),
            message: format!("spec.securityContext.sysctls: {e}"),
        })?;
        self.selected(spec, self.labelled)?;
        self.priority(spec)?;
        for (name, wanted) in requests(spec) {
            let Some(most) = self.most(&name) else { continue };
            if wanted > most {
                return Err(out_of(
                    &name,
                    format!(
                        "the pod requests {name} {} and this node has {} for pods{}; lower the request, or set capacity in the settings",
                        shown(&name, wanted),
                        shown(&name, most),
                        self.reserve(&name)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// What stands for limits that a container does not set, where a pod asks for them.
    pub fn for_pods(&self) -> Allocatable {
        let of = |name: &str| self.allocatable.get(name).copied().unwrap_or_default();
        Allocatable {
            milli_cpu: of("cpu").milli(),
            memory: of("memory").value(),
            ephemeral_storage: of("ephemeral-storage").value(),
        }
    }

    /// What pods may have of a resource; none for one that this node does not count.
    pub fn most(&self, name: &str) -> Option<Quantity> {
        // A size of pages that the kernel does not know is one without pages.
        let unknown = name.starts_with("hugepages-").then(Quantity::default);
        self.allocatable.get(name).copied().or(unknown)
    }

    /// ` (4 less a reserve of 1)`, where there is a reserve.
    fn reserve(&self, name: &str) -> String {
        let (total, left) = (self.total.get(name), self.allocatable.get(name));
        match total.zip(left).filter(|(total, left)| total != left) {
            Some((total, left)) => {
                let kept = total.less(*left);
                format!(" ({} less a reserve of {})", shown(name, *total), shown(name, kept))
            }
            None => String::new(),
        }
    }

    fn right_system(&self, pod: &Pod, spec: &PodSpec) -> Result<(), Waiting> {
        let wait = |reason: &str, message: String| Err(Waiting { reason: reason.into(), message });
        if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux" && !os.name.is_empty()) {
            let text = format!("spec.os.name: the pod is for {}, and this node runs linux", os.name);
            return wait("PodOSNotSupported", text);
        }
        for key in ["kubernetes.io/os", "beta.kubernetes.io/os"] {
            let os = spec.node_selector.as_ref().and_then(|s| s.get(key));
            if let Some(os) = os.filter(|os| *os != "linux") {
                let text = format!("spec.nodeSelector[{key}]: the pod is for {os}, and this node runs linux");
                return wait("PodOSNotSupported", text);
            }
        }
        let label = pod.metadata.labels.as_ref().and_then(|l| l.get("kubernetes.io/os"));
        if let Some(os) = label.filter(|os| *os != "linux") {
            let text =
                format!("metadata.labels[kubernetes.io/os]: the pod is for {os}, and this node runs linux");
            return wait("PodOSSelectorNodeLabelDoesNotMatch", text);
        }
        Ok(())
    }

    /// `nodeSelector` and required node affinity against the labels: `all` of them, or only what every node is sure of.
    fn selected(&self, spec: &PodSpec, all: bool) -> Result<(), Waiting> {
        let wait = |message: String| {
            let message = format!("{message}; set nodeLabels in the settings, or change the manifest");
            Err(Waiting { reason: "NodeAffinity".into(), message })
        };
        for (key, wanted) in spec.node_selector.iter().flatten().filter(|(key, _)| all || is_certain(key)) {
            match self.labels.get(key) {
                Some(value) if value == wanted => {}
                Some(value) => {
                    return wait(format!(
                        "spec.nodeSelector wants {key}={wanted}, and this node has {value}"
                    ));
                }
                None => {
                    return wait(format!(
                        "spec.nodeSelector wants {key}={wanted}, and this node has no such label"
                    ));
                }
            }
        }
        let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let Some(required) =
            affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
        else {
            return Ok(());
        };
        if required.node_selector_terms.iter().any(|term| self.term(term, all)) {
            return Ok(());
        }
        let wanted: Vec<String> = required.node_selector_terms.iter().map(described).collect();
        wait(format!(
            "spec.affinity.nodeAffinity requires {}, and this node's labels do not match",
            wanted.join(" or ")
        ))
    }

    fn term(&self, term: &NodeSelectorTerm, all: bool) -> bool {
        let (labels, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
        // A term that says nothing matches nothing.
        let says = term.match_expressions.iter().flatten().next().is_some()
            || term.match_fields.iter().flatten().next().is_some();
        says && labels
            .into_iter()
            .filter(|r| all || is_certain(&r.key))
            .all(|r| matches(r, self.labels.get(&r.key).map(String::as_str)))
            && fields
                .into_iter()
                .all(|r| matches(r, (r.key == "metadata.name").then_some(self.node_name.as_str())))
    }
}

/// Whether a label says which node or system is meant, which every node knows of itself. The architecture is not
/// among them: images decide about it.
fn is_certain(key: &str) -> bool {
    matches!(key, "kubernetes.io/os" | "beta.kubernetes.io/os" | "kubernetes.io/hostname")
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = value.is_some_and(|v| values.iter().any(|w| w == v));
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|v| number(v));
    let compare = |holds: fn(i64, i64) -> bool| {
        value.and_then(number).zip(bound).is_some_and(|(value, bound)| holds(value, bound))
    };
    match requirement.operator.as_str() {
        "In" => among,
        "NotIn" => !among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

fn described(term: &NodeSelectorTerm) -> String {
    let all = term.match_expressions.iter().flatten().chain(term.match_fields.iter().flatten());
    let one = |r: &NodeSelectorRequirement| match r.values.as_deref().unwrap_or_default() {
        [] => format!("{} {}", r.key, r.operator),
        values => format!("{} {} [{}]", r.key, r.operator, values.join(", ")),
    };
    let parts: Vec<String> = all.map(one).collect();
    if parts.is_empty() { "an empty term, which matches no node".into() } else { parts.join(" and ") }
}

/// What a pod requests of what nodes have: processor, memory, disk and huge pages.
pub fn requests(spec: &PodSpec) -> Amounts {
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let of = all.flat_map(|c| c.resources.iter()).chain(spec.resources.iter());
    let names = of.flat_map(|r| r.requests.iter().chain(&r.limits).flatten().map(|(name, _)| name.clone()));
    let known = |name: &String| {
        matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    };
    let mut amounts = Amounts::new();
    for name in names.filter(known) {
        amounts.entry(name.clone()).or_insert_with(|| pod_request(spec, &name));
    }
    amounts.retain(|_, amount| !amount.is_zero());
    amounts
}

/// The kubelet's reason for a resource that is used up.
pub fn out_of(name: &str, message: String) -> Waiting {
    Waiting { reason: format!("OutOf{name}"), message }
}

/// An amount as people write it.
pub fn shown(name: &str, amount: Quantity) -> String {
    if name == "cpu" {
        let milli = amount.milli();
        return if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") };
    }
    let bytes = amount.value();
    for (size, suffix) in [(1i64 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")] {
        if bytes >= size && (bytes % size == 0 || bytes >= 10 * size) {
            return format!("{}{suffix}", bytes / size);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests;
