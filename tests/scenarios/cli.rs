//! The command line: what it prints, and how it exits.

use std::process::Command;

use serde_json::Value;

use crate::support::{Instance, host, pod, seconds, shell, sleeper};

#[test]
fn get_pods_prints_kubectls_columns_and_a_v1_list() {
    let instance = Instance::start();
    assert!(instance.ok(&["get", "pods"]).is_empty(), "no pods, no table");
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    let table = instance.ok(&["get", "pods"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(rows[1][..4], ["web", "1/1", "Running", "0"]);
    assert!(instance.ok(&["get", "pods", "-A"]).starts_with("NAMESPACE"));
    assert!(instance.ok(&["get", "pods", "-o", "wide"]).lines().next().is_some_and(|l| l.contains("IP")));
    assert_eq!(instance.ok(&["get", "pods", "-o", "name"]), "pod/web\n");
    assert!(instance.ok(&["get", "pods", "-o", "yaml"]).contains("kind: List"));
    assert_eq!(instance.ok(&["get", "pods", "-n", "elsewhere"]), "");

    let list: Value = serde_json::from_str(&instance.ok(&["get", "pods", "-o", "json"])).expect("JSON");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"List".into(), &"v1".into()));
    let web = &list["items"][0];
    assert_eq!((&web["kind"], &web["apiVersion"]), (&"Pod".into(), &"v1".into()));
    let status = &web["status"];
    assert_eq!(status["phase"], "Running");
    assert!(status["startTime"].is_string());
    for kind in ["Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        let found = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
        assert_eq!(found.map(|c| &c["status"]), Some(&"True".into()), "{kind}");
    }
    let container = &status["containerStatuses"][0];
    assert_eq!((&container["name"], &container["ready"]), (&"main".into(), &true.into()));
    assert!(container["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://")));
    assert!(container["state"]["running"]["startedAt"].is_string());
    assert!(container["imageID"].as_str().is_some_and(|id| id.contains("sha256:")));
    let notes = &web["metadata"]["annotations"];
    for key in ["source", "seen", "hash"] {
        assert!(notes[format!("kubernetes.io/config.{key}")].is_string(), "{key}");
    }
}

#[test]
fn get_of_one_pod_and_of_an_unknown_one() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    assert_eq!(instance.ok(&["get", "pods", "web"]).lines().count(), 2);
    let single: Value =
        serde_json::from_str(&instance.ok(&["get", "pod", "web", "-o", "json"])).expect("JSON");
    assert_eq!(single["kind"], "Pod");
    let text = instance.fails(1, &["get", "pods", "nobody"]);
    assert!(text.contains("\"nobody\" not found"), "{text}");
}

#[test]
fn describe_tells_state_and_events() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    let text = instance.ok(&["describe", "pod", "web"]);
    for word in
        ["Name:", "web", "Namespace:", "default", "Containers:", "main", "test/shell:1", "Running", "Events:"]
    {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let events = instance.ok(&["get", "events"]);
    assert!(events.contains("Started"), "{events}");
}

#[test]
fn exec_hands_through_output_input_and_exit_codes() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    let out = instance.podling(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 42"]);
    assert_eq!(out.status.code(), Some(42));
    // kubectl adds a line of its own about the exit code.
    assert_eq!(out.stdout, b"out\n");
    assert!(out.stderr.starts_with(b"err\n"), "{}", String::from_utf8_lossy(&out.stderr));
    let mut cat = instance.net().command(Instance::binary());
    cat.arg("--root").arg(instance.root()).args(["exec", "-i", "web", "--", "tr", "a-z", "A-Z"]);
    let text = feed(&mut cat, "hello\n");
    assert_eq!(text, "HELLO\n");
    let missing = instance.podling(&["exec", "web", "--", "no-such-program"]);
    assert!(!missing.status.success());
    let text = instance.fails(1, &["exec", "nobody", "--", "true"]);
    assert!(text.contains("nobody"), "{text}");
}

fn feed(command: &mut Command, input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("podling is built");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn stop_keeps_a_pod_stopped_until_start() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let pid = instance.pid(&before, "main");
    instance.ok(&["stop", "pod/web"]);
    instance.until("its process is gone", |_| (!host::alive(pid)).then_some(()));
    instance.restart_podling();
    instance.until_pod("web", "is seen to have ended", |p| !p.is_running("main"));
    instance.stays(seconds(2), "it stays stopped", |i| i.pod("web").is_some_and(|p| !p.is_running("main")));
    instance.ok(&["start", "pod/web"]);
    instance.until_pod("web", "runs again", |p| p.is_ready() && p.id("main") != before.id("main"));
}

