//! What holds whatever happens, in whatever order.

use proptest::prelude::*;

use super::*;
use crate::store::{ContainerHistory, HookPhase, RestartAll, Verdict};

/// A pod, and everything that was ever done to it.
#[derive(Clone, Debug)]
struct Sim {
    world: World,
    made: usize,
    /// Hooks begun, by container id: none may stand there twice.
    hooks: Vec<String>,
    /// `postStart` hooks that run, by container id.
    post_starts: Vec<String>,
    /// No regular container lived when the plan was made.
    fresh: bool,
}

/// What happens to it.
#[derive(Clone, Debug)]
enum Event {
    Time(u64),
    Exit(usize, i32),
    PostStart(bool),
    PreStop,
    Probe(usize),
    Started,
    /// podling is killed and started again.
    Killed,
    Order(Goal),
}

impl Sim {
    fn new(policy: &str) -> Self {
        let mut world = World::new(&["init", "side", "side2"], &["a", "b"]).policy(policy);
        world.record.containers.clear();
        world.sandbox = SandboxState::Absent;
        world.spec.termination_grace_period_seconds = Some(20);
        let mut world = world.sidecar("side").sidecar("side2");
        for name in ["side", "side2", "a", "b"] {
            let hook = |command: &str| {
                let exec = k8s_openapi::api::core::v1::ExecAction { command: Some(vec![command.into()]) };
                Some(k8s_openapi::api::core::v1::LifecycleHandler { exec: Some(exec), ..Default::default() })
            };
            world.entry(name).lifecycle = Some(k8s_openapi::api::core::v1::Lifecycle {
                post_start: hook("up"),
                pre_stop: hook("down"),
                stop_signal: None,
            });
        }
        world.entry("side").startup_probe = Some(Default::default());
        world.entry("b").restart_policy = Some("OnFailure".into());
        world.entry("b").restart_policy_rules =
            Some(vec![super::rules::rule("In", &[42], "RestartAllContainers")]);
        Self { world, made: 0, hooks: Vec::new(), post_starts: Vec::new(), fresh: true }
    }

    fn happens(&mut self, event: &Event) {
        let live: Vec<usize> =
            (0..self.world.instances.len()).filter(|i| self.world.instances[*i].is_live()).collect();
        match event {
            Event::Time(seconds) => self.world.now = self.world.now + Duration::from_secs(*seconds),
            Event::Exit(which, code) if !live.is_empty() => self.exit(live[which % live.len()], *code),
            Event::PostStart(ok) => {
                if let Some(id) = self.post_starts.pop() {
                    let of = |h: &&mut Box<ContainerHistory>| h.container_id.as_ref() == Some(&id);
                    if let Some(h) = self.world.record.containers.values_mut().find(of) {
                        h.post_start =
                            Some(if *ok { HookPhase::Done } else { HookPhase::Failed("no".into()) });
                    }
                }
            }
            Event::PreStop => {
                if let Some((id, stopping)) = self.world.stopping.iter().find(|(_, s)| s.hook_runs()) {
                    let (id, mut stopping) = (id.clone(), stopping.clone());
                    stopping.pre_stop = Some(HookPhase::Done);
                    self.note_stop(&id, stopping);
                }
            }
            Event::Probe(which) if !live.is_empty() => {
                let id = self.world.instances[live[which % live.len()]].id.clone();
                let failed = ProbeFailed {
                    probe: FatalProbe::Liveness,
                    message: String::new(),
                    grace: Some(Duration::from_secs(5)),
                };
                self.world.health.insert(id, Health { failed: Some(failed), ..Health::default() });
            }
            Event::Started => {
                for i in self.world.instances.iter().filter(|i| i.name == "side") {
                    let health = Health { started: true, ready: true, failed: None };
                    self.world.health.entry(i.id.clone()).or_insert(health);
                }
            }
            Event::Killed => {
                self.world.stopping.clear();
                self.world.held.clear();
                for h in self.world.record.containers.values() {
                    if let (Some(id), Some(stop)) = (&h.container_id, &h.stop) {
                        self.world.stopping.insert(id.clone(), Stopping::resume(stop));
                    }
                }
            }
            Event::Order(goal) => self.world.goal = *goal,
            Event::Exit(..) | Event::Probe(_) => {}
        }
    }

