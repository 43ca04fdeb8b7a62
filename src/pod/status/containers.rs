//! Statuses of containers.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ResourceRequirements,
};

use super::{Facts, Waiting, time};
use crate::pod::plan::{Instance, entries, is_sidecar};
use crate::runtime::Kind;
use crate::store::{ContainerHistory, Exit, HookPhase};
use crate::system::signal_names;

/// Bytes that the termination messages of a pod share, as the kubelet's.
const MESSAGES_MAX: usize = 12 << 10;

fn live<'a>(facts: &Facts<'a>, kind: Kind, name: &str) -> Option<&'a Instance> {
    facts.instances.iter().find(|i| i.kind == kind && i.name == name && i.is_live())
}

/// Status of one container.
pub(super) fn container(facts: &Facts<'_>, spec: &Container, kind: Kind) -> ContainerStatus {
    let empty = Box::default();
    let history: &ContainerHistory = facts.record.containers.get(&spec.name).unwrap_or(&empty);
    let running = live(facts, kind, &spec.name).filter(|_| history.exit().is_none());
    let (state, last_state) = states(facts, spec, history, running.is_some());
    // Until its postStart hook is over, a container counts as one that is still being made.
    let up = running.filter(|_| hook_waits(facts, history).is_none());
    let once = kind == Kind::Init && !is_sidecar(spec);
    let probed = up.map(|i| facts.health.get(&i.id));
    let started = probed.is_some_and(|h| h.map_or(spec.startup_probe.is_none(), |h| h.started));
    let ready = started && probed.flatten().map_or(spec.readiness_probe.is_none(), |h| h.ready);
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
        ready: if once { history.completed } else { ready },
        started: Some(started),
        state: Some(state),
        last_state: Some(last_state),
        allocated_resources: spec
            .resources
            .as_ref()
            .and_then(|r| r.requests.clone())
            .filter(|_| running.is_some()),
        resources: history
            .resources
            .clone()
            .filter(|r| running.is_some() && *r != ResourceRequirements::default()),
        stop_signal: stop_signal(spec, history),
        ..ContainerStatus::default()
    }
}

/// The manifest's, else that of the image, else the one without either; none before the first run.
fn stop_signal(spec: &Container, history: &ContainerHistory) -> Option<String> {
    let of_manifest = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.clone());
    of_manifest.or_else(|| signal_names::name(history.stop_signal?))
}

/// What a container that runs waits for: its `postStart` hook, or its end since that failed.
fn hook_waits(facts: &Facts<'_>, history: &ContainerHistory) -> Option<Waiting> {
    let (reason, message) = match history.post_start.as_ref()? {
        HookPhase::Due | HookPhase::Begun(_) => (being_made(facts), "its postStart hook runs".to_owned()),
        HookPhase::Failed(why) => ("PostStartHookError", format!("its postStart hook failed: {why}")),
        HookPhase::Done => return None,
    };
    Some(Waiting { reason: reason.into(), message })
}

/// The word for a container that has not run yet.
fn being_made(facts: &Facts<'_>) -> &'static str {
    match facts.spec.init_containers.iter().flatten().next() {
        Some(_) => "PodInitializing",
        None => "ContainerCreating",
    }
}

fn states(
    facts: &Facts<'_>,
    spec: &Container,
    history: &ContainerHistory,
    running: bool,
) -> (ContainerState, ContainerState) {
    let terminated = |e: Option<&Exit>| ContainerState {
        terminated: e.map(|e| terminated(facts, e)),
        ..Default::default()
    };
    let hook = hook_waits(facts, history).filter(|_| running);
    if running && hook.is_none() {
        let started_at = history.started.map(time);
        let state =
            ContainerState { running: Some(ContainerStateRunning { started_at }), ..Default::default() };
        return (state, terminated(history.last.as_ref()));
    }
    let exit = history.exit();
    match hook.or_else(|| waiting(facts, spec, exit)) {
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
    if let Some(all) = facts.record.restart_all.as_ref().filter(|r| r.under_way) {
        let mut message = format!("container {} asked for all containers to restart", all.by);
        if !all.backoff.delay.is_zero() {
            message.push_str(&format!(": back-off {}s", all.backoff.delay.as_secs()));
        }
        return Some(Waiting { reason: "RestartingAllContainers".into(), message });
    }
    if let Some(w) = facts.waiting.get(&spec.name) {
        return Some(w.clone());
    }
    if exit.is_some() || facts.record.containers.get(&spec.name).is_some_and(|h| h.completed) {
        return None;
    }
    Some(match facts.waiting.get("") {
        // What the pod waits for says more than that its containers wait for the pod.
        Some(w) => w.clone(),
        None => Waiting { reason: being_made(facts).into(), message: String::new() },
    })
}

fn terminated(facts: &Facts<'_>, exit: &Exit) -> ContainerStateTerminated {
    let share = MESSAGES_MAX / entries(facts.spec).count().max(1);
    let mut end = exit.message.len().min(share);
    while !exit.message.is_char_boundary(end) {
        end -= 1;
    }
    ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(exit.reason.clone()),
        message: (end > 0).then(|| exit.message[..end].to_owned()),
        started_at: exit.started.map(time),
        finished_at: Some(time(exit.finished)),
        container_id: Some(format!("containerd://{}", exit.container_id)),
        signal: None,
    }
}
