//! What becomes of a pod's containers: order, restarts, ends, environment, volumes, resources.

use std::fs;
use std::time::Duration;

use podling::system::clock;

use crate::support::manifest::SLEEP;
use crate::support::{Image, Instance, Options, host, pod, seconds, shell, sleeper};

const TRAP: &str = "trap \"exit 0\" TERM; sleep 1d & wait";

#[test]
fn init_containers_run_one_after_the_other_before_the_app() {
    let instance = Instance::start();
    let text = pod(
        "ordered",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            volumes: [{{name: v, emptyDir: {{}}}}]
            initContainers:
            - name: first
              image: test/shell:1
              command: [sh, -c, 'sleep 0.3; echo first >> /v/order']
              volumeMounts: [{{name: v, mountPath: /v}}]
            - name: second
              image: test/shell:1
              command: [sh, -c, 'echo second >> /v/order']
              volumeMounts: [{{name: v, mountPath: /v}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, 'echo main >> /v/order; {TRAP}']
              volumeMounts: [{{name: v, mountPath: /v}}]
            "
        ),
    );
    instance.write("ordered.yaml", &text);
    let view = instance.ready("ordered");
    assert_eq!(instance.exec("ordered", "cat /v/order"), "first\nsecond\nmain");
    assert_eq!(view.condition("Initialized"), "True");
    assert_eq!(view.exit("second"), Some((0, "Completed".into())));
}

#[test]
fn an_init_container_that_fails_is_run_again_and_holds_the_app_back() {
    let instance = Instance::with(Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    });
    let text = pod(
        "stubborn",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            volumes: [{{name: v, emptyDir: {{}}}}]
            initContainers:
            - name: first
              image: test/shell:1
              command: [sh, -c, 'echo x >> /v/tries; test $(wc -l < /v/tries) -ge 3']
              volumeMounts: [{{name: v, mountPath: /v}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, '{TRAP}']
            "
        ),
    );
    instance.write("stubborn.yaml", &text);
    instance
        .until_pod("stubborn", "waits for its init container", |p| p.waiting("main") == "PodInitializing");
    let view = instance.ready("stubborn");
    assert_eq!(view.restarts("first"), 2);
}

#[test]
fn a_failed_init_container_of_a_never_pod_fails_the_pod() {
    let instance = Instance::start();
    let text = pod(
        "once",
        "
        hostNetwork: true
        restartPolicy: Never
        initContainers:
        - {name: first, image: test/shell:1, command: [sh, -c, 'exit 4']}
        containers:
        - {name: main, image: test/shell:1, command: [sh, -c, 'exit 0']}
        ",
    );
    instance.write("once.yaml", &text);
    let view = instance.phase("once", "Failed");
    assert_eq!(view.exit("first"), Some((4, "Error".into())));
    assert_eq!(view.id("main"), "", "the app never started");
}

#[test]
fn a_never_pod_runs_once_whatever_restarts() {
    let mut instance = Instance::start();
    let counter = instance.root().join("count");
    let text = pod(
        "once",
        &format!(
            "
            hostNetwork: true
            restartPolicy: Never
            volumes: [{{name: v, hostPath: {{path: {}, type: FileOrCreate}}}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, 'echo ran >> /count']
              volumeMounts: [{{name: v, mountPath: /count}}]
            ",
            counter.display()
        ),
    );
    instance.write("once.yaml", &text);
    let done = instance.phase("once", "Succeeded");
    for _ in 0..3 {
        instance.restart_podling();
    }
    instance.stays(seconds(1), "it stays done", |i| i.pod("once").is_some_and(|p| p.phase() == "Succeeded"));
    assert_eq!(fs::read_to_string(counter).expect("it ran"), "ran\n");
    assert_eq!(instance.pod("once").map(|p| p.uid()), Some(done.uid()));
}

#[test]
fn on_failure_restarts_failures_and_keeps_successes() {
    let instance = Instance::with(Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    });
    let text = pod(
        "job",
        "
        hostNetwork: true
        restartPolicy: OnFailure
        volumes: [{name: v, emptyDir: {}}]
        containers:
        - name: main
          image: test/shell:1
          command: [sh, -c, 'echo x >> /v/tries; test $(wc -l < /v/tries) -ge 2']
          volumeMounts: [{name: v, mountPath: /v}]
        ",
    );
    instance.write("job.yaml", &text);
    let view = instance.phase("job", "Succeeded");
    assert_eq!(view.restarts("main"), 1);
    assert_eq!(view.last_exit("main"), Some((1, "Error".into())));
}

