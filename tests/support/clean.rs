//! After the last pod is gone the machine must be as before. This finds what is not.

use std::fs;
use std::path::Path;

use super::host;
use super::instance::Instance;

/// Everything that pods left behind, one line each; empty when all is well. podling and containerd themselves
/// may still run.
pub fn leftovers(instance: &Instance) -> Vec<String> {
    let mut left = Vec::new();
    mounts_and_files(instance, &mut left);
    processes_and_cgroups(instance, &mut left);
    network(instance, &mut left);
    if instance.containerd_runs() {
        in_containerd(instance, &mut left);
    }
    left
}

fn mounts_and_files(instance: &Instance, left: &mut Vec<String>) {
    for mount in host::mounts_under(instance.root()) {
        left.push(format!("mount {}", mount.display()));
    }
    // Logs of pods that are gone stay for a while; the links by container do not.
    for dir in ["var/lib/podling/pods", "run/podling/sandboxes", "var/log/containers"] {
        for entry in fs::read_dir(instance.root().join(dir)).into_iter().flatten().flatten() {
            left.push(format!("file {}", entry.path().display()));
        }
    }
}

fn processes_and_cgroups(instance: &Instance, left: &mut Vec<String>) {
    let root = format!("{}/", instance.root().display());
    let own = instance.own_processes();
    let naming =
        host::processes_naming(&root).into_iter().chain(host::processes_naming(instance.namespace()));
    for pid in naming.filter(|pid| !own.contains(pid)) {
        left.push(format!("process {pid}: {}", host::cmdline(pid)));
    }
    for pid in host::processes_in_cgroup(instance.cgroup_root()) {
        left.push(format!("process {pid} in a pod's cgroup: {}", host::cmdline(pid)));
    }
    for dir in host::cgroups(instance.cgroup_root()) {
        let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // The tree's upper levels are podling's own while it runs.
        let upper = instance.cgroup_root().ends_with(name) || ["besteffort", "burstable"].contains(&name);
        if !upper {
            left.push(format!("cgroup {}", dir.display()));
        }
    }
}

fn network(instance: &Instance, left: &mut Vec<String>) {
    for link in instance.net().links().iter().filter(|l| l.starts_with("veth")) {
        left.push(format!("network link {link}"));
    }
    for rule in instance.net().nat_rules().lines().filter(|r| r.contains("DNAT") && r.contains("--to-dest")) {
        left.push(format!("firewall rule {rule}"));
    }
    addresses(&instance.root().join("var/lib/podling/network"), left);
}

/// host-local keeps one file per address it has given out, named by the address.
fn addresses(dir: &Path, left: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            addresses(&path, left);
        } else if entry.file_name().to_str().is_some_and(|n| n.parse::<std::net::IpAddr>().is_ok()) {
            left.push(format!("address {}", path.display()));
        }
    }
}

fn in_containerd(instance: &Instance, left: &mut Vec<String>) {
    for (what, args) in [
        ("container", ["containers", "ls", "-q"].as_slice()),
        ("task", &["tasks", "ls", "-q"]),
        ("lease", &["leases", "ls", "-q"]),
    ] {
        for line in instance.ctr(args).lines().filter(|l| !l.trim().is_empty()) {
            left.push(format!("{what} {line} in containerd"));
        }
    }
    // Committed snapshots are the images'; an active one belonged to a container.
    for line in instance.ctr(&["snapshots", "ls"]).lines().filter(|l| !l.contains("Committed")).skip(1) {
        left.push(format!("snapshot {line} in containerd"));
    }
}