    fn exit(&mut self, at: usize, code: i32) {
        let world = &mut self.world;
        let (id, name) = (world.instances[at].id.clone(), world.instances[at].name.clone());
        world.instances[at].state = State::Exited;
        let cause = world.stopping.remove(&id).map(|s| s.cause).unwrap_or_default();
        world.health.remove(&id);
        let plain = name == "init";
        let history = world.record.containers.entry(name).or_default();
        history.last = Some(Exit {
            container_id: id,
            code,
            reason: "Error".into(),
            message: String::new(),
            started: None,
            finished: jiff::Timestamp::UNIX_EPOCH,
            finished_at: world.now,
            ran_for: Duration::from_secs(1),
            cause,
        });
        history.completed = plain && code == 0;
        (history.stop, history.post_start) = (None, None);
        let delay = Duration::from_secs(10);
        history.backoff = Some(Backoff { delay, until: world.now + delay });
    }

    fn note_stop(&mut self, id: &str, stopping: Stopping) {
        let of = |h: &&mut Box<ContainerHistory>| h.container_id.as_deref() == Some(id);
        if let Some(h) = self.world.record.containers.values_mut().find(of) {
            h.stop = Some(stopping.record());
        }
        self.world.stopping.insert(id.to_owned(), stopping);
    }

    fn lives(&self, name: &str) -> bool {
        self.world.instances.iter().any(|i| i.name == name && i.is_live())
    }

