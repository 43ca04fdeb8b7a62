//! Measures what a user waits for and what podling costs, on this machine, and prints medians.
//!
//! `make bench` gives it a release build (`PODLING_BIN`). Start latency is measured beside `ctr run -d` of the same
//! image on the same containerd, in turns, because these numbers mean nothing without the machine's mood.
//! With arguments it runs only the parts named: `start`, `memory`, `burst`, `adopt`, `pull`.

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
use support::image::base_layer;
use support::layout::{Layout, layer};
use support::manifest::SLEEP;
use support::registry::Registry;
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
    if wanted("pull") {
        pull();
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
    announcing_from("test/shell:1", name, out, host_network)
}

fn announcing_from(image: &str, name: &str, out: &Path, host_network: bool) -> String {
    pod(
        name,
        &format!(
            "
            hostNetwork: {host_network}
            terminationGracePeriodSeconds: 1
            volumes: [{{name: out, hostPath: {{path: {}}}}}]
            containers:
            - name: main
              image: {image}
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

const IMAGES: usize = 20;

/// Pushes images that share a base and have four megabytes in 200 files of their own, which gzip halves.
fn push_images(instance: &Instance, registry: &Registry) -> Vec<String> {
    let mut state = 1u64;
    let push = |n: usize| {
        let mut tar = tar::Builder::new(Vec::new());
        for file in 0..200 {
            let mut bytes = vec![0u8; 20_000];
            for part in bytes.chunks_exact_mut(16) {
                // xorshift64: half of each chunk is noise.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                part[..8].copy_from_slice(&state.to_le_bytes());
            }
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, format!("data/{file}"), bytes.as_slice()).expect("in memory");
        }
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let layout = Layout::new(dir.path());
        let layers = [layer(base_layer(), "gzip"), layer(&tar.into_inner().expect("in memory"), "gzip")];
        let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let source = layout.end(layout.image(architecture, None, &layers));
        registry.push_from(instance.net(), &source, &format!("bench/app{n}:1"), &[]);
        format!("{}/bench/app{n}:1", registry.host())
    };
    (0..IMAGES).map(push).collect()
}

/// Runs a command for each image, all at once, until the last one ends.
fn at_once(images: &[String], command: impl Fn(&str) -> Command) -> Duration {
    let begin = clock::now();
    let start = |image: &String| {
        let mut command = command(image);
        command.stdout(Stdio::null()).spawn().expect("it starts")
    };
    let children: Vec<_> = images.iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success(), "a pull failed");
    }
    clock::now().since(begin)
}

fn forget(instance: &Instance, images: &[String]) {
    let mut args = vec!["images", "rm", "--sync"];
    args.extend(images.iter().map(String::as_str));
    instance.ctr(&args);
}

fn pull() {
    println!("pull: {IMAGES} images at once from a registry on the loopback, with empty stores");
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let images = push_images(&instance, &registry);
    let out = out_dir(&instance);
    let by_ctr = |image: &str| {
        let mut ctr = instance.net().command("ctr");
        ctr.arg("--address").arg(instance.root().join("c/c.sock")).args(["-n", instance.namespace()]);
        ctr.args(["images", "pull", "--plain-http", image]).stderr(Stdio::null());
        ctr
    };
    let by_podling = |image: &str| {
        let mut podling = instance.net().command(Instance::binary());
        podling.arg("--root").arg(instance.root()).args(["image", "pull", image]).stderr(Stdio::null());
        podling
    };
    let (mut pods, mut podling, mut ctr) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..5 {
        ctr.push(at_once(&images, by_ctr));
        forget(&instance, &images);
        podling.push(at_once(&images, by_podling));
        forget(&instance, &images);
        let names: Vec<String> = (0..IMAGES).map(|n| format!("r{round}n{n}")).collect();
        let begin = clock::now();
        for (name, image) in names.iter().zip(&images) {
            instance.write(&format!("{name}.yaml"), &announcing_from(image, name, &out, true));
        }
        for name in &names {
            await_file(&out.join(name));
        }
        pods.push(clock::now().since(begin));
        for name in &names {
            instance.remove(&format!("{name}.yaml"));
        }
        instance.within(seconds(120), "all are gone", |i| i.pods().is_empty().then_some(()));
        forget(&instance, &images);
    }
    let theirs = row("ctr images pull", ctr);
    let ours = row("podling image pull", podling);
    let running = row("pods, until all their processes run", pods);
    println!("  podling / ctr = {:.2}; with the starts of all pods {:.2}", ours / theirs, running / theirs);
}
