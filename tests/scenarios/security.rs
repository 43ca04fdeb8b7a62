//! Security contexts, as the container itself sees them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::mount::MountFlags;
use serde_json::json;

use crate::support::image::Image;
use crate::support::{Instance, Options, host};

/// A pod that sleeps, with these lines in its spec and in its container.
fn sleeping(name: &str, spec: &str, container: &str) -> String {
    let indented = |text: &str, by: usize| -> String {
        text.lines().map(|l| format!("{}{l}\n", " ".repeat(by))).collect()
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n{}  \
         containers:\n  - name: main\n    image: test/shell:1\n    command: [sleep, '1000']\n{}",
        indented(spec, 2),
        indented(container, 4)
    )
}

/// A field of `/proc/self/status`, as the pod's processes have it.
fn status(instance: &Instance, pod: &str, field: &str) -> String {
    let line = instance.exec(pod, &format!("grep ^{field}: /proc/self/status"));
    line.split_once(':').map(|(_, v)| v.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

#[test]
fn the_containers_user_groups_and_rights_are_those_of_the_manifest() {
    let instance = Instance::start();
    let spec = "securityContext: {runAsUser: 5, runAsGroup: 6, supplementalGroups: [70], fsGroup: 80}";
    let container = "securityContext:\n  runAsUser: 1234\n  allowPrivilegeEscalation: false\n  \
        readOnlyRootFilesystem: true\n  capabilities: {drop: [ALL], add: [CAP_NET_BIND_SERVICE]}";
    instance.write("ids.yaml", &sleeping("ids", spec, container));
    instance.ready("ids");
    assert_eq!(status(&instance, "ids", "Uid"), "1234 1234 1234 1234");
    assert_eq!(status(&instance, "ids", "Gid"), "6 6 6 6");
    assert_eq!(status(&instance, "ids", "Groups"), "6 70 80");
    assert_eq!(status(&instance, "ids", "CapBnd"), "0000000000000400");
    assert_eq!(status(&instance, "ids", "NoNewPrivs"), "1");
    assert_eq!(status(&instance, "ids", "Seccomp"), "2");
    assert_eq!(instance.exec("ids", "touch /x 2>/dev/null || echo no"), "no");
}

#[test]
fn groups_of_the_images_user_are_merged_unless_the_policy_is_strict() {
    let image = Image::shell("test/shell:1").with("User", json!("player"));
    let instance = Instance::with(Options { images: vec![image], ..Options::default() });
    instance.write("merge.yaml", &sleeping("merge", "securityContext: {supplementalGroups: [70]}", ""));
    let strict = "securityContext: {supplementalGroups: [70], supplementalGroupsPolicy: Strict}";
    instance.write("strict.yaml", &sleeping("strict", strict, ""));
    instance.write("named.yaml", &sleeping("named", "securityContext: {runAsNonRoot: true}", ""));
    for pod in ["merge", "strict"] {
        instance.ready(pod);
        assert_eq!(status(&instance, pod, "Uid"), "1000 1000 1000 1000");
    }
    assert_eq!(status(&instance, "merge", "Groups"), "29 70 1000");
    assert_eq!(status(&instance, "strict", "Groups"), "70 1000");
    instance.until("the name is not taken for a proof", |i| {
        let text = "image has non-numeric user (player), cannot verify user is non-root";
        i.describes("named", text).then_some(())
    });
}

#[test]
fn an_image_that_runs_as_root_waits_under_run_as_non_root() {
    let instance = Instance::start();
    instance.write("root.yaml", &sleeping("root", "securityContext: {runAsNonRoot: true}", ""));
    instance.until("the reason is told", |i| {
        let text = "container has runAsNonRoot and image will run as root";
        (i.describes("root", text) && i.describes("root", "CreateContainerConfigError")).then_some(())
    });
}

#[test]
fn files_of_volumes_belong_to_the_fs_group_and_those_of_the_host_do_not() {
    let instance = Instance::start();
    let dir = instance.root().join("host-data");
    fs::create_dir(&dir).expect("writable");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("writable");
    let spec = format!(
        "securityContext: {{runAsUser: 1000, fsGroup: 4711}}\nvolumes:\n- {{name: e, emptyDir: {{}}}}\n- {{name: m, \
         emptyDir: {{medium: Memory}}}}\n- {{name: h, hostPath: {{path: {}}}}}",
        dir.display()
    );
    let container = "volumeMounts:\n- {name: e, mountPath: /e}\n- {name: m, mountPath: /m}\n- {name: h, \
         mountPath: /h}";
    instance.write("group.yaml", &sleeping("group", &spec, container));
    instance.ready("group");
    assert_eq!(instance.exec("group", "stat -c '%g %a' /e /m /h"), "4711 2777\n4711 2777\n0 755");
    assert_eq!(instance.exec("group", "touch /e/x && stat -c '%u %g' /e/x"), "1000 4711");
    assert_eq!(status(&instance, "group", "Groups"), "29 1000 4711");
}

#[test]
fn sysctls_are_set_in_the_pods_own_namespaces_and_only_those_allowed() {
    let instance = Instance::with(Options {
        settings: "allowedUnsafeSysctls: ['kernel.msg*']\n".into(),
        ..Options::default()
    });
    let sysctls = |list: &str| format!("securityContext: {{sysctls: [{list}]}}");
    let allowed = "{name: net.ipv4.tcp_syncookies, value: '0'}, {name: kernel.shm_rmid_forced, value: '1'}, \
        {name: kernel/msgmax, value: '12345'}";
    instance.write("set.yaml", &sleeping("set", &sysctls(allowed), ""));
    let forbidden = "{name: net.core.somaxconn, value: '17'}";
    instance.write("not.yaml", &sleeping("not", &sysctls(forbidden), ""));
    instance.ready("set");
    let read = "cd /proc/sys; cat net/ipv4/tcp_syncookies kernel/shm_rmid_forced kernel/msgmax";
    assert_eq!(instance.exec("set", read), "0\n1\n12345");
    assert_ne!(fs::read_to_string("/proc/sys/kernel/msgmax").expect("Linux").trim(), "12345");
    instance.until("the other one is refused", |i| {
        (i.describes("not", "SysctlForbidden") && i.describes("not", "net.core.somaxconn")).then_some(())
    });
}

#[test]
fn a_seccomp_profile_from_a_file_filters_and_a_missing_one_is_named_until_it_comes() {
    let instance = Instance::start();
    let dir = instance.root().join("var/lib/podling/seccomp");
    fs::create_dir_all(dir.join("profiles")).expect("writable");
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]
    });
    fs::write(dir.join("profiles/no-mkdir.json"), profile.to_string()).expect("writable");
    let with = |file: &str| {
        format!("securityContext: {{seccompProfile: {{type: Localhost, localhostProfile: {file}}}}}")
    };
    instance.write("file.yaml", &sleeping("file", &with("profiles/no-mkdir.json"), ""));
    instance.write("lost.yaml", &sleeping("lost", "", &with("no-mkdir.json")));
    instance.ready("file");
    assert!(instance.exec("file", "mkdir /tmp/x 2>&1 || true").contains("Permission denied"));
    let tried = dir.join("no-mkdir.json");
    instance.until("the path that was tried is named, and the one that is there", |i| {
        let told = i.describes("lost", &tried.display().to_string());
        (told && i.describes("lost", "localhostProfile: profiles/no-mkdir.json")).then_some(())
    });
    fs::write(tried, profile.to_string()).expect("writable");
    instance.ready("lost");
}

