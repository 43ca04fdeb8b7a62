//! What happens in the manifest directory: files come, change, break, go, and lie about.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread::sleep;
use std::time::Duration;

use crate::support::manifest::SLEEP;
use crate::support::{Image, Instance, Options, PodView, pod, seconds, sleeper};

/// The file the test images carry with their own name.
fn image_of(instance: &Instance, pod: &str) -> String {
    instance.exec(pod, "cat /etc/image")
}

fn two_images() -> Instance {
    let images = vec![Image::shell("test/shell:1"), Image::shell("test/shell:2")];
    Instance::with(Options { images, ..Options::default() })
}

fn with_image(name: &str, tag: u32) -> String {
    sleeper(name).replace("test/shell:1", &format!("test/shell:{tag}"))
}

/// The identity of a running container: a restart of any kind changes it.
fn identity(pod: &PodView) -> (String, String, u64) {
    (pod.uid(), pod.id("main"), pod.restarts("main"))
}

#[test]
fn a_manifest_renamed_in_runs_and_its_removal_stops_it() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let web = instance.ready("web");
    assert_eq!(web.phase(), "Running");
    assert_eq!(web.id("main").len(), 64, "container ids are 64 hex digits");
    let pid = instance.pid(&web, "main");
    assert!(pid > 0);
    instance.remove("web.yaml");
    instance.gone("web");
    assert!(!crate::support::host::alive(pid));
}

#[test]
fn a_manifest_written_in_two_slow_chunks_is_read_once_it_is_whole() {
    let instance = Instance::start();
    let text = sleeper("slow");
    let (head, tail) = text.split_at(text.len() / 2);
    let mut file = File::create(instance.manifests().join("slow.yaml")).expect("writable");
    file.write_all(head.as_bytes()).expect("writable");
    file.sync_all().expect("writable");
    // Longer than any reading takes, with the file still open for writing.
    sleep(Duration::from_millis(150));
    file.write_all(tail.as_bytes()).expect("writable");
    drop(file);
    let slow = instance.ready("slow");
    assert_eq!(slow.restarts("main"), 0);
    assert!(!instance.says("ParseError"), "half a file is no error:\n{}", instance.log());
}

#[test]
fn an_editor_that_keeps_a_backup_changes_the_pod_once() {
    let instance = two_images();
    instance.write("a.yaml", &with_image("web", 1));
    let before = instance.ready("web");
    // As vim writes: a probe file, the old file moved aside, the new one written, the backup removed.
    let dir = instance.manifests();
    fs::write(dir.join("4913"), "").expect("writable");
    fs::remove_file(dir.join("4913")).expect("writable");
    fs::rename(dir.join("a.yaml"), dir.join("a.yaml~")).expect("writable");
    fs::write(dir.join("a.yaml"), with_image("web", 2)).expect("writable");
    fs::remove_file(dir.join("a.yaml~")).expect("writable");
    instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
    let after = instance.pod("web").expect("it runs");
    instance.stays(seconds(2), "nothing happens again", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&after))
    });
}

#[test]
fn backup_files_beside_a_manifest_are_not_read() {
    let instance = two_images();
    for name in ["web.yaml.bak", "web.yaml~", ".web.yaml", "web.yaml.orig", "web.yaml.rpmsave", "#web.yaml#"]
    {
        fs::write(instance.manifests().join(name), with_image("old", 1)).expect("writable");
    }
    fs::write(instance.manifests().join("a.yaml.bak"), with_image("web", 1)).expect("writable");
    instance.write("a.yaml", &with_image("web", 2));
    instance.ready("web");
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
    instance.stays(seconds(1), "only web runs", |i| i.pods().len() == 1);
}

#[test]
fn of_two_files_for_one_pod_the_first_runs_and_the_second_waits() {
    let instance = two_images();
    instance.write("10-web.yaml", &with_image("web", 1));
    let first = instance.ready("web");
    instance.write("20-web.yaml", &with_image("web", 2));
    instance.until("the second file is reported", |i| i.says("20-web.yaml").then_some(()));
    instance.stays(seconds(1), "the first runs", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&first))
    });
    instance.remove("20-web.yaml");
    instance.stays(seconds(1), "the first runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&first))
    });
    instance.write("20-web.yaml", &with_image("web", 2));
    sleep(seconds(1));
    instance.remove("10-web.yaml");
    instance.until("the second file takes over", |i| {
        let web = i.pod("web")?;
        (web.is_ready() && web.id("main") != first.id("main")).then_some(())
    });
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
}

#[test]
fn a_manifest_edited_to_nonsense_and_back_keeps_its_pod() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    for nonsense in ["spec: [\n", "", "just words", "\0\x01\x02", "kind: Pod\napiVersion: v1\n"] {
        instance.write("web.yaml", nonsense);
        instance.stays(seconds(1), "the last accepted pod runs", |i| {
            i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
        });
    }
    instance.until("the file is named in the log", |i| i.says("web.yaml").then_some(()));
    instance.write("web.yaml", &sleeper("web"));
    instance.stays(seconds(1), "the same container runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
}

