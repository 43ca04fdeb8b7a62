//! ConfigMaps, Secrets and the pod's own fields as files: what containers see of them, and how they change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::manifest::SLEEP;
use crate::support::{Instance, PodView, host, seconds, shell};

/// A pod that mounts each of `volumes` (name and source, as YAML) at `/<name>`.
fn pod_with(name: &str, volumes: &[(&str, &str)]) -> String {
    let sources: Vec<String> = volumes.iter().map(|(v, source)| format!("{{name: {v}, {source}}}")).collect();
    let mounts: Vec<String> =
        volumes.iter().map(|(v, _)| format!("{{name: {v}, mountPath: /{v}}}")).collect();
    let more = format!("volumes: [{}]", sources.join(", "));
    shell(name, SLEEP, &more) + &format!("    volumeMounts: [{}]\n", mounts.join(", "))
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {data}\n")
}

fn secret(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {data}\n")
}

/// Puts a file in place that only its owner can read, as one with a Secret must be.
fn write_private(instance: &Instance, file: &str, text: &str) {
    let staged = instance.root().join("stage").join(file);
    fs::write(&staged, text).expect("writable");
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::rename(staged, instance.manifests().join(file)).expect("writable");
}

/// Waits until a script in the pod prints this.
fn prints(instance: &Instance, pod: &str, script: &str, wanted: &str) {
    instance.until(&format!("{script:?} in {pod} prints {wanted:?}"), |i| {
        let out = i.podling(&["exec", pod, "--", "sh", "-c", script]);
        (String::from_utf8_lossy(&out.stdout).trim_end() == wanted).then_some(())
    });
}

/// What must not change when files do.
fn same(instance: &Instance, pod: &PodView) -> bool {
    let now = instance.ready(&pod.name());
    (now.id("main"), now.restarts("main")) == (pod.id("main"), pod.restarts("main"))
}

#[test]
fn objects_in_the_pods_own_file_are_files_in_memory_that_change_as_one() {
    let instance = Instance::start();
    let volumes =
        [("cfg", "configMap: {name: app}"), ("key", "secret: {secretName: app, defaultMode: 0400}")];
    let file = |n: u32| {
        let config = config_map("app", &format!("{{a: one {n}, b: two {n}, b{n}: x}}"));
        let secret = secret("app", &format!("{{password: pw{n}}}"));
        format!("{config}---\n{secret}---\n{}", pod_with("web", &volumes))
    };
    write_private(&instance, "web.yaml", &file(1));
    let before = instance.ready("web");
    assert_eq!(instance.exec("web", "cd /cfg; cat a; echo; cat b; echo; ls"), "one 1\ntwo 1\na\nb\nb1");
    assert_eq!(
        instance.exec("web", "stat -L -c '%a %u:%g' /key/password; cat /key/password"),
        "400 0:0\npw1"
    );
    assert_eq!(instance.exec("web", "stat -f -c %T /cfg /key"), "tmpfs\ntmpfs");
    let refused = instance.podling(&["exec", "web", "--", "sh", "-c", "echo x > /cfg/a || echo x > /key/y"]);
    assert!(!refused.status.success(), "such volumes are read-only");
    // Both files are read by way of one open directory: they are of one time, whenever that is.
    let pair = "cd /cfg/..data && a=$(cat a) && b=$(cat b) && echo \"${a#* } ${b#* }\"";
    for n in 2..5 {
        write_private(&instance, "web.yaml", &file(n));
        instance.until("the files changed", |i| {
            let out = i.podling(&["exec", "web", "--", "sh", "-c", pair]);
            let text = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
            let (a, b) = text.split_once(' ').unwrap_or_default();
            assert_eq!(a, b, "parts of two times");
            (a == n.to_string()).then_some(())
        });
        prints(&instance, "web", "ls /cfg; cat /key/password", &format!("a\nb\nb{n}\npw{n}"));
    }
    assert!(same(&instance, &before), "nothing restarts");
    assert_eq!(instance.exec("web", "ls -a /cfg | grep -c '^\\.\\.2'"), "1", "old content is gone");
}

