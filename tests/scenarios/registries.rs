//! Registries as people set them up: certificates, mirrors, proxies, helpers, and a disk that is too small.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::collect::Disk;
use crate::support::image::base_layer;
use crate::support::layout::{Layout, layer};
use crate::support::registry::{ConnectProxy, Fault, FaultyRegistry, Registry, Setup, run};
use crate::support::{Image, Instance, Options, sleeper};

fn web(image: &str) -> String {
    sleeper("web").replace("test/shell:1", image)
}

/// The `hosts.toml` of a registry.
fn hosts(instance: &Instance, registry: &str, text: &str) {
    let dir = instance.root().join("etc/containerd/certs.d").join(registry);
    fs::create_dir_all(&dir).expect("writable");
    fs::write(dir.join("hosts.toml"), text).expect("writable");
}

fn script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

#[test]
fn check_warns_of_a_registry_s_files_in_the_words_of_the_daemon() {
    let mut instance = Instance::start();
    let dir = instance.root().join("etc/containerd/certs.d/reg.example");
    fs::create_dir_all(&dir).expect("writable");
    fs::write(dir.join("host.toml"), "server = \"https://mirror.example\"\n").expect("writable");
    let file = instance.root().join("stage/web.yaml");
    fs::write(&file, sleeper("web")).expect("writable");
    let words = format!("{} is not read: the file must be named hosts.toml", dir.join("host.toml").display());
    let out = instance.podling(&["check", "-o", "json", &file.display().to_string()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains(&format!("warning: {words}\n")), "{said}");
    // What programs read is about documents only.
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().count(), 1);
    instance.stop_podling();
    instance.spawn_podling();
    instance.until("the daemon says it", |i| i.log().contains(&words).then_some(()));
}

