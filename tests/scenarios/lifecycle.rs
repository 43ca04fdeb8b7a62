//! Hooks, sidecars, restart rules, deadlines: the life of containers, told by what they write into a file.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::manifest::pod;
use crate::support::{Instance, Options, seconds};

/// A directory that containers see as `/log`.
struct Log(PathBuf);

impl Log {
    fn new(instance: &Instance) -> Self {
        let dir = instance.root().join("log");
        fs::create_dir_all(&dir).expect("the test's directory is writable");
        Self(dir)
    }

    /// A pod on the host's network whose containers all have the directory; `spec` names them by
    /// `@NAME SCRIPT` lines, to which further lines may be added, and `@init` before those of `initContainers`.
    fn pod(&self, name: &str, spec: &str) -> String {
        let mut text = String::from("hostNetwork: true\n");
        if !spec.contains("terminationGracePeriodSeconds") {
            text.push_str("terminationGracePeriodSeconds: 10\n");
        }
        text.push_str(&format!("volumes: [{{name: log, hostPath: {{path: {}}}}}]\n", self.0.display()));
        for line in spec.lines().map(str::trim_end) {
            let Some((name, script)) = line.trim_start().strip_prefix('@').and_then(|l| l.split_once(' '))
            else {
                text.push_str(&format!("{line}\n"));
                continue;
            };
            let script = serde_json::to_string(script).expect("a string can be JSON");
            text.push_str(&format!(
                "- name: {name}\n  image: test/shell:1\n  command: [sh, -c]\n  args: [{script}]\n  volumeMounts: [{{name: log, mountPath: /log}}]\n"
            ));
        }
        pod(name, &text)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("order")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn until(&self, instance: &Instance, line: &str) {
        instance
            .until(&format!("{line} is written"), |_| self.lines().iter().any(|l| l == line).then_some(()));
    }
}

/// Runs until TERM, and says when it began and ended.
fn worker(name: &str) -> String {
    format!(
        "echo {name} up >> /log/order; trap 'echo {name} down >> /log/order; exit 0' TERM; sleep 1d & wait"
    )
}

fn quick() -> Options {
    Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    }
}

/// As after a reboot: nothing runs, and the records are of another boot.
fn reboot(instance: &mut Instance) {
    instance.stop_podling();
    for line in instance.ctr(&["tasks", "ls", "-q"]).lines() {
        instance.ctr(&["tasks", "rm", "-f", line]);
    }
    let pods = instance.root().join("var/lib/podling/pods");
    for entry in fs::read_dir(pods).expect("there are pods").flatten() {
        let path = entry.path().join("status.json");
        let text = fs::read_to_string(&path).expect("each pod has one");
        let mut record: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        record["bootId"] = "an-earlier-boot".into();
        fs::write(&path, record.to_string()).expect("writable");
    }
    instance.start_podling();
}

#[test]
fn hooks_run_and_the_stop_signal_comes_after_pre_stop() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = format!(
        "containers:\n@main {}\n  lifecycle:\n    postStart: {{exec: {{command: [sh, -c, 'echo post >> /log/order']}}}}\n    preStop: {{exec: {{command: [sh, -c, 'echo pre >> /log/order; sleep 1; echo pre done >> /log/order']}}}}\n",
        worker("main")
    );
    instance.write("web.yaml", &log.pod("web", &spec));
    instance.ready("web");
    let mut before = log.lines();
    before.sort();
    assert_eq!(before, ["main up", "post"]);
    instance.remove("web.yaml");
    instance.gone("web");
    assert_eq!(log.lines()[2..], ["pre", "pre done", "main down"]);
}

#[test]
fn a_container_whose_post_start_hook_fails_is_killed_and_restarted() {
    let instance = Instance::with(quick());
    let log = Log::new(&instance);
    let spec = format!(
        "containers:\n@main {}\n  lifecycle:\n    postStart: {{exec: {{command: [sh, -c, 'echo no such luck; test -e /log/ok']}}}}\n",
        worker("main")
    );
    instance.write("web.yaml", &log.pod("web", &spec));
    instance.until_pod("web", "was restarted", |p| p.restarts("main") >= 1);
    assert!(log.lines().iter().any(|l| l == "main down"), "it was stopped with its grace: {:?}", log.lines());
    instance.until("the event tells", |i| i.describes("web", "FailedPostStartHook").then_some(()));
    assert!(instance.describes("web", "no such luck"));
    fs::write(log.0.join("ok"), "").expect("writable");
    instance.ready("web");
}

