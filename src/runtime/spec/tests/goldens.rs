//! Whole specs, kept as snapshots: a change of any of them is a change of what containers are.

use super::*;
use crate::manifest::annotations::Ulimit;

macro_rules! golden {
    ($name:ident, $given:expr) => {
        #[test]
        fn $name() {
            let given: Given = $given;
            insta::assert_json_snapshot!(stringify!($name), canonical(&given.build()));
        }
    };
}

fn device(path: &str, block: bool, (major, minor): (u32, u32), gid: u32) -> HostDevice {
    HostDevice { path: path.into(), block, major, minor, mode: 0o660, uid: 0, gid }
}

golden!(plain, Given::container(json!({})));

golden!(privileged, {
    let mut given = Given::container(json!({"securityContext": {"privileged": true}}));
    let device = |path, block, major, minor| device(path, block, (major, minor), 6);
    given.host_devices = vec![device("/dev/fuse", false, 10, 229), device("/dev/vda", true, 254, 0)];
    given.seccomp_default = true;
    given.node.apparmor_profile = Some("cri-containerd.apparmor.d".into());
    given
});

golden!(host_namespaces, {
    let mut given = Given::pod(json!({"hostNetwork": true, "hostIPC": true, "hostPID": true}), json!({}));
    let SandboxPaths { net, ipc, uts, pid, shm, .. } = &mut given.sandbox;
    (*net, *ipc, *uts, *pid, *shm) = (None, None, None, PidNamespace::Host, None);
    given
});

golden!(limits_on_cgroup_v1, {
    let mut given = Given::container(json!({"resources": {
        "limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}
    }}));
    given.oom_score_adj = 992;
    given
});

golden!(limits_on_cgroup_v2, {
    let mut given = Given::container(json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}));
    (given.node.cgroup_version, given.node.swap, given.oom_score_adj) = (CgroupVersion::V2, true, -997);
    given
});

golden!(capabilities_added_and_dropped, {
    Given::container(json!({"securityContext": {
        "capabilities": {"add": ["NET_ADMIN", "cap_sys_time"], "drop": ["ALL"]},
        "allowPrivilegeEscalation": false
    }}))
});

golden!(read_only_root_with_volumes, {
    let mut given = Given::container(json!({"securityContext": {"readOnlyRootFilesystem": true}}));
    let volume = |path: &str, read_only, propagation| VolumeMountSource {
        mount_path: path.into(),
        read_only,
        propagation,
        restrictions: Vec::new(),
        host_path: Path::new("/volumes").join(path.trim_matches('/').replace('/', "-")),
    };
    given.mounts = vec![
        volume("/data/inner/", false, Propagation::Private),
        volume("/data", true, Propagation::HostToContainer),
    ];
    given.image_volumes =
        vec![("/data".into(), "/image-volumes/data".into()), ("cache".into(), "/image-volumes/cache".into())];
    given
});

golden!(shared_processes_and_a_terminal, {
    let mut given = Given::container(json!({"tty": true, "stdin": true, "workingDir": "/srv//app/"}));
    given.sandbox.pid = PidNamespace::Path("/proc/4711/ns/pid".into());
    given
});

golden!(another_user, {
    let mut given = Given::container(json!({}));
    given.image = image(json!({"Cmd": ["/bin/app"], "User": "web", "WorkingDir": "srv"}));
    given.user = ResolvedUser {
        uid: 1000,
        gid: 1001,
        additional_gids: vec![29, 1001],
        username: Some("web".into()),
        home: Some("/srv/web".into()),
    };
    given
});

golden!(environment_and_arguments, {
    Given::container(json!({
        "command": ["/bin/run", "$(B)"],
        "args": ["$(PATH)", "$$(A)"],
        "env": [
            {"name": "A", "value": "x"},
            {"name": "B", "value": "$(A)/$(NOPE)/$$(A)"},
            {"name": "OPTS", "value": "mine"},
            {"name": "EMPTY"}
        ]
    }))
});

golden!(beyond_the_pod_api, {
    let mut given = Given::container(json!({"env": [{"name": "TZ", "value": "UTC"}]}));
    given.image = image(json!({"Cmd": ["/bin/app"], "Env": ["TZ=Asia/Tokyo"]}));
    given.node.cgroup_version = CgroupVersion::V2;
    let device = |path, block, major, minor| device(path, block, (major, minor), 20);
    let grant = |device, access: &str, node| DeviceGrant { device, access: access.into(), node };
    given.extras = Extras {
        files: vec![("/usr/share/zoneinfo/Europe/Berlin".into(), "/usr/share/zoneinfo/Europe/Berlin".into())],
        env: vec![("TZ".into(), "Europe/Berlin".into())],
        ulimits: vec![
            Ulimit { name: "nofile", soft: 1024, hard: 65536 },
            Ulimit { name: "memlock", soft: u64::MAX, hard: u64::MAX },
        ],
        devices: vec![
            grant(device("/dev/ttyUSB0", false, 188, 0), "rw", true),
            grant(device("/dev/disk", true, 8, 16), "r", false),
        ],
        huge_pages: vec![("2MB".into(), 4 << 20)],
        single_process_oom: true,
        launcher: Some("/dev/launcher".into()),
    };
    given.mounts = vec![VolumeMountSource {
        mount_path: "/model".into(),
        read_only: true,
        propagation: Propagation::Private,
        restrictions: vec!["noexec".into(), "nodev".into()],
        host_path: "/images/model".into(),
    }];
    given
});

golden!(the_default_seccomp_profile, {
    let mut given = Given::container(json!({}));
    given.seccomp_default = true;
    given
});

#[test]
fn the_pause_container() {
    let given = Given::container(json!({}));
    let spec = pause(&PauseInput {
        pod: &given.pod,
        uid: "u",
        sandbox: &given.sandbox,
        rootfs: Path::new("/run/podling/sandboxes/s1/rootfs"),
        binary: Path::new("/var/lib/podling/bin/podling-pause"),
        cgroup_path: "/podling/besteffort/podu/pause",
        node: &NodeFeatures { seccomp: false, ..plain_node() },
    });
    insta::assert_json_snapshot!("the_pause_container", canonical(&spec));
}
