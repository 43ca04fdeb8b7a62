use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::*;
use crate::manifest::Hashes;
use crate::runtime::StopStep;
use crate::store::{Backoff, Exit, SandboxRecord, StatusRecord, StopCause};
use crate::system::clock::Moment;

mod hooks;
mod properties;
mod rules;
mod sidecars;

fn secs(s: u64) -> Moment {
    Moment(Duration::from_secs(s))
}

/// A pod under test, with what is seen of it.
#[derive(Clone)]
struct World {
    spec: PodSpec,
    hashes: Hashes,
    goal: Goal,
    record: StatusRecord,
    sandbox: SandboxState,
    instances: Vec<Instance>,
    stopping: BTreeMap<String, Stopping>,
    held: BTreeMap<String, Moment>,
    health: BTreeMap<String, Health>,
    deadline: Option<Moment>,
    now: Moment,
}

/// Without the spec, which is long and always the same.
impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record: Vec<_> = self.record.containers.iter().collect();
        let seen = (&self.goal, &self.sandbox, &self.instances, &self.now);
        write!(f, "{seen:?}\nstopping {:?}\nhealth {:?}\nrecord {record:?}", self.stopping, self.health)
    }
}

impl World {
    fn new(init: &[&str], regular: &[&str]) -> Self {
        let containers = |names: &[&str]| {
            names.iter().map(|n| Container { name: (*n).into(), ..Default::default() }).collect()
        };
        let spec = PodSpec {
            containers: containers(regular),
            init_containers: (!init.is_empty()).then(|| containers(init)),
            restart_policy: Some("Always".into()),
            ..PodSpec::default()
        };
        let hashes = Hashes {
            containers: regular.iter().map(|n| ((*n).to_owned(), "h".to_owned())).collect(),
            ..Hashes::default()
        };
        let record = StatusRecord {
            sandbox: Some(SandboxRecord { id: "s".into(), ready: true, ..SandboxRecord::default() }),
            ..StatusRecord::default()
        };
        Self {
            spec,
            hashes,
            goal: Goal::Run,
            record,
            sandbox: SandboxState::Ready,
            instances: Vec::new(),
            stopping: BTreeMap::new(),
            held: BTreeMap::new(),
            health: BTreeMap::new(),
            deadline: None,
            now: secs(1000),
        }
    }

    fn policy(mut self, policy: &str) -> Self {
        self.spec.restart_policy = Some(policy.into());
        self
    }

    fn running(mut self, kind: Kind, name: &str) -> Self {
        let id = format!("id-{name}");
        self.instances.push(Instance {
            id: id.clone(),
            name: name.into(),
            kind,
            hash: "h".into(),
            sandbox: "s".into(),
            state: State::Running,
        });
        if kind != Kind::Pause {
            let history = self.record.containers.entry(name.into()).or_default();
            history.container_id = Some(id);
            history.hash = "h".into();
        }
        self
    }

    fn exited(mut self, name: &str, code: i32, delay: u64) -> Self {
        let id = format!("old-{name}");
        let finished_at = self.now;
        let init = self.spec.init_containers.iter().flatten().any(|c| c.name == name);
        let history = self.record.containers.entry(name.into()).or_default();
        history.container_id = Some(id.clone());
        history.hash = "h".into();
        history.completed = init && code == 0;
        history.last = Some(Exit {
            container_id: id,
            code,
            reason: "Error".into(),
            message: String::new(),
            started: None,
            finished: jiff::Timestamp::UNIX_EPOCH,
            finished_at,
            ran_for: Duration::from_secs(1),
            cause: StopCause::Other,
        });
        let delay = Duration::from_secs(delay);
        history.backoff = Some(Backoff { delay, until: finished_at + delay });
        self
    }

    fn plan(&self) -> Plan {
        plan(&View {
            spec: &self.spec,
            hashes: &self.hashes,
            goal: self.goal,
            record: &self.record,
            sandbox: self.sandbox,
            instances: &self.instances,
            stopping: &self.stopping,
            held: &self.held,
            health: &self.health,
            deadline: self.deadline,
            now: self.now,
        })
    }

    /// The entry of this name, to be changed.
    fn entry(&mut self, name: &str) -> &mut Container {
        let init = self.spec.init_containers.iter_mut().flatten();
        init.chain(&mut self.spec.containers).find(|c| c.name == name).expect("the entry is there")
    }

    fn sidecar(mut self, name: &str) -> Self {
        self.entry(name).restart_policy = Some("Always".into());
        self
    }

    /// What there is to do, in words.
    fn words(&self) -> Vec<String> {
        self.plan().actions.iter().map(word).collect()
    }

    /// Names started, with restart counts.
    fn starts(&self) -> Vec<(String, u32)> {
        let pick = |a: Action| match a {
            Action::Start { name, restarts, .. } => Some((name, restarts)),
            _ => None,
        };
        self.plan().actions.into_iter().filter_map(pick).collect()
    }

