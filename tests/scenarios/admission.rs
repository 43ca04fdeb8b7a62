//! Who may run: amounts, places, labels, classes, and the order of starts.

use crate::support::manifest::SLEEP;
use crate::support::{Instance, Options, pod, seconds, shell};

fn with(settings: &str) -> Instance {
    Instance::with(Options { settings: settings.into(), ..Options::default() })
}

/// A pod that requests so much processor.
fn requesting(name: &str, cpu: &str, more: &str) -> String {
    let script = serde_json::to_string(SLEEP).expect("a string can be JSON");
    pod(
        name,
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            {more}
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, {script}]
              resources: {{requests: {{cpu: {cpu}}}}}
            "
        ),
    )
}

fn waits(instance: &Instance, pod: &str, reason: &str, text: &str) {
    let view = instance.until_pod(pod, &format!("waits with {reason}"), |p| {
        p.phase() == "Pending" && p.waiting("main") == reason
    });
    let message = view.waiting_message("main");
    assert!(message.contains(text), "{message}");
}

#[test]
fn a_pod_that_does_not_fit_waits_for_what_and_for_whom_and_starts_when_it_is_released() {
    let mut instance = with("capacity: {cpu: 2}\nsystemReserved: {cpu: 500m}\n");
    instance.write("first.yaml", &requesting("first", "1", ""));
    let first = instance.ready("first");
    let pid = instance.pid(&first, "main");
    instance.write("second.yaml", &requesting("second", "1", ""));
    waits(&instance, "second", "OutOfcpu", "500m of 1500m are free; held by default/first 1");
    instance.write("huge.yaml", &requesting("huge", "100", ""));
    waits(&instance, "huge", "OutOfcpu", "this node has 1500m for pods (2 less a reserve of 500m)");
    // What runs is never put out, whatever the books say.
    instance.stop_podling();
    let config = instance.root().join("etc/podling/config.yaml");
    let text = std::fs::read_to_string(&config).expect("readable");
    std::fs::write(&config, text.replace("systemReserved: {cpu: 500m}", "systemReserved: {cpu: 1500m}"))
        .expect("writable");
    instance.start_podling();
    let first = instance.ready("first");
    assert_eq!(instance.pid(&first, "main"), pid);
    instance.stop_podling();
    std::fs::write(&config, text).expect("writable");
    instance.start_podling();
    waits(&instance, "second", "OutOfcpu", "held by default/first 1");
    instance.remove("first.yaml");
    instance.ready("second");
}

#[test]
fn there_are_only_so_many_places_and_a_pod_that_is_done_gives_its_own_back() {
    let instance = with("maxPods: 1\n");
    instance.write("once.yaml", &shell("once", "sleep 2", "restartPolicy: Never"));
    instance.until_pod("once", "runs", |p| p.is_running("main"));
    instance.write("next.yaml", &shell("next", SLEEP, ""));
    waits(&instance, "next", "OutOfpods", "maxPods in the settings is 1");
    instance.phase("once", "Succeeded");
    instance.ready("next");
}

#[test]
fn what_a_pod_has_that_is_about_to_end_is_its_own_over_a_restart_of_podling() {
    let mut instance = Instance::start();
    let flags = instance.root().join("flags");
    std::fs::create_dir(&flags).expect("a directory");
    let script =
        "trap 'until [ -e /flags/go ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done";
    let server = |name: &str| {
        let text = format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 120
            volumes: [{{name: flags, hostPath: {{path: {}}}}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, {}]
              ports: [{{containerPort: 9003}}]
              volumeMounts: [{{name: flags, mountPath: /flags}}]
            ",
            flags.display(),
            serde_json::to_string(script).expect("a string can be JSON")
        );
        pod(name, &text)
    };
    instance.write("web.yaml", &server("old"));
    instance.ready("old");
    instance.write("web.yaml", &server("new"));
    waits(&instance, "new", "NodePorts", "held by pod default/old");
    instance.kill_podling();
    instance.start_podling();
    waits(&instance, "new", "NodePorts", "held by pod default/old");
    std::fs::write(flags.join("go"), "").expect("writable");
    instance.ready("new");
    instance.gone("old");
}

#[test]
fn an_update_that_would_not_fit_waits_and_the_old_one_keeps_running() {
    let instance = with("capacity: {cpu: 2}\n");
    instance.write("a.yaml", &requesting("a", "1", ""));
    instance.write("b.yaml", &requesting("b", "1", ""));
    instance.ready("b");
    let view = instance.ready("a");
    let pid = instance.pid(&view, "main");
    instance.write("a.yaml", &requesting("a", "1500m", ""));
    let view =
        instance.until_pod("a", "has a resize that waits", |p| p.condition("PodResizePending") == "True");
    assert!(view.is_ready());
    assert_eq!(view.condition("Applied"), "False");
    assert!(instance.describes("a", "the new manifest waits and the old one keeps running"));
    instance.remove("b.yaml");
    let view = instance
        .until_pod("a", "is resized", |p| p.container("main")["resources"]["requests"]["cpu"] == "1500m");
    assert_eq!(instance.pid(&view, "main"), pid);
    assert_eq!(view.condition("PodResizePending"), "");
}

#[test]
fn selectors_are_held_against_labels_and_check_says_the_same() {
    let instance = with("nodeLabels: {disktype: ssd}\n");
    instance
        .write("good.yaml", &shell("good", SLEEP, "nodeSelector: {disktype: ssd, kubernetes.io/os: linux}"));
    instance.ready("good");
    let bad = shell("bad", SLEEP, "nodeSelector: {disktype: hdd}");
    instance.write("bad.yaml", &bad);
    let text = "spec.nodeSelector wants disktype=hdd, and this node has ssd";
    waits(&instance, "bad", "NodeAffinity", text);
    let file = instance.manifests().join("bad.yaml").display().to_string();
    assert!(instance.ok(&["check", &file]).contains(text));
    instance.write("bad.yaml", &shell("bad", SLEEP, "nodeSelector: {disktype: ssd}"));
    instance.ready("bad");
}