#[test]
fn a_crashing_container_waits_in_crash_loop_back_off_and_a_fix_starts_at_once() {
    let instance = Instance::start();
    instance.write("crash.yaml", &shell("crash", "exit 3", ""));
    let view = instance.until_pod("crash", "backs off", |p| p.waiting("main") == "CrashLoopBackOff");
    instance.until("the event tells", |i| i.describes("crash", "BackOff").then_some(()));
    assert_eq!(view.last_exit("main"), Some((3, "Error".into())));
    assert!(view.waiting_message("main").contains("back-off"), "{}", view.waiting_message("main"));
    assert_eq!(view.phase(), "Running", "as kubectl shows a pod whose containers are restarted");
    instance.write("crash.yaml", &sleeper("crash"));
    instance.within(seconds(6), "the fixed pod runs", |i| i.pod("crash").filter(|p| p.is_ready()));
}

#[test]
fn a_container_that_is_killed_comes_back_and_counts() {
    let instance = Instance::with(Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    });
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    host::signal(instance.pid(&before, "main"), rustix::process::Signal::KILL);
    let after =
        instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(after.restarts("main"), 1);
    assert_eq!(after.last_exit("main"), Some((137, "Error".into())));
    assert_eq!(after.uid(), before.uid());
}

#[test]
fn a_container_gets_term_and_its_grace_to_end_well() {
    let instance = Instance::start();
    let out = instance.root().join("out");
    let script = "trap 'sleep 1; echo ended > /out; exit 0' TERM; sleep 1d & wait";
    let more = format!(
        "terminationGracePeriodSeconds: 20\nvolumes: [{{name: o, hostPath: {{path: {}, type: FileOrCreate}}}}]",
        out.display()
    );
    let text = shell("polite", script, &more) + "    volumeMounts: [{name: o, mountPath: /out}]\n";
    instance.write("polite.yaml", &text);
    instance.ready("polite");
    instance.remove("polite.yaml");
    instance
        .within(seconds(10), "it is gone well before its grace", |i| i.pod("polite").is_none().then_some(()));
    assert_eq!(fs::read_to_string(out).expect("it is there"), "ended\n");
}

#[test]
fn a_container_that_ignores_term_is_killed_after_its_grace() {
    let instance = Instance::start();
    instance.write(
        "deaf.yaml",
        &shell("deaf", "trap '' TERM; sleep 1d & wait", "terminationGracePeriodSeconds: 2"),
    );
    let view = instance.ready("deaf");
    let pid = instance.pid(&view, "main");
    let asked = clock::now();
    instance.remove("deaf.yaml");
    instance.gone("deaf");
    let took = clock::now().since(asked);
    assert!(took >= Duration::from_millis(1900), "killed after {took:?}, before its grace was over");
    assert!(took < seconds(8), "killed only after {took:?}");
    assert!(!host::alive(pid));
}

#[test]
fn an_edit_never_runs_two_instances_at_once() {
    let instance = Instance::start();
    // Both want the same port; the old one takes its time to let go of it.
    let text = |greeting: &str| {
        let script = format!(
            "echo {greeting} > /tmp/g; nc -l -p 9000 > /dev/null & trap 'sleep 1; kill %1; exit 0' TERM; \
             netstat -ltn | grep -q :9000 || sleep 0.2; wait %1; echo port taken; sleep 1d & wait"
        );
        shell("port", &script, "terminationGracePeriodSeconds: 10")
    };
    instance.write("port.yaml", &text("old"));
    let before = instance.ready("port");
    let old = instance.pid(&before, "main");
    instance.write("port.yaml", &text("new"));
    instance.until("the new one runs", |i| {
        let view = i.pod("port")?;
        if view.id("main") != before.id("main") && view.is_running("main") {
            assert!(!host::alive(old), "the old instance still runs beside the new one");
            return Some(());
        }
        None
    });
    assert_eq!(instance.exec("port", "cat /tmp/g"), "new");
    assert!(!instance.ok(&["logs", "port"]).contains("port taken"));
}

