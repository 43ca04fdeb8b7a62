//! What the decision depends on, and what it decides.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::health::Health;
use super::stopping::Stopping;
use super::why::Why;
use crate::manifest::Hashes;
use crate::runtime::{Kind, StopStep};
use crate::store::{ContainerHistory, StatusRecord};
use crate::system::clock::Moment;

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
    /// When `activeDeadlineSeconds` are over; none without, or before the pod has begun.
    pub deadline: Option<Moment>,
    /// Now.
    pub now: Moment,
}

impl<'a> View<'a> {
    /// The live container of an entry.
    pub fn live(&self, kind: Kind, name: &str) -> Option<&'a Instance> {
        self.instances.iter().find(|i| i.kind == kind && i.name == name && i.is_live())
    }

    /// The record of an entry's container, if it is this instance that it speaks of.
    pub fn run(&self, instance: &Instance) -> Option<&'a ContainerHistory> {
        let history = self.record.containers.get(&instance.name).map(AsRef::as_ref);
        history.filter(|h| h.container_id.as_deref() == Some(&instance.id))
    }

    /// Whether a container of `containers` lives.
    pub fn regular_lives(&self) -> bool {
        self.spec.containers.iter().any(|c| self.live(Kind::Regular, &c.name).is_some())
    }
}

/// All entries of a spec, `initContainers` first.
pub fn entries(spec: &PodSpec) -> impl Iterator<Item = (Kind, &Container)> {
    let init = spec.init_containers.iter().flatten().map(|c| (Kind::Init, c));
    init.chain(spec.containers.iter().map(|c| (Kind::Regular, c)))
}

/// Whether an entry of `initContainers` is a sidecar: one that runs beside the others.
pub fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
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
    /// Run the `postStart` hook of a container.
    PostStart {
        /// containerd id.
        id: String,
        /// Its name.
        name: String,
    },
    /// Note that a stop begins, and run the `preStop` hook if there is one. Without one the container waits for
    /// its turn.
    BeginStop {
        /// containerd id.
        id: String,
        /// Its name.
        name: String,
        /// There is a hook to run.
        pre_stop: bool,
        /// What the stop is from now on.
        stopping: Stopping,
        /// Why it is stopped, for the event.
        why: Why,
    },
    /// Take the next step in stopping a container.
    Stop {
        /// containerd id.
        id: String,
        /// Its name.
        name: String,
        /// The step.
        step: StopStep,
        /// What the stop is from now on.
        stopping: Stopping,
        /// Why it is stopped, for the event.
        why: Why,
    },
    /// A stop under way has less time than it was given.
    Hurry {
        /// containerd id.
        id: String,
        /// Its name.
        name: String,
        /// What the stop is from now on.
        stopping: Stopping,
    },
    /// Begin to restart all containers, as the restart rules of one ask.
    RestartAll {
        /// The container whose exit asks for it.
        by: String,
    },
    /// All containers of such a restart are gone and its back-off is over: begin the pod's life anew.
    Renew,
    /// The pod's time is over: it failed.
    Expire,
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All containers exited 0.
    Succeeded,
    /// Some container failed for good, or the pod as a whole.
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
    pub(super) fn wake_at(&mut self, at: Moment) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }
}
