//! Making room on a disk that is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::registry::Registry;
use crate::support::{Image, Instance, Options, host, sleeper};

/// A small disk; unmounted at the end.
pub struct Disk(pub tempfile::TempDir);

impl Disk {
    pub fn new() -> Self {
        let dir = host::scratch();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(dir.path()).status();
        assert!(mounted.expect("mount runs").success());
        Self(dir)
    }

    /// Fills it up to this many percent with something that podling cannot remove.
    fn fill(&self, percent: u64) {
        let fs = rustix::fs::statvfs(self.0.path()).expect("it is mounted");
        let used = fs.f_blocks - fs.f_bfree;
        let more = (fs.f_blocks * percent / 100).saturating_sub(used) * fs.f_frsize;
        let count = fs::read_dir(self.0.path()).expect("it is mounted").count();
        fs::write(self.0.path().join(format!("filler-{count}")), vec![1; more as usize])
            .expect("it is not full");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        host::unmount_under(self.0.path());
    }
}

fn start(disk: &Path) -> Instance {
    Instance::with(Options {
        disk: Some(disk.to_owned()),
        settings: "imageMinimumGCAge: 0s\nimageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 67\n"
            .into(),
        ..Options::default()
    })
}

#[test]
fn a_full_disk_loses_what_nobody_wants_the_least_recently_used_first_and_nothing_else() {
    let disk = Disk::new();
    let mut instance = start(disk.0.path());
    let registry = Registry::start(instance.net());
    // Some five megabytes on the disk, hardly any in the registry.
    let content = "x".repeat(5 << 20);
    let named = |name: &str| format!("127.0.0.1:5000/{name}:1");
    for name in ["a-newer", "b-older", "broken", "before", "used"] {
        registry.push(
            instance.net(),
            &Image::shell(&format!("{name}:1")).program("bin/content", &format!("{name}{content}")),
            &format!("{name}:1"),
        );
        instance.ok(&["image", "pull", &named(name)]);
    }
    let web = |name: &str| sleeper("web").replace("test/shell:1", &named(name));
    instance.write("web.yaml", &web("before"));
    let old = instance.ready("web");
    instance.write("web.yaml", &web("used"));
    instance.until_pod("web", "is updated", |p| p.is_ready() && p.id("main") != old.id("main"));
    let broken = format!("kind: Pod\nspec:\n  initContainers:\n  - image: {}\n : :\n", named("broken"));
    instance.write("broken.yaml", &broken);
    // What the podling before this one knew of their use.
    instance.stop_podling();
    let order = format!("[\"{}\",\"{}\"]", named("b-older"), named("a-newer"));
    fs::write(instance.root().join("var/lib/podling/image-uses.json"), order).expect("writable");
    instance.start_podling();

    let left = |i: &Instance| i.ok(&["image", "ls", "-q"]);
    disk.fill(72);
    instance.until("the least recently used is gone", |i| (!left(i).contains("b-older")).then_some(()));
    assert!(left(&instance).contains("a-newer"), "{}", instance.log());
    disk.fill(72);
    instance.until("the other is gone too", |i| (!left(i).contains("a-newer")).then_some(()));
    assert!(instance.ok(&["get", "events"]).contains("removed images that nobody uses"));
    disk.fill(72);
    instance.until("nothing is left that could go", |i| {
        String::from_utf8_lossy(&i.podling(&["get", "pods"]).stderr).contains("DiskPressure").then_some(())
    });
    for name in ["broken", "before", "used", "test/shell"] {
        assert!(left(&instance).contains(name), "{name} is gone; {}", left(&instance));
    }
    assert!(instance.ok(&["get", "events"]).contains("FreeDiskSpaceFailed"));
}
