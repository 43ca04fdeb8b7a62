use super::*;
use crate::manifest::{ReadOptions, read};

const BASE: &str = "apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: b}}
spec:
  terminationGracePeriodSeconds: 5
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: web
    image: i:1
    env: [{name: TOKEN, value: hush}]
    ports: [{containerPort: 80}]
    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 32Mi}}
  - {name: side, image: i:1}
";

fn manifest(text: &str) -> PodManifest {
    let documents = read(text.as_bytes(), &ReadOptions::default());
    let document = documents.into_iter().next().expect("a document");
    *document.pod.unwrap_or_else(|| panic!("{text}\n{:?}", document.diagnostics))
}

fn summary(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    Changes::between(&manifest(BASE), &manifest(&BASE.replace(from, to))).summary()
}

#[test]
fn the_effect_hangs_on_the_field() {
    for (from, to, expected) in [
        ("a: b", "a: c", "nothing restarts (metadata.labels[a]: b -> c)"),
        (
            "labels: {a: b}",
            "annotations: {x: z}",
            "nothing restarts (metadata.labels[a]: b -> (none), metadata.annotations[x]: (none) -> z)",
        ),
        ("Seconds: 5", "Seconds: 7", "nothing restarts (spec.terminationGracePeriodSeconds: 5 -> 7)"),
        ("image: i:1\n", "image: i:2\n", "restarting web (spec.containers[web].image: i:1 -> i:2)"),
        ("value: hush", "value: quiet", "restarting web (spec.containers[web].env[TOKEN].value: changed)"),
        ("image: i:1}", "image: i:2}", "restarting side (spec.containers[side].image: i:1 -> i:2)"),
        (
            "image: i:1}",
            "image: i:1, imagePullPolicy: Never}",
            "nothing restarts (spec.containers[side].imagePullPolicy: IfNotPresent -> Never)",
        ),
        ("image: i:1}", "image: i:1, securityContext: {}}", "nothing restarts ()"),
        (
            "containerPort: 80",
            "containerPort: 81",
            "nothing restarts (spec.containers[web].ports[0].containerPort: 80 -> 81)",
        ),
        (
            "containerPort: 80",
            "containerPort: 80, hostPort: 80",
            "the pod is made anew (spec.containers[web].ports[0].hostPort: (none) -> 80)",
        ),
        (
            "limits: {memory: 32Mi}",
            "limits: {memory: 64Mi}",
            "resizing in place (spec.containers[web].resources.limits[memory]: 32Mi -> 64Mi)",
        ),
        (
            "cpu: 100m",
            "cpu: 200m",
            "resizing in place (spec.containers[web].resources.requests[cpu]: 100m -> 200m)",
        ),
        ("  - {name: side, image: i:1}\n", "", "stopping side (spec.containers[side]: removed)"),
        (
            "  - {name: side",
            "  - {name: new, image: i:1}\n  - {name: side",
            "starting new (spec.containers[new]: added)",
        ),
        ("emptyDir: {}", "hostPath: {path: /x}", "the pod is made anew (spec.volumes[v].hostPath: added)"),
        (
            "  volumes",
            "  hostNetwork: true\n  volumes",
            "the pod is made anew (spec.hostNetwork: (none) -> true, spec.containers[web].ports[0].hostPort: (none) -> 80)",
        ),
        (
            "  volumes",
            "  initContainers: [{name: i, image: i:1}]\n  volumes",
            "the pod is made anew (spec.initContainers[i]: added)",
        ),
        (
            "  volumes",
            "  nodeSelector: {x: z}\n  volumes",
            "nothing restarts (spec.nodeSelector[x]: (none) -> z)",
        ),
    ] {
        assert_eq!(summary(from, to), expected, "{from} -> {to}");
    }
}

