use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const NO_LIMITS: PodResources =
    PodResources { cpu_shares: 102, cpu_quota: None, cpu_period: 100_000, memory_limit: None };

/// A manager under a root of its own, which is removed at the end.
struct Groups(CgroupManager);

impl Groups {
    fn root() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("/podling-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
    fn new() -> Self {
        Self(CgroupManager::detect(&Self::root()).unwrap())
    }
    /// The version 2 hierarchy that this machine mounts, whatever its controllers.
    fn unified() -> Option<Self> {
        let table = crate::system::mounts::read_mountinfo().unwrap();
        let unified: Vec<_> = groups::cgroup_mounts(&table).into_iter().filter(|m| m.unified).collect();
        if unified.is_empty() {
            None
        } else {
            Some(Self(CgroupManager::from_mounts(&Self::root(), unified).unwrap()))
        }
    }
    fn dirs(&self, path: &str) -> Vec<PathBuf> {
        self.0.mount_points().into_iter().map(|m| groups::below(m, path)).collect()
    }
    fn spawn_in(&self, path: &str) -> Child {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        for dir in self.dirs(path) {
            fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        child
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let root = self.0.root.clone();
        let _ = self.0.kill_all(&root, 9);
        for dir in self.dirs(&root) {
            let _ = groups::remove_tree(&dir, &mut groups::Patience::new());
        }
    }
}

#[test]
fn a_pods_group_is_in_every_hierarchy_and_removing_the_last_one_leaves_nothing() {
    let groups = Groups::new();
    let cgroups = &groups.0;
    for qos in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        cgroups.create_pod("u1", qos, &NO_LIMITS).unwrap();
        cgroups.create_pod("u1", qos, &NO_LIMITS).unwrap();
        assert!(groups.dirs(&cgroups.pod_path("u1", qos)).iter().all(|d| d.is_dir()), "{qos}");
    }
    let uids: Vec<(String, QosClass)> = cgroups.pods().into_iter().map(|p| (p.uid, p.qos)).collect();
    assert_eq!(
        uids,
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(|qos| ("u1".to_owned(), qos))
    );
    cgroups.create_group(&cgroups.container_path("u1", QosClass::Burstable, "c1")).unwrap();

    cgroups.remove_pod("u1", QosClass::Burstable).unwrap();
    assert!(groups.dirs(&format!("{}/burstable", cgroups.root)).iter().all(|d| !d.exists()));
    assert!(groups.dirs(&cgroups.root).iter().all(|d| d.exists()), "others are left alone");
    cgroups.remove_pod("u1", QosClass::Guaranteed).unwrap();
    cgroups.remove_pod("u1", QosClass::BestEffort).unwrap();
    cgroups.remove_pod("u1", QosClass::BestEffort).unwrap();
    assert!(groups.dirs(&cgroups.root).iter().all(|d| !d.exists()));
    assert_eq!(cgroups.pods(), []);
}

#[test]
fn limits_arrive_in_the_kernel() {
    let groups = Groups::new();
    let cgroups = &groups.0;
    let limits = PodResources {
        cpu_shares: 512,
        cpu_quota: Some(50_000),
        cpu_period: 100_000,
        memory_limit: Some(64 << 20),
    };
    cgroups.create_pod("u", QosClass::Burstable, &limits).unwrap();
    let path = cgroups.pod_path("u", QosClass::Burstable);
    let read = |name: &str| {
        let file = groups.dirs(&path).into_iter().map(|d| d.join(name)).find(|f| f.exists());
        file.map(|f| fs::read_to_string(f).unwrap().trim().to_owned())
    };
    match cgroups.version() {
        CgroupVersion::V1 => {
            assert_eq!(read("cpu.shares").as_deref(), Some("512"));
            assert_eq!(read("cpu.cfs_quota_us").as_deref(), Some("50000"));
            assert_eq!(read("memory.limit_in_bytes").as_deref(), Some("67108864"));
            assert_ne!(read("cpuset.cpus").as_deref(), Some(""));
        }
        CgroupVersion::V2 => {
            assert_eq!(read("cpu.weight").as_deref(), Some("20"));
            assert_eq!(read("cpu.max").as_deref(), Some("50000 100000"));
            assert_eq!(read("memory.max").as_deref(), Some("67108864"));
        }
    }
    assert_eq!(cgroups.oom_kills(&path), Some(0));

    cgroups.create_pod("u", QosClass::Burstable, &NO_LIMITS).unwrap();
    let lifted = read("cpu.cfs_quota_us").unwrap_or_else(|| read("cpu.max").unwrap());
    assert!(lifted == "-1" || lifted == "max 100000", "{lifted}");

    cgroups.set_burstable_shares(1_000_000).unwrap();
    let class = format!("{}/burstable", cgroups.root);
    let shares = groups.dirs(&class).into_iter().find_map(|d| fs::read_to_string(d.join("cpu.shares")).ok());
    assert!(shares.is_none_or(|s| s.trim() == "262144"), "clamped to what the kernel takes");
}

#[test]
fn processes_of_a_pod_are_found_signalled_and_killed() {
    for groups in [Some(Groups::new()), Groups::unified()].into_iter().flatten() {
        let cgroups = &groups.0;
        cgroups.create_pod("u", QosClass::BestEffort, &NO_LIMITS).unwrap();
        let pod = cgroups.pod_path("u", QosClass::BestEffort);
        let container = cgroups.container_path("u", QosClass::BestEffort, "c");
        cgroups.create_group(&container).unwrap();
        let mut child = groups.spawn_in(&container);
        assert_eq!(cgroups.pids(&pod), [child.id()]);

        let busy = cgroups.remove_pod("u", QosClass::BestEffort).unwrap_err();
        assert!(busy.is_transient());
        let text = busy.to_string();
        assert!(text.ends_with(&format!("it is busy (processes {})", child.id())), "{text}");

        assert_eq!(cgroups.kill_all(&pod, 10).unwrap(), 1, "SIGUSR1 ends sleep");
        child.wait().unwrap();
        let mut child = groups.spawn_in(&container);
        // Someone must wait for the child, or it stays in the group as a zombie.
        let waiter = std::thread::spawn(move || child.wait());
        assert_eq!(cgroups.kill_all(&pod, 9).unwrap(), 0);
        waiter.join().unwrap().unwrap();
        cgroups.remove_pod("u", QosClass::BestEffort).unwrap();
        assert!(groups.dirs(&cgroups.root).iter().all(|d| !d.exists()));
    }
}

#[test]
fn a_number_that_is_no_signal_reaches_nobody() {
    let groups = Groups::new();
    let text = groups.0.kill_all("/x", 99).unwrap_err().to_string();
    assert_eq!(text, "99 is not a signal; signals are 1 to 64 without 32 and 33");
}

#[test]
fn pods_can_be_made_and_removed_at_the_same_time() {
    let groups = Groups::new();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let cgroups = &groups.0;
            scope.spawn(move || {
                for _ in 0..15 {
                    let uid = format!("u{n}");
                    cgroups.create_pod(&uid, QosClass::Burstable, &NO_LIMITS).unwrap();
                    cgroups.remove_pod(&uid, QosClass::Burstable).unwrap();
                }
            });
        }
    });
    assert!(groups.dirs(&groups.0.root).iter().all(|d| !d.exists()));
}

