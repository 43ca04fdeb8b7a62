//! Specs run for real: bundles of busybox under runc (or what `PODLING_TEST_RUNTIME` names), looked at from
//! the inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Pod;
use oci_spec::runtime::Spec;
use podling::runtime::environment::{EnvInput, environment};
use podling::runtime::spec::{
    self, PauseInput, PidNamespace, Propagation, SandboxPaths, SpecInput, UserSpec, VolumeMountSource, qos,
};
use podling::system::cgroup::{CgroupManager, CgroupVersion};
use podling::system::namespaces::{Ns, create_pinned, unpin};
use podling::system::node::{NodeFeatures, node_features};
use podling::system::{devices, mounts};
use serde_json::{Value, json};

/// One pod with pinned namespaces, a cgroup and a root file system; all of it goes at the end.
struct Scene {
    dir: tempfile::TempDir,
    cgroups: CgroupManager,
    node: NodeFeatures,
    pod: Pod,
    sandbox: SandboxPaths,
    volumes: Vec<VolumeMountSource>,
    image_user: String,
}

impl Scene {
    /// A pod `web` whose container `app` has these fields.
    fn new(fields: Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("podling-spec-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut container = json!({"name": "app", "image": "busybox"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [container]}
        });
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("shm")).unwrap();
        mounts::mount_tmpfs(&at("shm"), mounts::Tmpfs::SHM).unwrap();
        create_pinned(&at("pins"), &Ns::ALL, Some("web")).unwrap();
        for (name, text) in
            [("hosts", "127.0.0.1 localhost\n"), ("hostname", "web\n"), ("termination-log", "")]
        {
            fs::write(at(name), text).unwrap();
        }
        let sandbox = SandboxPaths {
            id: id.clone(),
            net: Some(at("pins/net")),
            ipc: Some(at("pins/ipc")),
            uts: Some(at("pins/uts")),
            shm: Some(at("shm")),
            etc_hosts: Some(at("hosts")),
            etc_hostname: Some(at("hostname")),
            hostname: "web".into(),
            ..SandboxPaths::default()
        };
        Self {
            cgroups: CgroupManager::detect(&format!("/{id}")).unwrap(),
            node: node_features(),
            pod: serde_json::from_value(pod).unwrap(),
            sandbox,
            volumes: Vec::new(),
            image_user: String::new(),
            dir,
        }
    }

    fn qos(&self) -> qos::QosClass {
        qos::qos_class(self.pod.spec.as_ref().unwrap())
    }

    /// A bundle directory with busybox as its root file system.
    fn bundle(&self, name: &str) -> PathBuf {
        let bundle = self.dir.path().join(name);
        let root = bundle.join("rootfs");
        for dir in ["bin", "etc", "tmp"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/srv:/bin/sh\n")
            .unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\naudio:x:29:web\nweb:x:1001:\n").unwrap();
        bundle
    }

    fn spec(&self, bundle: &Path, script: &str) -> Spec {
        let mut pod = self.pod.clone();
        let spec = pod.spec.as_mut().unwrap();
        spec.containers[0].command = Some(["busybox", "sh", "-c", script].map(str::to_owned).to_vec());
        let pod_spec = self.pod.spec.as_ref().unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let wishes = UserSpec::of(pod_spec, container, &self.image_user);
        let user = spec::user::resolve(&bundle.join("rootfs"), &wishes).unwrap();
        let image = serde_json::from_value(json!({
            "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": []}
        }))
        .unwrap();
        let id = bundle.file_name().unwrap().to_str().unwrap();
        let env = environment(&EnvInput {
            pod: &pod,
            container,
            facts: &Default::default(),
            objects: &Default::default(),
            volume: &|_| None,
        });
        spec::build(&SpecInput {
            pod: &pod,
            uid: "u",
            env: &env.unwrap(),
            container,
            image: &image,
            image_name: "busybox",
            user: &user,
            sandbox: &self.sandbox,
            mounts: &self.volumes,
            termination_log: Some(&self.dir.path().join("termination-log")),
            cgroup_path: &self.cgroups.container_path("u", self.qos(), id),
            oom_score_adj: qos::oom_score_adj(pod_spec, container, self.node.memory_bytes),
            node: &self.node,
            seccomp_default: true,
            seccomp_file: None,
            image_volumes: &[],
            extras: &Default::default(),
            host_devices: &devices::host_devices(Path::new("/dev")),
            attempt: 0,
        })
        .unwrap()
    }

    /// Makes the pod's cgroup and runs `script` in the container; its output.
    fn run(&self, script: &str) -> String {
        let pod = self.pod.spec.as_ref().unwrap();
        self.cgroups.create_pod("u", self.qos(), &qos::pod_resources(pod)).unwrap();
        let bundle = self.bundle("app");
        let spec = self.spec(&bundle, script);
        spec.save(bundle.join("config.json")).unwrap();
        let out = self.runc().args(["run", "--bundle"]).arg(&bundle).arg(self.id("app")).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "runc: {}\n{stdout}{stderr}", out.status);
        stdout
    }

    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.sandbox.id)
    }

    fn runc(&self) -> Command {
        let runtime = std::env::var("PODLING_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned());
        let mut runc = Command::new(runtime);
        runc.arg("--root").arg(self.dir.path().join("runc")).stdin(Stdio::null());
        runc
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for name in ["app", "pause"] {
            let _ = self.runc().args(["delete", "--force"]).arg(self.id(name)).stderr(Stdio::null()).status();
        }
        let removed = self.cgroups.remove_pod("u", self.qos());
        let unpinned = unpin(&self.dir.path().join("pins"));
        let unmounted = mounts::unmount_under(self.dir.path());
        if !std::thread::panicking() {
            removed.unwrap();
            unpinned.unwrap();
            unmounted.unwrap();
            assert_eq!(self.cgroups.pods(), [], "no cgroup is left");
        }
    }
}

