use super::*;

const OK: Outcome = Outcome::Success;

fn bad() -> Outcome {
    Outcome::Failure("no".into())
}

fn container(probes: serde_json::Value) -> Container {
    let mut json = serde_json::json!({"name": "c"});
    json.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn target(restored: Option<Restored>) -> Target {
    let id = format!("80000000{}", "0".repeat(56));
    Target { id, name: "c".into(), since: at(100), stopping: false, restored }
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

/// Feeds results to a probe; gives whether each changed the verdict.
fn feed(t: &mut Tracked, c: &Container, kind: ProbeKind, results: &[Outcome]) -> Vec<bool> {
    results.iter().map(|r| t.finish(kind, r.clone(), c, at(200))).collect()
}

#[test]
fn readiness_begins_false_and_turns_by_its_thresholds() {
    let c = container(serde_json::json!({"readinessProbe": {"successThreshold": 2, "failureThreshold": 3}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    assert_eq!(t.verdict, Verdict { started: true, ready: false, failed: None });
    let kind = ProbeKind::Readiness;
    assert_eq!(feed(&mut t, &c, kind, &[OK, bad(), OK, OK]), [false, false, false, true]);
    assert!(t.verdict.ready);
    assert_eq!(
        feed(&mut t, &c, kind, &[bad(), bad(), OK, bad(), bad(), bad()]),
        [false; 5].into_iter().chain([true]).collect::<Vec<_>>()
    );
    assert!(!t.verdict.ready);
    assert_eq!(t.track(kind).unwrap().last.as_ref().unwrap().streak, 3);
}

#[test]
fn a_container_without_a_readiness_probe_is_ready_once_started() {
    let c = container(serde_json::json!({"startupProbe": {}, "livenessProbe": {}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    assert_eq!(t.verdict, Verdict::default());
    assert_eq!(feed(&mut t, &c, ProbeKind::Startup, &[bad(), bad(), OK]), [false, false, true]);
    assert_eq!(t.verdict, Verdict { started: true, ready: true, failed: None });
}

#[test]
fn the_other_probes_wait_for_the_startup_probe_which_then_ends() {
    let c = container(serde_json::json!({
        "startupProbe": {"initialDelaySeconds": 5}, "livenessProbe": {"initialDelaySeconds": 150}, "readinessProbe": {},
    }));
    let mut t = Tracked::new(target(None), &c, at(100));
    let due = |t: &Tracked| ProbeKind::ALL.map(|k| t.due(k));
    assert_eq!(due(&t), [Some(at(105)), None, None]);
    t.begin(ProbeKind::Startup, c.startup_probe.as_ref().unwrap(), at(105));
    assert_eq!(due(&t), [None, None, None]);
    feed(&mut t, &c, ProbeKind::Startup, &[OK]);
    assert_eq!(due(&t), [None, Some(at(250)), Some(at(200))]);
    assert!(!t.verdict.ready);
}

#[test]
fn a_failed_liveness_probe_is_not_made_again_and_readiness_goes_on() {
    let c = container(serde_json::json!({"livenessProbe": {"failureThreshold": 2}, "readinessProbe": {}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    assert_eq!(
        feed(&mut t, &c, ProbeKind::Liveness, &[bad(), OK, bad(), bad()]),
        [false, false, false, true]
    );
    assert_eq!(t.verdict.failed, Some((ProbeKind::Liveness, "no".into())));
    assert_eq!(t.due(ProbeKind::Liveness), None);
    assert!(t.due(ProbeKind::Readiness).is_some());
    assert_eq!(feed(&mut t, &c, ProbeKind::Liveness, &[OK]), [false]);
}

#[test]
fn a_startup_probe_that_fails_too_often_fails_the_container() {
    let c = container(serde_json::json!({"startupProbe": {"failureThreshold": 1}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    assert_eq!(feed(&mut t, &c, ProbeKind::Startup, &[bad()]), [true]);
    assert_eq!(t.verdict.failed.as_ref().map(|f| f.0), Some(ProbeKind::Startup));
    assert_eq!(t.due(ProbeKind::Startup), None);
}

#[test]
fn a_broken_probe_counts_as_a_failure_and_an_unknown_result_as_nothing() {
    let c = container(serde_json::json!({"livenessProbe": {"failureThreshold": 2}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    let (broken, unknown) = (Outcome::Broken("no such file".into()), Outcome::Unknown("busy".into()));
    let results = [bad(), unknown.clone(), unknown.clone(), unknown, broken];
    assert_eq!(feed(&mut t, &c, ProbeKind::Liveness, &results), [false, false, false, false, true]);
}

#[test]
fn a_stopping_container_is_only_asked_whether_it_is_ready() {
    let c = container(serde_json::json!({"livenessProbe": {}, "readinessProbe": {}}));
    let mut t = Tracked::new(Target { stopping: true, ..target(None) }, &c, at(100));
    assert_eq!(t.due(ProbeKind::Liveness), None);
    assert!(t.due(ProbeKind::Readiness).is_some());
    assert_eq!(feed(&mut t, &c, ProbeKind::Liveness, &[bad(), bad(), bad()]), [false; 3]);
}

#[test]
fn a_container_known_from_before_stays_as_it_was_and_is_asked_within_a_period() {
    let c = container(serde_json::json!({
        "startupProbe": {}, "livenessProbe": {"periodSeconds": 10}, "readinessProbe": {"periodSeconds": 20},
    }));
    let t = Tracked::new(target(Some(Restored { started: true, ready: true })), &c, at(500));
    assert_eq!(t.verdict, Verdict { started: true, ready: true, failed: None });
    assert_eq!(t.due(ProbeKind::Startup), None);
    let due = t.due(ProbeKind::Readiness).unwrap();
    assert!(due > at(509) && due < at(511), "{due:?}");
    let unready = Tracked::new(target(Some(Restored { started: false, ready: false })), &c, at(500));
    assert_eq!(unready.verdict, Verdict::default());
}

#[test]
fn late_runs_are_not_made_up_for() {
    let c = container(serde_json::json!({"livenessProbe": {"periodSeconds": 10}}));
    let mut t = Tracked::new(target(None), &c, at(100));
    let kind = ProbeKind::Liveness;
    t.begin(kind, c.liveness_probe.as_ref().unwrap(), at(135));
    t.finish(kind, OK, &c, at(150));
    assert_eq!(t.due(kind), Some(at(145)), "at once, and once");
}

#[test]
fn an_edit_changes_probes_and_keeps_what_is_known() {
    let old = container(serde_json::json!({"readinessProbe": {"failureThreshold": 2}, "livenessProbe": {}}));
    let mut t = Tracked::new(target(None), &old, at(100));
    feed(&mut t, &old, ProbeKind::Readiness, &[OK, bad()]);
    let new = container(serde_json::json!({"readinessProbe": {"failureThreshold": 1}, "startupProbe": {}}));
    t.follow(&old, &new, at(200));
    assert_eq!(t.verdict, Verdict { started: true, ready: true, failed: None });
    assert_eq!(ProbeKind::ALL.map(|k| t.due(k)), [None, None, Some(at(200))]);
    assert_eq!(feed(&mut t, &new, ProbeKind::Readiness, &[bad()]), [true]);
    t.follow(&new, &container(serde_json::json!({})), at(300));
    assert!(t.verdict.ready, "nothing is asked any more");
}
