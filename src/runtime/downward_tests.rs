use super::*;
use serde_json::json;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop",
            "labels": {"app": "web", "tier": "a\"b\\c"},
            "annotations": {"note": "two\nlines\u{7f}\u{200b}ä'"},
        },
        "spec": {
            "serviceAccountName": "robot",
            "resources": {"limits": {"memory": "1Gi"}},
            "containers": [
                {"name": "a", "resources": {
                    "limits": {"cpu": "1500m", "memory": "64Mi", "ephemeral-storage": "1G", "hugepages-2Mi": "4Mi"},
                    "requests": {"cpu": "250m"},
                }},
                {"name": "b"},
            ],
        },
    }))
    .expect("a pod")
}

fn facts() -> DownwardFacts {
    DownwardFacts {
        uid: "u-1".into(),
        node_name: "node1".into(),
        host_ips: vec!["192.0.2.7".into(), "2001:db8::7".into()],
        pod_ips: vec!["10.1.0.5".into(), "fd00::5".into()],
        allocatable: Allocatable { milli_cpu: 4000, memory: 8 << 30, ephemeral_storage: 5_000_000 },
    }
}

#[test]
fn each_field_of_the_downward_api_has_its_value() {
    let cases = [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "two\nlines\u{7f}\u{200b}ä'"),
        ("metadata.labels", "app=\"web\"\ntier=\"a\\\"b\\\\c\""),
        ("metadata.annotations", "note=\"two\\nlines\\x7f\\u200bä'\""),
        ("spec.nodeName", "node1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.0.2.7"),
        ("status.hostIPs", "192.0.2.7,2001:db8::7"),
        ("status.podIP", "10.1.0.5"),
        ("status.podIPs", "10.1.0.5,fd00::5"),
    ];
    for (path, wanted) in cases {
        assert_eq!(field_ref(&pod(), &facts(), path).as_deref(), Ok(wanted), "{path}");
    }
    for path in ["status.phase", "metadata.labels[app]", "spec['x']", ""] {
        assert!(field_ref(&pod(), &facts(), path).is_err(), "{path}");
    }
}

#[test]
fn resources_are_divided_and_rounded_up() {
    let cases = [
        ("a", "limits.cpu", None, "2"),
        ("a", "limits.cpu", Some("1m"), "1500"),
        ("a", "limits.cpu", Some("0"), "2"),
        ("a", "requests.cpu", Some("1m"), "250"),
        ("a", "requests.cpu", Some("1"), "1"),
        ("a", "limits.memory", None, "67108864"),
        ("a", "limits.memory", Some("1Mi"), "64"),
        ("a", "limits.memory", Some("1Gi"), "1"),
        // A request that is not set is the limit.
        ("a", "requests.memory", Some("1Ki"), "65536"),
        ("a", "limits.ephemeral-storage", Some("1M"), "1000"),
        ("a", "limits.hugepages-2Mi", Some("1Mi"), "4"),
        // Without a limit: the pod's, then the node's.
        ("b", "limits.memory", Some("1Mi"), "1024"),
        ("b", "limits.cpu", None, "4"),
        ("b", "limits.ephemeral-storage", Some("1M"), "5"),
        ("b", "requests.cpu", None, "0"),
        ("b", "requests.memory", None, "0"),
    ];
    let pod = pod();
    for (name, resource, divisor, wanted) in cases {
        let selector: ResourceFieldSelector =
            serde_json::from_value(json!({"resource": resource, "divisor": divisor})).expect("a selector");
        let container = named(&pod, name);
        let value = resource_field_ref(&pod, container, &facts(), &selector);
        assert_eq!(value.as_deref(), Ok(wanted), "{name} {resource} {divisor:?}");
    }
}

#[test]
fn a_selector_may_name_another_container_of_the_pod() {
    let pod = pod();
    let ask = |container: &str| {
        let selector = serde_json::from_value(json!({"resource": "limits.cpu", "containerName": container}));
        resource_field_ref(&pod, named(&pod, "b"), &facts(), &selector.expect("a selector"))
    };
    assert_eq!(ask("a").as_deref(), Ok("2"));
    assert_eq!(ask("zz"), Err(DownwardError::Container("zz".into())));
}
