//! How containers are stopped: the `preStop` hook, the signal when it is the container's turn, SIGKILL when
//! its grace is over, and stronger means if that does not end it.
//!
//! The grace counts from the beginning of the stop. What the hook and the wait for its turn take of it is lost
//! to the container, but it always has [`STOP_FLOOR`] between the signal and SIGKILL.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;

use super::view::{Action, Instance, Plan, View, is_sidecar};
use super::why::Why;
use crate::runtime::{Kind, StopStep};
use crate::store::{Farewell, HookPhase, StopCause, StopRecord};
use crate::system::clock::Moment;

/// Least time between a stop signal and SIGKILL, whatever the grace (the kubelet's floor).
pub const STOP_FLOOR: Duration = Duration::from_secs(2);
/// Time a SIGKILL gets before stronger means are used.
pub const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How far the stopping of a container has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// When it was begun.
    pub began: Moment,
    /// Time from there until SIGKILL, [`STOP_FLOOR`] apart.
    pub grace: Duration,
    /// The `preStop` hook, if there is one to run.
    pub pre_stop: Option<HookPhase>,
    /// What was sent last, if anything.
    pub sent: Option<StopStep>,
    /// When the next step is due, whatever happens.
    pub deadline: Moment,
    /// Why it was begun.
    pub cause: StopCause,
}

impl Stopping {
    /// A stop that a podling before this one began.
    pub fn resume(record: &StopRecord) -> Self {
        let over = record.began + record.grace;
        Self {
            began: record.began,
            grace: record.grace,
            pre_stop: record.pre_stop.clone(),
            sent: record.signalled_until.map(|_| StopStep::Signal),
            deadline: record.signalled_until.unwrap_or(over),
            cause: record.cause,
        }
    }

    /// What the next podling must know of it.
    pub fn record(&self) -> StopRecord {
        StopRecord {
            began: self.began,
            grace: self.grace,
            pre_stop: self.pre_stop.clone(),
            signalled_until: self.sent.map(|_| self.deadline),
            cause: self.cause,
        }
    }

    /// Whether its `preStop` hook was begun and is not over.
    pub fn hook_runs(&self) -> bool {
        matches!(self.pre_stop, Some(HookPhase::Begun(_)))
    }
}

/// How a container is to be stopped.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// Why.
    pub why: Why,
    /// A grace other than its own.
    pub grace: Option<Duration>,
    /// Whether it may be signalled already, or waits for others to end first.
    pub turn: bool,
}

impl From<Why> for Wish {
    fn from(why: Why) -> Self {
        Self { why, grace: None, turn: true }
    }
}

/// Takes the next step in stopping a container, when it is due.
pub(super) fn stop(view: &View<'_>, plan: &mut Plan, instance: &Instance, wish: impl Into<Wish>) {
    let wish = wish.into();
    let grace = wish.grace.unwrap_or_else(|| Duration::from_secs(farewell(view, instance).grace_seconds));
    let Some(before) = view.stopping.get(&instance.id) else {
        return begin(view, plan, instance, wish, grace);
    };
    let mut stopping = before.clone();
    let patient = !matches!(before.sent, Some(StopStep::Kill | StopStep::Force));
    let least = view.now + grace.max(STOP_FLOOR);
    if patient && before.deadline > least {
        // A later reason to stop leaves less time, never more.
        stopping.grace = least.since(before.began);
        stopping.deadline = least;
        plan.wake_at(least);
        let (id, name) = (instance.id.clone(), instance.name.clone());
        return plan.actions.push(Action::Hurry { id, name, stopping });
    }
    let waits = before.sent.is_some() || before.hook_runs() || !wish.turn;
    if view.now < before.deadline && waits {
        return plan.wake_at(before.deadline);
    }
    let (step, patience) = match before.sent {
        None => (StopStep::Signal, before.deadline.since(view.now).max(STOP_FLOOR)),
        Some(StopStep::Signal) => (StopStep::Kill, KILL_PATIENCE),
        Some(_) => (StopStep::Force, KILL_PATIENCE),
    };
    stopping.pre_stop = stopping.pre_stop.map(|_| HookPhase::Done);
    (stopping.sent, stopping.deadline) = (Some(step), view.now + patience);
    send(plan, instance, stopping, wish.why);
}