#[test]
fn a_resize_policy_of_restart_container_restarts_that_container() {
    let policy = |name: &str| {
        let text = format!(
            "    resizePolicy: [{{resourceName: {name}, restartPolicy: RestartContainer}}]\n    resources:"
        );
        BASE.replace("    resources:", &text)
    };
    let between = |policy: &str| {
        let new = policy.replace("limits: {memory: 32Mi}", "limits: {memory: 64Mi}");
        Changes::between(&manifest(policy), &manifest(&new))
    };
    assert!(between(&policy("memory")).ends("web"));
    assert!(between(&policy("cpu")).is_resize());
    // The policy itself is no reason.
    assert!(Changes::between(&manifest(BASE), &manifest(&policy("memory"))).is_harmless());
}

#[test]
fn another_qos_class_is_another_place_in_the_tree() {
    let text = summary("limits: {memory: 32Mi}", "limits: {cpu: 100m, memory: 16Mi}");
    assert!(text.starts_with("resizing") || text.starts_with("the pod is made anew"), "{text}");
    let alone = BASE.replace("  - {name: side, image: i:1}\n", "");
    let old = manifest(&alone);
    let new = manifest(&alone.replace("limits: {memory: 32Mi}", "limits: {cpu: 100m, memory: 16Mi}"));
    let changes = Changes::between(&old, &new);
    assert!(changes.recreates());
    assert!(changes.summary().contains("status.qosClass: Burstable -> Guaranteed"), "{}", changes.summary());
}

#[test]
fn the_order_of_containers_is_no_change_to_what_runs() {
    let web = BASE.find("  - name: web").expect("web");
    let side = BASE.find("  - {name: side").expect("side");
    let swapped = format!("{}{}{}", &BASE[..web], &BASE[side..], &BASE[web..side]);
    let changes = Changes::between(&manifest(BASE), &manifest(&swapped));
    assert_eq!(changes.summary(), "nothing restarts (spec.containers (order): web, side -> side, web)");
}

#[test]
fn a_container_that_is_removed_ends_by_its_old_entry_and_init_containers_that_ended_are_not_restarted() {
    let without = BASE.replace("  - {name: side, image: i:1}\n", "");
    assert!(Changes::between(&manifest(BASE), &manifest(&without)).ends("side"));
    let old = BASE.replace("  volumes", "  initContainers: [{name: first, image: i:1}]\n  volumes");
    let new = old.replace("labels: {a: b}", "labels: {a: b}, annotations: {podling.dev/ulimits: nofile=9}");
    let changes = Changes::between(&manifest(&old), &manifest(&new));
    assert!(changes.summary().starts_with("restarting side, web ("), "{}", changes.summary());
}

#[test]
fn what_an_earlier_podling_stored_without_its_defaults_is_no_change() {
    let mut old = manifest(BASE);
    let spec = old.pod.spec.as_mut().expect("a spec");
    spec.containers[0].image_pull_policy = None;
    spec.scheduler_name = None;
    let changes = Changes::between(&old, &manifest(&BASE.replace("a: b", "a: c")));
    assert_eq!(changes.summary(), "nothing restarts (metadata.labels[a]: b -> c)");
}

#[test]
fn annotations_that_podling_acts_on_have_their_effect() {
    let to = "labels: {a: b}, annotations: {podling.dev/shm-size: 32Mi}";
    assert!(summary("labels: {a: b}", to).starts_with("the pod is made anew"));
}

#[test]
fn a_pod_that_its_deadline_ended_begins_anew_with_another_one() {
    let longer = BASE.replace("spec:", "spec:\n  activeDeadlineSeconds: 90");
    let mut changes = Changes::between(&manifest(BASE), &manifest(&longer));
    assert!(changes.is_harmless());
    changes.after_deadline();
    assert_eq!(changes.summary(), "the pod is made anew (spec.activeDeadlineSeconds: (none) -> 90)");
    let mut others = Changes::between(&manifest(BASE), &manifest(&BASE.replace("a: b", "a: c")));
    others.after_deadline();
    assert!(others.is_harmless());
}
