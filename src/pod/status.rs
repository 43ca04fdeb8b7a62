//! A pod's status, as kubectl shows it, from its record and what is seen: pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::board::{APPLIED, PodView};
use super::plan::{
    Goal, Health, Instance, Outcome, Plan, SandboxState, State, View, is_ready, is_started, plan,
};
use crate::manifest::PodManifest;
use crate::runtime::Kind;
use crate::runtime::spec::qos::qos_class;
use crate::store::{ContainerHistory, Exit, PodRecord, StatusRecord};
use crate::system::clock;

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
    pub hashes: &'a BTreeMap<String, String>,
    /// A newer manifest that cannot take over yet, and why.
    pub pending_update: Option<&'a Waiting>,
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

/// Builds the status; `conditions` keeps when each condition last changed.
pub fn status(facts: &Facts<'_>, conditions: &mut BTreeMap<String, (bool, Timestamp)>) -> PodStatus {
    let init: Vec<_> = facts.spec.init_containers.iter().flatten().collect();
    let init_statuses: Vec<_> = init.iter().map(|c| container(facts, c, Kind::Init)).collect();
    let statuses: Vec<_> = facts.spec.containers.iter().map(|c| container(facts, c, Kind::Regular)).collect();
    let initialized = initialized(facts, &init);
    let phase = phase(facts, &init_statuses, &statuses, initialized);
    let (reason, message) = reason(facts);
    let conditions = pod_conditions(facts, &statuses, &init, phase, initialized, conditions);
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

fn initialized(facts: &Facts<'_>, init: &[&Container]) -> bool {
    let regular = |i: &Instance| i.kind == Kind::Regular && i.is_live();
    facts.instances.iter().any(regular)
        || facts.plan.outcome == Some(Outcome::Succeeded)
        || init.iter().all(|c| facts.record.containers.get(&c.name).is_some_and(|h| h.completed))
}

fn live<'a>(facts: &Facts<'a>, kind: Kind, name: &str) -> Option<&'a Instance> {
    facts.instances.iter().find(|i| i.kind == kind && i.name == name && i.is_live())
}

fn container(facts: &Facts<'_>, spec: &Container, kind: Kind) -> ContainerStatus {
    let empty = ContainerHistory::default();
    let history = facts.record.containers.get(&spec.name).unwrap_or(&empty);
    let running = live(facts, kind, &spec.name).filter(|_| history.exit().is_none());
    let (state, last_state) = states(facts, spec, history, running.is_some());
    let done = kind == Kind::Init && history.completed;
    ContainerStatus {
        name: spec.name.clone(),
        image: if history.image.is_empty() {
            spec.image.clone().unwrap_or_default()
        } else {
            history.image.clone()
        },
        image_id: history.image_id.clone(),
        container_id: history.container_id.as_ref().map(|id| format!("containerd://{id}")),
        restart_count: i32::try_from(history.restarts).unwrap_or(i32::MAX),
        ready: done || kind != Kind::Init && running.is_some_and(|i| is_ready(facts.health, i)),
        started: Some(running.is_some_and(|i| is_started(facts.health, i))),
        state: Some(state),
        last_state: Some(last_state),
        ..ContainerStatus::default()
    }
}

fn states(
    facts: &Facts<'_>,
    spec: &Container,
    history: &ContainerHistory,
    running: bool,
) -> (ContainerState, ContainerState) {
    let terminated =
        |e: Option<&Exit>| ContainerState { terminated: e.map(terminated), ..Default::default() };
    if running {
        let started_at = history.started.map(time);
        let state =
            ContainerState { running: Some(ContainerStateRunning { started_at }), ..Default::default() };
        return (state, terminated(history.last.as_ref()));
    }
    let exit = history.exit();
    match waiting(facts, spec, exit) {
        // kubectl shows what it waits for, and the exit it waits after as the last state.
        Some(w) => {
            let waiting = ContainerStateWaiting {
                reason: Some(w.reason),
                message: (!w.message.is_empty()).then_some(w.message),
            };
            (
                ContainerState { waiting: Some(waiting), ..Default::default() },
                terminated(history.last.as_ref()),
            )
        }
        None if exit.is_none() && history.completed => {
            // An init container whose run is known by its effect alone: the pod runs, the record was lost.
            let done = ContainerStateTerminated { reason: Some("Completed".into()), ..Default::default() };
            (ContainerState { terminated: Some(done), ..Default::default() }, ContainerState::default())
        }
        None => (terminated(exit), terminated(history.previous.as_ref())),
    }
}

