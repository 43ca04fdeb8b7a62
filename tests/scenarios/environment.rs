//! Variables, ConfigMaps and Secrets: what the container itself sees of them.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{Instance, Options, shell, sleeper};

/// Runs until TERM and then ends at once.
const SLEEP: &str = "trap 'exit 0' TERM; sleep 1d & wait";

/// A pod whose container writes its environment into its log and sleeps. `env` are lines of the container.
fn told(name: &str, env: &str) -> String {
    let mut text = shell(name, &format!("env; echo end; {SLEEP}"), "");
    for line in env.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn annotated(manifest: &str) -> String {
    manifest.replacen("spec:\n", "  annotations: {podling.dev/restart-on-change: \"true\"}\nspec:\n", 1)
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{A: {value}}}\n")
}

fn secret(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{token: {value}}}\n")
}

/// As [`Instance::write`], readable for its owner only.
fn write_private(instance: &Instance, file: &str, text: &str) {
    write_with(instance, file, text, 0o600);
}

fn write_with(instance: &Instance, file: &str, text: &str, mode: u32) {
    let staged = instance.root().join("stage").join(file);
    std::fs::write(&staged, text).expect("the test's directory is writable");
    std::fs::set_permissions(&staged, PermissionsExt::from_mode(mode)).expect("the file is ours");
    std::fs::rename(staged, instance.manifests().join(file)).expect("the manifest directory is writable");
}

/// The variables that the container of a pod was given.
fn seen(instance: &Instance, pod: &str) -> Vec<String> {
    let log = instance.until("its environment", |i| {
        let log = i.ok(&["logs", pod]);
        log.contains("\nend").then_some(log)
    });
    log.lines().map(str::to_owned).collect()
}

fn has(all: &[String], wanted: &str) {
    assert!(all.iter().any(|line| line == wanted), "no {wanted} in {all:?}");
}