    fn stops(&self) -> Vec<(String, StopStep)> {
        let pick = |a: Action| match a {
            Action::Stop { name, step, .. } => Some((name, step)),
            _ => None,
        };
        self.plan().actions.into_iter().filter_map(pick).collect()
    }
}

fn word(action: &Action) -> String {
    match action {
        Action::Discard { id } => format!("discard {id}"),
        Action::CreateSandbox => "create sandbox".into(),
        Action::DropSandbox => "drop sandbox".into(),
        Action::Start { name, .. } => format!("start {name}"),
        Action::PostStart { name, .. } => format!("post-start {name}"),
        Action::BeginStop { name, pre_stop: true, .. } => format!("pre-stop {name}"),
        Action::BeginStop { name, .. } => format!("queue {name}"),
        Action::Stop { name, step, .. } => format!("{step:?} {name}").to_lowercase(),
        Action::Hurry { name, .. } => format!("hurry {name}"),
        Action::RestartAll { by } => format!("restart all by {by}"),
        Action::Renew => "renew".into(),
        Action::Expire => "expire".into(),
    }
}

fn started(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names.iter().map(|(n, r)| ((*n).to_owned(), *r)).collect()
}

#[test]
fn a_new_pod_first_gets_a_sandbox() {
    let mut world = World::new(&[], &["a"]);
    world.sandbox = SandboxState::Absent;
    assert_eq!(world.plan().actions, [Action::CreateSandbox]);
}

#[test]
fn containers_start_in_the_order_of_the_spec() {
    assert_eq!(World::new(&[], &["b", "a"]).starts(), started(&[("b", 0), ("a", 0)]));
}

#[test]
fn init_containers_run_one_after_the_other_before_the_rest() {
    let world = World::new(&["one", "two"], &["app"]);
    assert_eq!(world.starts(), started(&[("one", 0)]));
    assert_eq!(world.clone().running(Kind::Init, "one").starts(), started(&[]));
    assert_eq!(world.clone().exited("one", 0, 0).starts(), started(&[("two", 0)]));
    assert_eq!(world.exited("one", 0, 0).exited("two", 0, 0).starts(), started(&[("app", 0)]));
}

#[test]
fn a_failed_init_container_is_tried_again_after_its_back_off() {
    let mut world = World::new(&["one"], &["app"]).exited("one", 1, 10);
    assert_eq!(world.starts(), started(&[]));
    assert_eq!(world.plan().wake, Some(secs(1010)));
    world.now = secs(1010);
    assert_eq!(world.starts(), started(&[("one", 1)]));
}

#[test]
fn a_failed_init_container_under_never_fails_the_pod() {
    let world = World::new(&["one"], &["app"]).policy("Never").exited("one", 1, 0);
    assert_eq!(world.plan().outcome, Some(Outcome::Failed));
    assert_eq!(world.plan().actions, [Action::DropSandbox]);
}

#[test]
fn init_containers_are_not_asked_again_while_the_pod_runs() {
    let world = World::new(&["one"], &["app", "b"]).running(Kind::Regular, "app");
    assert_eq!(world.starts(), started(&[("b", 0)]));
}

#[test]
fn the_restart_policy_decides_by_exit_code() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let world = World::new(&[], &["a"]).policy(policy).exited("a", code, 0);
        assert_eq!(!world.starts().is_empty(), again, "{policy} after {code}");
    }
}

#[test]
fn a_crashed_container_waits_for_its_back_off_and_counts_up() {
    let mut world = World::new(&[], &["a"]).exited("a", 1, 40);
    assert_eq!(world.plan().backing_off.get("a"), Some(&secs(1040)));
    assert_eq!(world.plan().wake, Some(secs(1040)));
    world.now = secs(1040);
    assert_eq!(world.starts(), started(&[("a", 1)]));
}

#[test]
fn one_container_in_back_off_does_not_hold_the_others() {
    let world = World::new(&[], &["a", "b"]).exited("a", 1, 40);
    assert_eq!(world.starts(), started(&[("b", 0)]));
}

#[test]
fn a_changed_container_starts_at_once_with_a_fresh_count() {
    let mut world = World::new(&[], &["a"]).exited("a", 1, 300);
    world.record.containers.get_mut("a").expect("just made").restarts = 7;
    world.hashes.containers.insert("a".into(), "other".into());
    assert_eq!(world.starts(), started(&[("a", 0)]));
}

#[test]
fn a_changed_container_is_stopped_with_grace_and_its_neighbour_is_not() {
    let mut world = World::new(&[], &["a", "b"]).running(Kind::Regular, "a").running(Kind::Regular, "b");
    world.hashes.containers.insert("a".into(), "other".into());
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
    assert_eq!(world.plan().wake, Some(secs(1030)));
}

#[test]
fn a_container_that_left_the_spec_is_stopped_and_the_rest_goes_on() {
    let world = World::new(&[], &["a"]).running(Kind::Regular, "gone");
    assert_eq!(world.stops(), [("gone".to_owned(), StopStep::Signal)]);
    assert_eq!(world.starts(), started(&[("a", 0)]));
}