#[test]
fn an_unknown_priority_class_waits_and_a_known_one_orders_who_comes_first() {
    let instance = with("capacity: {cpu: 1}\npriorityClasses: {high: 1000}\n");
    instance.write("lost.yaml", &requesting("lost", "100m", "priorityClassName: nobody"));
    waits(&instance, "lost", "PriorityClassNotFound", "there is no priority class \"nobody\"");
    instance.write("holder.yaml", &requesting("holder", "1", ""));
    instance.ready("holder");
    instance.write("a-low.yaml", &requesting("a-low", "1", ""));
    waits(&instance, "a-low", "OutOfcpu", "held by default/holder 1");
    instance.write("z-high.yaml", &requesting("z-high", "1", "priorityClassName: high"));
    waits(&instance, "z-high", "OutOfcpu", "held by default/holder 1");
    instance.remove("holder.yaml");
    instance.ready("z-high");
    assert_eq!(instance.pod("a-low").map(|p| p.phase()), Some("Pending".into()));
}

#[test]
fn a_pod_starts_after_those_it_names_and_runs_on_without_them() {
    let mut instance = Instance::start();
    let after = |name: &str, names: &str| {
        shell(name, SLEEP, "").replacen(
            "metadata:\n",
            &format!("metadata:\n  annotations: {{podling.dev/start-after: '{names}'}}\n"),
            1,
        )
    };
    instance.write("app.yaml", &after("app", "db"));
    waits(&instance, "app", "StartAfter", "waits for default/db, for which there is no manifest");
    instance.write("one.yaml", &after("one", "two"));
    instance.write("two.yaml", &after("two", "one"));
    waits(&instance, "one", "StartAfterCycle", "default/one -> default/two -> default/one");
    instance.write("db.yaml", &shell("db", SLEEP, ""));
    instance.ready("db");
    let view = instance.ready("app");
    let pid = instance.pid(&view, "main");
    instance.remove("db.yaml");
    instance.gone("db");
    instance.restart_podling();
    let view = instance.ready("app");
    assert_eq!(instance.pid(&view, "main"), pid);
    instance.stays(seconds(1), "app runs on", |i| i.pod("app").is_some_and(|p| p.is_running("main")));
}

#[test]
fn of_pods_that_come_together_those_first_in_order_start_first_and_get_the_places() {
    let mut instance = with("maxPods: 4\npriorityClasses: {high: 10, low: -10}\n");
    instance.stop_podling();
    instance.write("a.yaml", &shell("a", SLEEP, "priorityClassName: low"));
    for name in ["f", "c", "e", "d", "b"] {
        instance.write(&format!("{name}.yaml"), &shell(name, SLEEP, ""));
    }
    instance.write("z.yaml", &shell("z", SLEEP, "priorityClassName: high"));
    instance.start_podling();
    for name in ["z", "b", "c", "d"] {
        instance.ready(name);
    }
    for name in ["a", "e", "f"] {
        waits(&instance, name, "OutOfpods", "maxPods in the settings is 4");
    }
    // At this moment the log has a line for each process in the order of their starts.
    let log = instance.log();
    let place = |name: &str| log.find(&format!("default/{name} main: container started")).expect("a line");
    assert!(place("z") < place("b") && place("b") < place("c") && place("c") < place("d"), "{log}");
    instance.remove("c.yaml");
    instance.ready("e");
    waits(&instance, "f", "OutOfpods", "maxPods");
}

#[test]
fn a_pod_that_is_done_lets_those_start_that_come_after_it() {
    let instance = Instance::start();
    let after = |name: &str, other: &str| {
        let annotation = format!("metadata:\n  annotations: {{podling.dev/start-after: '{other}'}}\n");
        shell(name, SLEEP, "").replacen("metadata:\n", &annotation, 1)
    };
    instance.write("good.yaml", &shell("good", "exit 0", "restartPolicy: Never"));
    instance.write("bad.yaml", &shell("bad", "exit 3", "restartPolicy: Never"));
    instance.phase("good", "Succeeded");
    instance.phase("bad", "Failed");
    instance.write("app.yaml", &after("app", "good"));
    instance.ready("app");
    instance.write("never.yaml", &after("never", "bad"));
    waits(&instance, "never", "StartAfter", "waits for default/bad, which has failed");
}

#[test]
fn what_a_cluster_would_hold_against_a_pod_is_said_by_check_and_daemon_alike() {
    let instance = Instance::start();
    let text = shell("odd", SLEEP, "nodeSelector: {disktype: ssd}\npriorityClassName: gold");
    instance.write("odd.yaml", &text);
    instance.ready("odd");
    let file = instance.manifests().join("odd.yaml").display().to_string();
    let checked = instance.ok(&["check", &file]);
    for said in [
        "spec.nodeSelector wants disktype=ssd, and this node has no such label; set nodeLabels in the settings, or change the manifest; the pod runs in any case",
        "there is no priority class \"gold\"",
    ] {
        assert!(checked.contains(said), "{checked}");
        assert!(instance.says(said), "{said}");
        assert!(instance.describes("odd", said), "{said}");
    }
    let line = text.lines().position(|l| l.contains("nodeSelector")).expect("a line") + 1;
    assert!(checked.contains(&format!(":{line}:3: warning: spec.nodeSelector: NodeAffinity")), "{checked}");
}