/// What a container that does not run waits for; none when it has ended, be it for good or not.
fn waiting(facts: &Facts<'_>, spec: &Container, exit: Option<&Exit>) -> Option<Waiting> {
    if let Some(until) = facts.plan.backing_off.get(&spec.name) {
        let delay =
            facts.record.containers.get(&spec.name).and_then(|h| h.backoff).map_or(0, |b| b.delay.as_secs());
        let _ = until;
        return Some(Waiting {
            reason: "CrashLoopBackOff".into(),
            message: format!("back-off {delay}s restarting failed container {}", spec.name),
        });
    }
    if let Some(w) = facts.waiting.get(&spec.name) {
        return Some(w.clone());
    }
    if exit.is_some() || facts.record.containers.get(&spec.name).is_some_and(|h| h.completed) {
        return None;
    }
    let word = if facts.spec.init_containers.iter().flatten().next().is_some() {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    Some(match facts.waiting.get("") {
        // What the pod waits for says more than that its containers wait for the pod.
        Some(w) => w.clone(),
        None => Waiting { reason: word.into(), message: String::new() },
    })
}

fn terminated(exit: &Exit) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(exit.reason.clone()),
        message: (!exit.message.is_empty()).then(|| exit.message.clone()),
        started_at: exit.started.map(time),
        finished_at: Some(time(exit.finished)),
        container_id: Some(format!("containerd://{}", exit.container_id)),
        signal: None,
    }
}

/// The phase, by the kubelet's order of questions.
fn phase(
    facts: &Facts<'_>,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
    initialized: bool,
) -> &'static str {
    match facts.plan.outcome {
        Some(Outcome::Succeeded) => return "Succeeded",
        Some(Outcome::Failed) => return "Failed",
        None => {}
    }
    if !initialized && !init.is_empty() {
        return "Pending";
    }
    let state = |s: &ContainerStatus| s.state.clone().unwrap_or_default();
    let never_ran = |s: &ContainerStatus| {
        state(s).waiting.is_some() && s.last_state.as_ref().is_none_or(|l| l.terminated.is_none())
    };
    if facts.terminating && !regular.iter().all(never_ran) {
        return "Running";
    }
    if regular.iter().any(never_ran) { "Pending" } else { "Running" }
}

