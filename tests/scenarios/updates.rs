//! What an edit does to what runs: nothing, new limits, one container, or the pod anew.

use std::fs;
use std::path::PathBuf;

use crate::support::manifest::SLEEP;
use crate::support::{Image, Instance, Options, PodView, host, pod};

/// Two containers, `web` with resources; `{GRACE}` and what stands after `web`'s image can be replaced.
fn two(more: &str) -> String {
    let script = serde_json::to_string(SLEEP).expect("a string can be JSON");
    pod(
        "two",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 3
            containers:
            - name: web
              image: test/shell:1
              command: [sh, -c, {script}]
              resources: {{requests: {{cpu: 100m, memory: 16Mi}}, limits: {{cpu: 200m, memory: 64Mi}}}}
            - name: side
              image: test/shell:1
              command: [sh, -c, {script}]
              resources: {{requests: {{cpu: 100m, memory: 16Mi}}, limits: {{cpu: 200m, memory: 64Mi}}}}
            {more}
            "
        ),
    )
}

fn pids(instance: &Instance, view: &PodView) -> (u32, u32) {
    (instance.pid(view, "web"), instance.pid(view, "side"))
}

/// A file of a container's or, with an empty id, of the pod's cgroup, by its names in version 1 and 2.
fn cgroup_file(instance: &Instance, view: &PodView, id: &str, v1: &str, v2: &str) -> String {
    let below =
        format!("{}/burstable/pod{}/{id}", instance.cgroup_root().trim_start_matches('/'), view.uid());
    let candidates = [
        PathBuf::from("/sys/fs/cgroup").join(&below).join(v2),
        PathBuf::from("/sys/fs/cgroup/memory").join(&below).join(v1),
        PathBuf::from("/sys/fs/cgroup/cpu").join(&below).join(v1),
    ];
    let read = candidates.iter().find_map(|path| fs::read_to_string(path).ok());
    read.unwrap_or_default().trim().to_owned()
}

#[test]
fn an_edit_that_no_process_is_made_from_restarts_nothing_and_names_the_fields() {
    let mut instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    let edited = two("")
        .replace("  name: two\n", "  name: two\n  labels: {tier: front}\n")
        .replace("GracePeriodSeconds: 3", "GracePeriodSeconds: 5")
        .replace("image: test/shell:1", "image: test/shell:1\n    imagePullPolicy: Never");
    instance.write("two.yaml", &edited);
    let text = "nothing restarts (metadata.labels[tier]: (none) -> front, spec.terminationGracePeriodSeconds: 3 -> 5";
    instance.until("the edit is in force", |i| i.describes("two", text).then_some(()));
    assert!(instance.says(text));
    let view = instance.ready("two");
    assert_eq!(pids(&instance, &view), before);
    assert_eq!(view.restarts("web") + view.restarts("side"), 0);
    // What stands for the new entries does so over a restart of podling.
    instance.restart_podling();
    let view = instance.ready("two");
    assert_eq!(pids(&instance, &view), before);
}

#[test]
fn an_edit_of_one_container_leaves_the_process_of_the_other() {
    let instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    instance.write(
        "two.yaml",
        &two("").replacen("- name: web\n", "- name: web\n    env: [{name: TOKEN, value: hush}]\n", 1),
    );
    let old = view.id("web");
    let view = instance.until_pod("two", "has a new web", |p| p.is_ready() && p.id("web") != old);
    let after = pids(&instance, &view);
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, before.1);
    assert!(instance.describes("two", "restarting web (spec.containers[web].env[TOKEN]: added)"));
    assert!(!instance.log().contains("hush"));
}

#[test]
fn an_edit_of_the_pods_other_parts_makes_the_pod_anew() {
    let instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = (view.id("web"), view.id("side"));
    instance.write("two.yaml", &two("volumes: [{name: v, emptyDir: {}}]"));
    instance
        .until_pod("two", "is new", |p| p.is_ready() && p.id("web") != before.0 && p.id("side") != before.1);
    assert!(instance.describes("two", "the pod is made anew (spec.volumes[v]: added)"));
}