#[test]
fn a_post_start_hook_that_never_ends_holds_later_containers_but_not_the_end_of_the_pod() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = format!(
        "containers:\n@one {}\n  lifecycle:\n    postStart: {{exec: {{command: [sh, -c, 'echo post >> /log/order; sleep 1d']}}}}\n@two {}\n",
        worker("one"),
        worker("two")
    );
    instance.write("web.yaml", &log.pod("web", &spec));
    log.until(&instance, "post");
    let view =
        instance.until_pod("web", "shows the hook", |p| p.waiting_message("one").contains("postStart"));
    assert_eq!(
        (view.waiting("one").as_str(), view.waiting("two").as_str()),
        ("ContainerCreating", "ContainerCreating")
    );
    assert_eq!((view.phase().as_str(), view.is_ready()), ("Pending", false));
    instance.stays(seconds(1), "the second waits", |_| !log.lines().iter().any(|l| l == "two up"));
    instance.remove("web.yaml");
    instance.gone("web");
    assert!(log.lines().iter().any(|l| l == "one down"));
}

/// A worker with these scripts as its hooks.
fn hooked(post_start: &str, pre_stop: &str) -> String {
    let hook = |script: &str| format!("{{exec: {{command: [sh, -c, '{script}']}}}}");
    format!(
        "terminationGracePeriodSeconds: 60\ncontainers:\n@main {}\n  lifecycle:\n    postStart: {}\n    preStop: {}\n",
        worker("main"),
        hook(post_start),
        hook(pre_stop)
    )
}

/// A hook that something can happen in.
fn slow(name: &str) -> String {
    format!("echo {name} >> /log/order; sleep 3; echo {name} done >> /log/order")
}

#[test]
fn hooks_run_once_though_podling_is_killed_while_they_run() {
    let mut instance = Instance::start();
    let log = Log::new(&instance);
    let spec = hooked(&slow("post"), &slow("pre"));
    instance.write("web.yaml", &log.pod("web", &spec));
    log.until(&instance, "post");
    instance.kill_podling();
    instance.start_podling();
    instance.ready("web");
    assert_eq!(log.lines(), ["main up", "post", "post done"]);
    instance.remove("web.yaml");
    log.until(&instance, "pre");
    instance.kill_podling();
    instance.start_podling();
    instance.gone("web");
    assert_eq!(log.lines()[3..], ["pre", "pre done", "main down"]);
}

#[test]
fn hooks_run_exactly_once_at_whatever_moment_podling_is_killed() {
    let mut instance = Instance::start();
    let log = Log::new(&instance);
    let spec = hooked("echo post >> /log/order", "echo pre >> /log/order");
    for round in 0..8 {
        let _ = fs::remove_file(log.0.join("order"));
        instance.write("web.yaml", &log.pod("web", &spec));
        std::thread::sleep(Duration::from_millis(120 + 50 * round));
        instance.kill_podling();
        instance.start_podling();
        instance.ready("web");
        log.until(&instance, "main up");
        instance.remove("web.yaml");
        std::thread::sleep(Duration::from_millis(40 + 10 * round));
        instance.kill_podling();
        instance.start_podling();
        instance.gone("web");
        let mut lines = log.lines();
        lines.sort();
        assert_eq!(lines, ["main down", "main up", "post", "pre"], "round {round}");
    }
}

#[test]
fn a_containerd_that_goes_while_hooks_run_fails_none() {
    let mut instance = Instance::start();
    let log = Log::new(&instance);
    let spec = hooked(&slow("post"), &slow("pre"));
    instance.write("web.yaml", &log.pod("web", &spec));
    log.until(&instance, "post");
    instance.kill_containerd();
    instance.start_containerd();
    assert_eq!(instance.ready("web").restarts("main"), 0);
    instance.remove("web.yaml");
    log.until(&instance, "pre");
    instance.kill_containerd();
    instance.start_containerd();
    instance.gone("web");
    assert_eq!(log.lines(), ["main up", "post", "post done", "pre", "pre done", "main down"]);
    assert!(!instance.says("hook failed"));
}

