//! The decision: what to do next for one pod, from what is wanted and what is seen.
//!
//! [`plan`] is a pure function. All rules of restart policy, init order, back-off and termination are here
//! and are tested by table and by property, without a container. The worker observes, calls it, acts, and
//! calls it again until nothing is left to do but wait.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::manifest::Hashes;
use crate::runtime::{Kind, PAUSE, StopStep};
use crate::store::{ContainerHistory, StatusRecord};
use crate::system::clock::Moment;

mod health;

pub use health::{FatalProbe, Health, ProbeFailed, is_ready, is_started};

/// Least time between a stop signal and SIGKILL, whatever the grace (the kubelet's floor).
const STOP_FLOOR: Duration = Duration::from_secs(2);
/// Time a SIGKILL gets before stronger means are used.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What the pod should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Run by its spec.
    Run,
    /// Have no processes and no sandbox.
    Stop,
}

/// State of a container that containerd has a record of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is a record and maybe a task, but nothing was started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended, and the exit is in the pod's record.
    Exited,
    /// Its shim does not answer; the process may run.
    Unresponsive,
}

/// A container as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// containerd id.
    pub id: String,
    /// Container name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Hash of the entry it was made from.
    pub hash: String,
    /// Sandbox it was made in.
    pub sandbox: String,
    /// What it does.
    pub state: State,
}

impl Instance {
    /// Whether it has, or may have, processes.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Running | State::Unresponsive)
    }
}

/// State of the pod's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// There is none.
    Absent,
    /// Usable.
    Ready,
    /// Half made, or its namespaces are gone.
    Broken,
}

/// How far the stopping of a container has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// What was sent last.
    pub sent: StopStep,
    /// When the next step is due.
    pub deadline: Moment,
}

/// Everything the decision depends on.
pub struct View<'a> {
    /// The accepted spec.
    pub spec: &'a PodSpec,
    /// Its hashes.
    pub hashes: &'a Hashes,
    /// What is wanted.
    pub goal: Goal,
    /// What happened so far; exits are recorded before planning.
    pub record: &'a StatusRecord,
    /// The sandbox.
    pub sandbox: SandboxState,
    /// The containers that containerd knows.
    pub instances: &'a [Instance],
    /// Stops under way, by container id.
    pub stopping: &'a BTreeMap<String, Stopping>,
    /// Starts that failed: name to when to try again.
    pub held: &'a BTreeMap<String, Moment>,
    /// Verdicts of the probes, by container id; no entry: no probes.
    pub health: &'a BTreeMap<String, Health>,
    /// Now.
    pub now: Moment,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete a container that has no processes; never waited for.
    Discard {
        /// containerd id.
        id: String,
    },
    /// Make the sandbox.
    CreateSandbox,
    /// Give the sandbox up; nothing has processes in it.
    DropSandbox,
    /// Start a container.
    Start {
        /// Its name.
        name: String,
        /// What it is.
        kind: Kind,
        /// Its restart count.
        restarts: u32,
    },
    /// Take the next step in stopping a container.
    Stop {
        /// containerd id.
        id: String,
        /// Its name.
        name: String,
        /// The step.
        step: StopStep,
        /// When the step after it is due.
        deadline: Moment,
        /// Why it is stopped, for the event.
        why: &'static str,
    },
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All containers exited 0.
    Succeeded,
    /// Some container failed for good.
    Failed,
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be done now, in order.
    pub actions: Vec<Action>,
    /// When to decide again even if nothing happens.
    pub wake: Option<Moment>,
    /// Containers held back by crash back-off, and until when.
    pub backing_off: BTreeMap<String, Moment>,
    /// The pod ran to its end.
    pub outcome: Option<Outcome>,
    /// Nothing of the pod has processes.
    pub quiet: bool,
}

impl Plan {
    fn wake_at(&mut self, at: Moment) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }
}

/// Decides what to do next.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan { quiet: !view.instances.iter().any(Instance::is_live), ..Plan::default() };
    for dead in view.instances.iter().filter(|i| !i.is_live()) {
        plan.actions.push(Action::Discard { id: dead.id.clone() });
    }
    match view.goal {
        Goal::Stop => wind_down(view, &mut plan, "Stopping"),
        Goal::Run => run(view, &mut plan),
    }
    plan
}

