//! Probes: what makes a container ready, what restarts it, and what is left of commands that hang.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::support::{Instance, host, pod, seconds};

/// Runs until TERM, taking in the orphans of others meanwhile as a first process should.
const WAIT: &str = "trap \"exit 0\" TERM; while :; do sleep 0.2 & wait $!; done";

/// A pod `probed` on the host's network with a container `main`, these probes, and a volume at `/v`.
fn probed(setup: &str, probes: &str) -> String {
    pod(
        "probed",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            volumes: [{{name: v, emptyDir: {{}}}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, '{setup}; {WAIT}']
              volumeMounts: [{{name: v, mountPath: /v}}]
              {}
            ",
            probes.trim().replace('\n', "\n              ")
        ),
    )
}

#[test]
fn http_probes_make_ready_and_restart_what_fails() {
    let instance = Instance::start();
    let text = pod(
        "web",
        "
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: test/shell:1
          command: [sh, -c, 'mkdir -p /www; touch /www/ready /www/live; exec httpd -f -p 8080 -h /www']
          ports: [{name: web, containerPort: 8080}]
          readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 1, failureThreshold: 1}
          livenessProbe: {httpGet: {path: /live, port: 8080}, periodSeconds: 1, failureThreshold: 2}
        ",
    );
    instance.write("web.yaml", &text);
    let view = instance.ready("web");
    instance.exec("web", "rm /www/ready");
    let unready = instance.until_pod("web", "is not ready", |p| !p.is_ready());
    assert_eq!(unready.restarts("main"), 0, "readiness restarts nothing");
    assert!(unready.is_running("main"));
    instance.until("the failure is told", |i| {
        i.describes("web", "Readiness probe failed: HTTP probe failed with statuscode: 404").then_some(())
    });
    instance.exec("web", "touch /www/ready");
    instance.ready("web");
    instance.exec("web", "rm /www/live");
    let again = instance.until_pod("web", "has been restarted", |p| p.restarts("main") == 1);
    assert_eq!(again.uid(), view.uid());
    instance.ready("web");
    for text in [
        "Liveness probe failed: HTTP probe failed with statuscode: 404",
        "failed liveness probe, will be restarted",
        "http-get http://:8080/live delay=0s timeout=1s period=1s #success=1 #failure=2",
    ] {
        assert!(instance.describes("web", text), "{text}");
    }
}

#[test]
fn a_file_that_liveness_looks_for_going_away_restarts_the_container() {
    let instance = Instance::start();
    let text = probed(
        "touch /tmp/ok; echo run >> /v/runs",
        "env: [{name: DIR, value: /tmp}]
livenessProbe: {exec: {command: [cat, $(DIR)/ok]}, periodSeconds: 1, failureThreshold: 2}",
    );
    instance.write("probed.yaml", &text);
    instance.ready("probed");
    instance.exec("probed", "rm /tmp/ok");
    instance.until_pod("probed", "has been restarted", |p| p.restarts("main") == 1 && p.is_ready());
    assert_eq!(instance.exec("probed", "cat /v/runs"), "run\nrun");
    assert!(instance.describes("probed", "Liveness probe failed: cat: can't open '/tmp/ok': No such file"));
}

#[test]
fn a_containerd_or_a_podling_that_stands_still_fails_no_probe() {
    let instance = Instance::start();
    let text = probed(
        "true",
        "livenessProbe: {exec: {command: [sh, -c, 'sleep 1; echo asked >> /v/asked']}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}",
    );
    instance.write("probed.yaml", &text);
    instance.ready("probed");
    for process in [instance.containerd_pid(), instance.podling_pid()] {
        instance.exec("probed", "rm -f /v/asked");
        // Another run is under way soon after one has ended.
        instance.until("a run has ended", |i| {
            i.exec("probed", "cat /v/asked || true").contains('a').then_some(())
        });
        std::thread::sleep(seconds(1));
        host::signal(process, Signal::STOP);
        std::thread::sleep(seconds(9));
        host::signal(process, Signal::CONT);
        instance.exec("probed", "rm -f /v/asked");
        instance.until("it is asked again", |i| {
            i.exec("probed", "cat /v/asked || true").contains('a').then_some(())
        });
    }
    let view = instance.pod("probed").expect("it runs");
    assert_eq!(view.restarts("main"), 0, "{}", instance.ok(&["describe", "pod", "probed"]));
    assert!(view.is_running("main"));
}