#[test]
fn a_limit_without_its_controller_is_refused_by_name_and_all_else_works() {
    // A version 1 machine whose only hierarchy is pids.
    let dir = tempfile::tempdir().unwrap();
    let only_pids = vec![groups::CgroupMount {
        path: dir.path().to_owned(),
        unified: false,
        options: vec!["rw".into(), "pids".into()],
    }];
    let cgroups = CgroupManager::from_mounts("/podling", only_pids).unwrap();
    assert_eq!(cgroups.missing_controllers(), ["cpu", "memory"]);
    cgroups.create_pod("u", QosClass::Burstable, &NO_LIMITS).unwrap();

    let memory = PodResources { memory_limit: Some(1024), ..NO_LIMITS };
    let error = cgroups.create_pod("v", QosClass::Burstable, &memory).unwrap_err();
    assert!(!error.is_transient());
    let wanted = "the cgroup controller memory is not available, so a memory limit of 1024 bytes cannot be set: \
                  enable it in the kernel (cgroup_enable=memory) or remove the limit";
    assert_eq!(error.to_string(), wanted);
    let cpu = PodResources { cpu_quota: Some(50_000), ..NO_LIMITS };
    let text = cgroups.create_pod("v", QosClass::Burstable, &cpu).unwrap_err().to_string();
    assert!(text.contains("a cpu limit of 500m"), "{text}");
    assert_eq!(cgroups.pods().len(), 1, "nothing was created for the refused pod");
    assert_eq!(cgroups.oom_kills(&cgroups.pod_path("u", QosClass::Burstable)), None);
}

