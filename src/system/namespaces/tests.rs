use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::*;

/// A directory whose pins go with it.
struct Pins(tempfile::TempDir);

impl Pins {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn dir(&self) -> PathBuf {
        self.0.path().join("pins")
    }
    fn inode(&self, ns: Ns) -> u64 {
        fs::metadata(self.dir().join(ns.name())).unwrap().ino()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = unpin(&self.dir());
    }
}

fn run_inside(dir: &Path, script: &str) -> String {
    let out = std::process::Command::new("nsenter")
        .arg(format!("--net={}", dir.join("net").display()))
        .arg(format!("--uts={}", dir.join("uts").display()))
        .args(["busybox", "sh", "-c", script])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn pinned_namespaces_outlive_their_thread_with_loopback_up_and_the_hostname_set() {
    let pins = Pins::new();
    let own = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).unwrap().ino();
    let before = own("net");
    create_pinned(&pins.dir(), &Ns::ALL, Some("web-0")).unwrap();

    for ns in Ns::ALL {
        assert!(is_pinned(&pins.dir().join(ns.name())), "{ns:?}");
        assert_ne!(pins.inode(ns), own(ns.name()), "{ns:?} is the host's");
    }
    assert_eq!(own("net"), before, "the caller keeps its own namespace");
    assert_eq!(run_inside(&pins.dir(), "hostname; ip addr show lo").lines().next(), Some("web-0"));
    assert!(run_inside(&pins.dir(), "ip addr show lo").contains("127.0.0.1"));

    unpin(&pins.dir()).unwrap();
    assert!(!pins.dir().exists());
    unpin(&pins.dir()).unwrap();
}

#[test]
fn creating_again_keeps_what_is_there_and_replaces_what_is_half_made() {
    let pins = Pins::new();
    create_pinned(&pins.dir(), &[Ns::Ipc, Ns::Uts], Some("a")).unwrap();
    let first = pins.inode(Ns::Uts);
    create_pinned(&pins.dir(), &[Ns::Ipc, Ns::Uts], Some("a")).unwrap();
    assert_eq!(pins.inode(Ns::Uts), first);

    rustix::mount::unmount(pins.dir().join("ipc"), UnmountFlags::DETACH).unwrap();
    create_pinned(&pins.dir(), &[Ns::Ipc, Ns::Uts, Ns::Net], Some("b")).unwrap();
    assert!(is_pinned(&pins.dir().join("ipc")));
    assert_eq!(run_inside(&pins.dir(), "hostname"), "b\n", "all are made anew");
}

#[test]
fn a_failed_creation_leaves_no_pin_and_says_why() {
    let pins = Pins::new();
    let long = "x".repeat(65);
    let text = create_pinned(&pins.dir(), &Ns::ALL, Some(&long)).unwrap_err().to_string();
    assert!(text.starts_with("cannot set the hostname of the pod: "), "{text}");
    for ns in Ns::ALL {
        assert!(!pins.dir().join(ns.name()).exists(), "{ns:?}");
    }
}

#[test]
fn removing_pins_spares_what_else_is_in_the_directory() {
    let pins = Pins::new();
    create_pinned(&pins.dir(), &[Ns::Uts], None).unwrap();
    fs::write(pins.dir().join("note"), "x").unwrap();
    unpin(&pins.dir()).unwrap();
    assert!(pins.dir().join("note").exists());
    assert!(!pins.dir().join("uts").exists());
}

#[test]
fn a_plain_file_is_not_a_pin() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("net"), "").unwrap();
    assert!(!is_pinned(&dir.path().join("net")));
    assert!(!is_pinned(&dir.path().join("missing")));
}

#[test]
fn mount_namespaces_of_processes_are_compared() {
    assert!(same_mount_namespace(std::process::id()).unwrap());
    let mut other = std::process::Command::new("unshare").args(["-m", "sleep", "10"]).spawn().unwrap();
    // unshare needs a moment before it is in its own namespace.
    let differs = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !same_mount_namespace(other.id()).unwrap()
    });
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(differs);
    let gone = same_mount_namespace(other.id()).unwrap_err().to_string();
    assert_eq!(gone, format!("process {} is gone", other.id()));
}