    /// Plans and acts until there is nothing more to do; the last plan.
    fn settle(&mut self) -> Plan {
        for _ in 0..40 {
            let plan = self.world.plan();
            self.fresh = !self.lives("a") && !self.lives("b");
            let busy =
                plan.actions.iter().any(|a| !matches!(a, Action::Stop { .. } | Action::BeginStop { .. }));
            for action in &plan.actions {
                self.act(action);
            }
            if !busy {
                return plan;
            }
        }
        panic!("there is always something to do: {self:?}");
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Discard { id } => self.world.instances.retain(|i| i.id != *id),
            Action::CreateSandbox => {
                self.world.sandbox = SandboxState::Ready;
                if let Some(h) = self.world.record.containers.get_mut("init") {
                    (h.completed, h.container_id) = (false, None);
                }
            }
            Action::DropSandbox => self.world.sandbox = SandboxState::Absent,
            Action::Start { name, kind, restarts } => self.start(name, *kind, *restarts),
            Action::PostStart { id, name } => {
                let history = self.world.record.containers.get_mut(name).expect("it was started");
                assert_eq!(history.post_start, Some(HookPhase::Due));
                history.post_start = Some(HookPhase::Begun(self.world.now));
                self.begin_hook(format!("post-start {id}"));
                self.post_starts.push(id.clone());
            }
            Action::BeginStop { id, pre_stop, stopping, .. } => {
                if *pre_stop {
                    self.begin_hook(format!("pre-stop {id}"));
                }
                self.note_stop(id, stopping.clone());
            }
            Action::Hurry { id, stopping, .. } => self.note_stop(id, stopping.clone()),
            Action::Stop { id, name, step, stopping, .. } => {
                self.note_stop(id, stopping.clone());
                if name.starts_with("side") && self.world.goal == Goal::Stop && *step == StopStep::Signal {
                    let over = self.world.now >= stopping.began + stopping.grace;
                    let served = self.lives("a") || self.lives("b") || name == "side" && self.lives("side2");
                    assert!(over || !served, "{name} is signalled before what it serves has ended: {self:?}");
                }
                if *step >= StopStep::Kill {
                    let at = self.world.instances.iter().position(|i| i.id == *id).expect("it lives");
                    self.exit(at, 137);
                }
            }
            Action::RestartAll { by } => {
                let backoff = Backoff { delay: Duration::ZERO, until: self.world.now };
                self.world.record.restart_all = Some(RestartAll { by: by.clone(), under_way: true, backoff });
            }
            Action::Renew => {
                self.world.record.restart_all.as_mut().expect("it is under way").under_way = false;
                for h in self.world.record.containers.values_mut() {
                    (h.container_id, h.completed, h.backoff) = (None, false, None);
                }
            }
            Action::Expire => {
                self.world.record.verdict = Some(Verdict { reason: "late".into(), message: String::new() });
            }
        }
    }

    fn begin_hook(&mut self, hook: String) {
        assert!(!self.hooks.contains(&hook), "{hook} begun twice: {self:?}");
        self.hooks.push(hook);
    }

    fn start(&mut self, name: &str, kind: Kind, restarts: u32) {
        assert!(!self.lives(name), "{name} runs twice: {self:?}");
        assert_eq!(self.world.goal, Goal::Run);
        assert!(self.world.record.verdict.is_none());
        // Nothing starts before what it waits for, the first time.
        let sidecar_up = |s: &Self, side: &str| {
            let history = &s.world.record.containers[side];
            let probed = s.world.health.values().any(|h| h.started) || side != "side";
            s.lives(side) && probed && history.post_start == Some(HookPhase::Done)
        };
        let needs: &[&str] = match name {
            "side2" => &["side"],
            "a" | "b" => &["side", "side2"],
            _ => &[],
        };
        if self.fresh {
            for side in needs {
                assert!(sidecar_up(self, side), "{name} starts before {side} is up: {self:?}");
            }
            assert!(name == "init" || self.world.record.containers["init"].completed);
        }
        self.made += 1;
        let id = format!("{name}-{}", self.made);
        let history = self.world.record.containers.entry(name.into()).or_default();
        history.container_id = Some(id.clone());
        history.restarts = restarts;
        history.hash = "h".into();
        history.post_start = (name != "init").then_some(HookPhase::Due);
        history.stop = None;
        let (name, hash, sandbox) = (name.into(), "h".into(), "s".into());
        self.world.instances.push(Instance { id, name, kind, hash, sandbox, state: State::Running });
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u64..40).prop_map(Event::Time),
        3 => (0usize..8, prop_oneof![Just(0), Just(1), Just(42)]).prop_map(|(n, code)| Event::Exit(n, code)),
        4 => prop::bool::weighted(0.9).prop_map(Event::PostStart),
        2 => Just(Event::PreStop),
        1 => (0usize..8).prop_map(Event::Probe),
        3 => Just(Event::Started),
        2 => Just(Event::Killed),
        1 => prop_oneof![Just(Goal::Run), Just(Goal::Stop)].prop_map(Event::Order),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_hooks_run_once_sidecars_keep_their_order_and_the_pod_settles(
        policy in 0usize..3,
        deadline in prop::option::of(1000u64..3000),
        events in prop::collection::vec(any_event(), 0..60),
        last in prop_oneof![Just(Goal::Run), Just(Goal::Stop)],
    ) {
        let mut sim = Sim::new(["Always", "OnFailure", "Never"][policy]);
        sim.world.deadline = deadline.map(secs);
        sim.settle();
        for event in &events {
            sim.happens(event);
            sim.settle();
        }
        sim.happens(&Event::Order(last));
        // From here on all goes well.
        for _ in 0..60 {
            let plan = sim.settle();
            sim.happens(&Event::Started);
            sim.happens(&Event::PostStart(true));
            sim.happens(&Event::PreStop);
            if let Some(at) = sim.world.instances.iter().position(|i| i.name == "init" && i.is_live()) {
                sim.exit(at, 0);
            }
            sim.happens(&Event::Time(40));
            let over = sim.world.goal == Goal::Stop || plan.outcome.is_some();
            let up = ["side", "side2"].iter().all(|n| sim.lives(n))
                && ["a", "b"].iter().all(|n| sim.lives(n) || ended(&sim, n));
            if over && plan.quiet && sim.world.sandbox == SandboxState::Absent || !over && up {
                return Ok(());
            }
        }
        prop_assert!(false, "it does not settle: {sim:?}");
    }
}

fn ended(sim: &Sim, name: &str) -> bool {
    sim.world.record.containers.get(name).is_some_and(|h| h.exit().is_some())
}