#[test]
fn variables_expand_as_the_manifest_says_and_unknown_ones_stay() {
    let instance = Instance::start();
    let text = pod(
        "env",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, 'echo \"$0\" > /tmp/arg; {TRAP}']
              args: [$(B)]
              env:
              - {{name: A, value: x}}
              - {{name: B, value: $(A)/$(NOPE)/$$(A)}}
            "
        ),
    );
    instance.write("env.yaml", &text);
    instance.ready("env");
    assert_eq!(instance.exec("env", "cat /tmp/arg"), "x/$(NOPE)/$(A)");
    assert_eq!(instance.exec("env", "echo \"$B\""), "x/$(NOPE)/$(A)");
}

#[test]
fn what_the_image_says_holds_where_the_manifest_says_nothing() {
    use serde_json::json;
    let image = Image::shell("test/app:1")
        .with("Env", json!(["PATH=/bin", "OPTS=-Xa:name=b,dir=c"]))
        .with(
            "Entrypoint",
            json!(["sh", "-c", "echo \"$0 $@\" > /tmp/args; trap 'exit 0' TERM; sleep 1d & wait"]),
        )
        .with("Cmd", json!(["from", "image"]))
        .with("User", json!("player"))
        .with("WorkingDir", json!("/home"));
    let instance = Instance::with(Options { images: vec![image], ..Options::default() });
    let with = |name: &str, more: &str| {
        pod(
            name,
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: 2
                containers:
                - name: main
                  image: test/app:1
                  {more}
                "
            ),
        )
    };
    instance.write("plain.yaml", &with("plain", ""));
    instance.write("args.yaml", &with("args", "args: [from, manifest]"));
    instance.ready("plain");
    instance.ready("args");
    assert_eq!(instance.exec("plain", "cat /tmp/args"), "from image");
    assert_eq!(instance.exec("args", "cat /tmp/args"), "from manifest");
    assert_eq!(instance.exec("plain", "echo $OPTS"), "-Xa:name=b,dir=c");
    assert_eq!(instance.exec("plain", "pwd; id -u; id -G"), "/home\n1000\n1000 29");
}

#[test]
fn a_missing_image_names_the_namespace_searched_and_starts_once_imported() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/absent:1"));
    let reasons = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"];
    let view =
        instance.until_pod("web", "waits for its image", |p| reasons.contains(&p.waiting("main").as_str()));
    let message = view.waiting_message("main");
    assert!(message.contains(instance.namespace()) && message.contains("test/absent:1"), "{message}");
    assert!(message.contains("image import"), "it should say how to import: {message}");

    let archive = instance.root().join("stage/absent.tar");
    fs::write(&archive, Image::shell("test/absent:1").archive()).expect("writable");
    instance.ok(&["image", "import", &archive.display().to_string()]);
    instance.ready("web");
    assert!(instance.ok(&["get", "images"]).contains("test/absent"));
}

#[test]
fn an_archive_dropped_into_the_images_directory_is_imported() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/late:1"));
    let staged = instance.root().join("stage/late.tar");
    fs::write(&staged, Image::shell("test/late:1").archive()).expect("writable");
    fs::rename(staged, instance.root().join("var/lib/podling/images/late.tar")).expect("writable");
    instance.ready("web");
}

#[test]
fn an_image_that_is_present_runs_under_the_always_policy_without_a_registry() {
    let images = vec![Image::shell("test/shell:latest")];
    let instance = Instance::with(Options { images, ..Options::default() });
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/shell"));
    instance.ready("web");
}

#[test]
fn no_other_image_is_needed_to_start_a_pod() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let view = instance.ready("web");
    // Nothing but the pod's own image is there, so nothing like a pause image can have been used.
    let images: Vec<String> = instance.ctr(&["images", "ls", "-q"]).lines().map(str::to_owned).collect();
    assert_eq!(images, ["docker.io/test/shell:1"]);
    let containers = instance.ctr(&["containers", "ls", "-q"]);
    assert_eq!(containers.trim(), view.id("main"), "one container in the pod is one in containerd");
}