#[test]
fn a_probe_begins_after_its_initial_delay() {
    let instance = Instance::start();
    let text = probed(
        "cut -d. -f1 /proc/uptime > /v/began",
        "livenessProbe:
  exec: {command: [sh, -c, 'cut -d. -f1 /proc/uptime >> /v/asked']}
  initialDelaySeconds: 3
  periodSeconds: 3",
    );
    instance.write("probed.yaml", &text);
    instance.ready("probed");
    let asked = |i: &Instance| i.exec("probed", "cat /v/asked 2>/dev/null || true");
    let asked = instance.until("it was asked twice", |i| {
        let asked = asked(i);
        (asked.lines().count() >= 2).then_some(asked)
    });
    let times: Vec<u64> = asked.lines().map(|l| l.parse().expect("a number")).collect();
    let began: u64 = instance.exec("probed", "cat /v/began").parse().expect("a number");
    assert!(times[0] + 1 >= began + 3, "{began} {times:?}");
    assert!(times[1] + 1 >= times[0] + 2, "{times:?}");
}

#[test]
fn the_startup_probe_holds_the_others_back_and_is_over_for_good_once_it_passed() {
    let mut instance = Instance::start();
    let text = probed(
        "true",
        "startupProbe: {exec: {command: [sh, -c, 'echo x >> /v/startup; test -f /v/up']}, periodSeconds: 1, failureThreshold: 600}
livenessProbe: {exec: {command: [sh, -c, 'echo x >> /v/liveness']}, periodSeconds: 1}
readinessProbe: {exec: {command: [sh, -c, 'echo x >> /v/readiness']}, periodSeconds: 1}",
    );
    instance.write("probed.yaml", &text);
    instance.until_pod("probed", "runs", |p| p.is_running("main"));
    instance.until("the startup probe was made twice", |i| {
        (i.exec("probed", "cat /v/startup 2>/dev/null || true").lines().count() >= 2).then_some(())
    });
    let view = instance.pod("probed").expect("it is there");
    assert_eq!(view.container("main")["started"], false);
    assert!(!view.is_ready());
    assert_eq!(instance.exec("probed", "ls /v"), "startup", "the others wait");

    instance.exec("probed", "touch /v/up");
    let view = instance.ready("probed");
    assert_eq!(view.container("main")["started"], true);
    instance.until("the liveness probe is made", |i| {
        i.exec("probed", "ls /v").contains("liveness").then_some(())
    });
    let runs = instance.exec("probed", "wc -l < /v/startup");

    // A restart of podling: still ready, at every look, and not started once more.
    instance.exec("probed", "rm /v/up");
    instance.restart_podling();
    instance.stays(seconds(3), "it is ready", |i| i.pod("probed").is_none_or(|p| p.is_ready()));
    assert_eq!(instance.exec("probed", "wc -l < /v/startup"), runs);
    assert_eq!(instance.pod("probed").map(|p| p.id("main")), Some(view.id("main")));
}

#[test]
fn a_startup_probe_that_never_passes_restarts_the_container() {
    let instance = Instance::start();
    let text = probed("true", "startupProbe: {tcpSocket: {port: 7}, periodSeconds: 1, failureThreshold: 2}");
    instance.write("probed.yaml", &text);
    instance.until_pod("probed", "has been restarted", |p| p.restarts("main") >= 1);
    assert!(
        instance
            .describes("probed", "Startup probe failed: dial tcp 127.0.0.1:7: connect: connection refused")
    );
    assert!(instance.describes("probed", "failed startup probe, will be restarted"));
}

/// Processes of the host with a word in their command line, and zombies among those of the instance's pods.
fn alive_and_zombies(instance: &Instance, word: &str) -> (usize, usize) {
    let alive =
        host::processes_naming(word).into_iter().filter(|p| host::cmdline(*p).starts_with("sleep")).count();
    let members = host::processes_in_cgroup(instance.cgroup_root());
    (alive, members.into_iter().filter(|p| host::state(*p) == Some('Z')).count())
}

