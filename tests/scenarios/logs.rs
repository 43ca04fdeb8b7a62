//! Logs: what a container says is kept, bounded, and shown.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Instance, Options, PodView, shell};

/// The directory of one container's log files.
fn log_dir(instance: &Instance, view: &PodView) -> PathBuf {
    let name = format!("default_{}_{}", view.name(), view.uid());
    instance.root().join("var/log/pods").join(name).join("main")
}

#[test]
fn lines_are_kept_in_cri_form_and_shown_plain() {
    let instance = Instance::start();
    let script = "echo out; echo err >&2; printf unfinished; trap 'exit 0' TERM; sleep 1d & wait";
    instance.write("talk.yaml", &shell("talk", script, ""));
    let view = instance.ready("talk");
    instance.until("both lines are there", |i| {
        let shown = i.ok(&["logs", "talk"]);
        (shown.contains("out\n") && shown.contains("err\n")).then_some(())
    });
    let file = log_dir(&instance, &view).join("0.log");
    let text = fs::read_to_string(&file).expect("the log is where the kubelet has it");
    let line = text.lines().find(|l| l.ends_with(" out")).expect("the line is there");
    let fields: Vec<&str> = line.splitn(4, ' ').collect();
    assert!(fields[0].parse::<jiff::Timestamp>().is_ok(), "{line}");
    assert_eq!(fields[1..], ["stdout", "F", "out"]);
    assert!(text.lines().any(|l| l.ends_with(" stderr F err")), "{text}");
    let link = fs::read_dir(instance.root().join("var/log/containers")).expect("there").flatten().next();
    let link = link.expect("a link by container").path();
    assert_eq!(fs::canonicalize(&link).ok(), fs::canonicalize(&file).ok());
    assert!(link.to_string_lossy().contains(&format!("talk_default_main-{}", view.id("main"))));
}

#[test]
fn the_last_line_without_an_end_is_kept() {
    let instance = Instance::start();
    instance.write("short.yaml", &shell("short", "printf 'no newline'", "restartPolicy: Never"));
    instance.phase("short", "Succeeded");
    instance.until("it is shown", |i| (i.ok(&["logs", "short"]).trim_end() == "no newline").then_some(()));
}

#[test]
fn tail_timestamps_and_previous_select_what_is_shown() {
    let instance = Instance::with(Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    });
    let script = "if [ -e /v/ran ]; then echo second; trap 'exit 0' TERM; sleep 1d & wait; fi; \
                  touch /v/ran; for n in 1 2 3 4 5; do echo line $n; done; exit 1";
    let text = shell("again", script, "volumes: [{name: v, emptyDir: {}}]")
        + "    volumeMounts: [{name: v, mountPath: /v}]\n";
    instance.write("again.yaml", &text);
    instance.until_pod("again", "runs for the second time", |p| p.is_ready() && p.restarts("main") == 1);
    instance.until("its line is there", |i| (i.ok(&["logs", "again"]) == "second\n").then_some(()));
    assert_eq!(instance.ok(&["logs", "again", "-p", "--tail", "2"]), "line 4\nline 5\n");
    let stamped = instance.ok(&["logs", "again", "--timestamps"]);
    let (time, rest) = stamped.trim_end().split_once(' ').expect("a time and the line");
    assert!(time.parse::<jiff::Timestamp>().is_ok() && rest == "second", "{stamped}");
    assert_eq!(instance.ok(&["logs", "again", "--since", "1h"]), "second\n");
    let none = instance.fails(1, &["logs", "again", "-c", "nobody"]);
    assert!(none.contains("nobody"), "{none}");
}

#[test]
fn following_shows_new_lines_until_the_container_ends() {
    let instance = Instance::start();
    let script = "for n in 1 2 3 4 5 6; do echo line $n; sleep 0.3; done";
    instance.write("count.yaml", &shell("count", script, "restartPolicy: Never"));
    instance.until_pod("count", "has started", |p| !p.id("main").is_empty());
    let mut follow = instance.net().command(Instance::binary());
    follow.arg("--root").arg(instance.root()).args(["logs", "-f", "count"]).stdout(Stdio::piped());
    let mut follow = follow.spawn().expect("podling is built");
    let mut text = String::new();
    follow.stdout.take().expect("piped").read_to_string(&mut text).expect("readable");
    assert!(follow.wait().is_ok_and(|s| s.success()));
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn a_fast_writer_never_takes_much_more_than_its_share_of_the_disk() {
    let settings = "containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 3\n";
    let instance = Instance::with(Options { settings: settings.into(), ..Options::default() });
    let script = "yes 'a line of some length that fills the log quickly' | head -n 40000; echo done; \
                  trap 'exit 0' TERM; sleep 1d & wait";
    instance.write("loud.yaml", &shell("loud", script, ""));
    let view = instance.ready("loud");
    let dir = log_dir(&instance, &view);
    let size = || -> u64 {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
    };
    let mut most = 0;
    instance.until("the writer is done", |i| {
        most = most.max(size());
        i.ok(&["logs", "loud", "--tail", "1"]).contains("done").then_some(())
    });
    assert!(most.max(size()) <= 360 * 1024, "3 files of 100 Ki took {most} bytes");
    assert!(fs::read_dir(&dir).expect("there").count() <= 3);
}

#[test]
fn a_writer_is_not_held_up_while_podling_and_containerd_are_down() {
    let mut instance = Instance::start();
    let script = "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo $n; echo $n > /tmp/n; \
                  dd if=/dev/zero bs=1k count=8 2>/dev/null | tr '\\0' x; echo; usleep 50000; done";
    instance.write("busy.yaml", &shell("busy", script, ""));
    let view = instance.ready("busy");
    let pid = instance.pid(&view, "main");
    let count = || -> u64 {
        // Empty while it is being written.
        let read = || fs::read_to_string(format!("/proc/{pid}/root/tmp/n")).ok()?.trim().parse().ok();
        std::iter::repeat_with(read).take(1000).find_map(|n| n).expect("the writer counts")
    };
    instance.stop_podling();
    instance.stop_containerd();
    let before = count();
    // 8 kB a time: pipes that nobody reads would have been full after a dozen or so.
    instance.until("the writer goes on", |_| (count() > before + 25).then_some(()));
    instance.start_containerd();
    instance.start_podling();
    assert_eq!(instance.ready("busy").id("main"), view.id("main"));
    let wanted = count();
    instance.until("the lines written meanwhile are there", |i| {
        i.ok(&["logs", "busy", "--tail", "500"]).lines().any(|l| l == wanted.to_string()).then_some(())
    });
}

#[test]
fn a_log_is_readable_while_its_pod_is_stopping() {
    let instance = Instance::start();
    let script = "trap 'echo stopping; sleep 2; exit 0' TERM; sleep 1d & wait";
    instance.write("slow.yaml", &shell("slow", script, "terminationGracePeriodSeconds: 10"));
    instance.ready("slow");
    instance.remove("slow.yaml");
    instance.until("it says so", |i| {
        let out = i.podling(&["logs", "slow"]);
        String::from_utf8_lossy(&out.stdout).contains("stopping").then_some(())
    });
    sleep(Duration::from_millis(100));
    instance.gone("slow");
}