#[test]
fn containers_of_a_pod_share_an_empty_dir_that_goes_with_the_pod() {
    let instance = Instance::start();
    let text = pod(
        "pair",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            volumes:
            - {{name: disk, emptyDir: {{}}}}
            - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
            containers:
            - name: writer
              image: test/shell:1
              command: [sh, -c, 'echo hi > /d/x; {TRAP}']
              volumeMounts: [{{name: disk, mountPath: /d}}, {{name: memory, mountPath: /m}}]
            - name: reader
              image: test/shell:1
              command: [sh, -c, '{TRAP}']
              volumeMounts: [{{name: disk, mountPath: /d, readOnly: true}}]
            "
        ),
    );
    instance.write("pair.yaml", &text);
    instance.ready("pair");
    let reader = |script: &str| instance.ok(&["exec", "pair", "-c", "reader", "--", "sh", "-c", script]);
    assert_eq!(reader("cat /d/x").trim(), "hi");
    assert_eq!(reader("touch /d/y 2>/dev/null || echo refused").trim(), "refused");
    let mounted = instance.ok(&["exec", "pair", "-c", "writer", "--", "grep", " /m ", "/proc/mounts"]);
    assert!(mounted.contains("tmpfs"), "{mounted}");
}

#[test]
fn host_paths_are_checked_for_what_the_manifest_says_they_are() {
    let instance = Instance::start();
    let base = instance.root().join("host");
    fs::create_dir_all(base.join("dir")).expect("writable");
    fs::write(base.join("file"), "content\n").expect("writable");
    let with = |name: &str, path: &str, kind: &str| {
        let more = format!(
            "volumes: [{{name: h, hostPath: {{path: {}, type: {kind}}}}}]",
            base.join(path).display()
        );
        shell(name, SLEEP, &more) + "    volumeMounts: [{name: h, mountPath: /h}]\n"
    };
    for (name, path, kind) in [
        ("dir", "dir", "Directory"),
        ("newdir", "made", "DirectoryOrCreate"),
        ("file", "file", "File"),
        ("newfile", "made-file", "FileOrCreate"),
    ] {
        instance.write(&format!("{name}.yaml"), &with(name, path, kind));
        instance.ready(name);
    }
    assert_eq!(instance.exec("file", "cat /h"), "content");
    assert!(base.join("made").is_dir() && base.join("made-file").is_file());

    instance.write("wrong.yaml", &with("wrong", "file", "Directory"));
    instance.until("the mismatch is told", |i| i.describes("wrong", "Directory").then_some(()));
    assert!(instance.pod("wrong").is_some_and(|p| !p.is_running("main")));
    fs::remove_file(base.join("file")).expect("writable");
    fs::create_dir(base.join("file")).expect("writable");
    instance.ready("wrong");
}

#[test]
fn a_shared_process_namespace_shows_every_process_of_the_pod() {
    let instance = Instance::start();
    let text = pod(
        "shared",
        &format!(
            "
            shareProcessNamespace: true
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            containers:
            - {{name: one, image: test/shell:1, command: [sh, -c, '{TRAP}']}}
            - {{name: two, image: test/shell:1, command: [sh, -c, 'exec sleep 12345']}}
            "
        ),
    );
    instance.write("shared.yaml", &text);
    let before = instance.ready("shared");
    let seen = instance.ok(&["exec", "shared", "-c", "one", "--", "ps"]);
    assert!(seen.contains("sleep 12345") && seen.contains("podling-pause"), "{seen}");
    // One container's death does not take the namespace down.
    host::signal(instance.pid(&before, "one"), rustix::process::Signal::KILL);
    let after = instance
        .until_pod("shared", "has restarted one", |p| p.is_ready() && p.id("one") != before.id("one"));
    assert_eq!(after.id("two"), before.id("two"));
}

