//! Restart rules of containers, restarts of all, deadlines.

use k8s_openapi::api::core::v1::{ContainerRestartRule, ContainerRestartRuleOnExitCodes};

use super::*;
use crate::store::{RestartAll, Verdict};

pub(super) fn rule(operator: &str, values: &[i32], action: &str) -> ContainerRestartRule {
    ContainerRestartRule {
        action: action.into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: operator.into(),
            values: Some(values.to_vec()),
        }),
    }
}

#[test]
fn a_container_has_a_policy_and_rules_of_its_own() {
    let restart = |op: &str, values: &[i32]| vec![rule(op, values, "Restart")];
    for (policy, rules, code, again) in [
        (Some("Always"), vec![], 0, true),
        (Some("OnFailure"), vec![], 0, false),
        (Some("OnFailure"), vec![], 3, true),
        (Some("Never"), vec![], 3, false),
        (None, vec![], 3, false),
        (Some("Never"), restart("In", &[42, 43]), 43, true),
        (Some("Never"), restart("In", &[42, 43]), 44, false),
        (Some("Never"), restart("NotIn", &[42]), 44, true),
        (Some("Never"), restart("NotIn", &[42]), 42, false),
        (Some("Never"), restart("NotIn", &[42]), 0, true),
    ] {
        let text = format!("{policy:?} {rules:?} after {code}");
        let mut world = World::new(&[], &["a", "b"]).policy("Never").exited("a", code, 0);
        world.entry("a").restart_policy = policy.map(Into::into);
        world.entry("a").restart_policy_rules = Some(rules);
        let starts = world.running(Kind::Regular, "b").starts();
        assert_eq!(starts.iter().any(|(name, _)| name == "a"), again, "{text}");
    }
}

#[test]
fn an_init_container_is_tried_again_by_its_own_rules_and_the_pod_fails_when_they_end() {
    let mut world = World::new(&["one"], &["app"]).policy("Never").exited("one", 42, 0);
    assert_eq!(world.plan().outcome, Some(Outcome::Failed));
    world.entry("one").restart_policy = Some("Never".into());
    world.entry("one").restart_policy_rules = Some(vec![rule("In", &[42], "Restart")]);
    assert_eq!(world.starts(), started(&[("one", 1)]));
    assert_eq!(world.exited("one", 1, 0).plan().outcome, Some(Outcome::Failed));
}

#[test]
fn a_container_killed_for_a_probe_starts_again_whatever_its_exit_code_unless_the_policy_is_never() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut world = World::new(&[], &["a"]).policy(policy).exited("a", 0, 0);
        let exit = world.record.containers.get_mut("a").and_then(|h| h.last.as_mut()).expect("it ended");
        exit.cause = StopCause::Probe;
        world.entry("a").restart_policy_rules = Some(vec![rule("NotIn", &[0], "Restart")]);
        assert_eq!(!world.starts().is_empty(), again, "{policy}");
    }
}

#[test]
fn what_was_interrupted_by_order_runs_again_when_the_pod_is_started() {
    let mut world = World::new(&[], &["a", "b"]).policy("Never").exited("a", 143, 0).exited("b", 0, 0);
    let exit = world.record.containers.get_mut("a").and_then(|h| h.last.as_mut()).expect("it ended");
    exit.cause = StopCause::Order;
    assert_eq!(world.starts(), started(&[("a", 1)]));
}

#[test]
fn one_container_can_have_all_of_them_restarted_within_the_sandbox() {
    let mut world = World::new(&["init"], &["a", "b"]).policy("Never");
    world.entry("a").restart_policy = Some("Never".into());
    world.entry("a").restart_policy_rules = Some(vec![rule("In", &[88], "RestartAllContainers")]);
    let mut world = world.exited("init", 0, 0).exited("a", 88, 0).running(Kind::Regular, "b");
    assert_eq!(world.words(), ["restart all by a"]);
    let backoff = Backoff { delay: Duration::from_secs(10), until: secs(1010) };
    world.record.restart_all = Some(RestartAll { by: "a".into(), under_way: true, backoff });
    assert_eq!(world.words(), ["signal b"]);
    assert_eq!(world.plan().wake, Some(secs(1002)), "little time and no hooks");
    world.instances.clear();
    assert_eq!(world.words(), [""; 0]);
    assert_eq!(world.plan().wake, Some(secs(1010)));
    world.now = secs(1010);
    assert_eq!(world.words(), ["renew"]);
    world.record.restart_all.as_mut().expect("set above").under_way = false;
    for history in world.record.containers.values_mut() {
        (history.container_id, history.completed, history.backoff) = (None, false, None);
    }
    assert_eq!(world.words(), ["start init"]);
}

