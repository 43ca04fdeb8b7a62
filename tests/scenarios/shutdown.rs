//! The machine shuts down.

use std::fs;

use crate::support::{Instance, pod};

/// A pod that says when it is told to end and when it ends, a second later.
fn saying(name: &str, dir: &str, more: &str) -> String {
    let script = format!(
        "trap 'echo {name} told >>/said/log; sleep 1; echo {name} ends >>/said/log; exit 0' TERM; while :; do sleep 0.1; done"
    );
    let script = serde_json::to_string(&script).expect("a string can be JSON");
    pod(
        name,
        &format!(
            "
            hostNetwork: true
            {more}
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, {script}]
              volumeMounts: [{{name: said, mountPath: /said}}]
            volumes: [{{name: said, hostPath: {{path: {dir}}}}}]
            "
        ),
    )
}

#[test]
fn at_a_shutdown_pods_stop_in_order_with_their_grace_and_the_next_podling_starts_them_again() {
    let mut instance = Instance::start();
    let dir = instance.root().join("said");
    fs::create_dir(&dir).expect("a directory");
    let text = dir.display().to_string();
    instance.write("vital.yaml", &saying("vital", &text, "priorityClassName: system-node-critical"));
    instance.write("db.yaml", &saying("db", &text, "terminationGracePeriodSeconds: 30"));
    let app = saying("app", &text, "terminationGracePeriodSeconds: 30");
    let app = app.replacen("metadata:\n", "metadata:\n  annotations: {podling.dev/start-after: db}\n", 1);
    instance.write("app.yaml", &app);
    let pods = ["app", "db", "vital"];
    let before = pods.map(|name| instance.ready(name).id("main"));
    let said = instance.ok(&["shutdown", "--timeout", "2m"]);
    assert_eq!(said.trim(), "no pod runs");
    let log = fs::read_to_string(dir.join("log")).expect("readable");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines, ["app told", "app ends", "db told", "db ends", "vital told", "vital ends"]);
    // Nothing starts any more.
    instance.write("late.yaml", &saying("late", &text, ""));
    instance.until_pod("late", "waits", |p| p.waiting("main") == "NodeShutdown");
    assert!(pods.iter().all(|name| instance.pod(name).is_some_and(|p| !p.is_running("main"))));
    instance.restart_podling();
    let after = pods.map(|name| instance.ready(name).id("main"));
    assert!(before.iter().zip(&after).all(|(a, b)| a != b));
    instance.ready("late");
}
