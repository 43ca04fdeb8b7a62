//! A pod's status, as kubectl shows it, from its record and what is seen: pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, HostIP, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{Health, Instance, Outcome, Plan, SandboxState, State, is_sidecar};
use crate::manifest::Hashes;
use crate::runtime::Kind;
use crate::store::StatusRecord;

mod conditions;
mod containers;
mod remembered;

pub use remembered::from_record;

use conditions::pod_conditions;
use containers::container;

/// Reason of a pod of which a shim does not answer.
pub const UNRESPONSIVE: &str = "ShimUnresponsive";

/// Why something of a pod waits: a CamelCase reason and a line for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Such as `ErrImagePull`.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Why a pod is being stopped that is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `podling stop`.
    Stop,
    /// The machine shuts down.
    Shutdown,
    /// `podling restart`, or a change that needs the pod made anew.
    Restart,
}

/// What the status is made from.
pub struct Facts<'a> {
    /// The accepted spec.
    pub spec: &'a PodSpec,
    /// What happened so far.
    pub record: &'a StatusRecord,
    /// What is seen.
    pub instances: &'a [Instance],
    /// The sandbox.
    pub sandbox: SandboxState,
    /// The latest decision.
    pub plan: &'a Plan,
    /// Why containers wait, by name; `""` is the pod itself.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Verdicts of the probes, by container id; no entry: no probes.
    pub health: &'a BTreeMap<String, Health>,
    /// Hashes of the accepted spec's containers.
    pub hashes: &'a Hashes,
    /// A newer manifest that cannot take over yet, and why.
    pub pending_update: Option<&'a Waiting>,
    /// Conditions that stand only while a resize waits or is under way: type to reason and message.
    pub resize: Vec<(&'static str, Waiting)>,
    /// Why the manifest file, as it is now, cannot be taken; the pod runs as last accepted.
    pub trouble: Option<&'a Waiting>,
    /// Stopped by order, and nothing is left to stop.
    pub stopped: bool,
    /// The pod is being stopped.
    pub terminating: bool,
    /// It is stopped for another reason than its removal.
    pub ending: Option<Ending>,
    /// Addresses of the node, the first of each family.
    pub host_ips: &'a [String],
    /// `Guaranteed`, `Burstable`, `BestEffort`.
    pub qos_class: &'a str,
    /// Now, for display.
    pub now: Timestamp,
}

impl Facts<'_> {
    fn is_sidecar(&self, name: &str) -> bool {
        self.spec.init_containers.iter().flatten().any(|c| c.name == name && is_sidecar(c))
    }
}