#[test]
fn a_pre_stop_hook_over_http_reaches_the_pod_and_its_status_is_told() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let server = "trap 'exit 0' TERM; touch /log/up; (while true; do printf 'HTTP/1.0 503 no\\r\\n\\r\\n' | nc -l -p 18080 >> /log/order; done) & wait";
    let spec = format!(
        "containers:\n@main {server}\n  ports: [{{name: web, containerPort: 18080}}]\n  lifecycle:\n    preStop: {{httpGet: {{port: web, path: /bye?x=1, httpHeaders: [{{name: X-Why, value: stop}}]}}}}\n",
    );
    let text = log.pod("web", &spec).replace("hostNetwork: true", "hostname: web");
    instance.write("web.yaml", &text);
    instance.ready("web");
    instance.until("it listens", |i| {
        (!i.exec("web", "cat /proc/net/tcp /proc/net/tcp6 | grep :46A0 || true").is_empty()).then_some(())
    });
    instance.remove("web.yaml");
    instance.gone("web");
    let said = log.lines().join("\n").to_lowercase();
    for part in ["get /bye?x=1 http/1.1", "x-why: stop", "user-agent: kube-lifecycle/"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert!(instance.says("status 503"));
}

#[test]
fn an_edit_gives_the_old_container_its_hook_and_its_grace() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let text = |value: &str| {
        let main = "echo $WORD up >> /log/order; trap 'sleep 2; echo $WORD down >> /log/order; exit 0' TERM; sleep 1d & wait";
        let spec = format!(
            "terminationGracePeriodSeconds: 30\ncontainers:\n@main {main}\n  env: [{{name: WORD, value: {value}}}]\n  lifecycle: {{preStop: {{sleep: {{seconds: 2}}}}}}\n"
        );
        log.pod("web", &spec)
    };
    instance.write("web.yaml", &text("old"));
    instance.ready("web");
    instance.write("web.yaml", &text("new"));
    log.until(&instance, "new up");
    assert_eq!(log.lines(), ["old up", "old down", "new up"]);
}

#[test]
fn a_sidecar_starts_before_and_stops_after_what_it_serves() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = format!(
        "initContainers:\n@side {}\n  restartPolicy: Always\n  lifecycle:\n    postStart: {{exec: {{command: [sh, -c, 'sleep 1; echo side started >> /log/order']}}}}\n    preStop: {{exec: {{command: [sh, -c, 'echo side drains >> /log/order']}}}}\n@init echo init >> /log/order\n@late {}\n  restartPolicy: Always\ncontainers:\n@main {}\n",
        worker("side"),
        worker("late"),
        "until grep -q 'late up' /log/order; do sleep 0.1; done; echo main up >> /log/order; trap 'sleep 2; echo main down >> /log/order; exit 0' TERM; sleep 1d & wait"
    );
    instance.write("web.yaml", &log.pod("web", &spec));
    let view = instance.ready("web");
    log.until(&instance, "main up");
    assert!(view.is_running("side") && view.is_running("late"));
    assert_eq!(log.lines(), ["side up", "side started", "init", "late up", "main up"]);
    instance.remove("web.yaml");
    instance.gone("web");
    assert_eq!(log.lines()[5..], ["side drains", "main down", "late down", "side down"]);
}

#[test]
fn a_sidecar_holds_what_comes_after_it_until_its_startup_probe_passed() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = format!(
        "initContainers:\n@side {}\n  restartPolicy: Always\n  startupProbe: {{exec: {{command: [test, -e, /log/ok]}}, periodSeconds: 1, failureThreshold: 600}}\n@init echo init >> /log/order\ncontainers:\n@main {}\n",
        worker("side"),
        worker("main")
    );
    instance.write("web.yaml", &log.pod("web", &spec));
    log.until(&instance, "side up");
    instance.stays(seconds(3), "the others wait", |_| log.lines() == ["side up"]);
    let view = instance.pod("web").expect("it is known");
    assert_eq!((view.phase().as_str(), view.waiting("main").as_str()), ("Pending", "PodInitializing"));
    fs::write(log.0.join("ok"), "").expect("writable");
    instance.ready("web");
    log.until(&instance, "main up");
    assert_eq!(log.lines(), ["side up", "init", "main up"]);
    instance.remove("web.yaml");
    instance.gone("web");
    assert_eq!(log.lines()[3..], ["main down", "side down"]);
}

