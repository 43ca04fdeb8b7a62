//! Archives in the images directory, and images by hand.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::registry::{Registry, run};
use crate::support::{Image, Instance, Options, seconds, sleeper};

fn images_dir(instance: &Instance) -> PathBuf {
    instance.root().join("var/lib/podling/images")
}

fn warns(instance: &Instance, text: &str) -> bool {
    String::from_utf8_lossy(&instance.podling(&["get", "pods"]).stderr).contains(text)
}

#[test]
fn archives_that_cannot_be_read_are_said_until_they_are_mended_and_hold_up_no_other() {
    let instance = Instance::start();
    let dir = images_dir(&instance);
    let late = Image::shell("test/late:1").archive();
    fs::write(dir.join("a.tar.xz"), b"\xfd7zXZ\0 and so on").expect("writable");
    fs::create_dir(dir.join("b-directory")).expect("writable");
    fs::write(dir.join("c.tar"), &late[..late.len() / 2]).expect("writable");
    // A pipe that nobody writes to would hold its reader for ever.
    assert!(Command::new("mkfifo").arg(dir.join("d.tar")).status().expect("mkfifo runs").success());
    fs::write(dir.join("e.tar"), Image::shell("test/other:1").archive()).expect("writable");
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/other:1"));
    instance.ready("web");
    for text in [
        "a.tar.xz is packed with xz",
        "b-directory is not an image",
        "c.tar is damaged",
        "d.tar: it is neither",
    ] {
        instance.until(text, |i| warns(i, text).then_some(()));
        assert!(instance.ok(&["get", "events"]).contains(text));
    }
    fs::write(dir.join("c.tar"), &late).expect("writable");
    for other in ["a.tar.xz", "d.tar"] {
        fs::remove_file(dir.join(other)).expect("it is there");
    }
    fs::remove_dir(dir.join("b-directory")).expect("it is there");
    instance.until("no archive is broken", |i| (!warns(i, "ImageArchives")).then_some(()));
    assert!(instance.ok(&["image", "ls", "-q"]).contains("docker.io/test/late:1"));
}

#[test]
fn an_image_that_cannot_be_had_keeps_out_no_other_of_its_archive() {
    let mut instance = Instance::start();
    let images = [
        Image::shell("test/BAD:1"),
        Image::shell("test/good:1"),
        Image::shell("test/foreign:1").foreign(),
        Image::shell("test/last:1"),
    ];
    let staged = instance.root().join("stage/mixed.tar");
    fs::write(&staged, Image::archive_of(&images)).expect("writable");
    let reasons = ["invalid image name \"docker.io/test/BAD:1\"", "no build of docker.io/test/foreign:1"];
    let out = instance.podling(&["image", "import", &staged.display().to_string()]);
    let (done, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(done, "image/docker.io/test/good:1 imported\nimage/docker.io/test/last:1 imported\n");
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(said.matches("left one image out: ").count(), 2, "{said}");
    assert!(reasons.iter().all(|r| said.contains(r)), "{said}");

    // In the directory the same, and said for as long as it lies there, over restarts too.
    instance.ok(&["image", "rm", "test/good:1", "test/last:1"]);
    let laid = images_dir(&instance).join("mixed.tar");
    fs::rename(&staged, &laid).expect("the same disk");
    instance.until("both are imported", |i| {
        let names = i.ok(&["image", "ls", "-q"]);
        (names.contains("test/good:1") && names.contains("test/last:1")).then_some(())
    });
    for text in reasons {
        instance.until(text, |i| warns(i, text).then_some(()));
        assert!(instance.ok(&["get", "events"]).contains(text));
    }
    instance.stop_podling();
    instance.spawn_podling();
    for text in reasons {
        instance.until(text, |i| warns(i, text).then_some(()));
    }
    fs::remove_file(&laid).expect("it is there");
    instance.until("no archive is broken", |i| (!warns(i, "ImageArchives")).then_some(()));
}

#[test]
fn the_images_directory_may_go_and_come_back() {
    let instance = Instance::start();
    let dir = images_dir(&instance);
    instance.until("it is imported", |i| {
        i.podling(&["image", "ls", "test/shell"]).status.success().then_some(())
    });
    fs::remove_dir_all(&dir).expect("it is there");
    instance.until("it is made again", |_| dir.is_dir().then_some(()));
    fs::write(dir.join("late.tar"), Image::shell("test/late:1").archive()).expect("writable");
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "test/late:1"));
    instance.ready("web");
    // What came from the archives that went is kept: nobody could bring it back.
    assert!(instance.ok(&["image", "ls", "-q"]).contains("docker.io/test/shell:1"));
}

