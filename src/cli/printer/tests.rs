use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn pod(spec: Value, status: Value) -> Pod {
    let metadata =
        json!({ "name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:55:00Z" });
    serde_json::from_value(
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status }),
    )
    .unwrap()
}

fn container(name: &str, ready: bool, state: Value) -> Value {
    json!({ "name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state })
}

fn waiting(reason: &str) -> Value {
    json!({ "waiting": { "reason": reason } })
}

fn ended(code: i32, reason: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason } })
}

fn running() -> Value {
    json!({ "running": {} })
}

fn ready_condition() -> Value {
    json!([{ "type": "Ready", "status": "True" }])
}

fn spec(init: &[&str], containers: &[&str]) -> Value {
    let list = |names: &[&str]| names.iter().map(|n| json!({ "name": n })).collect::<Vec<_>>();
    json!({ "initContainers": list(init), "containers": list(containers) })
}

/// Spec names, phase, init states, container states, and the STATUS and READY that kubectl prints.
fn shown(init: Vec<Value>, containers: Vec<Value>, phase: &str) -> (String, String) {
    let names = |list: &[Value]| -> Vec<String> {
        list.iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
    };
    let (i, c) = (names(&init), names(&containers));
    let (i, c): (Vec<&str>, Vec<&str>) =
        (i.iter().map(String::as_str).collect(), c.iter().map(String::as_str).collect());
    let status = json!({ "phase": phase, "initContainerStatuses": init, "containerStatuses": containers });
    let row = row(&pod(spec(&i, &c), status), now());
    (row.status, row.ready)
}

#[test]
fn the_status_word_is_kubectls() {
    let app = |state| vec![container("app", false, state)];
    for (init, containers, phase, expected) in [
        (vec![], vec![], "Pending", "Pending"),
        (vec![], app(waiting("ContainerCreating")), "Pending", "ContainerCreating"),
        (vec![], app(waiting("CrashLoopBackOff")), "Running", "CrashLoopBackOff"),
        (vec![], app(waiting("ErrImagePull")), "Pending", "ErrImagePull"),
        (vec![], app(running()), "Running", "Running"),
        (vec![], app(ended(0, "Completed")), "Succeeded", "Completed"),
        (vec![], app(ended(1, "Error")), "Failed", "Error"),
        (vec![], app(ended(137, "OOMKilled")), "Failed", "OOMKilled"),
        (vec![], app(ended(3, "")), "Failed", "ExitCode:3"),
        (vec![], app(json!({ "terminated": { "exitCode": 137, "signal": 9 } })), "Failed", "Signal:9"),
        (vec![container("a", false, running())], app(waiting("PodInitializing")), "Pending", "Init:0/1"),
        (vec![container("a", false, waiting("PodInitializing"))], vec![], "Pending", "Init:0/1"),
        (vec![container("a", false, ended(1, "Error"))], vec![], "Pending", "Init:Error"),
        (vec![container("a", false, ended(2, ""))], vec![], "Pending", "Init:ExitCode:2"),
        (
            vec![container("a", false, json!({ "terminated": { "exitCode": 1, "signal": 15 } }))],
            vec![],
            "Pending",
            "Init:Signal:15",
        ),
        (
            vec![container("a", false, waiting("CrashLoopBackOff"))],
            vec![],
            "Pending",
            "Init:CrashLoopBackOff",
        ),
        (
            vec![container("a", true, ended(0, "Completed")), container("b", false, running())],
            app(waiting("PodInitializing")),
            "Pending",
            "Init:1/2",
        ),
        (
            vec![container("a", true, ended(0, "Completed"))],
            app(waiting("PodInitializing")),
            "Pending",
            "PodInitializing",
        ),
        (
            vec![],
            vec![
                container("a", false, waiting("CrashLoopBackOff")),
                container("b", false, ended(1, "Error")),
            ],
            "Running",
            "CrashLoopBackOff",
        ),
    ] {
        assert_eq!(shown(init, containers, phase).0, expected);
    }
}

#[test]
fn a_container_done_beside_one_that_runs_is_not_a_completed_pod() {
    let containers = json!([container("a", false, ended(0, "Completed")), container("b", true, running())]);
    let status = json!({ "phase": "Running", "containerStatuses": containers });
    let mut pod = pod(spec(&[], &["a", "b"]), status);
    assert_eq!((status_word(&pod), row(&pod, now()).ready), ("NotReady".into(), "1/2".into()));
    pod.status.as_mut().unwrap().conditions = Some(serde_json::from_value(ready_condition()).unwrap());
    assert_eq!(status_word(&pod), "Running");
}

#[test]
fn a_pods_own_reason_comes_before_its_phase() {
    let status = json!({ "phase": "Failed", "reason": "Evicted" });
    assert_eq!(status_word(&pod(spec(&[], &["a"]), status)), "Evicted");
}

#[test]
fn a_pod_being_deleted_is_terminating_until_it_has_ended() {
    let mut pod = pod(spec(&[], &["a"]), json!({ "phase": "Running" }));
    pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
    assert_eq!(status_word(&pod), "Terminating");
    pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
    assert_eq!(status_word(&pod), "Succeeded");
}

#[test]
fn sidecars_count_as_containers_and_keep_their_restarts() {
    let spec = json!({
        "initContainers": [{ "name": "side", "restartPolicy": "Always" }, { "name": "once" }],
        "containers": [{ "name": "app" }],
    });
    let mut side = container("side", true, running());
    side["started"] = json!(true);
    side["restartCount"] = json!(2);
    let mut once = container("once", true, ended(0, "Completed"));
    once["restartCount"] = json!(7);
    let status = json!({
        "phase": "Running",
        "initContainerStatuses": [side, once],
        "containerStatuses": [container("app", true, running())],
    });
    let row = row(&pod(spec, status), now());
    assert_eq!((row.ready.as_str(), row.status.as_str(), row.restarts.as_str()), ("2/2", "Running", "2"));
}

#[test]
fn restarts_say_how_long_ago_the_last_one_was() {
    let mut app = container("app", true, running());
    app["restartCount"] = json!(3);
    let end = |at: &str| json!({ "terminated": { "exitCode": 1, "finishedAt": at } });
    app["lastState"] = end("2026-01-01T00:55:00Z");
    let mut other = container("b", true, running());
    other["lastState"] = end("2026-01-01T00:10:00Z");
    let status = json!({ "phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [app, other] });
    let row = row(&pod(spec(&[], &["app", "b"]), status), now());
    assert_eq!(row.restarts, "3 (5m ago)");
    assert_eq!(
        row.cells(true, true),
        ["default", "web", "2/2", "Running", "3 (5m ago)", "5m", "10.0.0.7", "<none>", "<none>", "<none>"]
    );
}

#[test]
fn a_pod_without_any_status_is_still_a_row() {
    let row = row(&Pod::default(), now());
    assert_eq!(row.cells(false, false), ["", "0/0", "Unknown", "0", "<unknown>"]);
}

#[test]
fn a_pod_stopped_by_order_says_so_however_its_containers_ended() {
    let status = json!({
        "phase": "Running", "reason": "Stopped",
        "containerStatuses": [container("app", false, ended(137, "Error"))],
    });
    assert_eq!(row(&pod(spec(&[], &["app"]), status), now()).status, "Stopped");
}
