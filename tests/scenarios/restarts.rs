//! podling, containerd and shims die and come back; pods that were not touched never notice.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::manifest::SLEEP;
use crate::support::{Image, Instance, Options, PodView, host, seconds, shell, sleeper};

fn quick() -> Options {
    Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    }
}

/// Pid of the container `main`, which must run.
fn pid(instance: &Instance, view: &PodView) -> u32 {
    let pid = instance.pid(view, "main");
    assert!(pid > 0, "{} has no process", view.name());
    pid
}

#[test]
fn a_restart_of_podling_keeps_every_process_and_every_count() {
    let mut instance = Instance::with(quick());
    for name in ["one", "two"] {
        instance.write(&format!("{name}.yaml"), &sleeper(name));
    }
    let one = instance.ready("one");
    host::signal(pid(&instance, &one), Signal::KILL);
    let one = instance.until_pod("one", "was restarted", |p| p.is_ready() && p.restarts("main") == 1);
    let two = instance.ready("two");
    let before = [pid(&instance, &one), pid(&instance, &two)];
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        instance.end_podling(signal);
        assert!(before.iter().all(|p| host::alive(*p)), "pods outlive podling");
        instance.start_podling();
        let again = [instance.ready("one"), instance.ready("two")];
        assert_eq!(again.each_ref().map(|v| pid(&instance, v)), before);
        assert_eq!(again[0].restarts("main"), 1);
        assert_eq!(again[0].uid(), one.uid());
    }
}

#[test]
fn podling_killed_at_any_moment_converges_to_every_pod_once() {
    let mut instance = Instance::with(quick());
    instance.write("steady.yaml", &sleeper("steady"));
    let steady = instance.ready("steady");
    let kept = pid(&instance, &steady);
    for round in 0..12_u64 {
        // Something is always going on: a pod comes, changes, or goes.
        let name = format!("p{}", round % 4);
        match (round / 4) % 3 {
            1 => instance.write(&format!("{name}.yaml"), &shell(&name, SLEEP, "hostname: changed")),
            2 if round % 2 == 0 => instance.remove(&format!("{name}.yaml")),
            _ => instance.write(&format!("{name}.yaml"), &sleeper(&name)),
        }
        // From right after the write to well into the start; spread, but the same on each run.
        sleep(Duration::from_millis((round * 37) % 260));
        instance.kill_podling();
        instance.spawn_podling();
    }
    let wanted = ["p1", "p3", "steady"];
    instance.until("the pods are those of the directory", |i| {
        let pods = i.pods();
        let mut names: Vec<String> = pods.iter().map(PodView::name).collect();
        names.sort();
        (names == wanted && pods.iter().all(PodView::is_ready)).then_some(())
    });
    assert_eq!(pid(&instance, &instance.ready("steady")), kept);
    instance.until("each pod has one container, and nothing else is left", |i| {
        (i.ctr(&["tasks", "ls", "-q"]).lines().count() == wanted.len()
            && i.ctr(&["containers", "ls", "-q"]).lines().count() == wanted.len())
        .then_some(())
    });
}

#[test]
fn a_manifest_removed_while_podling_was_down_is_stopped_with_its_grace() {
    let mut instance = Instance::start();
    let out = instance.root().join("out");
    let script = "trap 'sleep 1; echo ended > /out; exit 0' TERM; sleep 1d & wait";
    let more = format!(
        "terminationGracePeriodSeconds: 15\nvolumes: [{{name: o, hostPath: {{path: {}, type: FileOrCreate}}}}]",
        out.display()
    );
    instance.write(
        "polite.yaml",
        &(shell("polite", script, &more) + "    volumeMounts: [{name: o, mountPath: /out}]\n"),
    );
    instance.ready("polite");
    instance.stop_podling();
    instance.remove("polite.yaml");
    instance.start_podling();
    instance.gone("polite");
    assert_eq!(std::fs::read_to_string(out).expect("there"), "ended\n");
}

#[test]
fn a_manifest_broken_while_podling_was_down_keeps_its_pod() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.stop_podling();
    instance.write("web.yaml", "spec: [\n");
    instance.start_podling();
    instance.stays(seconds(2), "the same container runs", |i| {
        i.pod("web").is_some_and(|p| p.id("main") == before.id("main") && p.is_ready())
    });
}

#[test]
fn a_manifest_edited_while_podling_was_down_is_applied() {
    let images = vec![Image::shell("test/shell:1"), Image::shell("test/shell:2")];
    let mut instance = Instance::with(Options { images, ..Options::default() });
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.kill_podling();
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/shell:2"));
    instance.start_podling();
    instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(instance.exec("web", "cat /etc/image"), "test/shell:2");
}

#[test]
fn a_restart_of_containerd_keeps_running_containers() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let kept = pid(&instance, &before);
    instance.kill_containerd();
    sleep(seconds(1));
    assert!(host::alive(kept));
    instance.start_containerd();
    // It takes new work again, and the old goes on.
    instance.write("late.yaml", &sleeper("late"));
    instance.ready("late");
    let after = instance.ready("web");
    assert_eq!((pid(&instance, &after), after.restarts("main")), (kept, 0));
}

