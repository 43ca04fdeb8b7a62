//! What a container may do and use: users, capabilities, read-only roots, devices, cgroups.

use std::fs;
use std::path::Path;

use crate::support::manifest::SLEEP;
use crate::support::{Instance, host, pod, shell};

const TRAP: &str = "trap \"exit 0\" TERM; sleep 1d & wait";

/// A pod whose only container has this `securityContext`.
fn secured(name: &str, context: &str) -> String {
    shell(name, SLEEP, "") + &format!("    securityContext: {context}\n")
}

fn capabilities(instance: &Instance, pod: &str) -> u64 {
    let line = instance.exec(pod, "grep CapBnd /proc/self/status");
    u64::from_str_radix(line.rsplit('\t').next().unwrap_or_default(), 16).expect("a hex mask")
}

const CHOWN: u64 = 1;
const NET_RAW: u64 = 1 << 13;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_TIME: u64 = 1 << 25;

#[test]
fn a_container_runs_as_the_user_and_group_it_is_given() {
    let instance = Instance::start();
    instance.write("user.yaml", &secured("user", "{runAsUser: 1000, runAsGroup: 29}"));
    instance.ready("user");
    assert_eq!(instance.exec("user", "id -u; id -g"), "1000\n29");
    let view = instance.pod("user").expect("it runs");
    let status =
        fs::read_to_string(format!("/proc/{}/status", instance.pid(&view, "main"))).expect("it runs");
    assert!(status.contains("Uid:\t1000\t1000\t1000\t1000"), "{status}");
}

#[test]
fn capabilities_are_the_default_set_plus_and_minus_what_is_asked() {
    let instance = Instance::start();
    instance.write("plain.yaml", &secured("plain", "{}"));
    instance.write("more.yaml", &secured("more", "{capabilities: {add: [SYS_TIME], drop: [NET_RAW]}}"));
    instance.write("none.yaml", &secured("none", "{capabilities: {drop: [ALL]}}"));
    for name in ["plain", "more", "none"] {
        instance.ready(name);
    }
    let plain = capabilities(&instance, "plain");
    assert_eq!(plain & (CHOWN | NET_RAW | SYS_ADMIN), CHOWN | NET_RAW);
    let more = capabilities(&instance, "more");
    assert_eq!(more & (CHOWN | NET_RAW | SYS_TIME), CHOWN | SYS_TIME);
    assert_eq!(capabilities(&instance, "none"), 0);
}

#[test]
fn a_read_only_root_refuses_writes_and_no_new_privileges_is_set() {
    let instance = Instance::start();
    instance.write(
        "locked.yaml",
        &secured("locked", "{readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}"),
    );
    instance.ready("locked");
    assert_eq!(instance.exec("locked", "touch /x 2>/dev/null || echo refused"), "refused");
    assert_eq!(instance.exec("locked", "grep NoNewPrivs /proc/self/status"), "NoNewPrivs:\t1");
    assert_eq!(instance.exec("locked", "grep ^Seccomp: /proc/self/status"), "Seccomp:\t2");
}

#[test]
fn a_privileged_container_has_all_capabilities_and_the_hosts_devices() {
    let instance = Instance::start();
    instance.write("strong.yaml", &secured("strong", "{privileged: true}"));
    instance.ready("strong");
    assert_ne!(capabilities(&instance, "strong") & SYS_ADMIN, 0);
    assert_eq!(instance.exec("strong", "test -c /dev/kmsg && echo there"), "there");
    assert_eq!(instance.exec("strong", "grep ^Seccomp: /proc/self/status"), "Seccomp:\t0");
}

#[test]
fn a_character_device_as_host_path_can_be_opened_and_others_cannot() {
    let instance = Instance::start();
    let volumes = "volumes: [{name: d, hostPath: {path: /dev/kmsg, type: CharDevice}}]";
    let text = shell("device", SLEEP, volumes) + "    volumeMounts: [{name: d, mountPath: /dev/mine}]\n";
    instance.write("device.yaml", &text);
    instance.ready("device");
    assert_eq!(instance.exec("device", "test -c /dev/mine && echo there"), "there");
    // /dev/mem, which nobody gave it.
    let script = "mknod /tmp/m c 1 1 && dd if=/tmp/m of=/dev/null count=1 2>/dev/null || echo refused";
    assert_eq!(instance.exec("device", script), "refused");
}

#[test]
fn sensitive_parts_of_proc_are_masked() {
    let instance = Instance::start();
    instance.write("plain.yaml", &secured("plain", "{}"));
    instance.ready("plain");
    assert_eq!(instance.exec("plain", "cat /proc/kcore 2>/dev/null | head -c 1 | wc -c"), "0");
    assert_eq!(
        instance.exec("plain", "echo 1 2>/dev/null > /proc/sys/kernel/hostname || echo refused"),
        "refused"
    );
    assert_eq!(instance.exec("plain", "grep -c ' /sys sysfs ro' /proc/mounts"), "1");
}

