//! Pulling from registries: what is fetched, what is not, and what happens when the registry is not itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::registry::{Fault, FaultyRegistry, Registry, Setup};
use crate::support::{Image, Instance, seconds, sleeper};

/// A sleeper of an image.
fn web(image: &str, policy: &str) -> String {
    let entry = format!("image: {image}\n    imagePullPolicy: {policy}");
    sleeper("web").replace("image: test/shell:1", &entry)
}

/// With a registry that has `app:1`, whose layers nothing else has, and a proxy before it on port 5001.
fn proxied() -> (Instance, Registry, FaultyRegistry) {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let proxy = FaultyRegistry::start(instance.net(), 5001, 5000);
    (instance, registry, proxy)
}

/// Whether the pod runs the image of this name.
fn shows(instance: &Instance, image: &str) -> bool {
    let out = instance.podling(&["exec", "web", "--", "cat", "/etc/image"]);
    out.stdout == format!("{image}\n").as_bytes()
}

#[test]
fn a_pod_runs_an_image_from_a_registry_that_was_pushed_by_skopeo() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let digest = registry.push(instance.net(), &Image::shell("app:1").alone(), "team/app:1");
    instance.write("web.yaml", &web("127.0.0.1:5000/team/app:1", "IfNotPresent"));
    let view = instance.ready("web");
    assert_eq!(instance.exec("web", "cat /etc/image"), "app:1");
    let id = view.container("main")["imageID"].as_str().unwrap_or_default().to_owned();
    assert_eq!(id, format!("127.0.0.1:5000/team/app@{digest}"));
    for event in ["Pulling", "Pulled"] {
        assert!(instance.ok(&["get", "events"]).contains(event), "{event}");
    }
    let short = "127.0.0.1:5000/team/app:1";
    assert_eq!(instance.ok(&["image", "pull", "-q", short]), format!("{short}\n"));
    // ctr finds it whole.
    let checked = instance.ctr(&["images", "check"]);
    let line = checked.lines().find(|l| l.starts_with("127.0.0.1:5000/team/app:1")).unwrap_or_default();
    assert!(line.contains("complete") && line.ends_with("true"), "{checked}");
}

#[test]
fn many_pods_that_want_one_image_pull_it_once() {
    let (instance, _registry, proxy) = proxied();
    for n in 0..5 {
        let text = web("127.0.0.1:5001/app:1", "IfNotPresent").replace("name: web", &format!("name: web{n}"));
        instance.write(&format!("web{n}.yaml"), &text);
    }
    (0..5).for_each(|n| drop(instance.ready(&format!("web{n}"))));
    assert_eq!(proxy.count("GET /v2/app/manifests/1"), 1, "{:?}", proxy.requests());
    // Two layers and the configuration, each once.
    assert_eq!(proxy.count("/blobs/"), 3, "{:?}", proxy.requests());
}

#[test]
fn an_image_that_was_removed_is_pulled_again_at_once() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let text = web("127.0.0.1:5000/app:1", "IfNotPresent");
    instance.write("web.yaml", &text);
    instance.ready("web");
    instance.remove("web.yaml");
    instance.gone("web");
    instance.ok(&["image", "rm", "127.0.0.1:5000/app:1"]);
    instance.write("web.yaml", &text);
    // Less than the half minute after which a worker looks at a pull without being told of its end.
    instance.within(seconds(20), "it runs", |i| i.pod("web").is_some_and(|p| p.is_ready()).then_some(()));
}

#[test]
fn layers_that_are_here_are_not_fetched_again() {
    let (instance, registry, proxy) = proxied();
    for n in ["1", "2"] {
        registry.push(instance.net(), &Image::shell(&format!("app:{n}")), &format!("app:{n}"));
    }
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent"));
    instance.ready("web");
    let before = proxy.count("/blobs/");
    instance.write("web.yaml", &web("127.0.0.1:5001/app:2", "IfNotPresent"));
    instance.until("the new image runs", |i| shows(i, "app:2").then_some(()));
    assert_eq!(proxy.count("/blobs/") - before, 2, "configuration and top layer: {:?}", proxy.requests());
}

#[test]
fn a_layer_that_breaks_off_is_resumed_where_it_stopped() {
    let (instance, _registry, proxy) = proxied();
    proxy.times(4, "/blobs/", Fault::Cut(100_000));
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent"));
    instance.ready("web");
    assert!(proxy.count("range=bytes=100000-") >= 1, "{:?}", proxy.requests());
}