#[test]
fn of_several_client_certificates_the_registry_gets_the_one_it_knows() {
    let instance = Instance::start();
    let registry = Registry::with(instance.net(), Setup { tls: true, client: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let name = "127.0.0.1:5000/app:1";
    let (ca, stranger) = (registry.ca(), registry.file("stranger.pem"));
    let only = format!("ca = {ca:?}\nclient = {stranger:?}\n");
    hosts(&instance, "127.0.0.1:5000", &only);
    let text = instance.fails(1, &["image", "pull", name]);
    assert!(text.contains("it wants a client certificate, and none or a wrong one was shown"), "{text}");
    let (certificate, key) = (registry.file("client.crt"), registry.file("client.key"));
    let both = format!("ca = {ca:?}\nclient = [[{stranger:?}, \"\"], [{certificate:?}, {key:?}]]\n");
    hosts(&instance, "127.0.0.1:5000", &both);
    instance.write("web.yaml", &web(name));
    instance.ready("web");
}

#[test]
fn a_certificate_that_is_its_own_authority_is_believed_when_it_is_named_as_one() {
    let instance = Instance::start();
    let registry = Registry::with(instance.net(), Setup { tls: true, own: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    hosts(&instance, "mirrored.test", "server = \"https://127.0.0.1:5000\"\n");
    let text = instance.fails(1, &["image", "pull", "mirrored.test/app:1"]);
    assert!(text.contains("its certificate is signed by an unknown authority"), "{text}");
    let believed = format!("server = \"https://127.0.0.1:5000\"\nca = {:?}\n", registry.ca());
    hosts(&instance, "mirrored.test", &believed);
    assert!(instance.ok(&["image", "pull", "mirrored.test/app:1"]).contains("pulled"));
}

#[test]
fn mirrors_are_asked_in_the_order_of_the_file_and_each_failure_is_named() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let first = FaultyRegistry::start(instance.net(), 5002, 5000);
    let second = FaultyRegistry::start(instance.net(), 5001, 5000);
    first.always("/manifests/", Fault::Status(500, None));
    second.always("/manifests/", Fault::Status(404, None));
    let text = "[host.\"http://127.0.0.1:5009\"]\n[host.\"http://127.0.0.1:5002\"]\n\
                [host.\"http://127.0.0.1:5001\"]\n[host.\"http://127.0.0.1:5000\"]\ncapabilities = [\"pull\"]\n";
    hosts(&instance, "reg.test", text);
    let said = instance.fails(1, &["image", "pull", "reg.test/app:1"]);
    let mut rest = said.as_str();
    for part in [
        "http://127.0.0.1:5009: cannot connect to 127.0.0.1:5009",
        "; then http://127.0.0.1:5002: 500 internal server error",
        "; then http://127.0.0.1:5001: 404 not found",
        // The last one may not say what a tag means.
        "; then https://reg.test: cannot resolve reg.test",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} in its place in {said:?}"));
        rest = &rest[at + part.len()..];
    }
    assert!(first.count("/v2/app/manifests/1?ns=reg.test") > 0, "{:?}", first.requests());
    // A layer that one of them breaks off comes from the next, which may not be asked for tags.
    second.heal();
    second.always("/blobs/", Fault::Cut(0));
    instance.write("web.yaml", &web("reg.test/app:1"));
    instance.ready("web");
}

#[test]
fn a_registry_behind_a_proxy_is_reached_through_it_and_no_proxy_goes_around() {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let instance = Instance::with(Options {
        environment: vec![
            variable("HTTPS_PROXY", "http://me:pass%40word@127.0.0.1:3128"),
            variable("NO_PROXY", "10.0.0.0/8,near.test"),
        ],
        ..Options::default()
    });
    let registry = Registry::with(instance.net(), Setup { tls: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let proxy = ConnectProxy::start(instance.net(), 3128, 5000);
    hosts(&instance, "reg.test", &format!("ca = {:?}\n", registry.ca()));
    instance.write("web.yaml", &web("reg.test/app:1"));
    instance.ready("web");
    let asked = proxy.requests();
    // "me:pass@word".
    let expected = |r: &String| {
        r.starts_with("CONNECT reg.test:443 ") && r.contains("Proxy-Authorization: Basic bWU6cGFzc0B3b3Jk")
    };
    assert!(!asked.is_empty() && asked.iter().all(expected), "{asked:?}");
    let text = instance.fails(1, &["image", "pull", "sub.near.test/app:1"]);
    assert!(text.contains("cannot resolve sub.near.test"), "{text}");
    assert_eq!(proxy.requests().len(), asked.len());
    assert!(!instance.log().contains("pass@word") && !instance.log().contains("pass%40word"));
}

#[test]
fn helpers_and_a_kubelets_plugins_are_asked_for_credentials() {
    let programs = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| programs.path().join(name);
    script(
        &at("docker-credential-podling-test"),
        "read server; case $server in 127.0.0.1:5000) ;; *) echo credentials not found; exit 1;; esac\n\
         echo '{\"Username\": \"me\", \"Secret\": \"secret-word\"}'",
    );
    script(
        &at("plugin"),
        "cat > /dev/null; echo '{\"kind\": \"CredentialProviderResponse\", \"cacheKeyType\": \"Registry\",\n\
         \"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\",\n\
         \"auth\": {\"127.0.0.1:5001\": {\"username\": \"me\", \"password\": \"secret-word\"}}}'",
    );
    let providers = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: plugin\n  \
                     apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [\"127.0.0.1:5001\"]\n  \
                     defaultCacheDuration: 1m\n";
    fs::write(at("providers.yaml"), providers).expect("writable");
    let path = std::env::var("PATH").unwrap_or_default();
    let instance = Instance::with(Options {
        settings: format!(
            "imageCredentialProviderConfig: {}\nimageCredentialProviderBinDir: {}\n",
            at("providers.yaml").display(),
            programs.path().display()
        ),
        environment: vec![("PATH".to_owned(), format!("{}:{path}", programs.path().display()))],
        ..Options::default()
    });
    let registry = Registry::with(instance.net(), Setup { password: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let _same = FaultyRegistry::start(instance.net(), 5001, 5000);
    let text = instance.fails(1, &["image", "pull", "127.0.0.1:5000/app:1"]);
    assert!(text.contains("no credential for 127.0.0.1:5000 is known"), "{text}");
    assert!(instance.ok(&["image", "pull", "127.0.0.1:5001/app:1"]).contains("pulled"));
    let config = r#"{"auths": {"127.0.0.1:5000": {}}, "credsStore": "podling-test"}"#;
    fs::write(instance.root().join("var/lib/podling/config.json"), config).expect("writable");
    instance.write("web.yaml", &web("127.0.0.1:5000/app:1"));
    instance.ready("web");
    assert!(!instance.log().contains("secret-word"));
}

#[test]
fn a_credential_that_expires_during_a_pull_is_renewed() {
    let instance = Instance::start();
    let registry = Registry::with(instance.net(), Setup { password: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let proxy = FaultyRegistry::start(instance.net(), 5001, 5000);
    // "me:secret-word".
    let config = r#"{"auths": {"127.0.0.1:5001": {"auth": "bWU6c2VjcmV0LXdvcmQ="}}}"#;
    fs::write(instance.root().join("var/lib/podling/config.json"), config).expect("writable");
    proxy.times(1, "/blobs/", Fault::Status(401, None));
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1"));
    instance.ready("web");
    assert!(!instance.ok(&["get", "events"]).contains("ErrImagePull"));
}

#[test]
fn describe_shows_how_far_a_pull_is() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let proxy = FaultyRegistry::start(instance.net(), 5001, 5000);
    proxy.always("/blobs/", Fault::Delay(crate::support::seconds(3)));
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1"));
    instance.until("the pull is described", |i| {
        let out = i.podling(&["describe", "pod", "web"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.lines().find(|l| l.starts_with("Pulling:"))?;
        (line.contains("127.0.0.1:5001/app:1: ") && line.contains("of 2 layers unpacked")).then_some(())
    });
    proxy.heal();
    instance.ready("web");
    assert!(!instance.ok(&["describe", "pod", "web"]).contains("Pulling:"));
}

#[test]
fn a_pull_that_fills_the_disk_leaves_nothing_and_goes_on_when_there_is_room() {
    // 64 MB, of which the layer takes 36 as it comes and 36 unpacked.
    let disk = Disk::new();
    let instance = Instance::with(Options { disk: Some(disk.0.path().to_owned()), ..Options::default() });
    let registry = Registry::start(instance.net());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layout = Layout::new(dir.path());
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(36 << 20);
    tar.append_data(&mut header, "big", vec![7u8; 36 << 20].as_slice()).expect("in memory");
    let big = tar.into_inner().expect("in memory");
    let layers = [layer(base_layer(), ""), layer(&big, "")];
    let source = layout.end(layout.image(architecture, None, &layers));
    registry.push_from(instance.net(), &source, "big:1", &["--all", "--preserve-digests"]);
    let held = |i: &Instance| {
        let lists: [&[&str]; 3] = [&["content", "ls", "-q"], &["content", "active"], &["leases", "ls", "-q"]];
        lists.map(|args| i.ctr(args).lines().count())
    };
    let before = held(&instance);
    instance.write("web.yaml", &web("127.0.0.1:5000/big:1"));
    let full = instance.until_pod("web", "the disk is full", |p| {
        p.waiting_message("main").to_lowercase().contains("no space left")
    });
    assert!(["ErrImagePull", "ImagePullBackOff"].contains(&full.waiting("main").as_str()));
    assert!(instance.ok(&["get", "events"]).contains("no space left"));
    instance.until("what was fetched is gone", |i| {
        let half = i.ctr(&["snapshots", "ls"]).contains("podling-unpack-");
        (held(i) == before && !half).then_some(())
    });
    let mut more = Command::new("mount");
    run(more.args(["-o", "remount,size=256m"]).arg(disk.0.path()));
    instance.ready("web");
}