#[test]
fn variables_come_from_objects_in_the_same_file_and_from_the_pod_itself() {
    let instance = Instance::start();
    let env = "\
envFrom:
- {prefix: C_, configMapRef: {name: conf}}
- {secretRef: {name: pass}}
- {configMapRef: {name: none, optional: true}}
resources: {limits: {memory: 64Mi}, requests: {cpu: 10m}}
env:
- {name: A, value: x}
- {name: B, value: \"$(A)/$(NOPE)/$$(A)/$(C_A)\"}
- {name: token, value: own}
- {name: KEY, valueFrom: {secretKeyRef: {name: pass, key: token}}}
- {name: GONE, valueFrom: {configMapKeyRef: {name: conf, key: zz, optional: true}}}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
- {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
- {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}";
    let text =
        format!("{}---\n{}---\n{}", config_map("conf", "map"), secret("pass", "s3cr3t"), told("web", env));
    write_private(&instance, "web.yaml", &text);
    let pod = instance.ready("web");
    let all = seen(&instance, "web");
    for wanted in
        ["C_A=map", "token=own", "A=x", "B=x/$(NOPE)/$(A)/map", "KEY=s3cr3t", "POD=web", "MEM=64", "CPU=10"]
    {
        has(&all, wanted);
    }
    has(&all, &format!("POD_UID={}", pod.uid()));
    // On the host's network the pod's address is the host's.
    let of = |name: &str| all.iter().find_map(|l| l.strip_prefix(name)).expect("an address").to_owned();
    assert!(!of("POD_IP=").is_empty() && of("POD_IP=") == of("HOST_IP="), "{all:?}");
    assert!(!all.iter().any(|line| line.starts_with("GONE=")));
    assert!(
        !instance.log().contains("s3cr3t") && !instance.ok(&["describe", "pod", "web"]).contains("s3cr3t")
    );
}

#[test]
fn a_pod_waits_for_a_missing_secret_by_name_and_starts_when_it_comes() {
    let instance = Instance::start();
    let from = "env: [{name: KEY, valueFrom: {secretKeyRef: {name: pass, key: token}}}]";
    let optional = "env: [{name: KEY, valueFrom: {secretKeyRef: {name: pass, key: token, optional: true}}}]";
    instance.write("web.yaml", &told("web", from));
    instance.write("free.yaml", &told("free", optional));
    instance.ready("free");
    let waits = instance.until_pod("web", "waiting", |p| p.waiting("main") == "CreateContainerConfigError");
    let message = waits.waiting_message("main");
    assert!(message.starts_with("secret \"pass\" not found"), "{message}");
    assert!(message.ends_with("(`podling get pods` names the files that were refused)"), "{message}");
    assert!(instance.describes("web", "secret \"pass\" not found"));

    write_private(&instance, "pass.yaml", &secret("pass", "t").replace("token", "other"));
    let key = "couldn't find key token in Secret default/pass";
    instance.until_pod("web", "the key is missing", |p| p.waiting_message("main").starts_with(key));
    write_private(&instance, "pass.yaml", &secret("pass", "t"));
    instance.ready("web");
    has(&seen(&instance, "web"), "KEY=t");
    assert_eq!(instance.ready("free").restarts("main"), 0);
}

#[test]
fn a_secret_that_everybody_can_read_is_refused_and_the_accepted_one_stays() {
    let mut instance = Instance::start();
    write_with(&instance, "pass.yaml", &secret("pass", "open"), 0o644);
    let from = "env: [{name: KEY, valueFrom: {secretKeyRef: {name: pass, key: token}}}]";
    instance.write("web.yaml", &told("web", from));
    instance
        .until_pod("web", "waiting", |p| p.waiting_message("main").starts_with("secret \"pass\" not found"));
    instance.until("the remedy", |i| i.says("chmod 0600").then_some(()));
    // The same content, closed.
    let file = instance.manifests().join("pass.yaml");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("the file is ours");
    instance.ready("web");
    has(&seen(&instance, "web"), "KEY=open");

    // Open again with another content, over a restart of podling: the accepted one is what pods get.
    write_with(&instance, "pass.yaml", &secret("pass", "worse"), 0o644);
    instance.until("it is kept", |i| i.says("Secret default/pass stays as last accepted").then_some(()));
    instance.restart_podling();
    instance.write("late.yaml", &told("late", from));
    instance.ready("late");
    has(&seen(&instance, "late"), "KEY=open");
}

#[test]
fn an_immutable_object_keeps_its_data_until_it_is_removed() {
    let instance = Instance::start();
    let fixed = |value: &str| config_map("conf", value) + "immutable: true\n";
    let from = "envFrom: [{configMapRef: {name: conf}}]";
    instance.write("conf.yaml", &fixed("one"));
    instance.write("a.yaml", &told("a", from));
    instance.ready("a");
    instance.write("conf.yaml", &fixed("two"));
    instance.until("it is refused", |i| i.says("is immutable and its data changed").then_some(()));
    instance.write("b.yaml", &told("b", from));
    instance.ready("b");
    has(&seen(&instance, "b"), "A=one");
    instance.remove("conf.yaml");
    std::thread::sleep(Duration::from_secs(1));
    instance.write("conf.yaml", &fixed("two"));
    instance.until("it is taken", |i| i.says("the problem is over").then_some(()));
    instance.write("c.yaml", &told("c", from));
    instance.ready("c");
    has(&seen(&instance, "c"), "A=two");
}

#[test]
fn a_change_of_data_restarts_annotated_pods_only_also_when_it_came_while_podling_was_down() {
    let mut instance = Instance::start();
    let from = "envFrom: [{configMapRef: {name: conf}}]";
    instance.write("conf.yaml", &config_map("conf", "one"));
    instance.write("plain.yaml", &told("plain", from));
    instance.write("web.yaml", &annotated(&told("web", from)));
    let (plain, first) = (instance.ready("plain"), instance.ready("web"));

    instance.write("conf.yaml", &config_map("conf", "two"));
    let second =
        instance.until_pod("web", "another container", |p| p.is_ready() && p.id("main") != first.id("main"));
    assert_eq!(second.uid(), first.uid());
    has(&seen(&instance, "web"), "A=two");

    // Nothing changed: nothing restarts.
    instance.restart_podling();
    assert_eq!(instance.ready("web").id("main"), second.id("main"));
    instance.stop_podling();
    instance.write("conf.yaml", &config_map("conf", "three"));
    instance.start_podling();
    instance.until_pod("web", "a third container", |p| p.is_ready() && p.id("main") != second.id("main"));
    has(&seen(&instance, "web"), "A=three");
    // A missing object stops nothing.
    let third = instance.ready("web");
    instance.remove("conf.yaml");
    instance.stays(Duration::from_secs(3), "the container", |i| {
        i.pod("web").is_some_and(|p| p.id("main") == third.id("main") && p.is_ready())
    });
    assert_eq!(instance.ready("plain").id("main"), plain.id("main"));
}

#[test]
fn a_change_of_data_restarts_the_sidecar_that_uses_it_and_nothing_else() {
    let instance = Instance::start();
    instance.write("conf.yaml", &config_map("conf", "one"));
    let side = format!(
        "  initContainers:\n  - name: side\n    image: test/shell:1\n    restartPolicy: Always\n    command: [sh, -c, \"{SLEEP}\"]\n    envFrom: [{{configMapRef: {{name: conf}}}}]\n  containers:\n"
    );
    instance.write("web.yaml", &annotated(&told("web", "")).replacen("  containers:\n", &side, 1));
    let first = instance.ready("web");
    instance.write("conf.yaml", &config_map("conf", "two"));
    let second =
        instance.until_pod("web", "another sidecar", |p| p.is_ready() && p.id("side") != first.id("side"));
    assert_eq!(second.id("main"), first.id("main"));
    has(
        &instance
            .ok(&["exec", "web", "-c", "side", "--", "env"])
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
        "A=two",
    );
    instance.stays(Duration::from_secs(2), "the new one", |i| {
        i.pod("web").is_some_and(|p| p.id("side") == second.id("side") && p.id("main") == first.id("main"))
    });
}

#[test]
fn a_file_of_variables_written_by_an_init_container_reaches_the_next() {
    let instance = Instance::start();
    let more = "\
volumes: [{name: data, emptyDir: {}}]
initContainers:
- name: writer
  image: test/shell:1
  command: [sh, -c, \"echo \\\"DB='a b'\\\" > /data/env\"]
  volumeMounts: [{name: data, mountPath: /data}]";
    let mut text = shell("web", &format!("env; echo end; {SLEEP}"), more);
    text.push_str("    env: [{name: DB, valueFrom: {fileKeyRef: {volumeName: data, path: env, key: DB}}}]\n");
    instance.write("web.yaml", &text);
    instance.ready("web");
    has(&seen(&instance, "web"), "DB=a b");
}

#[test]
fn objects_in_a_directory_of_their_own_are_used_and_pods_in_it_are_refused() {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o700)).expect("ours");
    std::fs::write(home.path().join("conf.yaml"), config_map("conf", "apart")).expect("writable");
    std::fs::write(home.path().join("stray.yaml"), sleeper("stray")).expect("writable");
    let settings = format!("objectDirs: [{}]\n", home.path().display());
    let instance = Instance::with(Options { settings, ..Options::default() });
    instance.write("web.yaml", &told("web", "envFrom: [{configMapRef: {name: conf}}]"));
    instance.ready("web");
    has(&seen(&instance, "web"), "A=apart");
    instance.until("the stray pod is told", |i| i.says("for ConfigMaps and Secrets only").then_some(()));
    assert!(instance.pod("stray").is_none());
    std::fs::remove_file(home.path().join("conf.yaml")).expect("ours");
}

#[test]
fn a_pod_runs_beside_kinds_that_are_not_for_here_and_each_is_told() {
    let instance = Instance::start();
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {}\n";
    instance.write("all.yaml", &format!("{deployment}---\n{service}---\n{}", sleeper("web")));
    instance.ready("web");
    instance.until("both", |i| {
        (i.says("this Deployment is not run") && i.says("this Service is not run")).then_some(())
    });
}
