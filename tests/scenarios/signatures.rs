//! The signature policy, with keys and signatures made by openssl as cosign makes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::layout::Layout;
use crate::support::registry::{Registry, run};
use crate::support::{Image, Instance, sleeper};

fn openssl(dir: &Path, script: &str) -> String {
    let out = run(Command::new("sh").args(["-ec", script]).current_dir(dir));
    String::from_utf8_lossy(&out).trim().to_owned()
}

#[test]
fn a_signed_image_runs_and_an_unsigned_one_does_not() {
    let instance = Instance::start();
    let registry = Registry::start(instance.net());
    let digest = registry.push(instance.net(), &Image::shell("app:1"), "app:1");
    let dir = instance.root().join("stage");
    openssl(
        &dir,
        "openssl ecparam -name prime256v1 -genkey -noout -out key.pem; openssl ec -in key.pem -pubout -out cosign.pub 2>/dev/null",
    );
    let policy = format!(
        r#"{{"default": [{{"type": "insecureAcceptAnything"}}], "transports": {{"docker": {{"127.0.0.1:5000":
            [{{"type": "sigstoreSigned", "keyPath": "{}"}}]}}}}}}"#,
        dir.join("cosign.pub").display()
    );
    fs::write(instance.root().join("etc/podling/policy.json"), policy).expect("writable");
    let web = sleeper("web").replace("test/shell:1", "127.0.0.1:5000/app:1");
    instance.write("web.yaml", &web);
    let words = "the signature policy wants it signed, and it has no signature";
    instance.until_pod("web", words, |p| p.waiting_message("main").contains(words));
    assert!(instance.ok(&["get", "events"]).contains("SignatureValidationFailed"));
    assert!(!instance.ok(&["image", "ls"]).contains("127.0.0.1:5000/app"));

    // As cosign does it, with the tag: a payload with name and digest, its signature as an annotation, under a tag of the digest.
    let payload = format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"127.0.0.1:5000/app:1"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
    );
    fs::write(dir.join("payload"), &payload).expect("writable");
    let signature = openssl(&dir, "openssl dgst -sha256 -sign key.pem payload | base64 -w0");
    let layout_dir = dir.join("signature");
    let layout = Layout::new(&layout_dir);
    let source = layout.end(layout.signature(payload.as_bytes(), &signature));
    let tag = format!("app:{}.sig", digest.replace(':', "-"));
    registry.push_from(instance.net(), &source, &tag, &["--all"]);
    instance.write("web.yaml", &web.replace("sleep 1d", "sleep 2d"));
    instance.ready("web");
    // What the policy does not name comes as before.
    instance.write("other.yaml", &sleeper("other"));
    instance.ready("other");
}

#[test]
fn the_policy_tells_the_forms_of_archives_apart() {
    let instance = Instance::start();
    let dir = instance.root().join("stage");
    let at = |name: &str| dir.join(name).display().to_string();
    fs::write(at("in.tar"), Image::shell("test/in:1").archive()).expect("writable");
    let copies = [
        "docker-archive:docker.tar:docker.io/test/docker:1",
        "oci-archive:oci.tar:test/oci:1",
        "oci:layout:test/dir:1",
    ];
    for to in copies {
        let args = ["--insecure-policy", "copy", "oci-archive:in.tar", to];
        run(Command::new("skopeo").args(args).current_dir(&dir));
    }
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}], "transports": {
        "docker-archive": {"": [{"type": "reject"}]}, "oci": {"docker.io/test/dir": [{"type": "reject"}]}}}"#;
    fs::write(instance.root().join("etc/podling/policy.json"), policy).expect("writable");
    assert_eq!(instance.ok(&["image", "import", &at("oci.tar")]), "image/docker.io/test/oci:1 imported\n");
    for refused in ["docker.tar", "layout"] {
        let text = instance.fails(1, &["image", "import", &at(refused)]);
        assert!(text.contains("the signature policy rejects it"), "{refused}: {text}");
    }
    // Of several images only the one that is refused stays out.
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}], "transports": {
        "oci-archive": {"docker.io/test/refused": [{"type": "reject"}]}}}"#;
    fs::write(instance.root().join("etc/podling/policy.json"), policy).expect("writable");
    let both = [Image::shell("test/refused:1"), Image::shell("test/taken:1")];
    fs::write(at("both.tar"), Image::archive_of(&both)).expect("writable");
    let text = instance.fails(1, &["image", "import", &at("both.tar")]);
    assert!(text.contains("image/docker.io/test/taken:1 imported\n"), "{text}");
    assert!(text.contains("left one image out: cannot import docker.io/test/refused:1 from "), "{text}");
    assert!(!instance.ok(&["image", "ls", "-q"]).contains("test/refused"));
}