/// Carries a plan out in the model: starts run, signals end, the sandbox follows.
fn carry_out(world: &mut World, plan: &Plan) -> bool {
    for action in &plan.actions {
        match action {
            Action::Discard { id } => world.instances.retain(|i| i.id != *id),
            Action::CreateSandbox => {
                world.sandbox = SandboxState::Ready;
                world.instances.iter_mut().for_each(|i| i.sandbox = "s".into());
            }
            Action::DropSandbox => world.sandbox = SandboxState::Absent,
            Action::Start { name, kind, restarts } => {
                assert!(
                    !world.instances.iter().any(|i| i.name == *name && i.is_live()),
                    "{name} started twice"
                );
                *world = world.clone().running(*kind, name);
                if let Some(history) = world.record.containers.get_mut(name) {
                    history.restarts = *restarts;
                }
                if *kind == Kind::Init {
                    world.instances.pop();
                    *world = world.clone().exited(name, 0, 0);
                }
            }
            Action::PostStart { .. } | Action::BeginStop { .. } | Action::Hurry { .. } => {}
            Action::RestartAll { .. } | Action::Renew | Action::Expire => {}
            Action::Stop { id, .. } => {
                if let Some(i) = world.instances.iter_mut().find(|i| i.id == *id) {
                    i.state = State::Exited;
                    let name = i.name.clone();
                    if let Some(history) = world.record.containers.get_mut(&name) {
                        history.container_id = None;
                    }
                }
            }
        }
    }
    !plan.actions.is_empty()
}

fn any_world() -> impl Strategy<Value = World> {
    let states = prop_oneof![
        Just(State::Created),
        Just(State::Running),
        Just(State::Exited),
        Just(State::Unresponsive)
    ];
    let instance = (0usize..4, states, prop::bool::ANY, prop::bool::ANY);
    let sandboxes =
        prop_oneof![Just(SandboxState::Absent), Just(SandboxState::Ready), Just(SandboxState::Broken)];
    let goals = prop_oneof![Just(Goal::Run), Just(Goal::Stop)];
    let exits = prop::collection::vec((0usize..3, 0i32..2, 0u64..400), 0..4);
    (prop::collection::vec(instance, 0..5), sandboxes, goals, exits, prop::bool::ANY, 0usize..3).prop_map(
        |(instances, sandbox, goal, exits, pause, policy)| {
            let mut world =
                World::new(&["init"], &["a", "b"]).policy(["Always", "OnFailure", "Never"][policy]);
            world.spec.share_process_namespace = Some(pause);
            for (which, code, delay) in exits {
                world = world.exited(["init", "a", "b"][which], code, delay);
            }
            for (n, (which, state, same_hash, same_sandbox)) in instances.into_iter().enumerate() {
                let (kind, name) =
                    [(Kind::Init, "init"), (Kind::Regular, "a"), (Kind::Regular, "b"), (Kind::Pause, PAUSE)]
                        [which];
                world.instances.push(Instance {
                    id: format!("x{n}"),
                    name: name.into(),
                    kind,
                    hash: if same_hash { "h" } else { "old" }.into(),
                    sandbox: if same_sandbox { "s" } else { "t" }.into(),
                    state,
                });
            }
            world.sandbox = sandbox;
            world.goal = goal;
            world
        },
    )
}

proptest! {
    #[test]
    fn from_any_state_the_plan_settles_and_never_starts_a_container_twice(mut world in any_world()) {
        for _ in 0..40 {
            let plan = world.plan();
            if world.goal == Goal::Stop {
                let starts = |a: &Action| matches!(a, Action::Start { .. } | Action::CreateSandbox);
                prop_assert!(!plan.actions.iter().any(starts));
            }
            if !carry_out(&mut world, &plan) && finish_init(&mut world) {
                continue;
            }
            if plan.actions.is_empty() && plan.wake.is_none() {
                let settled = match (world.goal, plan.outcome) {
                    (Goal::Run, None) => world.sandbox == SandboxState::Ready
                        && ["a", "b"].iter().all(|n| live_or_done(&world, n)),
                    _ => world.sandbox == SandboxState::Absent && plan.quiet,
                };
                prop_assert!(settled, "{world:?}\n{plan:?}");
                return Ok(());
            }
            world.now = world.now + Duration::from_secs(60);
        }
        prop_assert!(false, "does not settle: {world:?}");
    }
}

/// A running init container does its work.
fn finish_init(world: &mut World) -> bool {
    let Some(at) = world.instances.iter().position(|i| i.kind == Kind::Init && i.is_live()) else {
        return false;
    };
    let name = world.instances.remove(at).name;
    *world = world.clone().exited(&name, 0, 0);
    true
}

fn live_or_done(world: &World, name: &str) -> bool {
    world.instances.iter().any(|i| i.name == name && i.is_live())
        || world.record.containers.get(name).is_some_and(|h| h.exit().is_some())
}
