//! What a person reads: each trouble in one clear line where people look, said once, and gone with its cause.

use std::time::Duration;

use crate::support::{Instance, pod, shell, sleeper};

/// Its command ends at SIGTERM, so that stops take no time.
fn prompt(name: &str, word: &str) -> String {
    shell(name, &format!("trap 'exit 0' TERM; echo {word}; while :; do sleep 0.1; done"), "")
}

fn times(instance: &Instance, text: &str) -> usize {
    instance.log().matches(text).count()
}

#[test]
fn a_broken_file_is_said_once_and_shows_in_the_condition_until_it_is_mended() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    assert_eq!(before.condition("Applied"), "True");

    instance.write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n");
    let broken = instance.until_pod("web", "not applied", |p| p.condition("Applied") == "False");
    assert!(broken.is_ready() && broken.id("main") == before.id("main"), "it runs on");
    let text = instance.ok(&["describe", "pod", "web"]);
    assert!(text.contains("web.yaml:") && text.contains("as last accepted"), "{text}");
    assert!(instance.ok(&["get", "events"]).contains("ParseError"), "an event tells it");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(times(&instance, "as last accepted"), 1, "{}", instance.log());
    let why = instance.fails(1, &["wait", "pod/web", "--for=Applied", "--timeout=1s"]);
    assert!(why.contains("timed out") && why.contains("as last accepted"), "{why}");

    instance.write("web.yaml", &sleeper("web"));
    instance.until_pod("web", "applied again", |p| p.condition("Applied") == "True");
    assert!(instance.says("the problem is over"));
}

#[test]
fn warnings_of_an_accepted_manifest_reach_the_log_and_the_events() {
    let instance = Instance::start();
    instance.write(
        "web.yaml",
        &pod(
            "web",
            "hostNetwork: true\nnodeSelector: {a: b}\ncontainers: [{name: main, image: 'test/shell:1'}]",
        ),
    );
    instance.until("the warning in the log", |i| i.says("spec.nodeSelector").then_some(()));
    let events = instance.ok(&["get", "events"]);
    assert!(events.contains("ManifestWarning") && events.contains("spec.nodeSelector"), "{events}");
}

#[test]
fn a_command_that_is_not_there_is_a_failed_run_and_told_in_few_words() {
    let instance = Instance::start();
    let spec = "hostNetwork: true\nrestartPolicy: Never\ncontainers:\n- {name: main, image: 'test/shell:1', command: [nosuchcommand]}";
    instance.write("web.yaml", &pod("web", spec));
    let failed = instance.phase("web", "Failed");
    assert_eq!(failed.exit("main"), Some((128, "StartError".to_owned())));
    assert!(instance.describes("web", "nosuchcommand"));
    assert_eq!(times(&instance, "\"nosuchcommand\": executable file not found"), 1, "{}", instance.log());
}

#[test]
fn applied_and_ready_are_of_the_new_pod_and_not_of_the_one_that_goes() {
    let instance = Instance::start();
    instance.write("web.yaml", &prompt("web", "one"));
    let first = instance.ready("web");
    instance.write("web.yaml", &prompt("web", "two"));
    instance.ok(&["wait", "pod/web", "--for=Applied", "--timeout=30s"]);
    instance.ok(&["wait", "pod/web", "--for=Ready", "--timeout=30s"]);
    let second = instance.ready("web");
    assert_ne!(first.id("main"), second.id("main"));
    instance.until("its word", |i| i.ok(&["logs", "web"]).contains("two").then_some(()));

    instance.ok(&["restart", "pod/web"]);
    instance.ok(&["wait", "pod/web", "--for=Ready", "--timeout=30s"]);
    assert_ne!(second.id("main"), instance.ready("web").id("main"), "ready again means restarted");
}

#[test]
fn a_stopped_pod_is_shown_as_stopped() {
    let instance = Instance::start();
    instance.write("web.yaml", &prompt("web", "one"));
    instance.ready("web");
    instance.ok(&["stop", "pod/web"]);
    instance.until("Stopped", |i| i.ok(&["get", "pods"]).contains("Stopped").then_some(()));
    instance.ok(&["start", "pod/web"]);
    instance.ready("web");
}

#[test]
fn a_run_that_was_not_is_refused_by_logs_in_kubectls_words() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    let text = instance.fails(1, &["logs", "web", "-p"]);
    assert!(text.contains("previous terminated container \"main\" in pod \"web\" not found"), "{text}");
}

#[test]
fn a_terminal_of_exec_has_a_type() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    assert_eq!(instance.ok(&["exec", "-t", "web", "--", "sh", "-c", "echo $TERM"]).trim(), "xterm");
}

#[test]
fn a_damaged_status_is_rebuilt_from_containerd_and_stops_nothing() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.stop_podling();
    let file = instance.root().join("var/lib/podling/pods").join(before.uid()).join("status.json");
    std::fs::write(&file, "{\"version\": 1, \"conta").expect("writable");
    instance.start_podling();
    let after = instance.ready("web");
    assert_eq!((after.uid(), after.id("main")), (before.uid(), before.id("main")));
    assert!(instance.says("is damaged"), "{}", instance.log());
}