fn run(view: &View<'_>, plan: &mut Plan) {
    if let Some(outcome) = outcome(view) {
        plan.outcome = Some(outcome);
        return wind_down(view, plan, "PodFinished");
    }
    match view.sandbox {
        SandboxState::Ready => {}
        SandboxState::Broken => return wind_down(view, plan, "SandboxChanged"),
        SandboxState::Absent if plan.quiet => {
            return hold_or(view, plan, "", |p| p.actions.push(Action::CreateSandbox));
        }
        SandboxState::Absent => return wind_down(view, plan, "SandboxChanged"),
    }
    if stop_strangers(view, plan) || !pause_runs(view, plan) {
        return;
    }
    if !initialised(view) && !run_init(view, plan) {
        return;
    }
    for container in &view.spec.containers {
        run_regular(view, plan, container);
    }
}

/// Stops everything, the pause container last, then gives up the sandbox.
fn wind_down(view: &View<'_>, plan: &mut Plan, why: &'static str) {
    let live: Vec<_> = view.instances.iter().filter(|i| i.is_live()).collect();
    let workloads = live.iter().any(|i| i.kind != Kind::Pause);
    for instance in &live {
        if instance.kind != Kind::Pause || !workloads {
            stop(view, plan, instance, why);
        }
    }
    if live.is_empty() && view.sandbox != SandboxState::Absent {
        plan.actions.push(Action::DropSandbox);
    }
}

/// Stops what belongs to no entry of the spec or to another sandbox; true while there is any.
fn stop_strangers(view: &View<'_>, plan: &mut Plan) -> bool {
    let sandbox = view.record.sandbox.as_ref().map(|s| s.id.as_str());
    let mut seen = Vec::new();
    let mut any = false;
    for i in view.instances.iter().filter(|i| i.is_live()) {
        let known = match i.kind {
            Kind::Pause => view.spec.share_process_namespace == Some(true),
            Kind::Init => view.spec.init_containers.iter().flatten().any(|c| c.name == i.name),
            Kind::Regular => view.spec.containers.iter().any(|c| c.name == i.name),
        };
        let double = seen.contains(&(i.kind, &i.name));
        seen.push((i.kind, &i.name));
        if !known || double || sandbox != Some(i.sandbox.as_str()) {
            stop(view, plan, i, "ContainerNotWanted");
            any |= double || known;
        }
    }
    any
}

/// Starts the pause container of a shared process namespace; true once it runs or none is needed.
fn pause_runs(view: &View<'_>, plan: &mut Plan) -> bool {
    if view.spec.share_process_namespace != Some(true) || live(view, Kind::Pause, PAUSE).is_some() {
        return true;
    }
    // Everything in the namespace died with its first process, or is about to.
    let rest: Vec<_> = view.instances.iter().filter(|i| i.is_live()).collect();
    for instance in &rest {
        stop(view, plan, instance, "SandboxChanged");
    }
    if rest.is_empty() {
        hold_or(view, plan, PAUSE, |p| {
            p.actions.push(Action::Start { name: PAUSE.into(), kind: Kind::Pause, restarts: 0 })
        });
    }
    false
}

/// Whether the init containers are behind us in this sandbox.
fn initialised(view: &View<'_>) -> bool {
    let sandbox_ran = view.spec.containers.iter().any(|c| live(view, Kind::Regular, &c.name).is_some());
    sandbox_ran
        || view
            .spec
            .init_containers
            .iter()
            .flatten()
            .all(|c| view.record.containers.get(&c.name).is_some_and(|h| h.completed))
}

/// Brings the next init container on; true when all have succeeded.
fn run_init(view: &View<'_>, plan: &mut Plan) -> bool {
    for container in view.spec.init_containers.iter().flatten() {
        let history = view.record.containers.get(&container.name);
        if history.is_some_and(|h| h.completed) {
            continue;
        }
        if live(view, Kind::Init, &container.name).is_none() {
            start_after_backoff(view, plan, container, Kind::Init, history);
        }
        return false;
    }
    true
}

