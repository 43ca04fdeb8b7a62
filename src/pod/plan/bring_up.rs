//! Bringing the containers of a pod up, and keeping them up: init containers one after the other, sidecars
//! among them each before what needs it, then the regular ones in their order.

use k8s_openapi::api::core::v1::{Container, Lifecycle};

use super::policy::{AfterExit, after_exit};
use super::stopping::{Wish, stop};
use super::view::{Action, Instance, Plan, View, is_sidecar};
use super::why::Why;
use crate::runtime::Kind;
use crate::store::{ContainerHistory, HookPhase};

/// Brings the containers on.
pub(super) fn bring_up(view: &View<'_>, plan: &mut Plan) {
    // Once a regular container runs, what init containers did is behind the pod, whatever the record lost.
    let initialised = view.regular_lives();
    for container in view.spec.init_containers.iter().flatten() {
        let done = match is_sidecar(container) {
            true => {
                keep_running(view, plan, container, Kind::Init);
                has_started(view, container)
            }
            false => initialised || run_to_completion(view, plan, container),
        };
        if !done && !initialised {
            return;
        }
    }
    let mut hook_runs = false;
    for container in &view.spec.containers {
        // The hook of a container runs before those after it start for the first time. One that ran already
        // does not wait for its neighbours.
        let first = view.record.containers.get(&container.name).is_none_or(|h| h.exit().is_none());
        let runs = view.live(Kind::Regular, &container.name).is_some();
        if runs || !(first && hook_runs) {
            hook_runs |= keep_running(view, plan, container, Kind::Regular);
        }
    }
}

/// Brings an init container on; true when it has succeeded in this sandbox.
fn run_to_completion(view: &View<'_>, plan: &mut Plan, container: &Container) -> bool {
    let history = view.record.containers.get(&container.name).map(AsRef::as_ref);
    if history.is_some_and(|h| h.completed) {
        return true;
    }
    match view.live(Kind::Init, &container.name) {
        Some(instance) if view.stopping.contains_key(&instance.id) => {
            stop(view, plan, instance, Why::Changed)
        }
        Some(_) => {}
        None => start_after_backoff(view, plan, container, Kind::Init, history),
    }
    false
}

/// Keeps a container running as far as its policy wants it to; true while its `postStart` hook is due or runs.
fn keep_running(view: &View<'_>, plan: &mut Plan, container: &Container, kind: Kind) -> bool {
    let hash = hash(view, kind, &container.name);
    if let Some(instance) = view.live(kind, &container.name) {
        return mind(view, plan, instance, hash);
    }
    let history = view.record.containers.get(&container.name).map(AsRef::as_ref);
    let changed = history.is_some_and(|h| hash.is_some_and(|hash| *hash != h.hash));
    match history.and_then(|h| h.exit()) {
        Some(exit) if !changed && after_exit(view.spec, container, exit) == AfterExit::Stay => false,
        _ => {
            let before = plan.actions.len();
            start_after_backoff(view, plan, container, kind, history.filter(|_| !changed));
            plan.actions.len() > before && has_post_start(container)
        }
    }
}

/// Looks after a container that lives; true while its `postStart` hook is due or runs.
fn mind(view: &View<'_>, plan: &mut Plan, instance: &Instance, hash: Option<&String>) -> bool {
    let failed = view.health.get(&instance.id).and_then(|h| h.failed.as_ref());
    let hook = view.run(instance).and_then(|h| h.post_start.as_ref());
    if hash.is_some_and(|h| *h != instance.hash) {
        stop(view, plan, instance, Why::Changed);
    } else if let Some(failed) = failed {
        let wish = Wish { why: Why::Probe(failed.probe), grace: failed.grace, turn: true };
        stop(view, plan, instance, wish);
    } else if let Some(HookPhase::Failed(_)) = hook {
        stop(view, plan, instance, Why::PostStartFailed);
    } else if let Some(begun) = view.stopping.get(&instance.id) {
        // What has begun is carried through with the time it was given, also when its reason is gone: a
        // container that was told to drain is of no use any more.
        stop(view, plan, instance, Wish { why: Why::Changed, grace: Some(begun.grace), turn: true });
    } else if hook == Some(&HookPhase::Due) {
        plan.actions.push(Action::PostStart { id: instance.id.clone(), name: instance.name.clone() });
        return true;
    } else {
        return matches!(hook, Some(HookPhase::Begun(_)));
    }
    false
}

/// Hash of an entry whose container restarts alone when it changes.
fn hash<'a>(view: &View<'a>, kind: Kind, name: &str) -> Option<&'a String> {
    match kind {
        Kind::Regular => view.hashes.containers.get(name),
        _ => view.hashes.init_containers.get(name),
    }
}

/// Whether a sidecar runs and is not being stopped, has passed its startup probe, and its `postStart` hook is
/// over.
pub(super) fn has_started(view: &View<'_>, container: &Container) -> bool {
    let Some(instance) = view.live(Kind::Init, &container.name) else { return false };
    if view.stopping.contains_key(&instance.id) {
        return false;
    }
    let hook = view.run(instance).and_then(|h| h.post_start.as_ref());
    let hook_is_over = hook.is_none_or(|h| *h == HookPhase::Done);
    let probed = view.health.get(&instance.id).map(|h| h.started && h.failed.is_none());
    // Without a verdict yet, one that is to be probed has not started.
    hook_is_over && probed.unwrap_or(container.startup_probe.is_none())
}

/// Whether a container has a `postStart` hook that is run.
pub fn has_post_start(container: &Container) -> bool {
    let hook = container.lifecycle.as_ref().and_then(|l: &Lifecycle| l.post_start.as_ref());
    hook.is_some_and(|h| h.tcp_socket.is_none())
}

/// Starts a container now, or says until when its back-off or its last failed start holds it.
fn start_after_backoff(
    view: &View<'_>,
    plan: &mut Plan,
    container: &Container,
    kind: Kind,
    history: Option<&ContainerHistory>,
) {
    let ended = history.filter(|h| h.exit().is_some());
    if let Some(backoff) = ended.and_then(|h| h.backoff)
        && view.now < backoff.until
    {
        plan.backing_off.insert(container.name.clone(), backoff.until);
        return plan.wake_at(backoff.until);
    }
    let restarts = match (history, ended) {
        (_, Some(h)) => h.restarts + 1,
        (Some(h), None) => h.restarts,
        (None, None) => 0,
    };
    hold_or(view, plan, &container.name, |p| {
        p.actions.push(Action::Start { name: container.name.clone(), kind, restarts })
    });
}

/// Does it, unless an earlier failure says to wait.
pub(super) fn hold_or(view: &View<'_>, plan: &mut Plan, name: &str, act: impl FnOnce(&mut Plan)) {
    match view.held.get(name) {
        Some(until) if view.now < *until => plan.wake_at(*until),
        _ => act(plan),
    }
}