#[test]
fn the_grace_of_a_container_that_an_edit_stops_is_that_it_was_started_with() {
    let instance = Instance::start();
    let deaf = |grace: u32, value: &str| {
        pod(
            "deaf",
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: {grace}
                containers:
                - name: main
                  image: test/shell:1
                  command: [sh, -c, 'trap \"sleep 4; echo well >> /dev/termination-log; exit 7\" TERM; while :; do sleep 0.1; done']
                  env: [{{name: A, value: {value}}}]
                "
            ),
        )
    };
    instance.write("deaf.yaml", &deaf(30, "old"));
    instance.ready("deaf");
    instance.write("deaf.yaml", &deaf(2, "new"));
    let view = instance.until_pod("deaf", "is new", |p| p.is_ready() && p.last_exit("main").is_some());
    assert_eq!(view.last_exit("main"), Some((7, "Error".into())), "it was killed before its grace was over");
}

#[test]
fn processor_and_memory_are_resized_in_place() {
    let instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    let id = view.id("web");
    let files = |view: &PodView, id: &str| {
        (
            cgroup_file(&instance, view, id, "cpu.cfs_quota_us", "cpu.max"),
            cgroup_file(&instance, view, id, "memory.limit_in_bytes", "memory.max"),
        )
    };
    let quota = |n: u64| [n.to_string(), format!("{n} 100000")];
    for (limit, bytes, milli) in [("96Mi", 96u64 << 20, 300u64), ("32Mi", 32 << 20, 150)] {
        let edit = two("").replacen(
            "limits: {cpu: 200m, memory: 64Mi}",
            &format!("limits: {{cpu: {milli}m, memory: {limit}}}"),
            1,
        );
        instance.write("two.yaml", &edit);
        instance.until("the container's limits are the new ones", |_| {
            let (cpu, memory) = files(&view, &id);
            (memory == bytes.to_string() && quota(milli * 100).contains(&cpu)).then_some(())
        });
        instance.until("the pod's limits are the sums", |_| {
            let (cpu, memory) = files(&view, "");
            (memory == (bytes + (64 << 20)).to_string() && quota((milli + 200) * 100).contains(&cpu))
                .then_some(())
        });
        let shown = instance.until_pod("two", "shows the resources in force", |p| {
            p.container("web")["resources"]["limits"]["memory"] == limit
        });
        assert_eq!(shown.container("web")["allocatedResources"]["memory"], "16Mi");
        assert_eq!(pids(&instance, &shown), before);
    }
    assert!(instance.describes("two", "resizing in place"));
    // Other resources are none of a restart either, unless the policy says so.
    let strict = two("").replacen(
        "resources:",
        "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]\n    resources:",
        1,
    );
    instance.write("two.yaml", &strict.replacen("memory: 64Mi", "memory: 48Mi", 1));
    let view = instance.until_pod("two", "has a new web", |p| p.is_ready() && p.id("web") != id);
    assert_eq!(pids(&instance, &view).1, before.1);
}

#[test]
fn memory_in_use_is_not_taken_away_and_the_pod_says_so() {
    let instance = Instance::start();
    let script = format!("head -c 40000000 /dev/zero > /m/f; echo full; {SLEEP}");
    let script = serde_json::to_string(&script).expect("a string can be JSON");
    let hog = |limit: &str| {
        pod(
            "hog",
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: 2
                volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]
                containers:
                - name: main
                  image: test/shell:1
                  command: [sh, -c, {script}]
                  resources: {{requests: {{memory: 8Mi}}, limits: {{memory: {limit}}}}}
                  volumeMounts: [{{name: m, mountPath: /m}}]
                "
            ),
        )
    };
    instance.write("hog.yaml", &hog("128Mi"));
    let view = instance.ready("hog");
    instance.until("its memory is in use", |i| i.ok(&["logs", "hog"]).contains("full").then_some(()));
    let pid = instance.pid(&view, "main");
    instance.write("hog.yaml", &hog("16Mi"));
    let view = instance
        .until_pod("hog", "says that it is being resized", |p| p.condition("PodResizeInProgress") == "True");
    assert!(
        instance.describes("hog", "cannot go down to 16777216 bytes"),
        "{}",
        instance.ok(&["describe", "pod", "hog"])
    );
    assert_eq!(view.container("main")["resources"]["limits"]["memory"], "128Mi");
    instance.exec("hog", "rm /m/f");
    let view = instance.until_pod("hog", "is resized", |p| {
        p.condition("PodResizeInProgress").is_empty()
            && p.container("main")["resources"]["limits"]["memory"] == "16Mi"
    });
    assert_eq!(instance.pid(&view, "main"), pid);
    assert!(host::cmdline(pid).contains("sh"));
}