fn reason(facts: &Facts<'_>) -> (Option<String>, Option<String>) {
    let of = |w: &Waiting| (Some(w.reason.clone()), Some(w.message.clone()));
    if facts.stopped {
        let how = "stopped by podling stop; podling start runs it again";
        return (Some("Stopped".into()), Some(how.into()));
    }
    let silent: Vec<_> =
        facts.instances.iter().filter(|i| i.state == State::Unresponsive).map(|i| i.name.as_str()).collect();
    match (facts.ending, facts.waiting.get("").or(facts.pending_update)) {
        (Some(Ending::Stop), _) => (Some("Stopping".into()), Some("stopped by podling stop".into())),
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

fn pod_conditions(
    facts: &Facts<'_>,
    statuses: &[ContainerStatus],
    init: &[&Container],
    phase: &str,
    initialized: bool,
    since: &mut BTreeMap<String, (bool, Timestamp)>,
) -> Vec<PodCondition> {
    let over = matches!(phase, "Succeeded" | "Failed");
    let unready: Vec<_> = statuses.iter().filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    let ready_reason = match phase {
        "Succeeded" => Some(("PodCompleted".to_owned(), String::new())),
        "Failed" => Some(("PodFailed".to_owned(), String::new())),
        _ if facts.ending.is_some() => {
            Some(("PodStopping".to_owned(), "the pod is being stopped".to_owned()))
        }
        _ if !unready.is_empty() => Some((
            "ContainersNotReady".into(),
            format!("containers with unready status: [{}]", unready.join(" ")),
        )),
        _ => None,
    };
    let incomplete: Vec<_> = init
        .iter()
        .filter(|c| !facts.record.containers.get(&c.name).is_some_and(|h| h.completed))
        .map(|c| c.name.as_str())
        .collect();
    let init_reason = (!initialized && !over).then(|| {
        (
            "ContainersNotInitialized".to_owned(),
            format!("containers with incomplete status: [{}]", incomplete.join(" ")),
        )
    });
    let sandbox = facts.sandbox == SandboxState::Ready;
    let mut list = vec![
        ("PodReadyToStartContainers", sandbox, None),
        ("Initialized", initialized || phase == "Succeeded", init_reason),
        ("Ready", ready_reason.is_none(), ready_reason.clone()),
        ("ContainersReady", ready_reason.is_none(), ready_reason),
        ("PodScheduled", true, None),
    ];
    let not_applied = not_applied(facts);
    list.push((APPLIED, not_applied.is_none(), not_applied.map(|w| (w.reason, w.message))));
    since.retain(|name, _| list.iter().any(|(n, ..)| n == name));
    list.into_iter().map(|(name, on, why)| condition(facts, since, name, on, why)).collect()
}

/// Why what runs is not what the manifest says: the file, or a container of an earlier version of it.
fn not_applied(facts: &Facts<'_>) -> Option<Waiting> {
    if let Some(why) = facts.pending_update.or(facts.trouble) {
        return Some(why.clone());
    }
    let wait = |message: String| Some(Waiting { reason: "Updating".into(), message });
    if facts.ending == Some(Ending::Restart) {
        return wait("the pod is being made anew".into());
    }
    let old = |i: &&Instance| {
        i.kind == Kind::Regular && i.is_live() && facts.hashes.get(&i.name).is_none_or(|hash| *hash != i.hash)
    };
    let old: Vec<_> = facts.instances.iter().filter(old).map(|i| i.name.as_str()).collect();
    if old.is_empty() {
        return None;
    }
    wait(format!("containers of the earlier manifest are still being stopped: [{}]", old.join(" ")))
}

fn condition(
    facts: &Facts<'_>,
    since: &mut BTreeMap<String, (bool, Timestamp)>,
    name: &str,
    on: bool,
    why: Option<(String, String)>,
) -> PodCondition {
    let entry = since.entry(name.to_owned()).or_insert((on, facts.now));
    if entry.0 != on {
        *entry = (on, facts.now);
    }
    let (reason, message) = why.unzip();
    PodCondition {
        type_: name.into(),
        status: if on { "True" } else { "False" }.into(),
        last_transition_time: Some(time(entry.1)),
        reason,
        message: message.filter(|m| !m.is_empty()),
        ..PodCondition::default()
    }
}

/// A pod as its record remembers it, shown until its worker has looked: containers that were running are
/// shown running, unless the machine was booted since.
pub fn from_record(record: &PodRecord) -> PodView {
    let manifest = record.spec.manifest.clone();
    let here = record.status.boot_id == clock::boot_id();
    let status = record.status.clone().of_this_boot();
    let containers = status.containers.iter().filter(|_| here);
    let instances: Vec<_> = containers.filter_map(|(name, h)| remembered(&manifest, name, h)).collect();
    let sandbox = match &status.sandbox {
        Some(sandbox) if sandbox.ready => SandboxState::Ready,
        _ => SandboxState::Absent,
    };
    let empty = PodSpec::default();
    let spec = manifest.pod.spec.as_ref().unwrap_or(&empty);
    // For how the pod ended, if it did; nothing of the plan is carried out.
    let plan = plan(&View {
        spec,
        hashes: &manifest.hashes,
        goal: if record.spec.stopped || record.spec.removing { Goal::Stop } else { Goal::Run },
        record: &status,
        sandbox,
        instances: &instances,
        stopping: &BTreeMap::new(),
        held: &BTreeMap::new(),
        health: &BTreeMap::new(),
        now: clock::now(),
    });
    let facts = Facts {
        spec,
        record: &status,
        instances: &instances,
        sandbox,
        plan: &plan,
        waiting: &BTreeMap::new(),
        health: &BTreeMap::new(),
        hashes: &manifest.hashes.containers,
        pending_update: None,
        trouble: None,
        stopped: record.spec.stopped,
        terminating: record.spec.removing,
        ending: None,
        host_ips: &[],
        qos_class: &qos_class(spec).to_string(),
        now: Timestamp::now(),
    };
    let status = self::status(&facts, &mut record.status.conditions.clone());
    PodView {
        uid: record.spec.uid.clone(),
        seen: record.spec.seen,
        source: super::manager::source_name(&record.spec.source),
        deleting: record.spec.removing.then(Timestamp::now),
        status,
        manifest,
    }
}

fn remembered(manifest: &PodManifest, name: &str, history: &ContainerHistory) -> Option<Instance> {
    let init =
        manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()).any(|c| c.name == name);
    history.believed_running().then(|| Instance {
        id: history.container_id.clone().unwrap_or_default(),
        name: name.to_owned(),
        kind: if init { Kind::Init } else { Kind::Regular },
        hash: history.hash.clone(),
        sandbox: String::new(),
        state: State::Running,
    })
}

#[cfg(test)]
mod tests;