#[test]
fn a_pull_that_podling_was_killed_in_goes_on_where_it_was() {
    let (mut instance, _registry, proxy) = proxied();
    proxy.always("/blobs/", Fault::Cut(100_000));
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent"));
    instance.until("some of the layer came", |_| (proxy.count("range=bytes=100000-") > 0).then_some(()));
    instance.kill_podling();
    let before = proxy.requests().len();
    proxy.heal();
    instance.start_podling();
    instance.ready("web");
    let later = &proxy.requests()[before..];
    assert!(later.iter().any(|r| r.contains("range=bytes=")), "{later:?}");
    // Nothing holds the half of it any more.
    instance.until("the pull's lease has ended", |i| {
        i.ctr(&["leases", "ls", "-q"]).trim().is_empty().then_some(())
    });
}

#[test]
fn content_with_a_wrong_digest_is_refused_and_fetched_again() {
    let (instance, _registry, proxy) = proxied();
    proxy.always("/blobs/", Fault::Corrupt);
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent"));
    let reasons = ["ErrImagePull", "ImagePullBackOff"];
    let view = instance.until_pod("web", "is refused", |p| reasons.contains(&p.waiting("main").as_str()));
    let message = view.waiting_message("main");
    assert!(
        message.contains("http://127.0.0.1:5001: it sent content that does not have this digest"),
        "{message}"
    );
    proxy.heal();
    // A new manifest does not wait for the back-off of the old one.
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent").replace("sleep 1d", "sleep 2d"));
    instance.ready("web");
}

#[test]
fn each_refusal_of_a_registry_has_its_reason_and_its_words() {
    let (instance, _registry, proxy) = proxied();
    for (status, retry, first, words) in [
        (401, None, "ErrImagePull", "401 access denied; no credential for 127.0.0.1:5001 is known"),
        (403, None, "ErrImagePull", "403 access denied"),
        (404, None, "ErrImagePull", "404 not found"),
        (429, Some(40), "ErrImagePull", "429 too many requests"),
        (500, None, "RegistryUnavailable", "500 internal server error"),
    ] {
        proxy.heal();
        proxy.always("/manifests/", Fault::Status(status, retry));
        let text = web("127.0.0.1:5001/app:1", "IfNotPresent").replace("1d", &format!("{status}d"));
        instance.write("web.yaml", &text);
        let view = instance.until_pod("web", words, |p| p.waiting_message("main").contains(words));
        let reason = view.waiting("main");
        assert!(reason == first || reason == "ImagePullBackOff", "{status}: {reason}");
        instance.until_pod("web", "backs off", |p| p.waiting("main") == "ImagePullBackOff");
    }
    // Seen from the events, the reason is the kubelet's.
    assert!(instance.ok(&["get", "events"]).contains("RegistryUnavailable"));
}

#[test]
fn always_asks_the_registry_at_each_start_and_runs_what_is_new() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let proxy = FaultyRegistry::start(instance.net(), 5001, 5000);
    registry.push(instance.net(), &Image::shell("app:one"), "app:latest");
    instance.write("web.yaml", &web("127.0.0.1:5001/app", "Always"));
    instance.ready("web");
    assert_eq!(instance.exec("web", "cat /etc/image"), "app:one");
    registry.push(instance.net(), &Image::shell("app:two"), "app:latest");
    instance.ok(&["restart", "web"]);
    instance.until("the new image runs", |i| shows(i, "app:two").then_some(()));
    let before = proxy.count("/blobs/");
    instance.ok(&["restart", "web"]);
    instance.until_pod("web", "was restarted", |p| p.is_ready() && p.condition("StaleImage").is_empty());
    assert_eq!(proxy.count("/blobs/"), before, "nothing is fetched when nothing is new");
}

#[test]
fn always_without_a_registry_runs_what_is_here_and_says_that_it_may_be_stale() {
    let instance = Instance::start();
    let mut registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:latest");
    instance.write("web.yaml", &web("127.0.0.1:5000/app", "Always"));
    instance.ready("web");
    registry.stop();
    instance.ok(&["restart", "web"]);
    instance.until_pod("web", "runs stale", |p| p.is_ready() && p.condition("StaleImage") == "True");
    assert!(instance.describes("web", "cannot connect to 127.0.0.1:5000"));
    registry.resume(instance.net());
    instance.ok(&["restart", "web"]);
    instance.until_pod("web", "is checked again", |p| p.is_ready() && p.condition("StaleImage").is_empty());
}