#[test]
fn a_runtime_class_of_the_settings_chooses_the_runtime_and_adds_its_overhead() {
    let settings = "runtimeClasses:\n  plain: runc\n  big: {handler: runc, overhead: {memory: 16Mi}}\n";
    let instance = Instance::with(Options { settings: settings.into(), ..Options::default() });
    let limits = "resources: {limits: {memory: 32Mi, cpu: 100m}}";
    instance.write("big.yaml", &sleeping("big", "runtimeClassName: big", limits));
    instance.write("nobody.yaml", &sleeping("nobody", "runtimeClassName: kata", ""));
    let big = instance.ready("big");
    let group = host::cgroup_of(instance.pid(&big, "main"), "memory");
    let file = if host::unified() { "memory.max" } else { "memory.limit_in_bytes" };
    let limit = fs::read_to_string(group.parent().expect("the pod's group").join(file)).expect("readable");
    assert_eq!(limit.trim(), (48 << 20).to_string());
    instance.until("the unknown class is named with those there are", |i| {
        i.describes("nobody", "RuntimeClass \"kata\" not found").then_some(())
    });
}

#[test]
fn app_armor_without_the_host_having_it_waits_with_a_clear_word() {
    if fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|t| t.starts_with('Y')) {
        return;
    }
    let instance = Instance::start();
    let with = |profile: &str| format!("securityContext: {{appArmorProfile: {{{profile}}}}}");
    instance.write("default.yaml", &sleeping("default", &with("type: RuntimeDefault"), ""));
    let named = with("type: Localhost, localhostProfile: deny-write");
    instance.write("named.yaml", &sleeping("named", "", &named));
    instance.ready("default");
    instance.until("the lack of AppArmor is told", |i| {
        i.describes("named", "AppArmor is not enabled on this host").then_some(())
    });
}