/// The value of a line `Name:\tvalue`.
fn field<'t>(status: &'t str, name: &str) -> &'t str {
    let line = status.lines().find(|l| l.split(':').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).split_once(':').unwrap().1.trim()
}

/// The default capabilities as the kernel prints them.
const DEFAULT_CAPABILITIES: &str = "00000000a80425fb";

#[test]
fn a_plain_container_has_the_default_rights_and_the_pods_surroundings() {
    let scene = Scene::new(json!({"env": [{"name": "A", "value": "x=y"}, {"name": "B", "value": "$(A)!"}]}));
    let out = scene.run(
        "cat /proc/self/status; echo host:$(hostname); echo env:$B-$HOSTNAME; echo files:$(cat /etc/hostname /etc/hosts);
         echo shm:$(stat -f -c %b /dev/shm); echo message > /dev/termination-log; echo cgroup:$(cat /proc/self/cgroup);
         echo port:$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start); echo up:$(ip addr show lo | grep -c 127.0.0.1);
         touch /proc/sys/kernel/x 2>&1; echo interrupts:$(wc -c < /proc/interrupts); echo pid:$$$$",
    );
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(field(&out, set), DEFAULT_CAPABILITIES, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(field(&out, set), "0000000000000000", "{set}");
    }
    assert_eq!((field(&out, "Seccomp"), field(&out, "NoNewPrivs")), ("2", "0"));
    assert_eq!(field(&out, "host"), "web");
    assert_eq!(field(&out, "env"), "x=y!-web");
    assert_eq!(field(&out, "files"), "web 127.0.0.1 localhost");
    assert_eq!(field(&out, "shm"), (64 * 256).to_string());
    assert_eq!((field(&out, "port"), field(&out, "up"), field(&out, "pid")), ("0", "1", "1"));
    assert_eq!(field(&out, "interrupts"), "0", "masked by /dev/null");
    let inside = scene.cgroups.container_path("u", scene.qos(), "app");
    if scene.node.cgroup_version == CgroupVersion::V1 {
        assert!(field(&out, "cgroup").contains(&inside), "{out}");
    }
    let message = fs::read_to_string(scene.dir.path().join("termination-log")).unwrap();
    assert_eq!(message, "message\n");
}

#[test]
fn the_seccomp_profile_and_the_device_rules_hold_root_back() {
    let scene = Scene::new(json!({}));
    let out = scene.run(
        "unshare -U true; echo unshare:$?; mount -t tmpfs t /tmp; echo mount:$?;
         mknod /tmp/disk b 254 0; cat /tmp/disk; echo disk:$?; echo > /dev/null; echo null:$?;
         touch /sys/x; echo sys:$?; true | cat; echo pipe:$?",
    );
    for refused in ["unshare", "mount", "disk", "sys"] {
        assert_ne!(field(&out, refused), "0", "{refused} in {out}");
    }
    assert_eq!((field(&out, "null"), field(&out, "pipe")), ("0", "0"));
}

#[test]
fn a_privileged_container_has_what_the_machine_has() {
    let scene = Scene::new(json!({"securityContext": {"privileged": true}}));
    let out = scene.run(
        "cat /proc/self/status; mount -t tmpfs t /tmp; echo mount:$?; echo sys:$(grep ' /sys ' /proc/mounts | head -n 1);
         echo devices:$(find /dev -type b -o -type c | wc -l); echo interrupts:$(wc -c < /proc/interrupts)",
    );
    let own = fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(field(&out, "CapEff"), field(&own, "CapBnd"));
    assert_eq!((field(&out, "Seccomp"), field(&out, "mount")), ("0", "0"));
    assert!(field(&out, "sys").contains(" rw,"), "{out}");
    assert_ne!(field(&out, "interrupts"), "0");
    let devices: usize = field(&out, "devices").parse().unwrap();
    assert!(devices >= devices::host_devices(Path::new("/dev")).len(), "{devices}");
}