#[test]
fn an_image_comes_soon_after_its_registry_does() {
    let instance = Instance::start();
    let mut registry = Registry::start(instance.net());
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    registry.stop();
    instance.write("web.yaml", &web("127.0.0.1:5000/app:1", "IfNotPresent"));
    let reasons = ["RegistryUnavailable", "ImagePullBackOff"];
    instance.until_pod("web", "waits", |p| reasons.contains(&p.waiting("main").as_str()));
    // Two failures later the back-off alone would be 40 s.
    instance.within(seconds(60), "the back-off has grown", |i| {
        i.pod("web")?.waiting_message("main").contains("back-off 20s").then_some(())
    });
    registry.resume(instance.net());
    instance.ready("web");
}

#[test]
fn an_update_waits_for_its_image_while_the_old_pod_runs() {
    let (instance, registry, proxy) = proxied();
    for n in ["1", "2"] {
        registry.push(instance.net(), &Image::shell(&format!("app:{n}")), &format!("app:{n}"));
    }
    instance.write("web.yaml", &web("127.0.0.1:5001/app:1", "IfNotPresent"));
    let before = instance.ready("web");
    proxy.always("/v2/app/manifests/2", Fault::Delay(seconds(5)));
    instance.write("web.yaml", &web("127.0.0.1:5001/app:2", "IfNotPresent"));
    let waiting = instance.until_pod("web", "waits for the pull", |p| p.condition("Applied") == "False");
    assert_eq!(waiting.id("main"), before.id("main"));
    assert!(waiting.is_ready() && instance.describes("web", "pulling image 127.0.0.1:5001/app:2"));
    instance.until_pod("web", "runs the new image", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(instance.exec("web", "cat /etc/image"), "app:2");
}

#[test]
fn a_registry_with_tls_and_a_password_is_pulled_from_with_what_hosts_toml_and_config_json_say() {
    let instance = Instance::start();
    let registry = Registry::with(instance.net(), Setup { tls: true, password: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let hosts = instance.root().join("etc/containerd/certs.d/reg.example");
    fs::create_dir_all(&hosts).expect("writable");
    fs::copy(registry.ca(), hosts.join("ca.crt")).expect("writable");
    let text =
        "[host.\"https://127.0.0.1:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"ca.crt\"\n";
    fs::write(hosts.join("hosts.toml"), text).expect("writable");
    instance.write("web.yaml", &web("reg.example/app:1", "IfNotPresent"));
    let refused = "https://127.0.0.1:5000: 401 access denied";
    let view = instance.until_pod("web", "is refused", |p| p.waiting_message("main").contains(refused));
    let message = view.waiting_message("main");
    // Both were asked, in order.
    assert!(message.contains("; then https://reg.example: cannot resolve reg.example: "), "{message}");
    // "me:wrong" first, then "me:secret-word".
    for (auth, works) in [("bWU6d3Jvbmc=", false), ("bWU6c2VjcmV0LXdvcmQ=", true)] {
        let config = format!(r#"{{"auths": {{"127.0.0.1:5000": {{"auth": "{auth}"}}}}}}"#);
        fs::write(instance.root().join("var/lib/podling/config.json"), config).expect("writable");
        instance.write(
            "web.yaml",
            &web("reg.example/app:1", "IfNotPresent").replace("1d", &format!("{}d", auth.len())),
        );
        if works {
            instance.ready("web");
        } else {
            let words = "the credential that is known was refused";
            instance.until_pod("web", words, |p| p.waiting_message("main").contains(words));
        }
    }
    for word in ["secret-word", "wrong", "bWU6"] {
        assert!(!instance.log().contains(word), "the log shows {word}");
        assert!(!instance.ok(&["get", "events"]).contains(word));
    }
}

#[test]
fn a_pull_secret_in_the_manifest_directory_opens_a_registry() {
    let instance = Instance::start();
    let registry = Registry::with(instance.net(), Setup { password: true, ..Setup::default() });
    registry.push(instance.net(), &Image::shell("app:1").alone(), "app:1");
    let more = "imagePullSecrets: [{name: door}]";
    let text = crate::support::shell("web", crate::support::manifest::SLEEP, more);
    instance.write("web.yaml", &text.replace("test/shell:1", "127.0.0.1:5000/app:1"));
    let refused = "no credential for 127.0.0.1:5000 is known";
    instance.until_pod("web", "is refused", |p| p.waiting_message("main").contains(refused));
    let secret = r#"{"auths": {"127.0.0.1:5000": {"username": "me", "password": "secret-word"}}}"#;
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: door}}\ntype: kubernetes.io/dockerconfigjson\n\
         stringData:\n  .dockerconfigjson: '{secret}'\n"
    );
    instance.write("door.yaml", &text);
    // A Secret is taken from a file that only root can read.
    fs::set_permissions(instance.manifests().join("door.yaml"), fs::Permissions::from_mode(0o600))
        .expect("ours");
    instance.ready("web");
}