#[test]
fn a_probe_command_that_hangs_is_killed_with_its_children_and_never_runs_twice() {
    let mut instance = Instance::start();
    let text = pod(
        "probed",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            volumes: [{{name: v, emptyDir: {{}}}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, '{WAIT}']
              volumeMounts: [{{name: v, mountPath: /v}}]
              readinessProbe:
                exec: {{command: [sh, -c, 'echo x >> /v/runs; sleep 98761 & sleep 98761; touch /v/went-on']}}
                periodSeconds: 1
                timeoutSeconds: 1
            - name: other
              image: test/shell:1
              command: [sh, -c, '{WAIT}']
              volumeMounts: [{{name: v, mountPath: /v}}]
              livenessProbe: {{exec: {{command: [sh, -c, 'echo x >> /v/others']}}, periodSeconds: 1}}
            "
        ),
    );
    instance.write("probed.yaml", &text);
    instance.until("the failure is told", |i| i.describes("probed", "timed out after 1 s").then_some(()));
    let runs = |i: &Instance, file: &str| {
        let out =
            i.podling(&["exec", "probed", "-c", "main", "--", "sh", "-c", &format!("wc -l < /v/{file}")]);
        String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or(0)
    };
    let watch = |i: &Instance, until: u64| {
        i.until("it was made some more times", |i| {
            let (alive, _) = alive_and_zombies(i, "98761");
            assert!(alive <= 2, "{alive} processes of a command that starts two");
            (runs(i, "runs") >= until).then_some(())
        });
    };
    watch(&instance, 4);
    assert!(runs(&instance, "others") >= 3, "the other container is not held up");

    // Killed in the middle of a run, podling ends what it left before it begins another.
    instance.kill_podling();
    instance.start_podling();
    let made: u64 = runs(&instance, "runs");
    watch(&instance, made + 3);
    let left = instance.ok(&["exec", "probed", "-c", "main", "--", "ls", "/v"]);
    assert!(!left.contains("went-on"), "a command that was killed does not go on");
    instance.until("no zombie is left", |i| (alive_and_zombies(i, "98761").1 == 0).then_some(()));
    let view = instance.pod("probed").expect("it is there");
    assert_eq!((view.restarts("main"), view.is_ready()), (0, false));
}

#[test]
fn a_probe_that_cannot_be_made_counts_as_failed() {
    let instance = Instance::start();
    let text = probed(
        "true",
        "livenessProbe: {exec: {command: [/no/such/program]}, periodSeconds: 1, failureThreshold: 2}",
    );
    instance.write("probed.yaml", &text);
    instance.until_pod("probed", "has been restarted", |p| p.restarts("main") >= 1);
    assert!(instance.describes("probed", "Liveness probe errored: "));
    assert!(instance.describes("probed", "/no/such/program"));
}

