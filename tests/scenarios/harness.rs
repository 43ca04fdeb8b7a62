//! The harness itself: that its containerd, its images and its proxy do what the scenarios rely on.

use std::process::Command;

use crate::support::daemon_containerd::Containerd;
use crate::support::fault_proxy::{Fault, FaultProxy, UNAVAILABLE};
use crate::support::host::{self, NetNs};
use crate::support::image::Image;

fn ctr(socket: &std::path::Path, args: &[&str]) -> (bool, String) {
    let out = Command::new("ctr").arg("-a").arg(socket).args(args).output().expect("ctr runs");
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text.into_owned())
}

#[test]
fn containerd_takes_the_harness_image_through_the_proxy() {
    let (dir, net) = (host::scratch(), NetNs::new());
    let mut containerd = Containerd::start(&dir.path().join("c"), None, &net);
    let socket = dir.path().join("proxy.sock");
    let proxy = FaultProxy::start(&socket, &containerd.socket());
    let archive = dir.path().join("image.tar");
    std::fs::write(&archive, Image::shell("test/shell:1").archive()).expect("writable");

    let (ok, text) = ctr(&socket, &["images", "import", &archive.display().to_string()]);
    assert!(ok, "{text}");
    let (_, list) = ctr(&socket, &["images", "ls", "-q"]);
    assert_eq!(list.trim(), "docker.io/test/shell:1");
    assert!(proxy.count("Images/List") >= 1);

    proxy.times(1, "Images/List", Fault::Status(UNAVAILABLE, "a bad day"));
    let (ok, text) = ctr(&socket, &["images", "ls"]);
    assert!(!ok && text.contains("a bad day"), "{text}");
    assert!(ctr(&socket, &["images", "ls"]).0, "the fault was for one call only");

    containerd.kill();
    containerd.restart(&net);
    assert!(ctr(&socket, &["images", "ls"]).0, "the proxy finds containerd again");
}

#[test]
fn a_network_namespace_of_the_harness_has_nothing_but_loopback() {
    let net = NetNs::new();
    assert!(net.links().is_empty());
    let out = net.command("ip").args(["-o", "link", "show", "lo"]).output().expect("ip runs");
    assert!(String::from_utf8_lossy(&out.stdout).contains("LOWER_UP"));
}

#[test]
fn the_specification_names_every_scenario_and_no_other() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("the repository is whole");
    let specification = read("docs/specification.md");
    let named: Vec<&str> =
        specification.split('`').filter(|n| n.contains("::") && !n.contains('…')).collect();
    for name in &named {
        let (module, test) = name.split_once("::").expect("module::test");
        let source = read(&format!("tests/scenarios/{module}.rs"));
        assert!(source.contains(&format!("#[test]\nfn {test}()")), "docs/specification.md names {name}");
    }
    for module in [
        "cli",
        "data_volumes",
        "directory",
        "faults",
        "isolation",
        "logs",
        "names",
        "network",
        "pods",
        "pull",
        "pull_images",
        "power_cut",
        "restarts",
        "security",
        "signatures",
    ] {
        for test in read(&format!("tests/scenarios/{module}.rs")).split("#[test]\nfn ").skip(1) {
            let name = format!("{module}::{}", test.split('(').next().unwrap_or_default());
            assert!(named.contains(&name.as_str()), "docs/specification.md does not name {name}");
        }
    }
}