#[test]
fn a_mode_means_the_same_in_every_spelling_and_one_meant_in_octal_is_refused() {
    let instance = Instance::start();
    instance.write("map.yaml", &config_map("app", "{a: x}"));
    for (name, mode) in [("one", "0400"), ("two", "256"), ("three", "0o400")] {
        let item = format!("configMap: {{name: app, items: [{{key: a, path: d/a, mode: {mode}}}]}}");
        let volume = format!("configMap: {{name: app, defaultMode: {mode}}}");
        instance.write(&format!("{name}.yaml"), &pod_with(name, &[("v", &volume), ("w", &item)]));
    }
    for name in ["one", "two", "three"] {
        instance.ready(name);
        assert_eq!(instance.exec(name, "stat -L -c %a /v/a /w/d/a /w/d"), "400\n400\n755");
    }
    let wrong = instance.root().join("wrong.yaml");
    fs::write(&wrong, pod_with("wrong", &[("v", "configMap: {name: app, defaultMode: 600}")]))
        .expect("writable");
    let said = instance.fails(1, &["check", &wrong.display().to_string()]);
    assert!(said.contains("configMap.defaultMode") && said.contains("did you mean 0600?"), "{said}");
}

#[test]
fn a_pod_waits_for_a_missing_object_by_name_and_starts_when_it_comes() {
    let instance = Instance::start();
    instance.write("needs.yaml", &pod_with("needs", &[("key", "secret: {secretName: token}")]));
    let items = "configMap: {name: app, items: [{key: late, path: late}]}";
    instance
        .write("key.yaml", &(config_map("app", "{early: x}") + "---\n" + &pod_with("key", &[("v", items)])));
    let optional = "secret: {secretName: token, optional: true}";
    instance.write("may.yaml", &pod_with("may", &[("key", optional)]));
    let may = instance.ready("may");
    assert_eq!(instance.exec("may", "ls /key"), "");
    instance.until_pod("needs", "names the Secret", |p| {
        p.waiting_message("main").contains("Secret default/token") && !p.is_running("main")
    });
    instance.until_pod("key", "names the key", |p| {
        p.waiting_message("main").contains("key \"late\" of ConfigMap default/app")
    });
    write_private(&instance, "token.yaml", &secret("token", "{t: abc}"));
    instance.write(
        "key.yaml",
        &(config_map("app", "{late: here}") + "---\n" + &pod_with("key", &[("v", items)])),
    );
    instance.ready("needs");
    instance.ready("key");
    assert_eq!(instance.exec("needs", "cat /key/t"), "abc");
    assert_eq!(instance.exec("key", "cat /v/late"), "here");
    prints(&instance, "may", "cat /key/t", "abc");
    assert!(same(&instance, &may), "what was optional appears without a restart");
}

#[test]
fn labels_annotations_and_resources_are_files_that_follow_the_manifest() {
    let instance = Instance::start();
    let items = "downwardAPI: {items: [\
        {path: labels, fieldRef: {fieldPath: metadata.labels}}, \
        {path: note, mode: 0440, fieldRef: {fieldPath: \"metadata.annotations['note']\"}}, \
        {path: own/uid, fieldRef: {fieldPath: metadata.uid}}, \
        {path: own/name, fieldRef: {fieldPath: metadata.name}}, \
        {path: own/mem, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}]}";
    let file = |n: u32| {
        let text = pod_with("web", &[("me", items)]) + "    resources: {limits: {memory: 64Mi}}\n";
        let meta =
            format!("metadata:\n  labels: {{app: web, version: v{n}}}\n  annotations: {{note: n{n}}}\n");
        text.replacen("metadata:\n", &meta, 1)
    };
    instance.write("web.yaml", &file(1));
    let before = instance.ready("web");
    let script =
        "cd /me; cat labels; echo; cat note; echo; cat own/name; echo; cat own/mem; echo; cat own/uid";
    let wanted = |n: u32| format!("app=\"web\"\nversion=\"v{n}\"\nn{n}\nweb\n64\n{}", before.uid());
    assert_eq!(instance.exec("web", script), wanted(1));
    assert_eq!(instance.exec("web", "stat -L -c %a /me/note /me/labels"), "440\n644");
    instance.write("web.yaml", &file(2));
    prints(&instance, "web", script, &wanted(2));
    assert!(same(&instance, &before), "nothing restarts");
}