#[test]
fn limits_and_requests_reach_the_kernel() {
    let scene = Scene::new(json!({"resources": {
        "limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}
    }}));
    let out = scene.run(
        "cd /sys/fs/cgroup; for f in memory/memory.limit_in_bytes cpu/cpu.shares cpu/cpu.cfs_quota_us memory.max cpu.max; do
           [ -e $f ] && echo $f:$(cat $f); done; echo score:$(cat /proc/self/oom_score_adj); d=.; [ -d memory ] && d=memory; mkdir $d/x; echo write:$?",
    );
    match scene.node.cgroup_version {
        CgroupVersion::V1 => {
            assert_eq!(field(&out, "memory/memory.limit_in_bytes"), "67108864");
            assert_eq!(field(&out, "cpu/cpu.shares"), "256");
            assert_eq!(field(&out, "cpu/cpu.cfs_quota_us"), "50000");
        }
        CgroupVersion::V2 => {
            assert_eq!(field(&out, "memory.max"), "67108864");
            assert_eq!(field(&out, "cpu.max"), "50000 100000");
        }
    }
    let score: i32 = field(&out, "score").parse().unwrap();
    assert!((900..1000).contains(&score), "{score}");
    assert_ne!(field(&out, "write"), "0");
}

#[test]
fn a_user_of_the_image_runs_without_rights_and_cannot_get_any() {
    let mut scene = Scene::new(json!({"securityContext": {"allowPrivilegeEscalation": false}}));
    scene.image_user = "web".into();
    let out = scene.run("cat /proc/self/status; echo id:$(id -u),$(id -g),$(id -G); echo home:$HOME");
    assert_eq!(field(&out, "id"), "1000,1001,1001 29");
    assert_eq!(field(&out, "home"), "/srv");
    assert_eq!((field(&out, "CapEff"), field(&out, "NoNewPrivs")), ("0000000000000000", "1"));
}

#[test]
fn a_read_only_root_leaves_only_volumes_writable() {
    let mut scene = Scene::new(json!({"securityContext": {
        "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}
    }}));
    for (path, read_only) in [("/data", false), ("/config", true)] {
        let host_path = scene.dir.path().join(path.trim_start_matches('/'));
        fs::create_dir(&host_path).unwrap();
        scene.volumes.push(VolumeMountSource {
            restrictions: Vec::new(),
            mount_path: path.into(),
            read_only,
            propagation: Propagation::Private,
            host_path,
        });
    }
    let out = scene.run(
        "cat /proc/self/status; touch /x; echo root:$?; touch /data/x; echo data:$?; touch /config/x; echo config:$?;
         touch /dev/shm/x; echo shm:$?; echo >> /etc/hostname; echo hostname:$?",
    );
    assert_eq!((field(&out, "data"), field(&out, "shm")), ("0", "0"));
    for refused in ["root", "config", "hostname"] {
        assert_ne!(field(&out, refused), "0", "{refused}");
    }
    assert_eq!(field(&out, "CapEff"), "0000000000002000");
    assert!(scene.dir.path().join("data/x").exists());
}

#[test]
fn containers_join_the_processes_of_the_pause_container() {
    let mut scene = Scene::new(json!({}));
    let pod = scene.pod.spec.as_ref().unwrap();
    scene.cgroups.create_pod("u", scene.qos(), &qos::pod_resources(pod)).unwrap();
    let bundle = scene.dir.path().join("pause");
    fs::create_dir_all(bundle.join("rootfs")).unwrap();
    let spec = spec::pause(&PauseInput {
        pod: &scene.pod,
        uid: "u",
        sandbox: &scene.sandbox,
        rootfs: &bundle.join("rootfs"),
        binary: Path::new("/bin/busybox"),
        cgroup_path: &scene.cgroups.container_path("u", scene.qos(), "pause"),
        node: &scene.node,
    });
    // busybox stands in for the real program, and must be called by its own name.
    let text = serde_json::to_string(&spec).unwrap();
    let text = text
        .replace("[\"/podling-pause\"]", "[\"/busybox\",\"sleep\",\"60\"]")
        .replace("/podling-pause", "/busybox");
    fs::write(bundle.join("config.json"), text).unwrap();
    let pid_file = bundle.join("pid");
    let started = scene
        .runc()
        .args(["run", "--detach", "--bundle"])
        .arg(&bundle)
        .arg("--pid-file")
        .arg(&pid_file)
        .arg(scene.id("pause"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(started.success());
    let pid = fs::read_to_string(&pid_file).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert_eq!((field(&status, "CapBnd"), field(&status, "NoNewPrivs")), ("0000000000000000", "1"));

    scene.sandbox.pid = PidNamespace::Path(format!("/proc/{pid}/ns/pid").into());
    let out = scene.run("echo first:$(tr '\\0' ' ' < /proc/1/cmdline); echo own:$$$$; echo uts:$(hostname)");
    assert_eq!(field(&out, "first"), "/busybox sleep 60");
    assert_ne!(field(&out, "own"), "1");
    assert_eq!(field(&out, "uts"), "web");
}