#[test]
fn a_pod_with_a_sidecar_ends_with_its_regular_containers() {
    let instance = Instance::with(quick());
    let log = Log::new(&instance);
    let spec = format!(
        "restartPolicy: Never\ninitContainers:\n@side {}\n  restartPolicy: Always\ncontainers:\n@main until [ -e /log/end ]; do sleep 0.1; done\n",
        worker("side")
    );
    instance.write("job.yaml", &log.pod("job", &spec));
    let view = instance.ready("job");
    crate::support::host::signal(instance.pid(&view, "side"), rustix::process::Signal::KILL);
    instance.until_pod("job", "has its sidecar again", |p| p.restarts("side") == 1 && p.is_ready());
    fs::write(log.0.join("end"), "").expect("writable");
    let view = instance.phase("job", "Succeeded");
    assert_eq!(view.exit("main"), Some((0, "Completed".into())));
    assert_eq!(log.lines().last().map(String::as_str), Some("side down"));
    assert_eq!(view.condition("Initialized"), "True");
}

#[test]
fn exit_codes_decide_on_restarts_by_the_rules_of_the_container() {
    let instance = Instance::with(quick());
    let log = Log::new(&instance);
    let script = "echo run >> /log/order; [ $(grep -c run /log/order) -gt 2 ] && exit 7; exit 42";
    let spec = format!(
        "restartPolicy: Never\ncontainers:\n@main {script}\n  restartPolicy: Never\n  restartPolicyRules: [{{action: Restart, exitCodes: {{operator: In, values: [42]}}}}]\n"
    );
    instance.write("job.yaml", &log.pod("job", &spec));
    let view = instance.phase("job", "Failed");
    assert_eq!((view.exit("main"), view.restarts("main")), (Some((7, "Error".into())), 2));
    assert_eq!(log.lines().len(), 3);
}

#[test]
fn one_container_has_all_restarted_in_the_same_sandbox() {
    let instance = Instance::with(quick());
    let log = Log::new(&instance);
    let script = "echo main >> /log/order; if [ $(grep -c main /log/order) -lt 3 ]; then until grep -q 'other up' /log/order; do sleep 0.1; done; exit 88; fi; sleep 1d";
    let spec = format!(
        "restartPolicy: Never\ninitContainers:\n@init echo init >> /log/order\ncontainers:\n@other {}\n@main {script}\n  restartPolicy: Never\n  restartPolicyRules: [{{action: RestartAllContainers, exitCodes: {{operator: In, values: [88]}}}}]\n",
        worker("other")
    );
    let text = log.pod("job", &spec).replace("hostNetwork: true", "hostname: job");
    instance.write("job.yaml", &text);
    let ip = instance.until_pod("job", "has an address", |p| !p.ip().is_empty()).ip();
    let count = |word: &str| log.lines().iter().filter(|l| *l == word).count();
    instance.until("all ran three times", |_| (count("main") == 3 && count("other up") == 3).then_some(()));
    let view = instance.ready("job");
    assert_eq!((count("init"), count("other down")), (3, 2));
    assert_eq!((view.restarts("main"), view.restarts("other"), view.ip()), (2, 2, ip));
    assert_eq!(view.condition("AllContainersRestarting"), "False");
    assert!(instance.describes("job", "restarting all containers after a back-off"));
}

#[test]
fn a_sidecar_has_all_restarted_in_a_pod_that_would_be_done_otherwise() {
    let instance = Instance::with(quick());
    let log = Log::new(&instance);
    let script = "echo side >> /log/order; if [ $(grep -c side /log/order) -lt 2 ]; then until grep -q 'main up' /log/order; do sleep 0.1; done; exit 7; fi; sleep 1d";
    let spec = format!(
        "restartPolicy: Never\ninitContainers:\n@side {script}\n  restartPolicy: Always\n  restartPolicyRules: [{{action: RestartAllContainers, exitCodes: {{operator: In, values: [7]}}}}]\ncontainers:\n@main {}\n",
        worker("main")
    );
    instance.write("job.yaml", &log.pod("job", &spec));
    let count = |word: &str| log.lines().iter().filter(|l| *l == word).count();
    instance.until("both ran twice", |_| (count("side") == 2 && count("main up") == 2).then_some(()));
    let view = instance.until_pod("job", "runs again", |p| p.is_ready() && p.restarts("main") == 1);
    assert_eq!(view.phase(), "Running");
}