#[test]
fn host_namespaces_are_the_hosts_and_others_are_not() {
    let instance = Instance::start();
    let spec = |more: &str| {
        format!(
            "
            terminationGracePeriodSeconds: 2
            {more}
            containers:
            - {{name: main, image: test/shell:1, command: [sh, -c, '{TRAP}']}}
            "
        )
    };
    instance.write(
        "all.yaml",
        &pod("all", &spec("hostNetwork: true\n            hostPID: true\n            hostIPC: true")),
    );
    instance.write("none.yaml", &pod("none", &spec("hostname: alone")));
    let namespace = |pod: &str, kind: &str| {
        let view = instance.ready(pod);
        fs::read_link(format!("/proc/{}/ns/{kind}", instance.pid(&view, "main"))).expect("it runs")
    };
    let of_podling =
        |kind: &str| fs::read_link(format!("/proc/{}/ns/{kind}", instance.podling_pid())).expect("runs");
    for kind in ["net", "pid", "ipc", "uts"] {
        assert_eq!(namespace("all", kind), of_podling(kind), "{kind}");
        assert_ne!(namespace("none", kind), of_podling(kind), "{kind}");
    }
    assert_eq!(instance.exec("none", "hostname"), "alone");
}

#[test]
fn a_field_that_podling_does_not_honour_is_refused_by_name() {
    let instance = Instance::start();
    let text = sleeper("gated") + "  schedulingGates: [{name: example.com/ready}]\n";
    instance.write("gated.yaml", &text);
    instance.until("the field is named", |i| i.says("schedulingGates").then_some(()));
    assert!(instance.pod("gated").is_none_or(|p| !p.is_running("main")));
}

#[test]
fn a_container_with_stdin_waits_at_it_and_is_the_program_itself() {
    let instance = Instance::start();
    let container = "containers: [{name: main, image: 'test/shell:1', command: [cat], stdin: true, \
                     securityContext: {runAsUser: 1234, readOnlyRootFilesystem: true}}]";
    instance.write("cat.yaml", &pod("cat", &format!("terminationGracePeriodSeconds: 1\n{container}")));
    instance.ready("cat");
    assert_eq!(
        instance.exec("cat", "tr '\\0' ' ' < /proc/1/cmdline; readlink /proc/1/fd/0 | cut -d: -f1"),
        "cat pipe"
    );
    let without = "restartPolicy: Never\ncontainers: [{name: main, image: 'test/shell:1', command: [cat]}]";
    instance.write("end.yaml", &pod("end", without));
    instance.phase("end", "Succeeded");
    assert!(instance.pod("cat").is_some_and(|p| p.is_ready()));
}

#[test]
fn pods_whose_manifests_give_one_uid_keep_apart() {
    let mut instance = Instance::start();
    let uid = "4f5c0a0e-6a8e-4a2a-9d8b-6f3d2f8b1c11";
    let text = |name: &str| {
        let spec = "hostNetwork: true\nterminationGracePeriodSeconds: 1\nvolumes: [{name: v, emptyDir: {}}]\ncontainers: \
             [{name: main, image: 'test/shell:1', command: [sleep, '1000'], volumeMounts: [{name: v, mountPath: /v}]}]";
        pod(name, spec).replace("metadata:", &format!("metadata:\n  uid: {uid}"))
    };
    instance.write("one.yaml", &text("one"));
    assert_eq!(instance.ready("one").uid(), uid);
    instance.write("two.yaml", &text("two"));
    let two = instance.ready("two");
    assert_ne!(two.uid(), uid);
    instance.until("the other pod is named", |i| {
        i.describes("two", &format!("{uid} is that of pod default/one, so this pod gets one of its own"))
            .then_some(())
    });
    assert_eq!(instance.exec("two", "touch /v/of-two; ls /v"), "of-two");
    assert_eq!(instance.exec("one", "ls /v"), "");

    // Another name in the file is another pod, and the first one's directory is not the third's.
    instance.write("one.yaml", &text("three"));
    instance.ready("three");
    instance.gone("one");
    instance.restart_podling();
    assert_eq!(instance.ready("two").id("main"), two.id("main"));
    assert_eq!(instance.exec("three", "ls /v"), "");
    assert_eq!(instance.exec("two", "ls /v"), "of-two");
}
