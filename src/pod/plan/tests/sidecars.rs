//! Init containers that run beside the others.

use super::*;
use crate::store::HookPhase;

fn started_health(world: &mut World, name: &str, started: bool) {
    let health = Health { started, ready: started, failed: None };
    world.health.insert(format!("id-{name}"), health);
}

#[test]
fn what_comes_after_a_sidecar_waits_until_it_has_started() {
    let mut world = World::new(&["side", "init"], &["app"]).sidecar("side");
    world.entry("side").startup_probe = Some(Default::default());
    assert_eq!(world.words(), ["start side"]);
    let mut world = world.running(Kind::Init, "side");
    assert_eq!(world.words(), [""; 0], "it is to be probed and was not yet");
    started_health(&mut world, "side", false);
    assert_eq!(world.words(), [""; 0]);
    started_health(&mut world, "side", true);
    assert_eq!(world.words(), ["start init"]);
    let world = world.exited("init", 0, 0);
    assert_eq!(world.words(), ["start app"]);
}

#[test]
fn a_sidecar_without_a_startup_probe_has_started_when_it_runs_and_its_hook_is_over() {
    let mut world = World::new(&["side"], &["app"]).sidecar("side").running(Kind::Init, "side");
    assert_eq!(world.words(), ["start app"]);
    let mut hook = |phase| {
        world.record.containers.get_mut("side").expect("it runs").post_start = Some(phase);
        world.words()
    };
    assert_eq!(hook(HookPhase::Due), ["post-start side"]);
    assert_eq!(hook(HookPhase::Begun(secs(1000))), [""; 0]);
    assert_eq!(hook(HookPhase::Done), ["start app"]);
}

#[test]
fn a_sidecar_is_restarted_always_and_holds_nothing_up_while_the_pod_runs() {
    for policy in ["Always", "OnFailure", "Never"] {
        let world = World::new(&["side"], &["a", "b"]).policy(policy).sidecar("side").exited("side", 0, 0);
        let mut world = world.running(Kind::Regular, "a");
        assert_eq!(world.starts(), started(&[("side", 1), ("b", 0)]), "{policy}");
        world.now = secs(999);
        world.record.containers.get_mut("side").expect("it ended").backoff =
            Some(Backoff { delay: Duration::from_secs(10), until: secs(1009) });
        assert_eq!(world.starts(), started(&[("b", 0)]), "{policy}");
    }
}

#[test]
fn sidecars_go_after_the_containers_they_serve_the_last_first() {
    let world = World::new(&["one", "two"], &["app"]).sidecar("one").sidecar("two");
    let mut world = world.running(Kind::Init, "one").running(Kind::Init, "two").running(Kind::Regular, "app");
    world.goal = Goal::Stop;
    let mut told = Vec::new();
    for name in ["app", "two", "one"] {
        let plan = world.plan();
        told.push(plan.actions.iter().map(word).collect::<Vec<_>>().join(", "));
        for action in plan.actions {
            if let Action::BeginStop { id, stopping, .. } | Action::Stop { id, stopping, .. } = action {
                world.stopping.insert(id, stopping);
            }
        }
        world.now = world.now + Duration::from_secs(3);
        world.instances.retain(|i| i.name != name);
    }
    assert_eq!(told, ["queue one, queue two, signal app", "signal two", "signal one"]);
    // What the others took of it is lost to the last.
    assert_eq!(world.stopping["id-one"].deadline, secs(1030));
}

#[test]
fn a_sidecar_is_signalled_when_the_grace_is_over_though_others_still_run() {
    let world = World::new(&["side"], &["app"]).sidecar("side");
    let mut world = world.running(Kind::Init, "side").running(Kind::Regular, "app");
    world.goal = Goal::Stop;
    for action in world.plan().actions {
        if let Action::BeginStop { id, stopping, .. } | Action::Stop { id, stopping, .. } = action {
            world.stopping.insert(id, stopping);
        }
    }
    world.now = secs(1030);
    assert_eq!(world.words(), ["signal side", "kill app"]);
    let Some(Action::Stop { stopping, .. }) = world.plan().actions.into_iter().next() else {
        panic!("see above")
    };
    assert_eq!(stopping.deadline, secs(1032), "it has the least time that any has");
}

#[test]
fn a_pod_is_done_when_its_regular_containers_are_and_then_its_sidecars_go() {
    let world = World::new(&["side"], &["app"]).policy("OnFailure").sidecar("side");
    let mut world = world.running(Kind::Init, "side").exited("app", 0, 0);
    assert_eq!(world.plan().outcome, Some(Outcome::Succeeded));
    assert_eq!(world.words(), ["signal side"]);
    world.instances.clear();
    let world = world.exited("side", 137, 0);
    assert_eq!(
        (world.words(), world.plan().outcome),
        (vec!["drop sandbox".into()], Some(Outcome::Succeeded))
    );
}

#[test]
fn a_sidecar_whose_liveness_probe_fails_is_restarted() {
    let mut world = World::new(&["side"], &["app"]).sidecar("side");
    world = world.running(Kind::Init, "side").running(Kind::Regular, "app");
    let failed = ProbeFailed { probe: FatalProbe::Liveness, message: String::new(), grace: None };
    world
        .health
        .insert("id-side".into(), Health { started: true, failed: Some(failed), ..Health::default() });
    assert_eq!(world.words(), ["signal side"]);
}