fn run_regular(view: &View<'_>, plan: &mut Plan, container: &Container) {
    let hash = view.hashes.containers.get(&container.name);
    if let Some(instance) = live(view, Kind::Regular, &container.name) {
        if hash.is_some_and(|h| *h != instance.hash) {
            stop(view, plan, instance, "ContainerChanged");
        } else if let Some(failed) = view.health.get(&instance.id).and_then(|h| h.failed.as_ref()) {
            stop_within(view, plan, instance, failed.probe.why(), failed.grace);
        }
        return;
    }
    let history = view.record.containers.get(&container.name);
    let changed = history.is_some_and(|h| hash.is_some_and(|hash| *hash != h.hash));
    match history.and_then(|h| h.exit()) {
        Some(exit) if !changed && !restarts(view.spec, exit.code) => {}
        _ => start_after_backoff(view, plan, container, Kind::Regular, history.filter(|_| !changed)),
    }
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
fn hold_or(view: &View<'_>, plan: &mut Plan, name: &str, act: impl FnOnce(&mut Plan)) {
    match view.held.get(name) {
        Some(until) if view.now < *until => plan.wake_at(*until),
        _ => act(plan),
    }
}

/// Takes the next step in stopping a container, when it is due, with the grace it was started with.
fn stop(view: &View<'_>, plan: &mut Plan, instance: &Instance, why: &'static str) {
    stop_within(view, plan, instance, why, None);
}

/// The same with a grace of its own.
fn stop_within(
    view: &View<'_>,
    plan: &mut Plan,
    instance: &Instance,
    why: &'static str,
    grace: Option<Duration>,
) {
    let grace = grace.unwrap_or_else(|| grace_of_run(view, instance));
    let (step, patience) = match view.stopping.get(&instance.id) {
        // Nothing in the pause container wants a grace.
        None if instance.kind == Kind::Pause => (StopStep::Kill, KILL_PATIENCE),
        None => (StopStep::Signal, grace.max(STOP_FLOOR)),
        Some(s) if view.now < s.deadline => return plan.wake_at(s.deadline),
        Some(s) if s.sent == StopStep::Signal => (StopStep::Kill, KILL_PATIENCE),
        Some(_) => (StopStep::Force, KILL_PATIENCE),
    };
    let deadline = view.now + patience;
    plan.actions.push(Action::Stop {
        id: instance.id.clone(),
        name: instance.name.clone(),
        step,
        deadline,
        why,
    });
    plan.wake_at(deadline);
}

/// The grace of the entry that the run was started from: the spec may be a newer one.
fn grace_of_run(view: &View<'_>, instance: &Instance) -> Duration {
    let history = view.record.containers.get(&instance.name);
    let run = history.filter(|h| h.container_id.as_deref() == Some(&instance.id));
    let farewell = run.and_then(|h| h.farewell.as_ref()).map(|f| f.grace_seconds);
    let of_spec = view.spec.termination_grace_period_seconds.unwrap_or(30).max(1).unsigned_abs();
    Duration::from_secs(farewell.unwrap_or(of_spec))
}

/// Whether the pod ran to its end.
fn outcome(view: &View<'_>) -> Option<Outcome> {
    let never = view.spec.restart_policy.as_deref() == Some("Never");
    let init_failed = view.spec.init_containers.iter().flatten().any(|c| {
        let history = view.record.containers.get(&c.name);
        never && history.is_some_and(|h| !h.completed && h.exit().is_some_and(|e| e.code != 0))
    });
    if init_failed && !view.spec.containers.iter().any(|c| live(view, Kind::Regular, &c.name).is_some()) {
        return Some(Outcome::Failed);
    }
    let mut failed = false;
    for container in &view.spec.containers {
        if live(view, Kind::Regular, &container.name).is_some() {
            return None;
        }
        let history = view.record.containers.get(&container.name)?;
        let changed = view.hashes.containers.get(&container.name).is_some_and(|h| *h != history.hash);
        let exit = history.exit()?;
        if changed || restarts(view.spec, exit.code) {
            return None;
        }
        failed |= exit.code != 0;
    }
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}

/// The pod's restart policy for an exit code.
fn restarts(spec: &PodSpec, code: i32) -> bool {
    match spec.restart_policy.as_deref() {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

fn live<'a>(view: &View<'a>, kind: Kind, name: &str) -> Option<&'a Instance> {
    view.instances.iter().find(|i| i.kind == kind && i.name == name && i.is_live())
}

#[cfg(test)]
mod tests;