#[test]
fn resources_of_the_pod_as_a_whole_are_its_cgroups_and_are_resized_in_place() {
    let instance = Instance::start();
    let whole = |memory: &str| {
        two("")
            .replace(
                "    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}\n",
                "",
            )
            .replacen(
                "spec:\n",
                &format!(
                    "spec:\n  resources: {{requests: {{memory: 16Mi}}, limits: {{memory: {memory}}}}}\n"
                ),
                1,
            )
    };
    instance.write("two.yaml", &whole("64Mi"));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    assert_eq!(view.0["status"]["qosClass"], "Burstable");
    let limit = || cgroup_file(&instance, &view, "", "memory.limit_in_bytes", "memory.max");
    assert_eq!(limit(), (64u64 << 20).to_string());
    instance.write("two.yaml", &whole("96Mi"));
    instance
        .until("the pod's limit is the new one", |_| (limit() == (96u64 << 20).to_string()).then_some(()));
    let view =
        instance.until_pod("two", "shows it", |p| p.0["status"]["resources"]["limits"]["memory"] == "96Mi");
    assert_eq!(pids(&instance, &view), before);
}

#[test]
fn an_update_left_on_running_containers_outlives_the_state_directory() {
    let mut instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    instance.write("two.yaml", &two("").replace("GracePeriodSeconds: 3", "GracePeriodSeconds: 4"));
    let text = "nothing restarts (spec.terminationGracePeriodSeconds: 3 -> 4)";
    instance.until("the edit is in force", |i| i.describes("two", text).then_some(()));
    let id = view.id("web");
    instance.until("it stands on the container's record", |i| {
        i.ctr(&["containers", "info", &id]).contains("\"podling.dev/grace-seconds\": \"4\"").then_some(())
    });
    instance.kill_podling();
    fs::remove_dir_all(instance.root().join("var/lib/podling/pods")).expect("the records are there");
    instance.start_podling();
    let view = instance.ready("two");
    assert_eq!(pids(&instance, &view), before);
}

#[test]
fn an_edit_of_a_pod_on_a_host_port_waits_until_the_old_one_gave_it_up() {
    let images = vec![Image::shell("test/shell:1"), Image::shell("test/shell:2")];
    let instance = Instance::with(Options { images, ..Options::default() });
    // The old one keeps the port while it ends; a new one that came meanwhile could not listen.
    let script = "trap 'sleep 3; exit 0' TERM; httpd -p 127.0.0.1:9000 -h /bin || exit 9; sleep 1d & wait";
    let script = serde_json::to_string(script).expect("a string can be JSON");
    let server = |image: u32| {
        pod(
            "server",
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: 20
                containers:
                - name: main
                  image: test/shell:{image}
                  command: [sh, -c, {script}]
                  ports: [{{containerPort: 9000}}]
                "
            ),
        )
    };
    instance.write("server.yaml", &server(1));
    let old = instance.ready("server");
    instance.write("server.yaml", &server(2));
    let view = instance.until_pod("server", "is new", |p| p.is_ready() && p.id("main") != old.id("main"));
    assert_eq!(view.last_exit("main"), Some((0, "Completed".into())));
    assert_eq!(view.restarts("main"), 0);
    assert!(view.container("main")["image"].as_str().is_some_and(|i| i.ends_with("test/shell:2")));
}

