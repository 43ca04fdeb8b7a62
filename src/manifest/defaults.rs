//! The API's defaults: what a kubelet fills in before it looks at a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, Pod, PodSpec,
    Probe, ResourceRequirements, Volume,
};

/// Mode of files that volumes of kinds with files get.
const FILE_MODE: i32 = 0o644;
/// `spec.terminationGracePeriodSeconds`, in seconds.
const GRACE_SECONDS: i64 = 30;

/// A pod with today's defaults: one that was stored may lack those that an earlier podling did not know.
pub fn with_defaults(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    fill(&mut pod);
    pod
}

/// Fills in every default.
pub fn fill(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        fill_spec(spec);
    }
}

fn fill_spec(spec: &mut PodSpec) {
    set(&mut spec.restart_policy, "Always");
    set(&mut spec.dns_policy, "ClusterFirst");
    set(&mut spec.scheduler_name, "default-scheduler");
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    // A negative grace period kills at once, but still in order.
    let grace = spec.termination_grace_period_seconds.get_or_insert(GRACE_SECONDS);
    if *grace < 0 {
        *grace = 1;
    }
    if let Some(resources) = &mut spec.resources {
        requests_from_limits(resources);
    }
    let host_network = spec.host_network == Some(true);
    let all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for container in all {
        fill_container(container, host_network);
    }
    spec.volumes.iter_mut().flatten().for_each(fill_volume);
}

fn fill_container(container: &mut Container, host_network: bool) {
    set(&mut container.termination_message_path, "/dev/termination-log");
    set(&mut container.termination_message_policy, "File");
    let image = container.image.as_deref().unwrap_or_default();
    set(&mut container.image_pull_policy, pull_policy(image));
    if let Some(resources) = &mut container.resources {
        requests_from_limits(resources);
    }
    for port in container.ports.iter_mut().flatten() {
        set(&mut port.protocol, "TCP");
        if host_network && port.host_port.is_none_or(|port| port == 0) {
            port.host_port = Some(port.container_port);
        }
    }
    for env in container.env.iter_mut().flatten() {
        if let Some(field) = env.value_from.as_mut().and_then(|from| from.field_ref.as_mut()) {
            set(&mut field.api_version, "v1");
        }
    }
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(fill_probe);
    if let Some(Lifecycle { post_start, pre_stop, .. }) = &mut container.lifecycle {
        [post_start, pre_stop].into_iter().flatten().for_each(fill_handler);
    }
}

/// `Always` for the tag `latest`, which is also meant where there is neither tag nor digest.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    match image.rsplit('/').next().unwrap_or_default().split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// What is limited but not requested is requested in full.
fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = resources.limits.clone().filter(|limits| !limits.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_with(BTreeMap::new);
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn fill_probe(probe: &mut Probe) {
    for (field, value) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        // Zero means unset for these.
        if field.is_none_or(|set| set == 0) {
            *field = Some(value);
        }
    }
    if let Some(get) = &mut probe.http_get {
        fill_http_get(get);
    }
    if let Some(GRPCAction { service, .. }) = &mut probe.grpc {
        service.get_or_insert_default();
    }
}

fn fill_handler(handler: &mut LifecycleHandler) {
    if let Some(get) = &mut handler.http_get {
        fill_http_get(get);
    }
}

fn fill_http_get(get: &mut HTTPGetAction) {
    set(&mut get.path, "/");
    set(&mut get.scheme, "HTTP");
}

fn fill_volume(volume: &mut Volume) {
    if !has_source(volume) {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(host) = &mut volume.host_path {
        host.type_.get_or_insert_default();
    }
    let modes = [
        volume.secret.as_mut().map(|v| &mut v.default_mode),
        volume.config_map.as_mut().map(|v| &mut v.default_mode),
        volume.downward_api.as_mut().map(|v| &mut v.default_mode),
        volume.projected.as_mut().map(|v| &mut v.default_mode),
    ];
    for mode in modes.into_iter().flatten() {
        mode.get_or_insert(FILE_MODE);
    }
    if let Some(image) = &mut volume.image {
        let policy = pull_policy(image.reference.as_deref().unwrap_or_default());
        set(&mut image.pull_policy, policy);
    }
}

/// Whether the volume says where it comes from.
fn has_source(volume: &Volume) -> bool {
    *volume != Volume { name: volume.name.clone(), ..Volume::default() }
}

/// Sets a string that is absent or empty.
fn set(field: &mut Option<String>, default: &str) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(default.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(json: serde_json::Value) -> PodSpec {
        let mut spec: PodSpec = serde_json::from_value(json).expect("a spec");
        fill_spec(&mut spec);
        spec
    }

    #[test]
    fn a_bare_pod_gets_the_defaults_of_the_api() {
        let spec = filled(serde_json::json!({"containers": [{"name": "a", "image": "busybox"}]}));
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirst"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        let container = &spec.containers[0];
        assert_eq!(container.termination_message_path.as_deref(), Some("/dev/termination-log"));
        assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        let cases = [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("host:5000/busybox", "Always"),
            ("host:5000/busybox:1", "IfNotPresent"),
            ("busybox@sha256:00", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn limits_are_requested_where_nothing_else_is() {
        let spec = filled(serde_json::json!({"containers": [{"name": "a", "image": "b", "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}}]}));
        let requests =
            spec.containers[0].resources.as_ref().and_then(|r| r.requests.as_ref()).expect("requests");
        assert_eq!(requests["cpu"].0, "100m");
        assert_eq!(requests["memory"].0, "1Gi");
    }

    #[test]
    fn host_network_publishes_every_port() {
        let spec = filled(serde_json::json!({"hostNetwork": true, "containers": [{"name": "a", "image": "b",
            "ports": [{"containerPort": 80}]}]}));
        let port = &spec.containers[0].ports.as_ref().expect("ports")[0];
        assert_eq!((port.host_port, port.protocol.as_deref()), (Some(80), Some("TCP")));
    }

    #[test]
    fn a_negative_grace_period_becomes_one_second() {
        let spec = filled(serde_json::json!({"terminationGracePeriodSeconds": -5, "containers": []}));
        assert_eq!(spec.termination_grace_period_seconds, Some(1));
    }

    #[test]
    fn a_volume_without_a_source_is_an_empty_dir() {
        let spec = filled(serde_json::json!({"containers": [], "volumes": [{"name": "a"}, {"name": "b",
            "hostPath": {"path": "/x"}}]}));
        let volumes = spec.volumes.expect("volumes");
        assert!(volumes[0].empty_dir.is_some());
        assert!(volumes[1].empty_dir.is_none());
    }
}