#[test]
fn version_2_switches_controllers_on_from_the_top_down() {
    // A directory stands in for the file system: the files a kernel would make are laid out beforehand.
    let dir = tempfile::tempdir().unwrap();
    let pod = dir.path().join("podling/burstable/podu");
    fs::create_dir_all(&pod).unwrap();
    for level in ["", "podling", "podling/burstable", "podling/burstable/podu"] {
        fs::write(dir.path().join(level).join("cgroup.subtree_control"), "").unwrap();
    }
    fs::write(dir.path().join("cgroup.controllers"), "cpuset cpu memory pids\n").unwrap();
    for file in ["cpu.weight", "cpu.max", "memory.max"] {
        fs::write(pod.join(file), "").unwrap();
    }
    let mounts = vec![groups::CgroupMount { path: dir.path().to_owned(), unified: true, options: vec![] }];
    let cgroups = CgroupManager::from_mounts("/podling", mounts).unwrap();
    assert_eq!(cgroups.version(), CgroupVersion::V2);
    let limits = PodResources { cpu_shares: 1024, cpu_quota: Some(5000), memory_limit: Some(7), ..NO_LIMITS };
    cgroups.create_pod("u", QosClass::Burstable, &limits).unwrap();

    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    for level in ["", "podling/", "podling/burstable/"] {
        // Each write stands alone for the kernel; the stand-in holds them one over the other.
        assert!(read(&format!("{level}cgroup.subtree_control")).starts_with('+'), "{level}");
    }
    assert_eq!(read("podling/burstable/podu/cpu.weight"), "39");
    assert_eq!(read("podling/burstable/podu/cpu.max"), "5000 100000");
    assert_eq!(read("podling/burstable/podu/memory.max"), "7");

    fs::remove_file(pod.join("memory.max")).unwrap();
    let text = cgroups.create_pod("u", QosClass::Burstable, &limits).unwrap_err().to_string();
    assert!(text.contains("controller memory is not available"), "{text}");
    fs::write(pod.join("memory.events"), "oom 3\noom_kill 2\n").unwrap();
    assert_eq!(cgroups.oom_kills("/podling/burstable/podu"), Some(2));
}

#[test]
fn weights_follow_the_kubelets_formula() {
    let weights = [2, 102, 1024, 262_144, u64::MAX].map(v2::weight);
    assert_eq!(weights, [1, 4, 39, 10_000, 10_000]);
}

#[test]
fn hybrid_pure_and_absent_mounts_are_told_apart() {
    let hybrid = b"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:29 / /elsewhere rw - cgroup cgroup rw,cpu,cpuacct\n\
        34 31 0:30 /docker/x /part rw - cgroup cgroup rw,memory\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let mounts = groups::cgroup_mounts(hybrid);
    let paths: Vec<&Path> = mounts.iter().map(|m| m.path.as_path()).collect();
    assert_eq!(
        paths,
        ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"].map(Path::new)
    );
    let hybrid = CgroupManager::from_mounts("/podling", mounts).unwrap();
    assert_eq!(hybrid.version(), CgroupVersion::V1);
    assert_eq!(hybrid.missing_controllers(), ["memory", "pids"]);

    let pure =
        groups::cgroup_mounts(b"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    assert_eq!(CgroupManager::from_mounts("/podling", pure).unwrap().version(), CgroupVersion::V2);

    let text = CgroupManager::from_mounts("/podling", Vec::new()).unwrap_err().to_string();
    assert!(text.starts_with("no cgroup file system is mounted: mount one on /sys/fs/cgroup"), "{text}");
}

#[test]
fn names_that_would_leave_the_tree_are_refused() {
    let groups = Groups::new();
    for uid in ["", "..", "a/b"] {
        let text = groups.0.create_pod(uid, QosClass::Guaranteed, &NO_LIMITS).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{uid:?} cannot be part of a cgroup path")), "{text}");
        assert!(groups.0.remove_pod(uid, QosClass::Guaranteed).is_err());
    }
    for root in ["podling", "/", "/a//b", "/../x"] {
        assert!(CgroupManager::detect(root).is_err(), "{root}");
    }
}