#[test]
fn an_import_right_after_the_start_waits_for_containerd() {
    let mut instance = Instance::start();
    let archive = instance.root().join("stage/late.tar");
    fs::write(&archive, Image::shell("test/late:1").archive()).expect("writable");
    instance.stop_podling();
    instance.stop_containerd();
    instance.spawn_podling();
    let socket = instance.root().join("run/podling/podling.sock");
    instance.until("podling listens", |_| std::os::unix::net::UnixStream::connect(&socket).ok());
    let (path, root) = (archive.display().to_string(), instance.root().display().to_string());
    let mut import = Command::new(Instance::binary());
    let import = import.args(["--root", &root, "image", "import", &path]).spawn().expect("podling runs");
    std::thread::sleep(seconds(1));
    instance.start_containerd();
    assert!(import.wait_with_output().expect("it ends").status.success());
}

#[test]
fn images_are_listed_and_removed_by_name_digest_and_id_but_not_from_under_a_pod() {
    let instance = Instance::with(Options {
        images: vec![
            Image::shell("test/shell:1"),
            Image::shell("test/idle:1"),
            Image::shell("test/idle:2").alone(),
        ],
        ..Options::default()
    });
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    let names = instance.ok(&["image", "ls", "-q"]);
    assert_eq!(names, "docker.io/test/idle:1\ndocker.io/test/idle:2\ndocker.io/test/shell:1\n");
    let of_one = instance.ok(&["image", "ls", "test/idle", "-o", "json"]);
    let of_one: Value = serde_json::from_str(&of_one).expect("JSON");
    assert_eq!(of_one["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(of_one["items"][0]["pinned"], true);
    let id = of_one["items"][0]["id"].as_str().expect("a text").to_owned();
    assert!(instance.ok(&["image", "inspect", &id]).contains("docker.io/test/idle:1"));

    assert!(instance.fails(1, &["image", "rm", "test/shell:1"]).contains("is used by pod default/web"));
    assert_eq!(instance.ok(&["image", "rm", &id[7..19]]), "image/docker.io/test/idle:1 removed\n");
    let out = instance.fails(1, &["image", "rm", "nosuch", "test/idle:2"]);
    assert!(
        out.contains("\"nosuch\" not found") && out.contains("image/docker.io/test/idle:2 removed"),
        "{out}"
    );
    assert_eq!(instance.ok(&["image", "prune", "--all"]), "");
    assert_eq!(
        instance.ok(&["image", "rm", "--force", "test/shell:1"]),
        "image/docker.io/test/shell:1 removed\n"
    );
    assert_eq!(instance.ok(&["image", "ls", "-q"]), "");
    // What runs goes on.
    assert!(instance.exec("web", "cat /etc/image").contains("test/shell:1"));
}

#[test]
fn an_image_without_a_name_gets_one_by_order_and_an_export_of_several_is_one_for_docker_too() {
    let instance = Instance::start();
    let stage = instance.root().join("stage");
    let at = |name: &str| stage.join(name).display().to_string();
    fs::write(at("in.tar"), Image::shell("test/in:1").archive()).expect("writable");
    let skopeo = |args: &[&str]| run(Command::new("skopeo").arg("--insecure-policy").args(args));
    let from = format!("oci-archive:{}", at("in.tar"));
    skopeo(&["copy", &from, &format!("docker-archive:{}", at("nameless.tar"))]);
    skopeo(&["copy", &from, &format!("dir:{}", at("dir"))]);
    let out = instance.ok(&["image", "import", "--name", "test/named:3", &at("nameless.tar")]);
    assert_eq!(out, "image/docker.io/test/named:3 imported\n");
    assert!(instance.fails(1, &["image", "import", &at("dir")]).contains("skopeo's form `dir:`"));

    instance.ok(&["image", "export", &at("out.tar"), "test/named:3", "test/shell:1"]);
    for name in ["docker.io/test/named:3", "docker.io/test/shell:1"] {
        let archive = format!("docker-archive:{}:{name}", at("out.tar"));
        let config = skopeo(&["inspect", "--config", &archive]);
        assert!(String::from_utf8_lossy(&config).contains("rootfs"), "{name}");
    }
    let out = instance.ok(&["image", "import", &at("out.tar")]);
    assert_eq!(out, "image/docker.io/test/named:3 imported\nimage/docker.io/test/shell:1 imported\n");
}

#[test]
fn what_a_pull_left_out_is_fetched_when_it_is_needed() {
    let instance = Instance::start();
    let mut registry = Registry::start(instance.net());
    // Its layers are those of the archive, packed by skopeo, so that a pull needs none of them.
    registry.push(instance.net(), &Image::shell("test/shell:1"), "shell:1");
    let out = instance.root().join("stage/out.tar").display().to_string();
    instance.ok(&["image", "pull", "127.0.0.1:5000/shell:1"]);
    registry.stop();
    let text = instance.fails(1, &["image", "export", &out, "127.0.0.1:5000/shell:1"]);
    assert!(text.contains("cannot be exported: blob sha256:") && text.contains("127.0.0.1:5000"), "{text}");
    registry.resume(instance.net());
    instance.ok(&["image", "export", &out, "127.0.0.1:5000/shell:1"]);
}