#[test]
fn a_broken_manifest_is_named_with_line_and_column_where_a_person_looks() {
    let instance = Instance::start();
    instance.write("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a\nspec: [\n");
    instance.until("the log names file, line and column", |i| {
        i.log()
            .lines()
            .any(|l| l.contains("broken.yaml:") && l.to_lowercase().contains("parse"))
            .then_some(())
    });
    let shown = instance.podling(&["get", "pods"]);
    let shown = String::from_utf8_lossy(&shown.stdout) + String::from_utf8_lossy(&shown.stderr);
    assert!(shown.contains("broken.yaml"), "get pods says nothing of the file:\n{shown}");
}

#[test]
fn a_manifest_directory_that_moves_away_stops_nothing() {
    let mut instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let away = instance.root().join("etc/pods.away");
    fs::rename(instance.manifests(), &away).expect("writable");
    instance.stays(seconds(3), "the pod runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
    instance.restart_podling();
    instance.stays(seconds(1), "a restart meanwhile does not stop it either", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
    fs::rename(&away, instance.manifests()).expect("writable");
    instance.stays(seconds(2), "the pod runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
    // The directory is watched again, not only listed now and then.
    instance.write("late.yaml", &sleeper("late"));
    instance.ready("late");
}

#[test]
fn an_empty_file_system_mounted_over_the_directory_stops_nothing() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let mount = |args: &[&str]| {
        let dir = instance.manifests();
        let done = std::process::Command::new(args[0]).args(&args[1..]).arg(dir).status();
        assert!(done.is_ok_and(|s| s.success()), "{args:?}");
    };
    mount(&["mount", "-t", "tmpfs", "podling-test"]);
    instance.stays(seconds(3), "the pod runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
    mount(&["umount"]);
    instance.stays(seconds(2), "the pod runs on", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&before))
    });
}

#[test]
fn nothing_happens_when_the_same_content_is_touched_reordered_or_commented() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    let path = instance.manifests().join("web.yaml");
    let steady = |what: &str| {
        instance.stays(seconds(1), what, |i| i.pod("web").is_some_and(|p| identity(&p) == identity(&before)));
    };
    instance.write("web.yaml", &sleeper("web"));
    steady("rewriting identical bytes restarts nothing");
    File::options()
        .append(true)
        .open(&path)
        .and_then(|f| f.set_modified(std::time::SystemTime::now()))
        .expect("ok");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ok");
    steady("touch and chmod restart nothing");
    let script = serde_json::to_string(SLEEP).expect("a string can be JSON");
    let reordered = format!(
        "# a comment\nkind: Pod\nspec:\n  containers:\n  - args: [{script}]\n    command: ['sh', '-c']\n    \
         image: \"test/shell:1\"\n    name: main\n  terminationGracePeriodSeconds: 3\n  hostNetwork: yes\n\
         metadata: {{name: web}}\napiVersion: v1\n"
    );
    instance.write("web.yaml", &reordered);
    steady("another order of keys and a comment restart nothing");
    fs::rename(&path, instance.manifests().join("renamed.yaml")).expect("ok");
    steady("another file name restarts nothing");
    assert_eq!(instance.pod("web").map(|p| p.hash()), Some(before.hash()));
}

#[test]
fn swapping_two_arguments_is_a_change() {
    let instance = Instance::start();
    let with = |args: &str| {
        pod(
            "web",
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: 1
                containers:
                - name: main
                  image: test/shell:1
                  command: [sh, -c, 'echo $0 $1 > /tmp/args; {SLEEP_DOUBLED}']
                  args: {args}
                "
            ),
        )
    };
    instance.write("web.yaml", &with("[one, two]"));
    let before = instance.ready("web");
    instance.write("web.yaml", &with("[two, one]"));
    instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(instance.exec("web", "cat /tmp/args"), "two one");
}

/// [`SLEEP`](crate::support::manifest::SLEEP) inside a single-quoted YAML string.
const SLEEP_DOUBLED: &str = "trap \"exit 0\" TERM; sleep 1d & wait";

#[test]
fn a_link_whose_target_is_mounted_later_and_swapped_is_followed() {
    let instance = two_images();
    let disk = instance.root().join("disk");
    fs::create_dir_all(&disk).expect("writable");
    symlink(disk.join("web.yaml"), instance.manifests().join("web.yaml")).expect("writable");
    sleep(seconds(1));
    assert!(instance.pods().is_empty());
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "podling-test"]).arg(&disk).status();
    assert!(mounted.is_ok_and(|s| s.success()));
    fs::write(disk.join("web.yaml"), with_image("web", 1)).expect("writable");
    let before = instance.ready("web");
    fs::write(disk.join("new"), with_image("web", 2)).expect("writable");
    fs::rename(disk.join("new"), disk.join("web.yaml")).expect("writable");
    instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
    instance.remove("web.yaml");
    instance.gone("web");
    let unmounted = std::process::Command::new("umount").arg(&disk).status();
    assert!(unmounted.is_ok_and(|s| s.success()));
}

