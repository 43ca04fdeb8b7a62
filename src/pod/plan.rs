//! The decision: what to do next for one pod, from what is wanted and what is seen.
//!
//! [`plan`] is a pure function. All rules of restart policies, init order, sidecars, hooks, back-off, deadlines
//! and termination are here and are tested by table and by property, without a container. The worker observes,
//! calls it, acts, and calls it again until nothing is left to do but wait.

use crate::runtime::{Kind, PAUSE};

mod bring_up;
mod health;
mod policy;
mod stopping;
mod view;
mod why;

pub use bring_up::has_post_start;
pub use health::{FatalProbe, Health, ProbeFailed, is_ready, is_started};
pub use policy::{AfterExit, after_exit};
pub use stopping::{KILL_PATIENCE, STOP_FLOOR, Stopping};
pub use view::{Action, Goal, Instance, Outcome, Plan, SandboxState, State, View, entries, is_sidecar};
pub use why::Why;

use bring_up::hold_or;
use stopping::{Wish, stop, wind_down};

/// Decides what to do next.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan { quiet: !view.instances.iter().any(Instance::is_live), ..Plan::default() };
    for dead in view.instances.iter().filter(|i| !i.is_live()) {
        plan.actions.push(Action::Discard { id: dead.id.clone() });
    }
    match view.goal {
        Goal::Stop => wind_down(view, &mut plan, Why::PodStops),
        Goal::Run => run(view, &mut plan),
    }
    plan
}

fn run(view: &View<'_>, plan: &mut Plan) {
    if let Some(outcome) = policy::outcome(view) {
        plan.outcome = Some(outcome);
        let why = if view.record.verdict.is_some() { Why::Expired } else { Why::PodFinished };
        return wind_down(view, plan, why);
    }
    if let Some(deadline) = view.deadline {
        if view.now >= deadline {
            return plan.actions.push(Action::Expire);
        }
        plan.wake_at(deadline);
    }
    match view.sandbox {
        SandboxState::Ready => {}
        SandboxState::Absent if plan.quiet => {
            return hold_or(view, plan, "", |p| p.actions.push(Action::CreateSandbox));
        }
        SandboxState::Broken | SandboxState::Absent => return wind_down(view, plan, Why::SandboxChanged),
    }
    if stop_strangers(view, plan) || restarts_all(view, plan) || !pause_runs(view, plan) {
        return;
    }
    bring_up::bring_up(view, plan);
}

/// Stops what belongs to no entry of the spec or to another sandbox; true while there is any.
fn stop_strangers(view: &View<'_>, plan: &mut Plan) -> bool {
    let sandbox = view.record.sandbox.as_ref().map(|s| s.id.as_str());
    let mut seen = Vec::new();
    let mut any = false;
    for i in view.instances.iter().filter(|i| i.is_live()) {
        let known = match i.kind {
            Kind::Pause => view.spec.share_process_namespace == Some(true),
            kind => entries(view.spec).any(|(k, c)| k == kind && c.name == i.name),
        };
        let double = seen.contains(&(i.kind, &i.name));
        seen.push((i.kind, &i.name));
        if !known || double || sandbox != Some(i.sandbox.as_str()) {
            stop(view, plan, i, Why::NotWanted);
            any |= double || known;
        }
    }
    any
}

/// Restarts all containers, where the restart rules of one that ended ask for it; true while that is under way.
fn restarts_all(view: &View<'_>, plan: &mut Plan) -> bool {
    let Some(under_way) = view.record.restart_all.as_ref().filter(|r| r.under_way) else {
        let by = policy::restart_all_by(view).map(str::to_owned);
        return by.map(|by| plan.actions.push(Action::RestartAll { by })).is_some();
    };
    let live: Vec<_> = view.instances.iter().filter(|i| i.is_live() && i.kind != Kind::Pause).collect();
    for instance in &live {
        // They are replaced, not retired: no hook runs, and little time is given.
        let grace = Some(std::time::Duration::ZERO);
        stop(view, plan, instance, Wish { why: Why::RestartingAll, grace, turn: true });
    }
    if live.is_empty() {
        match under_way.backoff.until {
            until if view.now < until => plan.wake_at(until),
            _ => plan.actions.push(Action::Renew),
        }
    }
    true
}

/// Starts the pause container of a shared process namespace; true once it runs or none is needed.
fn pause_runs(view: &View<'_>, plan: &mut Plan) -> bool {
    if view.spec.share_process_namespace != Some(true) || view.live(Kind::Pause, PAUSE).is_some() {
        return true;
    }
    // Everything in the namespace died with its first process, or is about to.
    let rest: Vec<_> = view.instances.iter().filter(|i| i.is_live()).collect();
    for instance in &rest {
        stop(view, plan, instance, Why::SandboxChanged);
    }
    if rest.is_empty() {
        hold_or(view, plan, PAUSE, |p| {
            p.actions.push(Action::Start { name: PAUSE.into(), kind: Kind::Pause, restarts: 0 })
        });
    }
    false
}

#[cfg(test)]
mod tests;