#[test]
fn stopping_goes_from_signal_to_kill_to_force_and_never_back() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    world.spec.termination_grace_period_seconds = Some(5);
    let mut sent = Vec::new();
    for _ in 0..40 {
        for action in world.plan().actions {
            if let Action::Stop { id, step, stopping, .. } = action {
                sent.push((step, world.now.since(secs(1000)).as_secs()));
                world.stopping.insert(id, stopping);
            }
        }
        world.now = world.now + Duration::from_secs(1);
    }
    let expected = [
        (StopStep::Signal, 0),
        (StopStep::Kill, 5),
        (StopStep::Force, 15),
        (StopStep::Force, 25),
        (StopStep::Force, 35),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn a_grace_of_zero_still_gives_two_seconds() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    world.spec.termination_grace_period_seconds = Some(0);
    assert_eq!(world.plan().wake, Some(secs(1002)));
}

#[test]
fn the_sandbox_goes_only_when_nothing_lives_in_it() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    assert!(!world.plan().actions.contains(&Action::DropSandbox));
    world.instances[0].state = State::Exited;
    assert_eq!(world.plan().actions, [Action::Discard { id: "id-a".into() }, Action::DropSandbox]);
}

#[test]
fn a_shim_that_does_not_answer_counts_as_living() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.instances[0].state = State::Unresponsive;
    assert_eq!(world.plan().actions, []);
    world.goal = Goal::Stop;
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
}

#[test]
fn a_broken_sandbox_is_emptied_and_made_anew() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.sandbox = SandboxState::Broken;
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
    world.instances.clear();
    assert_eq!(world.plan().actions, [Action::DropSandbox]);
    world.sandbox = SandboxState::Absent;
    assert_eq!(world.plan().actions, [Action::CreateSandbox]);
}

#[test]
fn a_finished_pod_gives_its_sandbox_up_and_stays_finished() {
    let mut world = World::new(&[], &["a", "b"]).policy("Never").exited("a", 0, 0).exited("b", 3, 0);
    assert_eq!(world.plan().outcome, Some(Outcome::Failed));
    assert_eq!(world.plan().actions, [Action::DropSandbox]);
    world.sandbox = SandboxState::Absent;
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_pod_succeeds_when_all_containers_exit_0() {
    let world = World::new(&[], &["a", "b"]).policy("OnFailure").exited("a", 0, 0).exited("b", 0, 0);
    assert_eq!(world.plan().outcome, Some(Outcome::Succeeded));
}

#[test]
fn the_pause_container_comes_first_and_goes_last() {
    let mut world = World::new(&[], &["a"]);
    world.spec.share_process_namespace = Some(true);
    assert_eq!(world.starts(), started(&[(PAUSE, 0)]));
    let mut world = world.running(Kind::Pause, PAUSE);
    assert_eq!(world.starts(), started(&[("a", 0)]));
    world = world.running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
    world.instances.remove(1);
    assert_eq!(world.stops(), [(PAUSE.to_owned(), StopStep::Kill)]);
}

#[test]
fn without_its_pause_container_the_rest_is_stopped_before_a_new_one_starts() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.spec.share_process_namespace = Some(true);
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
    assert_eq!(world.starts(), started(&[]));
}

#[test]
fn a_failed_start_is_tried_again_when_its_hold_is_over() {
    let mut world = World::new(&[], &["a"]);
    world.held.insert("a".into(), secs(1003));
    assert_eq!(world.starts(), started(&[]));
    assert_eq!(world.plan().wake, Some(secs(1003)));
    world.now = secs(1003);
    assert_eq!(world.starts(), started(&[("a", 0)]));
}

#[test]
fn a_second_instance_of_a_container_is_stopped() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    let mut twin = world.instances[0].clone();
    twin.id = "twin".into();
    world.instances.push(twin);
    let plan = world.plan();
    assert!(matches!(&plan.actions[..], [Action::Stop { id, .. }] if id == "twin"), "{plan:?}");
}

#[test]
fn a_container_whose_probe_failed_for_good_is_stopped_with_the_grace_of_the_probe() {
    let failed = |probe, grace| Health {
        failed: Some(ProbeFailed { probe, message: "exit code 1".into(), grace }),
        ..Health::default()
    };
    let mut world = World::new(&[], &["a", "b"]).running(Kind::Regular, "a").running(Kind::Regular, "b");
    world.health.insert("id-a".into(), failed(FatalProbe::Liveness, Some(Duration::from_secs(90))));
    assert_eq!(world.stops(), [("a".to_owned(), StopStep::Signal)]);
    assert_eq!(world.plan().wake, Some(secs(1090)));
    world.health.insert("id-a".into(), failed(FatalProbe::Startup, None));
    assert_eq!(world.plan().wake, Some(secs(1030)));
    let why = |a: Action| if let Action::Stop { why, .. } = a { why.text() } else { "" };
    assert_eq!(
        world.plan().actions.into_iter().map(why).collect::<Vec<_>>(),
        ["failed startup probe, will be restarted"]
    );
}