#[test]
fn a_pod_past_its_deadline_fails_and_stays_failed() {
    let mut instance = Instance::start();
    let log = Log::new(&instance);
    let spec = format!("activeDeadlineSeconds: 3\ncontainers:\n@main {}\n", worker("main"));
    instance.write("job.yaml", &log.pod("job", &spec));
    log.until(&instance, "main up");
    instance.kill_podling();
    instance.start_podling();
    assert_eq!(instance.phase("job", "Failed").0["status"]["reason"], "DeadlineExceeded");
    assert_eq!(log.lines(), ["main up", "main down"]);
    instance.restart_podling();
    instance.stays(seconds(1), "it is failed", |i| i.pod("job").is_some_and(|p| p.phase() == "Failed"));
    reboot(&mut instance);
    instance.stays(seconds(1), "it is failed", |i| i.pod("job").is_some_and(|p| p.phase() == "Failed"));
    assert_eq!(log.lines().len(), 2);
    instance.write("job.yaml", &log.pod("job", &spec.replace("Seconds: 3", "Seconds: 300")));
    assert_eq!(instance.ready("job").restarts("main"), 0);
}

#[test]
fn a_pod_past_its_deadline_waits_for_no_restart_of_all_its_containers() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = "restartPolicy: Never\nactiveDeadlineSeconds: 6\ncontainers:\n@main exit 9\n  restartPolicy: Never\n  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [9]}}]\n";
    instance.write("web.yaml", &log.pod("web", spec));
    instance.until_pod("web", "waits", |p| p.waiting("main") == "RestartingAllContainers");
    let view = instance.phase("web", "Failed");
    assert_eq!(view.0["status"]["reason"], "DeadlineExceeded");
    assert_eq!(view.container("main")["state"]["terminated"]["exitCode"], 9, "{}", view.0["status"]);
}

#[test]
fn what_is_done_stays_done_over_a_reboot_and_init_containers_run_again_for_the_rest() {
    let mut instance = Instance::start();
    let log = Log::new(&instance);
    for (name, policy, code) in [("never", "Never", 0), ("failed", "Never", 3), ("onfailure", "OnFailure", 0)]
    {
        let spec =
            format!("restartPolicy: {policy}\ncontainers:\n@main echo {name} >> /log/order; exit {code}\n");
        instance.write(&format!("{name}.yaml"), &log.pod(name, &spec));
        instance.phase(name, if code == 0 { "Succeeded" } else { "Failed" });
    }
    let spec =
        format!("initContainers:\n@init echo init >> /log/order\ncontainers:\n@main {}\n", worker("main"));
    instance.write("always.yaml", &log.pod("always", &spec));
    instance.ready("always");
    log.until(&instance, "main up");
    instance.restart_podling();
    instance.ready("always");
    let once = log.lines();
    assert_eq!(once.len(), 5, "nothing ran again: {once:?}");
    reboot(&mut instance);
    instance.until("the service is up again", |_| (log.lines().len() >= 7).then_some(()));
    instance.ready("always");
    assert_eq!(log.lines()[5..], ["init", "main up"]);
}

#[test]
fn the_termination_message_is_what_the_container_says_or_the_end_of_its_log() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let spec = "restartPolicy: Never\ncontainers:\n@said echo in the log; echo by file > /said; exit 1\n  terminationMessagePath: /said\n@logged for n in $(seq 100); do echo line $n; done; exit 1\n  terminationMessagePolicy: FallbackToLogsOnError\n@unended printf 'no newline'; exit 1\n  terminationMessagePolicy: FallbackToLogsOnError\n@silent echo in the log; exit 1\n";
    instance.write("job.yaml", &log.pod("job", spec));
    let view = instance.phase("job", "Failed");
    let message =
        |name: &str| view.container(name)["state"]["terminated"]["message"].as_str().unwrap_or("").to_owned();
    assert_eq!((message("said").as_str(), message("silent").as_str()), ("by file\n", ""));
    let logged = message("logged");
    assert_eq!(
        (logged.lines().count(), logged.lines().next(), logged.lines().last()),
        (80, Some("line 21"), Some("line 100"))
    );
    // It is in the log only once the shim has let go of the container.
    instance.until_pod("job", "shows the last words", |p| {
        p.container("unended")["state"]["terminated"]["message"] == "no newline"
    });
}

#[test]
fn a_container_is_stopped_with_the_signal_it_asks_for() {
    let instance = Instance::start();
    let log = Log::new(&instance);
    let script = "trap 'echo usr1 >> /log/order; exit 0' USR1; trap 'echo term >> /log/order' TERM; echo up >> /log/order; sleep 1d & wait";
    let spec =
        format!("os: {{name: linux}}\ncontainers:\n@main {script}\n  lifecycle: {{stopSignal: SIGUSR1}}\n");
    instance.write("web.yaml", &log.pod("web", &spec));
    log.until(&instance, "up");
    instance.remove("web.yaml");
    instance.gone("web");
    assert_eq!(log.lines(), ["up", "usr1"]);
}
