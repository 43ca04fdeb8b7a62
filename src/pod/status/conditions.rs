//! Conditions of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition};

use super::{Ending, Facts, Waiting, time};
use crate::pod::board::APPLIED;
use crate::pod::plan::{Instance, SandboxState, entries};
use crate::runtime::Kind;

/// Condition of pods that have a restart rule for all their containers.
const ALL_RESTARTING: &str = "AllContainersRestarting";

/// Condition of pods of which an image could not be checked for a newer one.
const STALE: &str = "StaleImage";

/// Why a condition is as it is: reason and message.
type Reason = Option<(String, String)>;

/// All conditions; `since` keeps when each last changed.
pub(super) fn pod_conditions(
    facts: &Facts<'_>,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
    phase: &str,
    initialized: bool,
    since: &mut BTreeMap<String, (bool, Timestamp)>,
) -> Vec<PodCondition> {
    let unready = unready(facts, init, regular, phase);
    let succeeded = phase == "Succeeded";
    let gated = unready.clone().or_else(|| gates(facts));
    let mut list = vec![
        ("PodReadyToStartContainers", facts.sandbox == SandboxState::Ready, None),
        ("Initialized", initialized || succeeded, uninitialized(facts, init, succeeded, initialized)),
        ("Ready", gated.is_none(), gated),
        ("ContainersReady", unready.is_none(), unready),
        ("PodScheduled", true, None),
    ];
    let rules = entries(facts.spec).flat_map(|(_, c)| c.restart_policy_rules.iter().flatten());
    if rules.into_iter().any(|rule| rule.action == "RestartAllContainers") {
        let by = facts.record.restart_all.as_ref().filter(|r| r.under_way).map(|r| &r.by);
        let why = by.map(|by| {
            ("ContainerExited".to_owned(), format!("container {by} asked for it by its exit code"))
        });
        list.push((ALL_RESTARTING, why.is_some(), why));
    }
    let not_applied = not_applied(facts);
    list.push((APPLIED, not_applied.is_none(), not_applied.map(|w| (w.reason, w.message))));
    if let Some(why) = stale(facts) {
        list.push((STALE, true, Some(("RegistryUnavailable".into(), why))));
    }
    let resize = facts.resize.iter();
    list.extend(resize.map(|(kind, w)| (*kind, true, Some((w.reason.clone(), w.message.clone())))));
    since.retain(|name, _| list.iter().any(|(n, ..)| n == name));
    list.into_iter().map(|(name, on, why)| condition(facts, since, name, on, why)).collect()
}

/// Why the pod is not ready. Sidecars count, other init containers do not.
fn unready(facts: &Facts<'_>, init: &[ContainerStatus], regular: &[ContainerStatus], phase: &str) -> Reason {
    let reason = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
    match phase {
        "Succeeded" => return reason("PodCompleted", ""),
        "Failed" => return reason("PodFailed", ""),
        _ if facts.ending.is_some() => return reason("PodStopping", "the pod is being stopped"),
        _ => {}
    }
    let sidecars = init.iter().filter(|s| facts.is_sidecar(&s.name));
    let names: Vec<_> = sidecars.chain(regular).filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    reason("ContainersNotReady", &format!("containers with unready status: [{}]", names.join(" ")))
}

/// Readiness gates wait for conditions that only an API server could be told.
fn gates(facts: &Facts<'_>) -> Reason {
    let gates = facts.spec.readiness_gates.iter().flatten();
    let texts: Vec<_> = gates
        .map(|g| {
            format!("corresponding condition of pod readiness gate {:?} does not exist.", g.condition_type)
        })
        .collect();
    (!texts.is_empty()).then(|| ("ReadinessGatesNotReady".to_owned(), texts.join(", ")))
}

fn uninitialized(facts: &Facts<'_>, init: &[ContainerStatus], succeeded: bool, initialized: bool) -> Reason {
    if succeeded {
        return Some(("PodCompleted".to_owned(), String::new()));
    }
    let missing = |s: &&ContainerStatus| match facts.is_sidecar(&s.name) {
        true => s.started != Some(true),
        false => !s.ready,
    };
    let names: Vec<_> = init.iter().filter(missing).map(|s| s.name.as_str()).collect();
    (!initialized).then(|| {
        let text = format!("containers with incomplete status: [{}]", names.join(" "));
        ("ContainersNotInitialized".to_owned(), text)
    })
}

/// Which containers run an image that `imagePullPolicy: Always` wants checked and that could not be.
fn stale(facts: &Facts<'_>) -> Option<String> {
    let of = |(_, c): (Kind, &Container)| {
        let history = facts.record.containers.get(&c.name)?;
        let why = history.stale.as_ref().filter(|_| history.exit().is_none())?;
        Some(format!("container {}: {why}", c.name))
    };
    let all: Vec<_> = entries(facts.spec).filter_map(of).collect();
    (!all.is_empty()).then(|| all.join("; "))
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
        let hash = match i.kind {
            // A manifest that an earlier podling accepted has no hashes of these.
            Kind::Init if facts.hashes.init_containers.is_empty() => return false,
            Kind::Regular => facts.hashes.containers.get(&i.name),
            Kind::Init if facts.is_sidecar(&i.name) => facts.hashes.init_containers.get(&i.name),
            // Others end by themselves, and with another entry the pod is made anew.
            _ => return false,
        };
        i.is_live() && hash.is_none_or(|hash| *hash != i.hash)
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
    why: Reason,
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