#[test]
fn the_grace_of_a_probe_overrides_the_pods() {
    let instance = Instance::start();
    let text = pod(
        "probed",
        "
        hostNetwork: true
        terminationGracePeriodSeconds: 600
        containers:
        - name: main
          image: test/shell:1
          command: [sh, -c, 'trap : TERM; while :; do sleep 1; done']
          livenessProbe: {exec: {command: [\"false\"]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}
        ",
    );
    instance.write("probed.yaml", &text);
    instance.until_pod("probed", "has been killed and restarted", |p| p.restarts("main") >= 1);
    // So that the end of the test does not wait for the pod's own grace.
    instance.write("probed.yaml", &text.replace("600", "1"));
    instance.until("the change is taken", |i| i.describes("probed", "Updated").then_some(()));
}

#[test]
fn a_changed_probe_is_followed() {
    let instance = Instance::start();
    let with = |file: &str| {
        let probe = format!(
            "readinessProbe: {{exec: {{command: [test, -f, {file}]}}, periodSeconds: 1, failureThreshold: 1}}"
        );
        probed("touch /tmp/a", &probe)
    };
    instance.write("probed.yaml", &with("/tmp/b"));
    instance.until("it is not ready, and says why", |i| {
        i.describes("probed", "Readiness probe failed").then_some(())
    });
    instance.write("probed.yaml", &with("/tmp/a"));
    instance.ready("probed");
}

#[test]
fn a_grpc_probe_asks_the_health_service() {
    let instance = Instance::start();
    let listener: TcpListener = instance.net().listen("127.0.0.1:0");
    let port = listener.local_addr().expect("it is bound").port();
    let health = crate::support::grpc::HealthServer::start(listener);
    let text = probed(
        "true",
        &format!(
            "readinessProbe: {{grpc: {{port: {port}, service: db}}, periodSeconds: 1, failureThreshold: 1}}"
        ),
    );
    instance.write("probed.yaml", &text);
    instance.ready("probed");
    assert_eq!(health.last_service(), "db");
    assert!(health.last_agent().starts_with("kube-probe/1.36"), "{}", health.last_agent());
    health.answer(2);
    instance.until_pod("probed", "is not ready", |p| !p.is_ready());
    assert!(instance.describes("probed", "service unhealthy (responded with \"NOT_SERVING\")"));
    health.answer(1);
    instance.ready("probed");
    health.unimplemented();
    instance.until_pod("probed", "is not ready", |p| !p.is_ready());
    assert!(instance.describes("probed", "does not implement the grpc health protocol"));
}

#[test]
fn a_socket_probe_of_a_pod_with_an_address_of_its_own_goes_there() {
    let instance = Instance::start();
    let text = pod(
        "socket",
        "
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: test/shell:1
          command: [sh, -c, 'touch /tmp/hosts; exec httpd -f -p 9000 -h /tmp']
          readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1}
        - name: closed
          image: test/shell:1
          command: [sh, -c, 'trap \"exit 0\" TERM; sleep 1d & wait']
          readinessProbe: {tcpSocket: {port: 9001}, periodSeconds: 1}
        ",
    );
    instance.write("socket.yaml", &text);
    let view =
        instance.until_pod("socket", "has one ready container", |p| p.container("main")["ready"] == true);
    assert_eq!(view.container("closed")["ready"], false);
    let refused = format!(
        "container closed: Readiness probe failed: dial tcp {}:9001: connect: connection refused",
        view.ip()
    );
    instance.until("it says where it went", |i| i.describes("socket", &refused).then_some(()));
    assert_eq!(view.condition("ContainersReady"), "False");
}

#[test]
fn https_is_asked_without_looking_at_the_certificate() {
    let instance = Instance::start();
    let key = instance.root().join("key.pem");
    let certificate = instance.root().join("certificate.pem");
    // For another name, of its own authority.
    let make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=nobody.example";
    let made = std::process::Command::new("sh")
        .args(["-c", &format!("{make} -keyout {} -out {} 2>&1", key.display(), certificate.display())])
        .output()
        .expect("sh runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    let mut server = instance
        .net()
        .command("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", "8443", "-key"])
        .arg(&key)
        .arg("-cert")
        .arg(&certificate)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("openssl runs");
    let probe = "readinessProbe: {httpGet: {scheme: HTTPS, port: 8443}, periodSeconds: 1}";
    instance.write("probed.yaml", &probed("true", probe));
    instance.ready("probed");
    server.kill().expect("it runs");
    server.wait().expect("it is a child");
    instance.until_pod("probed", "is not ready", |p| !p.is_ready());
}

#[test]
fn what_a_killed_runtime_left_in_the_way_of_a_probe_fails_none() {
    let instance = Instance::start();
    let probes = "readinessProbe: {exec: {command: [test, -e, /v/ready]}, periodSeconds: 1, failureThreshold: 1}\n\
                  livenessProbe: {exec: {command: [\"true\"]}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 1}";
    instance.write("probed.yaml", &probed(":", probes));
    let view = instance.until_pod("probed", "runs", |p| p.is_running("main"));
    // runc was killed while it wrote in which process the probe runs, as a containerd that ends does.
    let tasks = instance.root().join("c/state/io.containerd.runtime.v2.task").join(instance.namespace());
    std::fs::write(tasks.join(view.id("main")).join(".liveness-probe.pid"), "").expect("the bundle is there");
    instance.exec("probed", "touch /v/ready");
    let view = instance.ready("probed");
    std::thread::sleep(seconds(4));
    assert_eq!((view.restarts("main"), instance.pod("probed").map(|p| p.restarts("main"))), (0, Some(0)));
    assert!(!instance.describes("probed", "Liveness probe failed"));
}