#[test]
fn a_directory_of_links_swapped_as_a_whole_gives_one_update() {
    // As a ConfigMap volume does it: web.yaml -> ..data/web.yaml, ..data -> ..1, and ..data is renamed over.
    let instance = two_images();
    let dir = instance.manifests();
    for (version, tag) in [("..1", 1), ("..2", 2)] {
        fs::create_dir(dir.join(version)).expect("writable");
        fs::write(dir.join(version).join("web.yaml"), with_image("web", tag)).expect("writable");
    }
    symlink("..1", dir.join("..data")).expect("writable");
    symlink("..data/web.yaml", dir.join("web.yaml")).expect("writable");
    let before = instance.ready("web");
    symlink("..2", dir.join("..tmp")).expect("writable");
    fs::rename(dir.join("..tmp"), dir.join("..data")).expect("writable");
    let after =
        instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
    instance.stays(seconds(1), "it was one update", |i| {
        i.pod("web").is_some_and(|p| identity(&p) == identity(&after))
    });
    for version in ["..1", "..2"] {
        fs::remove_file(dir.join(version).join("web.yaml")).expect("writable");
        fs::remove_dir(dir.join(version)).expect("writable");
    }
}

#[test]
fn other_kinds_in_a_file_are_named_and_the_pod_beside_them_runs() {
    let instance = Instance::start();
    let others = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n---\n\
                  apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {}\n---\n";
    instance.write("all.yaml", &format!("{others}{}", sleeper("web")));
    instance.ready("web");
    assert!(instance.says("Deployment") && instance.says("Service"), "{}", instance.log());
}

#[test]
fn several_pods_in_one_file_come_and_go_each_by_itself() {
    let instance = Instance::start();
    instance.write("all.yaml", &format!("{}---\n{}", sleeper("one"), sleeper("two")));
    let one = instance.ready("one");
    instance.ready("two");
    instance.write("all.yaml", &sleeper("one"));
    instance.gone("two");
    assert_eq!(instance.pod("one").map(|p| identity(&p)), Some(identity(&one)));
}

#[test]
fn a_changed_label_restarts_nothing() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance
        .write("web.yaml", &sleeper("web").replace("name: web\n", "name: web\n  labels: {tier: front}\n"));
    instance.until_pod("web", "has the label", |p| p.0["metadata"]["labels"]["tier"] == "front");
    assert_eq!(instance.pod("web").map(|p| identity(&p)), Some(identity(&before)));
}

#[test]
fn a_change_of_one_container_leaves_the_other_running() {
    let instance = Instance::start();
    let text = |greeting: &str| {
        pod(
            "web",
            &format!(
                "
                hostNetwork: true
                terminationGracePeriodSeconds: 3
                containers:
                - {{name: main, image: test/shell:1, command: [sh, -c, '{SLEEP_DOUBLED}']}}
                - name: other
                  image: test/shell:1
                  command: [sh, -c, '{SLEEP_DOUBLED}']
                  env: [{{name: GREETING, value: {greeting}}}]
                "
            ),
        )
    };
    instance.write("web.yaml", &text("hello"));
    let before = instance.ready("web");
    instance.write("web.yaml", &text("goodbye"));
    let after = instance
        .until_pod("web", "has a new container", |p| p.is_ready() && p.id("other") != before.id("other"));
    assert_eq!(after.id("main"), before.id("main"));
}

#[test]
fn removing_and_adding_a_pod_again_is_a_fresh_pod() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.remove("web.yaml");
    instance.gone("web");
    instance.write("web.yaml", &sleeper("web"));
    let fresh = instance.ready("web");
    assert_ne!(before.uid(), fresh.uid());
    assert_eq!(fresh.restarts("main"), 0);
}

#[test]
fn an_edit_that_is_refused_keeps_the_running_pod_and_says_why() {
    let instance = Instance::start();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.write("web.yaml", &sleeper("web").replace("name: main", "name: NOT_A_NAME"));
    instance.until("the refusal is in the log", |i| i.says("NOT_A_NAME").then_some(()));
    assert!(instance.says("spec.containers[0].name"), "{}", instance.log());
    assert_eq!(instance.pod("web").map(|p| identity(&p)), Some(identity(&before)));
}

#[test]
fn a_missing_image_in_an_edit_does_not_touch_the_old_instance() {
    let instance = two_images();
    instance.write("web.yaml", &with_image("web", 1));
    let before = instance.ready("web");
    let pid = instance.pid(&before, "main");
    instance.write("web.yaml", &with_image("web", 7));
    instance.until("the missing image is reported", |i| i.describes("web", "test/shell:7").then_some(()));
    instance.stays(seconds(2), "the old instance runs", |_| crate::support::host::alive(pid));
    instance.write("web.yaml", &with_image("web", 2));
    instance.until_pod("web", "runs the image that exists", |p| {
        p.is_ready() && p.id("main") != before.id("main")
    });
    assert_eq!(image_of(&instance, "web"), "test/shell:2");
}