/// The content of a cgroup file of a container, by its v1 or v2 name.
fn cgroup_file(pid: u32, controller: &str, v1: &str, v2: &str) -> String {
    let dir = host::cgroup_of(pid, controller);
    let name = if host::unified() { v2 } else { v1 };
    fs::read_to_string(dir.join(name))
        .unwrap_or_else(|e| panic!("{}/{name}: {e}", dir.display()))
        .trim()
        .to_owned()
}

#[test]
fn limits_and_requests_are_in_the_cgroup_files_and_the_qos_class_is_shown() {
    let instance = Instance::start();
    let text = pod(
        "sized",
        &format!(
            "
            hostNetwork: true
            terminationGracePeriodSeconds: 2
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, '{TRAP}']
              resources:
                requests: {{cpu: 250m, memory: 16Mi}}
                limits: {{cpu: 500m, memory: 64Mi}}
            "
        ),
    );
    instance.write("sized.yaml", &text);
    let view = instance.ready("sized");
    let pid = instance.pid(&view, "main");
    assert_eq!(view.0["status"]["qosClass"], "Burstable");
    let memory = cgroup_file(pid, "memory", "memory.limit_in_bytes", "memory.max");
    assert_eq!(memory, (64 << 20).to_string());
    let group = host::cgroup_of(pid, "memory");
    let group = group.to_string_lossy();
    assert!(group.contains(instance.cgroup_root()) && group.contains("/burstable/"), "{group}");
    if host::unified() {
        assert_eq!(cgroup_file(pid, "cpu", "", "cpu.max"), "50000 100000");
    } else {
        assert_eq!(cgroup_file(pid, "cpu", "cpu.cfs_quota_us", ""), "50000");
        assert_eq!(cgroup_file(pid, "cpu", "cpu.shares", ""), "256");
    }
    // The pod's own cgroup carries the sum, so that nothing in it can go beyond.
    let parent = host::cgroup_of(pid, "memory").parent().map(Path::to_path_buf).expect("a pod cgroup");
    let name = if host::unified() { "memory.max" } else { "memory.limit_in_bytes" };
    assert_eq!(fs::read_to_string(parent.join(name)).expect("readable").trim(), (64 << 20).to_string());
    if !host::unified() {
        // Container, pod, class: the class weighs what its pods request together.
        let class = host::cgroup_of(pid, "cpu").ancestors().nth(2).expect("a class").join("cpu.shares");
        assert_eq!(fs::read_to_string(class).expect("readable").trim(), "256");
    }
}

#[test]
fn a_guaranteed_pod_and_a_best_effort_pod_stand_where_their_class_belongs() {
    let instance = Instance::start();
    instance.write("small.yaml", &shell("small", SLEEP, ""));
    let limits = "    resources: {limits: {cpu: 100m, memory: 32Mi}}\n";
    instance.write("firm.yaml", &(shell("firm", SLEEP, "") + limits));
    let (small, firm) = (instance.ready("small"), instance.ready("firm"));
    assert_eq!(small.0["status"]["qosClass"], "BestEffort");
    assert_eq!(firm.0["status"]["qosClass"], "Guaranteed");
    let group = |view| host::cgroup_of(instance.pid(view, "main"), "memory").to_string_lossy().into_owned();
    assert!(group(&small).contains("/besteffort/"), "{}", group(&small));
    assert!(
        !group(&firm).contains("/besteffort/") && !group(&firm).contains("/burstable/"),
        "{}",
        group(&firm)
    );
    let score = |view| {
        let path = format!("/proc/{}/oom_score_adj", instance.pid(view, "main"));
        fs::read_to_string(path).expect("it runs").trim().parse::<i32>().expect("a number")
    };
    assert_eq!(score(&small), 1000);
    assert!(score(&firm) <= 0, "guaranteed pods go last: {}", score(&firm));
}

#[test]
fn a_container_beyond_its_memory_limit_is_oom_killed_and_says_so() {
    let instance = Instance::start();
    // dd holds one block of this size in memory.
    let text =
        shell("greedy", "dd if=/dev/zero of=/dev/null bs=64M count=1; exit $?", "restartPolicy: Never")
            + "    resources: {limits: {memory: 16Mi}}\n";
    instance.write("greedy.yaml", &text);
    let view = instance.phase("greedy", "Failed");
    assert_eq!(view.exit("main").map(|e| e.1), Some("OOMKilled".into()), "{}", view.container("main"));
}
