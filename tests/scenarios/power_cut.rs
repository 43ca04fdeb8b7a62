//! What a power cut leaves behind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::registry::Registry;
use crate::support::{Image, Instance, sleeper};

fn find(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find(&path, name, found),
            Ok(kind) if kind.is_file() && path.ends_with(name) => found.push(path),
            _ => {}
        }
    }
}

fn empty_the_shell(instance: &Instance) {
    let mut found = Vec::new();
    find(&instance.root().join("c"), "fs/bin/busybox", &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    fs::write(&found[0], "").expect("nothing runs from it");
}

#[test]
fn an_image_whose_program_was_emptied_is_unpacked_again_offline() {
    let mut instance = Instance::start();
    instance.kill_podling();
    empty_the_shell(&instance);
    // The boot in which it was written is another one.
    fs::write(instance.root().join("var/lib/podling/boot"), "another-boot").expect("writable");
    instance.start_podling();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    assert_eq!(instance.exec("web", "cat /etc/image"), "test/shell:1");
    assert!(instance.says("damaged by the last shutdown"));
    // Ended in good order, nobody suspects anything.
    instance.restart_podling();
    assert_eq!(instance.log().matches("went down unannounced").count(), 1);
}

#[test]
fn a_layer_whose_archive_is_missing_too_is_fetched_and_until_then_the_pod_waits() {
    let mut instance = Instance::start();
    let mut registry = Registry::start(instance.net());
    // Its layers are those of the archive, packed in another way, so that a pull fetches none of them.
    registry.push(instance.net(), &Image::shell("test/shell:1"), "shell:1");
    instance.ok(&["image", "pull", "127.0.0.1:5000/shell:1"]);
    instance.kill_podling();
    registry.stop();
    empty_the_shell(&instance);
    fs::write(instance.root().join("var/lib/podling/boot"), "another-boot").expect("writable");
    instance.start_podling();
    instance.write("web.yaml", &sleeper("web").replace("test/shell:1", "127.0.0.1:5000/shell:1"));
    instance.until("it is said", |i| i.describes("web", "was damaged by the last shutdown").then_some(()));
    registry.resume(instance.net());
    instance.ready("web");
}