#[test]
fn a_pod_with_users_of_its_own_is_root_inside_and_nobody_outside() {
    let mut instance = Instance::start();
    // containerd's directories are below the test's, through which a container's root must pass.
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o711)).expect("ours");
    let container = "volumeMounts: [{name: e, mountPath: /e}]";
    let spec = "hostUsers: false\nvolumes: [{name: e, emptyDir: {}}]";
    let says = "[sh, -c, 'echo hello > /dev/stdout; exec sleep 1000']";
    instance.write("own.yaml", &sleeping("own", spec, container).replace("[sleep, '1000']", says));
    instance.write("two.yaml", &sleeping("two", &format!("{spec}\nshareProcessNamespace: true"), container));
    let ids = |instance: &Instance, name: &str| {
        let pod = instance.ready(name);
        let map = instance.exec(name, "cat /proc/self/uid_map");
        let numbers: Vec<u32> = map.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        assert_eq!((numbers[0], numbers[2]), (0, 65_536), "{map}");
        let outside =
            fs::read_to_string(format!("/proc/{}/status", instance.pid(&pod, "main"))).expect("runs");
        assert!(outside.contains(&format!("Uid:\t{0}\t{0}", numbers[1])), "{outside}");
        numbers[1]
    };
    let (one, two) = (ids(&instance, "own"), ids(&instance, "two"));
    assert!(one >= 65_536 && one.abs_diff(two) >= 65_536, "{one} {two}");
    let script =
        "id -u; stat -c '%u %g' /bin /bin/busybox /etc/hosts /e; touch /new /e/new && stat -c %u /new /e/new";
    assert_eq!(instance.exec("own", script), "0\n0 0\n0 0\n0 0\n0 0\n0\n0");
    let uid = instance.pod("own").expect("it runs").uid();
    let volume =
        instance.root().join(format!("var/lib/podling/pods/{uid}/volumes/kubernetes.io~empty-dir/e/new"));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(volume).expect("it was made"));
    assert_eq!(owner, 0, "on the disk it is root's");
    assert!(instance.exec("own", "ip -o addr show eth0").contains("inet "));
    assert_eq!(instance.ok(&["logs", "own"]), "hello\n");

    let before = instance.pod("own").expect("it runs");
    instance.restart_podling();
    assert_eq!(instance.ready("own").id("main"), before.id("main"));
    host::signal(instance.pid(&before, "main"), rustix::process::Signal::KILL);
    instance.until_pod("own", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(ids(&instance, "own"), one, "the ids stay");
    assert_eq!(instance.exec("own", "stat -c %u /e/new"), "0");
}

#[test]
fn a_pod_with_users_of_its_own_has_all_kinds_of_volumes_read_only_too() {
    let instance = Instance::start();
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o711)).expect("ours");
    // On the host nothing there can be run, which cannot be lifted from inside.
    let host = instance.root().join("host");
    fs::create_dir_all(&host).expect("writable");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("podling-test", &host, "tmpfs", flags, c"mode=0755").expect("root may mount");
    fs::write(host.join("of-host"), "host").expect("writable");
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {key: value}\n---\n";
    let spec = format!(
        "hostUsers: false\nsecurityContext: {{runAsUser: 1000, fsGroup: 2000}}\nvolumes: [{{name: m, configMap: \
        {{name: m}}}}, {{name: p, projected: {{sources: [{{downwardAPI: {{items: [{{path: name, fieldRef: \
        {{fieldPath: metadata.name}}}}]}}}}]}}}}, {{name: e, emptyDir: {{medium: Memory}}}}, {{name: h, hostPath: \
        {{path: {}}}}}, {{name: d, hostPath: {{path: /dev/zero, type: CharDevice}}}}]",
        host.display()
    );
    let container = "securityContext: {readOnlyRootFilesystem: true}\nvolumeMounts: [{name: m, mountPath: /m}, {name: m, \
        mountPath: /key, subPath: key}, {name: p, mountPath: /p, readOnly: true}, {name: e, mountPath: /e}, {name: h, \
        mountPath: /h, readOnly: true}, {name: h, mountPath: /w}, {name: d, mountPath: /dev/nought, readOnly: true}]";
    let text = sleeping("all", &spec, container)
        .replace("name: all}", "name: all, annotations: {podling.dev/devices: '/dev/full:/dev/brimful:rw'}}");
    instance.write("all.yaml", &(object.to_owned() + &text));
    instance.ready("all");
    let script = "cat /m/key /key /p/name /h/of-host; echo; stat -c '%u %g' -L /m/key; touch /e/new && stat -c '%u %g' /e/new";
    assert_eq!(instance.exec("all", script), "valuevalueallhost\n0 2000\n1000 2000");
    assert_eq!(instance.exec("all", "head -c 3 /dev/nought | od -An -tx1"), " 00 00 00");
    let full = "echo x 2>/dev/null > /dev/brimful || echo full; ls -l /dev/brimful | cut -c1";
    assert_eq!(instance.exec("all", full), "full\nc");
    let mounts = "while read -r _ path _ options _; do case $path in / | /[mphw]) echo $path ${options%%,*} ;; esac; \
        done < /proc/mounts | sort";
    assert_eq!(instance.exec("all", mounts), "/ ro\n/h ro\n/m ro\n/p ro\n/w rw");
    instance.remove("all.yaml");
    instance.gone("all");
    rustix::mount::unmount(&host, rustix::mount::UnmountFlags::DETACH).expect("mounted above");
}