#[test]
fn restart_replaces_the_containers() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.ok(&["restart", "pod/web"]);
    instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    let text = instance.fails(1, &["restart", "pod/nobody"]);
    assert!(text.contains("nobody"), "{text}");
}

#[test]
fn wait_returns_when_it_is_so_and_fails_in_time() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    instance.ok(&["wait", "pod/web", "--for=Ready", "--timeout", "30s"]);
    instance.ok(&["wait", "pod/web", "--for=Applied", "--timeout", "30s"]);
    let text = instance.fails(1, &["wait", "pod/web", "--for=Deleted", "--timeout", "1s"]);
    assert!(text.contains("timed out"), "{text}");
    instance.remove("web.yaml");
    instance.ok(&["wait", "pod/web", "--for=Deleted", "--timeout", "30s"]);
}

#[test]
fn check_says_of_each_document_what_the_daemon_would() {
    let instance = Instance::start();
    let dir = instance.root().join("stage");
    let good = dir.join("good.yaml");
    std::fs::write(&good, sleeper("web")).expect("writable");
    instance.ok(&["check", &good.display().to_string()]);
    let mixed = dir.join("mixed.yaml");
    let bad = pod("bad", "containers:\n- {name: main, image: test/shell:1, imagePullPolicy: Sometimes}\n");
    std::fs::write(&mixed, format!("{}---\n{bad}", shell("odd", "exit 0", "nodeSelector: {a: b}")))
        .expect("writable");
    let text = instance.fails(1, &["check", &mixed.display().to_string()]);
    assert!(text.contains("Sometimes") && text.contains("mixed.yaml:"), "{text}");
    let out = instance.podling(&["check", "-o", "json", &mixed.display().to_string()]);
    let text = String::from_utf8_lossy(&out.stdout);
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().map(|d| d.expect("JSON")).collect();
    assert_eq!(documents.len(), 2, "{text}");
    assert_eq!((&documents[0]["name"], &documents[0]["verdict"]), (&"odd".into(), &"warn".into()));
    assert_eq!((&documents[1]["name"], &documents[1]["verdict"]), (&"bad".into(), &"reject".into()));
    let messages = documents[1]["messages"].as_array().expect("a list");
    let message = messages.iter().find(|m| m["severity"] == "error").expect("it is refused");
    assert_eq!(message["path"], "spec.containers[0].imagePullPolicy");
    assert!(message["line"].as_u64().is_some_and(|l| l > 10), "{message}");
    assert_eq!(instance.podling(&["check", "/nowhere.yaml"]).status.code(), Some(1));
}

#[test]
fn without_a_daemon_the_client_says_so_and_how_to_start_it() {
    let mut instance = Instance::start();
    instance.stop_podling();
    let text = instance.fails(1, &["get", "pods"]);
    assert!(text.contains(" run`") && text.trim_end().lines().count() <= 2, "{text}");
    let text = instance.fails(64, &["get", "pods", "--no-such-flag"]);
    assert!(text.contains("--no-such-flag"), "{text}");
}

#[test]
fn bad_settings_end_the_daemon_with_64_and_name_the_line() {
    let mut instance = Instance::start();
    instance.stop_podling();
    let file = instance.root().join("stage/bad.yaml");
    std::fs::write(&file, "containerLogMaxSize: lots\n").expect("writable");
    let text = instance.fails(64, &["run", "--config", &file.display().to_string()]);
    assert!(text.contains("containerLogMaxSize") && text.contains("lots"), "{text}");
}

#[test]
fn the_socket_is_for_root_only() {
    use std::os::unix::fs::PermissionsExt;
    let instance = Instance::start();
    let meta = std::fs::metadata(instance.root().join("run/podling/podling.sock")).expect("it is there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
}

#[test]
fn version_and_completions_need_no_daemon() {
    let run = |args: &[&str]| {
        let out = Command::new(Instance::binary()).args(args).output().expect("podling is built");
        assert!(out.status.success(), "{args:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert!(run(&["version", "--client"]).contains(env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("podling"));
    }
}
