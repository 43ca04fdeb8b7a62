//! What an exit means: start again, or not, or all containers again; and how a pod ends.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

use super::view::{Outcome, View, entries, is_sidecar};
use crate::runtime::Kind;
use crate::store::{Exit, StopCause};

/// What follows an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    /// The container has ended for good.
    Stay,
    /// It starts again.
    Restart,
    /// All containers of the pod start again.
    RestartAll,
}

/// What follows an exit of a container: by the first of its restart rules that fits, else by its own restart
/// policy, else by the pod's.
pub fn after_exit(spec: &PodSpec, container: &Container, exit: &Exit) -> AfterExit {
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
    let restart = |yes: bool| if yes { AfterExit::Restart } else { AfterExit::Stay };
    match exit.cause {
        // What was interrupted by order did not end by itself.
        StopCause::Order => return AfterExit::Restart,
        // The exit code says nothing about a container that was killed for a probe.
        StopCause::Probe => return restart(policy != "Never"),
        StopCause::Other => {}
    }
    let rules = container.restart_policy_rules.iter().flatten();
    if let Some(rule) = rules.into_iter().find(|rule| fits(rule, exit.code)) {
        return match rule.action.as_str() {
            "RestartAllContainers" => AfterExit::RestartAll,
            _ => AfterExit::Restart,
        };
    }
    restart(match policy {
        "Never" => false,
        "OnFailure" => exit.code != 0,
        _ => true,
    })
}

fn fits(rule: &ContainerRestartRule, code: i32) -> bool {
    rule.exit_codes.as_ref().is_some_and(|codes| {
        let listed = codes.values.iter().flatten().any(|c| *c == code);
        match codes.operator.as_str() {
            "NotIn" => !listed,
            _ => listed,
        }
    })
}

/// The container whose latest exit asks for all containers to restart.
pub(super) fn restart_all_by<'a>(view: &View<'a>) -> Option<&'a str> {
    let asks = |(kind, container): &(Kind, &Container)| {
        let history = view.record.containers.get(&container.name);
        let done = *kind == Kind::Init && history.is_some_and(|h| h.completed);
        let exit = history.and_then(|h| h.exit());
        !done
            && view.live(*kind, &container.name).is_none()
            // One that was stopped for an edit did not end by itself.
            && history.is_some_and(|h| view.hashes.containers.get(&container.name).is_none_or(|new| *new == h.hash))
            && exit.is_some_and(|e| after_exit(view.spec, container, e) == AfterExit::RestartAll)
    };
    entries(view.spec).find(asks).map(|(_, c)| c.name.as_str())
}

/// Whether the pod ran to its end. Exits of sidecars do not count.
pub(super) fn outcome(view: &View<'_>) -> Option<Outcome> {
    if view.record.verdict.is_some() {
        return Some(Outcome::Failed);
    }
    if view.record.restart_all.as_ref().is_some_and(|r| r.under_way) {
        // They ended to start again.
        return None;
    }
    let ended_for_good = |container: &Container| {
        let exit = view.record.containers.get(&container.name).and_then(|h| h.exit());
        exit.filter(|e| after_exit(view.spec, container, e) == AfterExit::Stay)
    };
    let init_failed = view.spec.init_containers.iter().flatten().filter(|c| !is_sidecar(c)).any(|c| {
        let completed = view.record.containers.get(&c.name).is_some_and(|h| h.completed);
        !completed && ended_for_good(c).is_some_and(|e| e.code != 0)
    });
    if init_failed && !view.regular_lives() {
        return Some(Outcome::Failed);
    }
    let mut failed = false;
    for container in &view.spec.containers {
        if view.live(Kind::Regular, &container.name).is_some() {
            return None;
        }
        let history = view.record.containers.get(&container.name)?;
        if view.hashes.containers.get(&container.name).is_some_and(|h| *h != history.hash) {
            return None;
        }
        failed |= ended_for_good(container)?.code != 0;
    }
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}