#[test]
fn a_pod_with_users_of_its_own_sees_an_image_of_several_layers_as_a_volume() {
    let images = vec![Image::shell("test/shell:1"), Image::shell("test/model:1").with("Cmd", json!(["sh"]))];
    let instance = Instance::with(Options { images, ..Options::default() });
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o711)).expect("ours");
    let spec = "hostUsers: false\nvolumes: [{name: m, image: {reference: 'test/model:1'}}]";
    let container = "volumeMounts: [{name: m, mountPath: /m}, {name: m, mountPath: /part, subPath: etc/image}, {name: m, \
        mountPath: /dir, subPath: bin}]";
    instance.write("model.yaml", &sleeping("model", spec, container));
    instance.ready("model");
    assert_eq!(instance.exec("model", "cat /m/etc/image /part"), "test/model:1\ntest/model:1");
    assert_eq!(
        instance.exec("model", "stat -c %u:%g /m/etc/image /m/bin/busybox /part /dir"),
        "0:0\n0:0\n0:0\n0:0"
    );
    let refused = "touch /m/x 2>/dev/null || echo refused; /dir/busybox true 2>/dev/null || echo refused";
    assert_eq!(instance.exec("model", refused), "refused\nrefused");
    instance.remove("model.yaml");
    instance.gone("model");
}

#[test]
fn an_unmasked_proc_is_for_pods_with_users_of_their_own() {
    let instance = Instance::start();
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o711)).expect("ours");
    let unmasked = "securityContext: {procMount: Unmasked}";
    instance.write("open.yaml", &sleeping("open", "hostUsers: false", unmasked));
    instance.write("usual.yaml", &sleeping("usual", "hostUsers: false", ""));
    let covered = |pod: &str| {
        instance.ready(pod);
        instance.exec(pod, "grep -c ' /proc/sys ' /proc/self/mountinfo || true")
    };
    assert_eq!((covered("open"), covered("usual")), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn under_a_private_containerd_users_of_their_own_need_a_way_through() {
    let instance = Instance::with(Options { embedded: true, ..Options::default() });
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o700)).expect("ours");
    instance.write("own.yaml", &sleeping("own", "hostUsers: false", ""));
    instance.until("the directory in the way is named", |i| {
        i.describes("own", &format!("{} lets only its owner through", i.root().display())).then_some(())
    });
    fs::set_permissions(instance.root(), fs::Permissions::from_mode(0o711)).expect("ours");
    instance.ready("own");
    assert_eq!(instance.exec("own", "id -u"), "0");
    let mode =
        |path: &str| fs::metadata(instance.root().join(path)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("run/podling"), mode("run/podling/sandboxes")), (0o711, 0o700));
}

#[test]
fn a_privileged_container_can_write_sys_beside_one_that_cannot() {
    let instance = Instance::start();
    let text = sleeping("mixed", "", "")
        + "  - name: strong\n    image: test/shell:1\n    command: [sleep, '1000']\n    securityContext: {privileged: true}\n";
    instance.write("mixed.yaml", &text);
    instance.ready("mixed");
    let access = |container: &str| {
        let look = "grep ' /sys ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1";
        instance.ok(&["exec", "mixed", "-c", container, "--", "sh", "-c", look]).trim().to_owned()
    };
    assert_eq!((access("main").as_str(), access("strong").as_str()), ("ro", "rw"));
}