#[test]
fn a_sidecar_can_have_all_of_them_restarted_and_the_pod_is_not_done_by_that() {
    let mut world = World::new(&["side"], &["app"]).policy("Never").sidecar("side");
    world.entry("side").restart_policy_rules = Some(vec![rule("In", &[7], "RestartAllContainers")]);
    let world = world.exited("side", 7, 0).running(Kind::Regular, "app");
    assert_eq!(world.words(), ["restart all by side"]);
    let mut world = world.exited("app", 137, 0);
    world.instances.clear();
    // The app's exit came first: the pod is done.
    assert_eq!(world.plan().outcome, Some(Outcome::Failed));
    let backoff = Backoff::default();
    world.record.restart_all = Some(RestartAll { by: "side".into(), under_way: true, backoff });
    assert_eq!((world.plan().outcome, world.words()), (None, vec!["renew".to_owned()]));
}

#[test]
fn a_container_that_an_edit_stopped_does_not_have_all_of_them_restarted() {
    let mut world = World::new(&[], &["a", "b"]);
    world.entry("a").restart_policy = Some("Never".into());
    world.entry("a").restart_policy_rules = Some(vec![rule("NotIn", &[0], "RestartAllContainers")]);
    let mut world = world.exited("a", 143, 0).running(Kind::Regular, "b");
    assert_eq!(world.words(), ["restart all by a"]);
    world.record.containers.get_mut("a").expect("it ran").hash = "of before".into();
    assert_eq!(world.words(), ["start a"]);
}

#[test]
fn a_stop_under_way_is_hurried_by_a_reason_that_leaves_less_time() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    let failed = ProbeFailed {
        probe: FatalProbe::Liveness,
        message: String::new(),
        grace: Some(Duration::from_secs(90)),
    };
    world.health.insert("id-a".into(), Health { failed: Some(failed), ..Health::default() });
    let Some(Action::Stop { id, stopping, .. }) = world.plan().actions.pop() else { panic!("it is stopped") };
    world.stopping.insert(id, stopping);
    world.now = secs(1010);
    world.goal = Goal::Stop;
    let plan = world.plan();
    let [Action::Hurry { id, stopping, .. }] = &plan.actions[..] else { panic!("{plan:?}") };
    assert_eq!(stopping.deadline, secs(1040));
    world.stopping.insert(id.clone(), stopping.clone());
    world.now = secs(1039);
    assert_eq!((world.words(), world.plan().wake), (vec![], Some(secs(1040))));
    world.now = secs(1040);
    assert_eq!(world.words(), ["kill a"]);
}

#[test]
fn a_stop_for_a_probe_keeps_its_longer_grace_when_the_verdict_is_forgotten() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    let grace = Some(Duration::from_secs(90));
    let failed = ProbeFailed { probe: FatalProbe::Liveness, message: String::new(), grace };
    world.health.insert("id-a".into(), Health { failed: Some(failed), ..Health::default() });
    let Some(Action::Stop { id, stopping, .. }) = world.plan().actions.pop() else { panic!("it is stopped") };
    world.stopping.insert(id, stopping);
    world.health.clear();
    world.now = secs(1050);
    assert_eq!((world.words(), world.plan().wake), (vec![], Some(secs(1090))));
}

#[test]
fn a_pod_whose_time_is_over_fails_stops_and_stays_failed() {
    let mut world = World::new(&[], &["a"]).running(Kind::Regular, "a");
    world.deadline = Some(secs(1060));
    assert_eq!((world.words(), world.plan().wake), (vec![], Some(secs(1060))));
    world.now = secs(1060);
    assert_eq!(world.words(), ["expire"]);
    world.record.verdict = Some(Verdict { reason: "DeadlineExceeded".into(), message: String::new() });
    assert_eq!((world.words(), world.plan().outcome), (vec!["signal a".to_owned()], Some(Outcome::Failed)));
    world.instances.clear();
    assert_eq!(world.words(), ["drop sandbox"]);
    world.sandbox = SandboxState::Absent;
    assert_eq!(world.words(), [""; 0]);
}

#[test]
fn a_pod_that_is_done_has_no_deadline() {
    let mut world = World::new(&[], &["a"]).policy("Never").exited("a", 0, 0);
    world.deadline = Some(secs(1000));
    assert_eq!(world.plan().outcome, Some(Outcome::Succeeded));
}
