use serde_json::json;

use super::*;

fn spec(value: serde_json::Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

fn container(name: &str, requests: serde_json::Value, limits: serde_json::Value) -> serde_json::Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

#[test]
fn what_the_pod_requests_beyond_its_containers_is_shared_among_them() {
    let spec: PodSpec = serde_json::from_value(serde_json::json!({
        "resources": {"requests": {"memory": "600"}},
        "containers": [{"name": "a", "resources": {"requests": {"memory": "200"}}}, {"name": "b"}],
    }))
    .unwrap();
    let score = |i: usize| oom_score_adj(&spec, &spec.containers[i], 1000);
    assert_eq!((score(0), score(1)), (600, 800));
}

#[test]
fn a_pod_is_guaranteed_only_when_every_container_limits_both() {
    let full =
        container("a", json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "1000m", "memory": "1024Mi"}));
    let defaulted = container("b", json!({}), json!({"cpu": "1", "memory": "1Gi"}));
    let half = container("c", json!({}), json!({"memory": "1Gi"}));
    let nothing = json!({"name": "d"});
    let zero = container("e", json!({"cpu": "0"}), json!({}));
    let class = |list: &[&serde_json::Value], init: &[&serde_json::Value]| {
        qos_class(&spec(json!({"containers": list, "initContainers": init})))
    };
    assert_eq!(class(&[&full, &defaulted], &[&full]), QosClass::Guaranteed);
    assert_eq!(class(&[&full], &[&nothing]), QosClass::Burstable);
    assert_eq!(class(&[&half], &[]), QosClass::Burstable);
    assert_eq!(class(&[&full, &nothing], &[]), QosClass::Burstable);
    assert_eq!(class(&[&nothing, &zero], &[&nothing]), QosClass::BestEffort);
    let zeroed = container("g", json!({"cpu": "0", "memory": "1Gi"}), json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(class(&[&zeroed], &[]), QosClass::Burstable);
    let less = container("f", json!({"cpu": "500m", "memory": "1Gi"}), json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(class(&[&less], &[]), QosClass::Burstable);
}

#[test]
fn resources_of_the_pod_itself_decide_alone() {
    let pod = spec(json!({
        "containers": [{"name": "a"}],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}
    }));
    assert_eq!(qos_class(&pod), QosClass::Guaranteed);
    let limits = pod_resources(&pod);
    assert_eq!(
        (limits.cpu_quota, limits.memory_limit, limits.cpu_shares),
        (Some(200_000), Some(1 << 30), 2048)
    );
}

#[test]
fn a_pod_is_limited_only_where_all_its_containers_are() {
    let a = container("a", json!({"cpu": "100m"}), json!({"cpu": "500m", "memory": "64Mi"}));
    let b = container("b", json!({}), json!({"memory": "64Mi"}));
    let limits = pod_resources(&spec(json!({"containers": [a, b]})));
    let wanted =
        PodResources { cpu_shares: 102, cpu_quota: None, cpu_period: 100_000, memory_limit: Some(128 << 20) };
    assert_eq!(limits, wanted);
    let pod = spec(json!({"containers": [a]}));
    let one = container_resources(&pod.containers[0]);
    assert_eq!((one.cpu_shares, one.cpu_quota, one.memory_limit), (102, Some(50_000), Some(64 << 20)));
    let limits = pod_resources(&spec(json!({"containers": [{"name": "a"}]})));
    assert_eq!((limits.cpu_shares, limits.memory_limit), (2, None));
}

#[test]
fn init_containers_count_at_their_peak_and_sidecars_throughout() {
    let cpu = |name: &str, cpu: &str, policy: Option<&str>| {
        let mut c = container(name, json!({"cpu": cpu}), json!({}));
        if let Some(policy) = policy {
            c["restartPolicy"] = json!(policy);
        }
        c
    };
    let init = [cpu("side", "100m", Some("Always")), cpu("big", "1", None)];
    let pod = spec(json!({"containers": [cpu("a", "300m", None)], "initContainers": init}));
    assert_eq!(pod_request(&pod, "cpu").milli(), 1100, "the peak is the init container beside the sidecar");
    let pod = spec(json!({
        "containers": [cpu("a", "2", None)], "initContainers": init, "overhead": {"cpu": "50m"}
    }));
    assert_eq!(pod_request(&pod, "cpu").milli(), 2150);
    assert_eq!(burstable_shares([&pod, &pod]), shares(4300));
    assert_eq!(burstable_shares([]), MIN_SHARES);
}

#[test]
fn shares_and_quotas_keep_within_what_the_kernel_takes() {
    assert_eq!([-5, 0, 1, 2, 100, 1000, i64::MAX].map(shares), [2, 2, 2, 2, 102, 1024, 262_144]);
    assert_eq!([0, 1, 5, 500, 2000].map(quota), [None, Some(1000), Some(1000), Some(50_000), Some(200_000)]);
}

#[test]
fn oom_scores_are_the_kubelets() {
    const GIB: u64 = 1 << 30;
    let score = |pod: &PodSpec, index: usize| oom_score_adj(pod, &pod.containers[index], 10 * GIB);
    let guaranteed =
        spec(json!({"containers": [container("a", json!({}), json!({"cpu": "1", "memory": "1Gi"}))]}));
    assert_eq!(score(&guaranteed, 0), -997);
    assert_eq!(score(&spec(json!({"containers": [{"name": "a"}]})), 0), 1000);
    for critical in [json!({"priorityClassName": "system-node-critical"}), json!({"priority": 2_000_001_000})]
    {
        let mut pod = json!({"containers": [{"name": "a"}]});
        pod.as_object_mut().unwrap().extend(critical.as_object().unwrap().clone());
        assert_eq!(score(&spec(pod), 0), -997);
    }
    let memory = |name: &str, m: &str| container(name, json!({"memory": m}), json!({}));
    let burstable = spec(json!({
        "containers": [memory("a", "1Gi"), memory("b", "10Gi"), container("c", json!({"cpu": "1"}), json!({}))],
    }));
    assert_eq!([0, 1, 2].map(|n| score(&burstable, n)), [900, 3, 999]);
}

#[test]
fn a_sidecar_is_not_killed_before_what_it_serves() {
    let mut sidecar = container("side", json!({"memory": "1Mi"}), json!({}));
    sidecar["restartPolicy"] = json!("Always");
    let pod = spec(json!({
        "containers": [container("a", json!({"memory": "5Gi"}), json!({}))],
        "initContainers": [sidecar, container("once", json!({"memory": "1Mi"}), json!({}))],
    }));
    let init = pod.init_containers.as_ref().unwrap();
    assert_eq!(oom_score_adj(&pod, &init[0], 10 << 30), 500);
    assert_eq!(oom_score_adj(&pod, &init[1], 10 << 30), 999, "not so a plain init container");
}