#[test]
fn pods_that_swap_their_host_ports_do_not_wait_for_each_other_for_ever() {
    let instance = Instance::start();
    let server = |name: &str, port: u16| {
        let script = format!("httpd -p 127.0.0.1:{port} -h /bin || exit 9; {SLEEP}");
        let script = serde_json::to_string(&script).expect("a string can be JSON");
        let text = format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 5
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, {script}]
              ports: [{{containerPort: {port}}}]
            "
        );
        instance.write(&format!("{name}.yaml"), &pod(name, &text));
    };
    server("blue", 9001);
    server("green", 9002);
    let (blue, green) = (instance.ready("blue"), instance.ready("green"));
    server("blue", 9002);
    instance.until_pod("blue", "waits for the other", |p| p.condition("Applied") == "False");
    assert_eq!(instance.ready("blue").id("main"), blue.id("main"));
    server("green", 9001);
    for (name, old) in [("blue", &blue), ("green", &green)] {
        instance.until_pod(name, "is new", |p| p.is_ready() && p.id("main") != old.id("main"));
        assert_eq!(instance.pod(name).map(|p| p.restarts("main")), Some(0));
    }
}

#[test]
fn a_container_that_an_edit_takes_out_ends_with_its_hook_its_grace_and_its_limits() {
    let instance = Instance::start();
    let log = instance.root().join("said");
    fs::create_dir(&log).expect("a directory");
    let script = "trap 'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max >/said/limit 2>/dev/null; \
                  sleep 3; echo well >/said/end; exit 0' TERM; while :; do sleep 0.1; done";
    let more = format!(
        "- name: extra
              image: test/shell:1
              command: [sh, -c, {}]
              resources: {{limits: {{memory: 64Mi}}}}
              lifecycle: {{preStop: {{exec: {{command: [sh, -c, 'echo hook >/said/hook']}}}}}}
              volumeMounts: [{{name: said, mountPath: /said}}]
            volumes: [{{name: said, hostPath: {{path: {}}}}}]",
        serde_json::to_string(script).expect("a string can be JSON"),
        log.display()
    );
    let all = two(&more).replace("GracePeriodSeconds: 3", "GracePeriodSeconds: 20");
    instance.write("two.yaml", &all);
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    let (start, end) =
        (all.find("  - name: extra").expect("extra"), all.find("  volumes:").expect("volumes"));
    let without = format!("{}{}", &all[..start], &all[end..]);
    instance.write("two.yaml", &without.replace("GracePeriodSeconds: 20", "GracePeriodSeconds: 1"));
    instance.until("it ended by itself", |_| log.join("end").exists().then_some(()));
    assert!(log.join("hook").exists(), "its hook did not run");
    assert_eq!(fs::read_to_string(log.join("limit")).expect("readable").trim(), "67108864");
    let view = instance.until_pod("two", "has two containers", |p| p.is_ready() && p.id("extra").is_empty());
    assert_eq!(pids(&instance, &view), before);
}

#[test]
fn an_update_that_waits_is_said_in_the_log_and_so_is_its_end() {
    let instance = Instance::start();
    instance.write("two.yaml", &two(""));
    let view = instance.ready("two");
    let before = pids(&instance, &view);
    let lost = two("").replacen("image: test/shell:1", "image: 127.0.0.1:1/test/nowhere:1", 1);
    instance.write("two.yaml", &lost);
    let waits = "the new manifest waits and the old one keeps running: cannot pull image";
    instance.until("the wait is said", |i| i.says(waits).then_some(()));
    instance.write("two.yaml", &two(""));
    let over = "the manifest is again the one that runs: nothing waits";
    instance.until("its end is said", |i| i.says(over).then_some(()));
    assert_eq!(instance.log().matches(waits).count(), 1);
    let view = instance.ready("two");
    assert_eq!(pids(&instance, &view), before);
    // Another uid is another pod, and that is a change, too.
    instance.write(
        "two.yaml",
        &two("").replace("  name: two\n", "  name: two\n  uid: 11111111-2222-3333-4444-555555555555\n"),
    );
    instance.until_pod("two", "is another", |p| {
        p.is_ready() && p.uid() == "11111111-2222-3333-4444-555555555555"
    });
    assert!(instance.says("another pod takes its place (metadata.uid: "));
}