/// Builds the status; `conditions` keeps when each condition last changed.
pub fn status(facts: &Facts<'_>, conditions: &mut BTreeMap<String, (bool, Timestamp)>) -> PodStatus {
    let init: Vec<_> = facts.spec.init_containers.iter().flatten().collect();
    let init_statuses: Vec<_> = init.iter().map(|c| container(facts, c, Kind::Init)).collect();
    let statuses: Vec<_> = facts.spec.containers.iter().map(|c| container(facts, c, Kind::Regular)).collect();
    let initialized = initialized(facts, &init, &init_statuses);
    let phase = phase(facts, &init_statuses, &statuses, initialized);
    let (reason, message) = reason(facts);
    let conditions = pod_conditions(facts, &init_statuses, &statuses, phase, initialized, conditions);
    let ips: Vec<String> = pod_ips(facts);
    PodStatus {
        phase: Some(phase.into()),
        reason,
        message,
        start_time: facts.record.start_time.map(time),
        conditions: Some(conditions),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: (!facts.host_ips.is_empty())
            .then(|| facts.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: Some(facts.qos_class.into()),
        init_container_statuses: (!init.is_empty()).then_some(init_statuses),
        container_statuses: Some(statuses),
        allocated_resources: facts.spec.resources.as_ref().and_then(|r| r.requests.clone()),
        resources: facts.spec.resources.clone().filter(|_| facts.resize.is_empty()),
        ..PodStatus::default()
    }
}

fn pod_ips(facts: &Facts<'_>) -> Vec<String> {
    match &facts.record.sandbox {
        Some(s) if s.host_network => facts.host_ips.to_vec(),
        Some(s) => s.ips.clone(),
        None => Vec::new(),
    }
}

/// Times are shown in whole seconds, as the API does.
fn time(t: Timestamp) -> Time {
    Time(Timestamp::from_second(t.as_second()).unwrap_or(t))
}

/// Whether the init containers are behind the pod, and its sidecars have started.
fn initialized(facts: &Facts<'_>, init: &[&Container], statuses: &[ContainerStatus]) -> bool {
    let regular = |i: &Instance| i.kind == Kind::Regular && i.is_live();
    let over = facts.plan.outcome;
    facts.instances.iter().any(regular)
        || over == Some(Outcome::Succeeded)
        // Its sidecars went when the pod failed.
        || over.is_some() && init.iter().zip(statuses).all(|(c, s)| is_sidecar(c) || s.ready)
        || init.iter().zip(statuses).all(|(c, s)| is_done(c, s))
}

/// Whether an init container has done what those after it wait for.
fn is_done(init: &Container, status: &ContainerStatus) -> bool {
    if is_sidecar(init) { status.started == Some(true) } else { status.ready }
}

/// The phase, by the kubelet's order of questions.
fn phase(
    facts: &Facts<'_>,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
    initialized: bool,
) -> &'static str {
    let lives = facts.instances.iter().any(|i| i.is_live() && i.kind != Kind::Pause);
    match facts.plan.outcome {
        // What still runs, such as a sidecar, is on its way out: the pod ends with the last of it.
        Some(_) if lives => return "Running",
        Some(Outcome::Succeeded) => return "Succeeded",
        Some(Outcome::Failed) => return "Failed",
        None => {}
    }
    if !initialized && !init.is_empty() {
        return "Pending";
    }
    let never_ran = |s: &&ContainerStatus| {
        let waits = s.state.as_ref().is_some_and(|s| s.waiting.is_some());
        waits && s.last_state.as_ref().is_none_or(|l| l.terminated.is_none())
    };
    if facts.terminating && !regular.iter().all(|s| never_ran(&s)) {
        return "Running";
    }
    let sidecars = init.iter().filter(|s| facts.is_sidecar(&s.name));
    if sidecars.chain(regular).any(|s| never_ran(&s)) { "Pending" } else { "Running" }
}

fn reason(facts: &Facts<'_>) -> (Option<String>, Option<String>) {
    let of = |w: &Waiting| (Some(w.reason.clone()), Some(w.message.clone()));
    if facts.stopped {
        let how = "stopped by podling stop; podling start runs it again";
        return (Some("Stopped".into()), Some(how.into()));
    }
    if let Some(verdict) = &facts.record.verdict {
        return (Some(verdict.reason.clone()), Some(verdict.message.clone()));
    }
    let silent: Vec<_> =
        facts.instances.iter().filter(|i| i.state == State::Unresponsive).map(|i| i.name.as_str()).collect();
    match (facts.ending, facts.waiting.get("").or(facts.pending_update)) {
        (Some(Ending::Stop), _) => (Some("Stopping".into()), Some("stopped by podling stop".into())),
        (Some(Ending::Shutdown), _) => {
            let text = "Pod was terminated in response to imminent node shutdown.";
            (Some("Terminated".into()), Some(text.into()))
        }
        (Some(Ending::Restart), _) => (Some("Restarting".into()), Some("the pod is made anew".into())),
        (None, Some(w)) => of(w),
        (None, None) if !silent.is_empty() => {
            let text =
                format!("the shim of {} does not answer, so whether it runs is not known", silent.join(", "));
            (Some(UNRESPONSIVE.into()), Some(text))
        }
        (None, None) => (None, None),
    }
}

#[cfg(test)]
mod tests;
