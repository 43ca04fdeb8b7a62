//! What podling finds at its start: records that are damaged, lost or one too many, and containers whose
//! creation was cut short. Pods go on as they are wherever anything tells which they are.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;

use crate::support::manifest::SLEEP;
use crate::support::{Instance, PodView, host, seconds, shell, sleeper};

fn record(instance: &Instance, pod: &PodView, file: &str) -> PathBuf {
    instance.root().join("var/lib/podling/pods").join(pod.uid()).join(file)
}

fn cut(path: &PathBuf) {
    let bytes = fs::read(path).expect("it was written");
    fs::write(path, &bytes[..bytes.len() / 2]).expect("writable");
}

/// The first process of `main`, gone as soon as it has ended.
fn pid(instance: &Instance, pod: &PodView) -> u32 {
    let pid = instance.pid(pod, "main");
    assert!(pid > 0, "{} has no process", pod.name());
    pid
}

#[test]
fn pods_with_damaged_records_are_taken_back_with_the_same_processes() {
    let mut instance = Instance::start();
    for name in ["spec", "status", "both"] {
        instance.write(&format!("{name}.yaml"), &sleeper(name));
    }
    let before = ["spec", "status", "both"].map(|name| instance.ready(name));
    let pids = before.each_ref().map(|view| pid(&instance, view));
    instance.kill_podling();
    cut(&record(&instance, &before[0], "pod.json"));
    cut(&record(&instance, &before[1], "status.json"));
    cut(&record(&instance, &before[2], "pod.json"));
    cut(&record(&instance, &before[2], "status.json"));
    instance.start_podling();
    instance
        .until("the damage is reported", |i| i.ok(&["get", "events"]).contains("DamagedState").then_some(()));
    instance.stays(seconds(3), "the same processes run", |i| {
        let after = ["spec", "status", "both"].map(|name| i.ready(name));
        after.each_ref().map(|view| i.pid(view, "main")) == pids
            && after.iter().zip(&before).all(|(a, b)| a.uid() == b.uid())
    });
}

#[test]
fn a_pod_edited_while_its_record_was_lost_never_runs_twice() {
    let mut instance = Instance::start();
    let script = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done";
    instance.write("web.yaml", &shell("web", script, ""));
    let before = instance.ready("web");
    let old = pid(&instance, &before);
    instance.kill_podling();
    cut(&record(&instance, &before, "pod.json"));
    instance.write("web.yaml", &shell("web", SLEEP, "hostname: other"));
    instance.start_podling();
    instance.until("the new pod runs", |i| {
        let now = i.pods().into_iter().find(|p| p.uid() != before.uid() && p.is_ready());
        assert!(now.is_none() || !host::alive(old), "both run");
        now
    });
}

#[test]
fn a_pod_removed_added_and_removed_around_kills_leaves_nothing() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let first = instance.ready("web");
    instance.kill_podling();
    // As a kill in the middle of cleaning up behind a pod that was added again leaves it: two records on
    // their way out, one name.
    let other = "5e11a2c4-0000-4000-8000-000000000001";
    let path = record(&instance, &first, "pod.json");
    let text = fs::read_to_string(&path)
        .expect("it was written")
        .replace("\"removing\": false", "\"removing\": true");
    fs::write(&path, &text).expect("writable");
    let twin = instance.root().join("var/lib/podling/pods").join(other);
    fs::create_dir(&twin).expect("writable");
    fs::write(twin.join("pod.json"), text.replace(&first.uid(), other)).expect("writable");
    instance.remove("web.yaml");
    instance.start_podling();
    instance.until("both are gone", |i| {
        let left = fs::read_dir(i.root().join("var/lib/podling/pods")).expect("it is there").count();
        (left == 0 && i.pods().is_empty()).then_some(())
    });
}

#[test]
fn a_state_directory_that_is_lost_while_pods_run_is_written_again() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let pids = pid(&instance, &before);
    fs::remove_dir_all(instance.root().join("var/lib/podling/pods")).expect("it is there");
    // Anything that makes podling look at the pod.
    instance.write("web.yaml", &sleeper("web").replace("name: web\n", "name: web\n  labels: {a: b}\n"));
    instance.until("the record is there again", |i| record(i, &before, "status.json").exists().then_some(()));
    instance.kill_podling();
    instance.start_podling();
    assert_eq!(pid(&instance, &instance.ready("web")), pids);
}

#[test]
fn pods_show_while_containerd_is_away_and_the_absence_is_told() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let kept = pid(&instance, &before);
    instance.kill_containerd();
    instance.until("its absence shows", |i| {
        let output = i.podling(&["get", "pods"]);
        String::from_utf8_lossy(&output.stderr).contains("ContainerdUnavailable").then_some(())
    });
    instance.write("late.yaml", &sleeper("late"));
    instance.until_pod("late", "waits and shows", |p| !p.is_ready());
    instance.kill_podling();
    instance.spawn_podling();
    instance.until_pod("web", "shows before containerd is there", |p| p.is_ready());
    instance.start_containerd();
    instance.ready("late");
    assert_eq!(pid(&instance, &instance.ready("web")), kept);
}

#[test]
fn a_shim_left_by_a_creation_that_was_cut_short_holds_nothing_up() {
    let mut instance = Instance::start();
    for round in 0..8_u64 {
        instance.write("web.yaml", &shell("web", SLEEP, &format!("hostname: h{round}")));
        // Around the time at which containerd starts the shim.
        sleep(std::time::Duration::from_millis(210 + round * 15));
        instance.kill_podling();
        instance.spawn_podling();
    }
    instance.ready("web");
    instance.remove("web.yaml");
    instance.gone("web");
}
