//! Images of all shapes, and `podling image`.

use std::fs;
use std::process::Command;

use crate::support::image::base_layer;
use crate::support::layout::{Layer, Layout, layer};
use crate::support::registry::{Registry, run};
use crate::support::{Image, Instance, Options, sleeper};

fn tar_of(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    add(&mut builder);
    builder.into_inner().expect("in memory")
}

fn file(tar: &mut tar::Builder<Vec<u8>>, path: &str, text: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(text.len() as u64);
    tar.append_data(&mut header, path, text.as_bytes()).expect("in memory");
}

fn hard_link(tar: &mut tar::Builder<Vec<u8>>, path: &str, to: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_mode(0o644);
    header.set_size(0);
    tar.append_link(&mut header, path, to).expect("in memory");
}

fn base() -> Layer {
    layer(base_layer(), "gzip")
}

/// Pushes what `build` makes, runs it in the pod `web`, and returns when it is ready.
fn runs(instance: &Instance, registry: &Registry, build: impl FnOnce(&Layout<'_>) -> serde_json::Value) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layout = Layout::new(dir.path());
    let source = layout.end(build(&layout));
    registry.push_from(instance.net(), &source, "odd:1", &["--all"]);
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "127.0.0.1:5000/odd:1"));
    instance.ready("web");
}

#[test]
fn an_index_gives_the_build_for_this_machine() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    runs(&instance, &registry, |layout| {
        let of = |text: &str| layer(&tar_of(|t| file(t, "etc/built-for", text)), "gzip");
        let own = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let other = if own == "amd64" { "arm64" } else { "amd64" };
        layout.index(&[
            layout.image("arm", Some("v7"), &[base(), of("arm")]),
            layout.image(other, None, &[base(), of(other)]),
            layout.image(own, None, &[base(), of("this machine")]),
        ])
    });
    assert_eq!(instance.exec("web", "cat /etc/built-for"), "this machine");
}

#[test]
fn layers_by_zstd_with_whiteouts_and_hard_links_are_unpacked_as_they_are_meant() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    runs(&instance, &registry, |layout| {
        let first = tar_of(|t| {
            file(t, "data/gone", "x");
            file(t, "data/stays", "one");
            file(t, "full/a", "x");
            hard_link(t, "data/linked", "data/stays");
        });
        let second = tar_of(|t| {
            file(t, "data/.wh.gone", "");
            file(t, "full/.wh..wh..opq", "");
            file(t, "full/b", "new");
        });
        layout.image(architecture, None, &[base(), layer(&first, "zstd"), layer(&second, "")])
    });
    assert_eq!(instance.exec("web", "ls /data /full"), "/data:\nlinked\nstays\n\n/full:\nb");
    assert_eq!(instance.exec("web", "stat -c %h /data/stays; cat /data/linked"), "2\none");
}

#[test]
fn two_hundred_layers_are_not_too_many() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layout = Layout::new(dir.path());
    let mut layers = vec![base()];
    layers.extend((1..200).map(|n| layer(&tar_of(|t| file(t, "etc/layer", &n.to_string())), "gzip")));
    let source = layout.end(layout.image(architecture, None, &layers));
    registry.push_from(instance.net(), &source, "odd:1", &["--all"]);
    let out = instance.ok(&["image", "pull", "127.0.0.1:5000/odd:1"]);
    assert!(out.starts_with("image/127.0.0.1:5000/odd:1 pulled (sha256:"), "{out}");
    let shown: serde_json::Value =
        serde_json::from_str(&instance.ok(&["image", "inspect", "127.0.0.1:5000/odd:1"])).expect("JSON");
    assert_eq!(shown["layers"].as_array().map(Vec::len), Some(200));
    assert_eq!(shown["unpacked"], true);
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "127.0.0.1:5000/odd:1"));
    instance.ready("web");
    assert_eq!(instance.exec("web", "cat /etc/layer"), "199");
}

#[test]
fn what_is_no_image_is_refused_in_words() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layout = Layout::new(dir.path());
    let source = layout.end(layout.artifact());
    registry.push_from(instance.net(), &source, "chart:1", &["--all"]);
    let text = instance.fails(1, &["image", "pull", "127.0.0.1:5000/chart:1"]);
    assert!(
        text.contains(
            "it is no container image: its configuration is of type application/vnd.example.chart.config"
        ),
        "{text}"
    );
    let text = instance.fails(1, &["image", "pull", "127.0.0.1:5000/none:1"]);
    assert!(text.contains("http://127.0.0.1:5000: 404 not found"), "{text}");
}