#[test]
fn a_projected_volume_joins_its_sources_and_tokens_are_refused_by_name() {
    let instance = Instance::start();
    let sources = "projected: {defaultMode: 0440, sources: [\
        {configMap: {name: app}}, \
        {secret: {name: app, items: [{key: password, path: secret/pw, mode: 0400}]}}, \
        {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, \
        {configMap: {name: none, optional: true}}]}";
    let objects = config_map("app", "{a: x}") + "---\n" + &secret("app", "{password: pw}") + "---\n";
    write_private(&instance, "web.yaml", &(objects + &pod_with("web", &[("all", sources)])));
    let before = instance.ready("web");
    let script = "cd /all; cat a secret/pw name; echo; stat -L -c %a a secret/pw name";
    assert_eq!(instance.exec("web", script), "xpwweb\n440\n400\n440");
    write_private(&instance, "none.yaml", &config_map("none", "{late: z}"));
    prints(&instance, "web", "cat /all/late", "z");
    assert!(same(&instance, &before));
    let token = pod_with("token", &[("t", "projected: {sources: [{serviceAccountToken: {path: token}}]}")]);
    let wrong = instance.root().join("token.yaml");
    fs::write(&wrong, token).expect("writable");
    let said = instance.fails(1, &["check", &wrong.display().to_string()]);
    assert!(said.contains("serviceAccountToken is not supported"), "{said}");
}

#[test]
fn files_follow_what_changed_while_podling_was_down_and_through_kills() {
    let mut instance = Instance::start();
    let volumes = [("cfg", "configMap: {name: app}"), ("more", "configMap: {name: more, optional: true}")];
    instance.write("web.yaml", &pod_with("web", &volumes));
    instance.write("map.yaml", &config_map("app", "{a: '0', gone: x}"));
    let before = instance.ready("web");
    instance.stop_podling();
    instance.write("map.yaml", &config_map("app", "{a: '1'}"));
    instance.write("more.yaml", &config_map("more", "{b: '1'}"));
    instance.start_podling();
    prints(&instance, "web", "cat /cfg/a /more/b; ls /cfg", "11a");
    for round in 2..10_u64 {
        instance.write("map.yaml", &config_map("app", &format!("{{a: '{round}', k{round}: x}}")));
        // From before the change is seen to after it was written; spread, but the same on each run.
        sleep(Duration::from_millis(round * 90));
        instance.kill_podling();
        let seen = fs::read_dir(cfg_dir(&instance, &before)).expect("it stays while podling is away");
        assert!(seen.count() >= 3, "there is content all the time");
        instance.spawn_podling();
    }
    prints(&instance, "web", "cat /cfg/a; ls -A /cfg | grep -v '^\\.\\.'; ls -A /cfg | wc -l", "9a\nk9\n4");
    assert!(same(&instance, &before), "nothing restarts");
}

fn cfg_dir(instance: &Instance, pod: &PodView) -> std::path::PathBuf {
    let pods = instance.root().join("var/lib/podling/pods");
    pods.join(pod.uid()).join("volumes/kubernetes.io~configmap/cfg")
}

#[test]
fn an_object_that_is_removed_leaves_its_files_and_a_warning() {
    let instance = Instance::start();
    instance.write("web.yaml", &pod_with("web", &[("cfg", "configMap: {name: app}")]));
    instance.write("map.yaml", &config_map("app", "{a: '1'}"));
    let before = instance.ready("web");
    instance.remove("map.yaml");
    instance.until("it is said", |i| {
        let events = i.ok(&["get", "events"]);
        (events.contains("ConfigMap default/app") && events.contains("keeps the files it has")).then_some(())
    });
    assert_eq!(instance.exec("web", "cat /cfg/a"), "1");
    // A container that ends meanwhile comes back with them.
    host::signal(instance.pid(&before, "main"), Signal::KILL);
    instance.until_pod("web", "was restarted", |p| p.is_ready() && p.restarts("main") >= 1);
    assert_eq!(instance.exec("web", "cat /cfg/a"), "1");
    instance.write("map.yaml", &config_map("app", "{a: '2'}"));
    prints(&instance, "web", "cat /cfg/a", "2");
    instance.stays(seconds(1), "it runs on", |i| i.pod("web").is_some_and(|p| p.is_ready()));
}