#[test]
fn a_container_that_ends_while_containerd_is_down_is_restarted() {
    let mut instance = Instance::with(quick());
    instance.write("web.yaml", &sleeper("web"));
    instance.write("other.yaml", &sleeper("other"));
    let (before, other) = (instance.ready("web"), instance.ready("other"));
    let (ended, kept) = (pid(&instance, &before), pid(&instance, &other));
    instance.stop_containerd();
    host::signal(ended, Signal::KILL);
    sleep(seconds(1));
    instance.start_containerd();
    let after =
        instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(after.restarts("main"), 1);
    let (code, _) = after.last_exit("main").expect("the end is told");
    assert!([137, 255].contains(&code), "{code}");
    assert_eq!(pid(&instance, &instance.ready("other")), kept);
}

#[test]
fn podling_starts_before_containerd_and_waits_for_it() {
    let mut instance = Instance::start();
    instance.stop_podling();
    instance.stop_containerd();
    instance.write("web.yaml", &sleeper("web"));
    instance.start_podling();
    instance.stays(seconds(1), "it is up and says what it waits for", |i| {
        i.podling(&["get", "pods"]).status.success()
    });
    instance.start_containerd();
    instance.ready("web");
}

#[test]
fn a_killed_shim_costs_its_own_pod_one_restart_and_no_other() {
    let instance = Instance::with(quick());
    instance.write("web.yaml", &sleeper("web"));
    let web = instance.ready("web");
    let shims = instance.shims();
    assert_eq!(shims.len(), 1, "one shim per pod");
    instance.write("other.yaml", &sleeper("other"));
    let other = instance.ready("other");
    let kept = pid(&instance, &other);
    host::signal(shims[0], Signal::KILL);
    let after =
        instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != web.id("main"));
    assert_eq!(after.restarts("main"), 1);
    assert_eq!(pid(&instance, &instance.ready("other")), kept);
}

#[test]
fn a_stopped_shim_holds_up_its_own_pod_only() {
    let instance = Instance::start();
    instance.write("stuck.yaml", &sleeper("stuck"));
    instance.ready("stuck");
    let shim = instance.shims()[0];
    host::signal(shim, Signal::STOP);
    instance.remove("stuck.yaml");
    for name in ["one", "two", "three"] {
        instance.write(&format!("{name}.yaml"), &sleeper(name));
    }
    for name in ["one", "two", "three"] {
        instance.within(seconds(15), "other pods start", |i| i.pod(name).filter(PodView::is_ready));
    }
    instance.remove("one.yaml");
    instance.within(seconds(15), "other pods stop", |i| i.pod("one").is_none().then_some(()));
    host::signal(shim, Signal::CONT);
    instance.gone("stuck");
}

#[test]
fn a_container_removed_behind_our_back_comes_back() {
    let instance = Instance::with(quick());
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.ctr(&["tasks", "rm", "-f", &before.id("main")]);
    instance.ctr(&["containers", "rm", &before.id("main")]);
    instance.until_pod("web", "runs again", |p| p.is_ready() && p.id("main") != before.id("main"));
}

#[test]
fn two_podlings_side_by_side_keep_out_of_each_others_way() {
    let one = Instance::start();
    let mut two = Instance::start();
    one.write("web.yaml", &sleeper("web"));
    two.write("web.yaml", &sleeper("web"));
    let (first, second) = (one.ready("web"), two.ready("web"));
    assert_ne!(first.id("main"), second.id("main"));
    let kept = pid(&one, &first);
    two.remove("web.yaml");
    two.gone("web");
    two.assert_clean();
    assert_eq!(pid(&one, &one.ready("web")), kept);
}

#[test]
fn two_podlings_on_one_root_are_refused_with_a_clear_word() {
    let instance = Instance::start();
    let out = instance.podling(&["run", "--containerd", "/nowhere.sock"]);
    assert!(!out.status.success());
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("already") || text.contains("another"), "{text}");
}

#[test]
fn a_podling_that_starts_while_the_one_before_it_still_ends_takes_over() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.replace_podling();
    let after = instance.ready("web");
    assert_eq!((after.id("main"), after.restarts("main")), (before.id("main"), 0));
}

#[test]
fn a_private_containerd_runs_pods_that_outlive_podling() {
    let mut instance = Instance::with(Options { embedded: true, ..Options::default() });
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let kept = pid(&instance, &before);
    instance.kill_podling();
    sleep(Duration::from_millis(300));
    assert!(host::alive(kept));
    instance.start_podling();
    let after = instance.ready("web");
    assert_eq!((after.id("main"), after.restarts("main")), (before.id("main"), 0));
    assert!(host::alive(kept));
}

#[test]
fn a_private_containerd_that_dies_is_started_again() {
    let instance = Instance::with(Options { embedded: true, ..Options::default() });
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let kept = pid(&instance, &before);
    let daemon = instance.podling_pid();
    let private: Vec<u32> = instance.own_processes().into_iter().filter(|p| *p != daemon).collect();
    assert_eq!(private.len(), 1, "one private containerd");
    host::signal(private[0], Signal::KILL);
    instance.write("late.yaml", &sleeper("late"));
    instance.ready("late");
    assert_eq!(pid(&instance, &instance.ready("web")), kept);
}

#[test]
fn a_hundred_pods_at_once_all_run_and_all_go() {
    let instance = Instance::start();
    for n in 0..100 {
        instance.write(&format!("p{n}.yaml"), &sleeper(&format!("p{n}")));
    }
    instance.within(seconds(120), "all 100 are ready", |i| {
        (i.pods().iter().filter(|p| p.is_ready()).count() == 100).then_some(())
    });
    for n in 0..100 {
        instance.remove(&format!("p{n}.yaml"));
    }
    instance.within(seconds(120), "all 100 are gone", |i| i.pods().is_empty().then_some(()));
}
