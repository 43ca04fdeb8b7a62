use oci_spec::runtime::Capability;
use serde_json::{Value, json};

use super::*;
use crate::runtime::environment::{EnvInput, environment};

mod goldens;
mod rules;
mod security;

/// All that a spec is built from, owned, with a plain machine.
pub(super) struct Given {
    pod: Pod,
    image: ImageConfiguration,
    user: ResolvedUser,
    sandbox: SandboxPaths,
    mounts: Vec<VolumeMountSource>,
    image_volumes: Vec<(String, PathBuf)>,
    host_devices: Vec<HostDevice>,
    extras: Extras,
    node: NodeFeatures,
    seccomp_default: bool,
    seccomp_file: Option<SeccompFile>,
    oom_score_adj: i32,
}

fn plain_node() -> NodeFeatures {
    NodeFeatures {
        capabilities: (0..=40).collect(),
        cap_sys_resource: true,
        oom_score_adj: 0,
        cpus: 4,
        memory_bytes: 8 << 30,
        swap: false,
        cgroup_version: CgroupVersion::V1,
        seccomp: true,
        kernel: (6, 1),
        apparmor: false,
        selinux: false,
        apparmor_profile: None,
        thermal_throttle: Vec::new(),
    }
}

impl Given {
    /// A pod with one container, `app`, with these fields beside its name and image.
    fn container(fields: Value) -> Self {
        Self::pod(json!({}), fields)
    }

    fn pod(spec: Value, fields: Value) -> Self {
        let mut container = json!({"name": "app", "image": "web:1"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut whole = json!({"containers": [container]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "prod"},
            "spec": whole
        }))
        .unwrap();
        Self {
            pod,
            image: image(json!({
                "Env": ["PATH=/usr/bin:/bin", "OPTS=-Xa:name=b,dir=c"],
                "Entrypoint": ["/entry"], "Cmd": ["serve"]
            })),
            user: ResolvedUser { additional_gids: vec![0], ..ResolvedUser::default() },
            sandbox: sandbox(),
            mounts: Vec::new(),
            image_volumes: Vec::new(),
            host_devices: Vec::new(),
            extras: Extras::default(),
            node: plain_node(),
            seccomp_default: false,
            seccomp_file: None,
            oom_score_adj: 1000,
        }
    }

    fn try_build(&self) -> Result<Spec, SpecError> {
        let container = &self.pod.spec.as_ref().unwrap().containers[0];
        let env = environment(&EnvInput {
            pod: &self.pod,
            container,
            facts: &Default::default(),
            objects: &Default::default(),
            volume: &|_| None,
        });
        build(&SpecInput {
            pod: &self.pod,
            env: &env.unwrap(),
            uid: "7c0ffee0-0000-4000-8000-000000000001",
            container,
            image: &self.image,
            image_name: "web:1",
            user: &self.user,
            sandbox: &self.sandbox,
            mounts: &self.mounts,
            termination_log: Some(Path::new("/var/lib/podling/pods/u/termination/app")),
            cgroup_path: "/podling/besteffort/podu/c1",
            oom_score_adj: self.oom_score_adj,
            node: &self.node,
            seccomp_default: self.seccomp_default,
            seccomp_file: self.seccomp_file.as_ref(),
            image_volumes: &self.image_volumes,
            host_devices: &self.host_devices,
            extras: &self.extras,
            attempt: 2,
        })
    }

    fn build(&self) -> Spec {
        self.try_build().unwrap()
    }

    /// The message of the error, which must be one for the author of the manifest.
    fn refused(&self) -> String {
        let error = self.try_build().unwrap_err();
        assert!(error.reason().starts_with("CreateContainer"));
        error.to_string()
    }
}

fn image(config: Value) -> ImageConfiguration {
    serde_json::from_value(json!({
        "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": []}
    }))
    .unwrap()
}

fn sandbox() -> SandboxPaths {
    let pins = Path::new("/run/podling/sandboxes/s1");
    let files = Path::new("/var/lib/podling/pods/u");
    SandboxPaths {
        id: "s1".into(),
        net: Some(pins.join("net")),
        ipc: Some(pins.join("ipc")),
        uts: Some(pins.join("uts")),
        pid: PidNamespace::Own,
        user: None,
        shm: Some(pins.join("shm")),
        etc_hosts: Some(files.join("etc-hosts")),
        etc_hostname: Some(files.join("hostname")),
        etc_resolv_conf: Some(files.join("resolv.conf")),
        hostname: "web".into(),
        log_directory: "/var/log/pods/prod_web_u".into(),
    }
}

/// The spec as JSON in which sets are sorted, so that equal specs look equal.
fn canonical(spec: &Spec) -> Value {
    let mut value = serde_json::to_value(spec).unwrap();
    if let Some(sets) = value.pointer_mut("/process/capabilities").and_then(Value::as_object_mut) {
        for set in sets.values_mut().filter_map(Value::as_array_mut) {
            set.sort_by_key(|c| c.as_str().map(str::to_owned));
        }
    }
    value
}

fn env(spec: &Spec) -> Vec<&str> {
    spec.process().as_ref().unwrap().env().as_ref().unwrap().iter().map(String::as_str).collect()
}

fn args(spec: &Spec) -> Vec<&str> {
    spec.process().as_ref().unwrap().args().as_ref().unwrap().iter().map(String::as_str).collect()
}

/// Destinations in mount order.
fn destinations(spec: &Spec) -> Vec<&str> {
    spec.mounts().as_ref().unwrap().iter().map(|m| m.destination().to_str().unwrap()).collect()
}

/// Source and options of the mount there.
fn mounted<'s>(spec: &'s Spec, path: &str) -> (&'s str, Vec<&'s str>) {
    let found: Vec<_> =
        spec.mounts().as_ref().unwrap().iter().filter(|m| m.destination() == Path::new(path)).collect();
    assert_eq!(found.len(), 1, "one mount on {path}");
    let options = found[0].options().as_ref().unwrap().iter().map(String::as_str).collect();
    (found[0].source().as_ref().unwrap().to_str().unwrap(), options)
}

fn has_capability(spec: &Spec, capability: Capability) -> bool {
    let sets = spec.process().as_ref().unwrap().capabilities().clone().unwrap();
    sets.bounding().as_ref().unwrap().contains(&capability)
}