#[test]
fn an_exported_image_is_read_by_skopeo_and_comes_back() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let name = "127.0.0.1:5000/app:1";
    instance.ok(&["image", "pull", name]);
    assert!(instance.ok(&["image", "pull", name]).contains("is up to date"));
    let archive = instance.root().join("stage/out.tar").display().to_string();
    instance.ok(&["image", "export", &archive, name]);
    let inspected = run(Command::new("skopeo").args(["inspect", &format!("oci-archive:{archive}")]));
    assert!(String::from_utf8_lossy(&inspected).contains("sha256:"));
    instance.ok(&["image", "rm", name]);
    assert!(!instance.ok(&["image", "ls"]).contains(name));
    assert!(instance.ok(&["image", "import", &archive]).contains(name));
    assert!(instance.ok(&["image", "ls"]).contains(name));
}

#[test]
fn prune_removes_what_nobody_names_and_keeps_what_a_broken_manifest_names() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    for name in ["used", "named", "idle", "before"] {
        registry.push(instance.net(), &Image::shell(&format!("{name}:1")), &format!("{name}:1"));
    }
    for name in ["named", "idle"] {
        instance.ok(&["image", "pull", &format!("127.0.0.1:5000/{name}:1")]);
    }
    let web = |name: &str| sleeper("web").replace("test/shell:1", &format!("127.0.0.1:5000/{name}:1"));
    instance.write("web.yaml", &web("before"));
    let old = instance.ready("web");
    instance.write("web.yaml", &web("used"));
    instance.until_pod("web", "is updated", |p| p.is_ready() && p.id("main") != old.id("main"));
    instance
        .write("broken.yaml", "kind: Pod\nspec:\n  containers:\n  - image: 127.0.0.1:5000/named:1\n : :\n");
    let out = instance.ok(&["image", "prune"]);
    assert_eq!(out, "image/127.0.0.1:5000/idle:1 removed\n");
    let left = instance.ok(&["image", "ls"]);
    // The one of an archive stays too: nobody could bring it back.
    for name in ["used:1", "named:1", "before:1", "test/shell:1"] {
        assert!(left.contains(name), "{left}");
    }
}

#[test]
fn a_large_layer_takes_no_memory() {
    let instance =
        Instance::with(Options { settings: "registryCredentialFiles: []\n".into(), ..Options::default() });
    let registry = Registry::start(instance.net());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layout = Layout::new(dir.path());
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    // Not compressible, so that as much comes over the wire; made by a generator, so that it takes no time.
    let mut state = 1u64;
    let block: Vec<u8> = (0..(512 << 20) / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect();
    let tar = tar_of(|t| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(block.len() as u64);
        t.append_data(&mut header, "big", block.as_slice()).expect("in memory");
    });
    drop(block);
    let beside = dir.path().join("small");
    let small = Layout::new(&beside);
    let small = small.end(small.image(architecture, None, &[base()]));
    registry.push_from(instance.net(), &small, "small:1", &["--all", "--preserve-digests"]);
    let source = layout.end(layout.image(architecture, None, &[base(), layer(&tar, "")]));
    drop(tar);
    // Uncompressed, as it is: compressing it would only take time.
    registry.push_from(instance.net(), &source, "big:1", &["--all", "--preserve-digests"]);
    let memory = |what: &str| {
        let status = fs::read_to_string(format!("/proc/{}/status", instance.podling_pid())).expect("it runs");
        let line = status.lines().find(|l| l.starts_with(what)).expect("the kernel tells");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    // The program's own pages are most of what a test build takes, and an idle podling gives them back: a small image
    // tells how much any pull takes of them.
    let peak_of = |image: &str| {
        fs::write(format!("/proc/{}/clear_refs", instance.podling_pid()), "5").expect("root may");
        instance.ok(&["image", "pull", image]);
        memory("VmHWM:")
    };
    let idle = memory("RssAnon:");
    let small = peak_of("127.0.0.1:5000/small:1");
    let large = peak_of("127.0.0.1:5000/big:1");
    let after = memory("RssAnon:");
    eprintln!(
        "at most {small} kB for a small image, {large} kB for a large one; private {idle} kB, then {after} kB"
    );
    assert!(large < small + (16 << 10), "at most {small} kB for a small image, {large} kB for a large one");
    assert!(after < idle + (16 << 10), "private {idle} kB before, {after} kB after");
}
