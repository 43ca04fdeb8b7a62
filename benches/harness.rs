//! Measures what a user waits for and what podling costs, on this machine, and prints medians.
//!
//! `make bench` gives it a release build (`PODLING_BIN`). Start latency is measured beside `ctr run -d` of the same
//! image on the same containerd, in turns, because these numbers mean nothing without the machine's mood.
//! With arguments it runs only the parts named: `start`, `memory`, `burst`, `adopt`.

#[path = "../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the scenarios need more of the harness than the measurements do"
)]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use podling::system::clock;
use support::manifest::SLEEP;
use support::{Instance, pod, seconds, sleeper};

const ROUNDS: usize = 20;

fn main() {
    // cargo passes --bench.
    let parts: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    println!("binary: {}", Instance::binary().display());
    if wanted("start") {
        start_latency();
    }
    if wanted("memory") || wanted("adopt") {
        memory_and_adoption();
    }
    if wanted("burst") {
        burst();
    }
}

/// Waits for a file that a container makes, looking often enough to be true to a fraction of a millisecond.
fn await_file(path: &Path) {
    for _ in 0..300_000 {
        if path.exists() {
            return;
        }
        sleep(Duration::from_micros(100));
    }
    panic!("{} did not appear in 30 s", path.display());
}

fn median(mut values: Vec<Duration>) -> (f64, f64, f64) {
    values.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    (ms(values[values.len() / 2]), ms(values[0]), ms(values[values.len() - 1]))
}

fn row(what: &str, values: Vec<Duration>) -> f64 {
    let count = values.len();
    let (middle, least, most) = median(values);
    println!("  {what:<44} {middle:8.1} ms   (min {least:.1}, max {most:.1}, n {count})");
    middle
}

/// A pod whose only process says that it runs by making a file in `out`.
fn announcing(name: &str, out: &Path, host_network: bool) -> String {
    pod(
        name,
        &format!(
            "
            hostNetwork: {host_network}
            terminationGracePeriodSeconds: 1
            volumes: [{{name: out, hostPath: {{path: {}}}}}]
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, 'echo > /out/{name}; {}']
              volumeMounts: [{{name: out, mountPath: /out}}]
            ",
            out.display(),
            SLEEP.replace('\'', "\""),
        ),
    )
}

fn out_dir(instance: &Instance) -> PathBuf {
    let out = instance.root().join("out");
    fs::create_dir_all(&out).expect("writable");
    out
}

fn by_podling(instance: &Instance, name: &str, host_network: bool) -> Duration {
    let out = out_dir(instance);
    let text = announcing(name, &out, host_network);
    let begin = clock::now();
    instance.write(&format!("{name}.yaml"), &text);
    await_file(&out.join(name));
    let took = clock::now().since(begin);
    instance.remove(&format!("{name}.yaml"));
    instance.gone(name);
    took
}

fn by_ctr(instance: &Instance, name: &str) -> Duration {
    let out = out_dir(instance);
    let mount = format!("type=bind,src={},dst=/out,options=rbind:rw", out.display());
    let script = format!("echo > /out/{name}; {SLEEP}");
    let mut ctr = Command::new("ctr");
    ctr.arg("--address").arg(instance.root().join("c/c.sock")).args(["--namespace", instance.namespace()]);
    ctr.args([
        "run",
        "-d",
        "--net-host",
        "--mount",
        &mount,
        "docker.io/test/shell:1",
        name,
        "sh",
        "-c",
        &script,
    ]);
    let begin = clock::now();
    let status = ctr.stdout(Stdio::null()).status().expect("ctr runs");
    assert!(status.success(), "ctr run failed");
    await_file(&out.join(name));
    let took = clock::now().since(begin);
    instance.ctr(&["tasks", "rm", "-f", name]);
    instance.ctr(&["containers", "rm", name]);
    took
}

fn start_latency() {
    println!("start: from the rename of a manifest until its process runs");
    let instance = Instance::start();
    let (mut podling, mut ctr, mut bridged) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..=ROUNDS {
        let times = [
            by_podling(&instance, &format!("h{n}"), true),
            by_ctr(&instance, &format!("c{n}")),
            by_podling(&instance, &format!("b{n}"), false),
        ];
        // The first round warms caches and makes the bridge.
        if n > 0 {
            podling.push(times[0]);
            ctr.push(times[1]);
            bridged.push(times[2]);
        }
    }
    let ours = row("podling, host network", podling);
    let theirs = row("ctr run -d --net-host", ctr);
    row("podling, own address on a bridge", bridged);
    println!("  podling / ctr = {:.2}", ours / theirs);
}

/// Resident memory of the daemon, in MB of 1000 kB.
fn resident(instance: &Instance) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", instance.podling_pid())).expect("it runs");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("the kernel tells");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("a number") / 1000.0
}

fn memory_and_adoption() {
    println!("memory: resident set of the daemon");
    let mut instance = Instance::start();
    sleep(seconds(5));
    println!("  idle, no pods                                {:8.1} MB", resident(&instance));
    for n in 0..100 {
        instance.write(&format!("p{n}.yaml"), &sleeper(&format!("p{n}")));
    }
    let all_ready = |i: &Instance| (i.pods().iter().filter(|p| p.is_ready()).count() == 100).then_some(());
    instance.within(seconds(180), "all 100 are ready", all_ready);
    println!("  just after the start of 100 pods             {:8.1} MB", resident(&instance));
    sleep(seconds(75));
    println!("  with 100 pods, 75 s later                    {:8.1} MB", resident(&instance));

    println!("adopt: from the start of podling until all of 100 running pods are known as Ready");
    let mut times = Vec::new();
    for _ in 0..5 {
        instance.kill_podling();
        let begin = clock::now();
        instance.spawn_podling();
        while all_ready(&instance).is_none() {
            sleep(Duration::from_millis(5));
        }
        times.push(clock::now().since(begin));
    }
    row("kill -9, start, all adopted", times);
    sleep(seconds(5));
    println!("  resident after adoption                      {:8.1} MB", resident(&instance));
}

fn burst() {
    println!("burst: 50 manifests at once, until all 50 processes run");
    let instance = Instance::start();
    let out = out_dir(&instance);
    let mut times = Vec::new();
    for round in 0..3 {
        let names: Vec<String> = (0..50).map(|n| format!("r{round}n{n}")).collect();
        let texts: Vec<String> = names.iter().map(|n| announcing(n, &out, true)).collect();
        let begin = clock::now();
        for (name, text) in names.iter().zip(&texts) {
            instance.write(&format!("{name}.yaml"), text);
        }
        for name in &names {
            await_file(&out.join(name));
        }
        times.push(clock::now().since(begin));
        for name in &names {
            instance.remove(&format!("{name}.yaml"));
        }
        instance.within(seconds(120), "all are gone", |i| i.pods().is_empty().then_some(()));
    }
    let middle = row("50 pods on the host's network", times);
    println!("  {:.1} pods a second", 50_000.0 / middle);
}