fn begin(view: &View<'_>, plan: &mut Plan, instance: &Instance, wish: Wish, grace: Duration) {
    let pause = instance.kind == Kind::Pause;
    // A socket to connect to is no hook that anybody runs.
    let runs = |handler: &LifecycleHandler| handler.tcp_socket.is_none();
    let hook = !pause && !grace.is_zero() && farewell(view, instance).pre_stop.as_ref().is_some_and(runs);
    let mut stopping = Stopping {
        began: view.now,
        grace,
        pre_stop: hook.then_some(HookPhase::Begun(view.now)),
        sent: None,
        deadline: view.now + grace,
        cause: wish.why.cause(),
    };
    if hook || !wish.turn {
        plan.wake_at(stopping.deadline);
        let (id, name) = (instance.id.clone(), instance.name.clone());
        return plan.actions.push(Action::BeginStop { id, name, pre_stop: hook, stopping, why: wish.why });
    }
    // Nothing in the pause container wants a grace.
    let (step, patience) = match pause {
        true => (StopStep::Kill, KILL_PATIENCE),
        false => (StopStep::Signal, grace.max(STOP_FLOOR)),
    };
    (stopping.sent, stopping.deadline) = (Some(step), view.now + patience);
    send(plan, instance, stopping, wish.why);
}

fn send(plan: &mut Plan, instance: &Instance, stopping: Stopping, why: Why) {
    plan.wake_at(stopping.deadline);
    let (id, name) = (instance.id.clone(), instance.name.clone());
    let step = stopping.sent.unwrap_or(StopStep::Signal);
    plan.actions.push(Action::Stop { id, name, step, stopping, why });
}

/// How the run is to be ended, from when it was started: the spec may be a newer one.
fn farewell<'a>(view: &View<'a>, instance: &Instance) -> Cow<'a, Farewell> {
    match view.run(instance).and_then(|h| h.farewell.as_ref()) {
        Some(farewell) => Cow::Borrowed(farewell),
        None => Cow::Owned(Farewell::of(view.spec, &instance.name)),
    }
}

/// Whether nothing that needs this container lives any more: sidecars go after the containers they serve, the
/// last of them first. Their hooks do not wait for that.
pub(super) fn its_turn(view: &View<'_>, instance: &Instance) -> bool {
    let Some(place) = sidecar_place(view, instance) else { return true };
    let before_it = |i: &&Instance| {
        i.is_live()
            && i.kind != Kind::Pause
            && i.id != instance.id
            && sidecar_place(view, i).is_none_or(|other| other > place)
    };
    !view.instances.iter().any(|i| before_it(&i))
}

fn sidecar_place(view: &View<'_>, instance: &Instance) -> Option<usize> {
    if instance.kind != Kind::Init {
        return None;
    }
    view.spec.init_containers.iter().flatten().position(|c| c.name == instance.name && is_sidecar(c))
}

/// Stops everything, the pause container last, then gives up the sandbox.
pub(super) fn wind_down(view: &View<'_>, plan: &mut Plan, why: Why) {
    let live: Vec<_> = view.instances.iter().filter(|i| i.is_live()).collect();
    let workloads = live.iter().any(|i| i.kind != Kind::Pause);
    for instance in &live {
        if instance.kind != Kind::Pause || !workloads {
            stop(view, plan, instance, Wish { why, grace: None, turn: its_turn(view, instance) });
        }
    }
    if live.is_empty() && view.sandbox != super::SandboxState::Absent {
        plan.actions.push(Action::DropSandbox);
    }
}
