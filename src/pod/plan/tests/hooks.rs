//! `postStart` and `preStop`.

use k8s_openapi::api::core::v1::{ExecAction, Lifecycle, LifecycleHandler, TCPSocketAction};

use super::*;
use crate::store::HookPhase;

fn exec() -> Option<LifecycleHandler> {
    let exec = ExecAction { command: Some(vec!["true".into()]) };
    Some(LifecycleHandler { exec: Some(exec), ..Default::default() })
}

impl World {
    fn hooks(mut self, name: &str, post_start: bool, pre_stop: bool) -> Self {
        let of = |yes: bool| if yes { exec() } else { None };
        self.entry(name).lifecycle =
            Some(Lifecycle { post_start: of(post_start), pre_stop: of(pre_stop), stop_signal: None });
        self
    }

    fn post_start(&mut self, name: &str, phase: HookPhase) {
        self.record.containers.get_mut(name).expect("it was started").post_start = Some(phase);
    }

    /// Notes the stops that the plan begins or carries on; what they were, in words.
    fn take_stops(&mut self) -> Vec<String> {
        let plan = self.plan();
        for action in &plan.actions {
            match action {
                Action::BeginStop { id, stopping, .. }
                | Action::Stop { id, stopping, .. }
                | Action::Hurry { id, stopping, .. } => {
                    self.stopping.insert(id.clone(), stopping.clone());
                }
                _ => {}
            }
        }
        plan.actions.iter().map(word).collect()
    }

    fn pre_stop_is_over(&mut self, id: &str) {
        self.stopping.get_mut(id).expect("its stop was begun").pre_stop = Some(HookPhase::Done);
    }
}

#[test]
fn a_container_starts_after_the_hook_of_the_one_before_it_the_first_time() {
    let world = World::new(&[], &["a", "b"]).hooks("a", true, false);
    assert_eq!(world.words(), ["start a"]);
    let mut world = world.running(Kind::Regular, "a");
    world.post_start("a", HookPhase::Due);
    assert_eq!(world.words(), ["post-start a"]);
    world.post_start("a", HookPhase::Begun(secs(1000)));
    assert_eq!(world.words(), [""; 0]);
    let crashed = world.clone().exited("b", 1, 0);
    assert_eq!(crashed.words(), ["start b"], "one that ran before does not wait for its neighbour");
    world.post_start("a", HookPhase::Done);
    assert_eq!(world.words(), ["start b"]);
    world.post_start("a", HookPhase::Failed("exit code 1".into()));
    assert_eq!(world.words(), ["signal a", "start b"], "a failed hook ends its container alone");
}

#[test]
fn a_hook_that_runs_does_not_keep_the_pod_from_stopping() {
    let mut world = World::new(&[], &["a", "b"]).hooks("a", true, false).running(Kind::Regular, "a");
    world.post_start("a", HookPhase::Begun(secs(1000)));
    world.goal = Goal::Stop;
    assert_eq!(world.words(), ["signal a"]);
}

#[test]
fn the_time_of_the_hook_is_taken_from_the_grace() {
    let mut world = World::new(&[], &["a"]).hooks("a", false, true).running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    world.spec.termination_grace_period_seconds = Some(20);
    assert_eq!(world.take_stops(), ["pre-stop a"]);
    assert_eq!(world.plan().wake, Some(secs(1020)));
    world.now = secs(1005);
    assert_eq!(world.take_stops(), [""; 0]);
    world.pre_stop_is_over("id-a");
    assert_eq!(world.take_stops(), ["signal a"]);
    assert_eq!(world.plan().wake, Some(secs(1020)));
    world.now = secs(1020);
    assert_eq!(world.take_stops(), ["kill a"]);
}

#[test]
fn a_hook_that_takes_all_of_the_grace_leaves_two_seconds() {
    for grace in [20, 1, 0, -5] {
        let mut world = World::new(&[], &["a"]).hooks("a", false, true).running(Kind::Regular, "a");
        world.goal = Goal::Stop;
        world.spec.termination_grace_period_seconds = Some(grace);
        assert_eq!(world.take_stops(), ["pre-stop a"]);
        let over = secs(1000) + Duration::from_secs(grace.max(1).unsigned_abs());
        assert_eq!(world.plan().wake, Some(over));
        world.now = over;
        assert_eq!(world.take_stops(), ["signal a"]);
        assert_eq!(world.plan().wake, Some(over + Duration::from_secs(2)));
    }
}

#[test]
fn a_podling_that_is_started_again_goes_on_with_the_stop_it_finds() {
    let mut world = World::new(&[], &["a"]).hooks("a", false, true).running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    world.take_stops();
    let restart = |world: &mut World| {
        for stopping in world.stopping.values_mut() {
            *stopping = Stopping::resume(&stopping.record());
        }
    };
    restart(&mut world);
    world.now = secs(1010);
    assert_eq!((world.words(), world.plan().wake), (vec![], Some(secs(1030))), "the hook is not begun again");
    world.pre_stop_is_over("id-a");
    restart(&mut world);
    assert_eq!(world.take_stops(), ["signal a"]);
    restart(&mut world);
    assert_eq!((world.words(), world.plan().wake), (vec![], Some(secs(1030))), "nor is the signal repeated");
    world.now = secs(1030);
    assert_eq!(world.take_stops(), ["kill a"]);
}

#[test]
fn hooks_of_sidecars_run_at_once_though_their_signal_waits() {
    let world = World::new(&["side"], &["app"]).sidecar("side").hooks("side", false, true);
    let mut world = world.running(Kind::Init, "side").running(Kind::Regular, "app");
    world.goal = Goal::Stop;
    assert_eq!(world.take_stops(), ["pre-stop side", "signal app"]);
    world.pre_stop_is_over("id-side");
    assert_eq!(world.take_stops(), [""; 0]);
    world.instances.retain(|i| i.name != "app");
    assert_eq!(world.take_stops(), ["signal side"]);
}

#[test]
fn a_stop_that_has_begun_is_carried_through_when_its_reason_is_gone() {
    let mut world = World::new(&[], &["a"]).hooks("a", false, true).running(Kind::Regular, "a");
    world.hashes.containers.insert("a".into(), "newer".into());
    assert_eq!(world.take_stops(), ["pre-stop a"]);
    world.hashes.containers.insert("a".into(), "h".into());
    world.pre_stop_is_over("id-a");
    assert_eq!(world.take_stops(), ["signal a"]);
}

#[test]
fn a_socket_is_no_hook() {
    let socket = LifecycleHandler { tcp_socket: Some(TCPSocketAction::default()), ..Default::default() };
    let mut world = World::new(&[], &["a", "b"]);
    world.entry("a").lifecycle =
        Some(Lifecycle { post_start: Some(socket.clone()), pre_stop: Some(socket), stop_signal: None });
    assert_eq!(world.words(), ["start a", "start b"]);
    let mut world = world.running(Kind::Regular, "a");
    world.goal = Goal::Stop;
    assert_eq!(world.words(), ["signal a"]);
}
