use super::*;
use crate::settings::Paths;

fn capacity(change: impl FnOnce(&mut Settings)) -> Capacity {
    let mut settings = Settings::defaults(Paths::under("/x"));
    settings.node_name = "node1".into();
    change(&mut settings);
    let machine = Machine {
        cpus: 2,
        memory: 4 << 30,
        disk: 10 << 30,
        huge_pages: BTreeMap::from([("hugepages-2Mi".to_owned(), 0)]),
        arch: "amd64",
    };
    Capacity::on(&settings, &machine)
}

fn refusal(capacity: &Capacity, spec: serde_json::Value) -> String {
    let mut spec = spec;
    spec.as_object_mut().expect("a mapping").entry("containers").or_insert(serde_json::json!([]));
    let pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
    match capacity.could_hold(&pod) {
        Ok(()) => String::new(),
        Err(w) => format!("{}: {}", w.reason, w.message),
    }
}

fn requesting(name: &str, amount: &str) -> serde_json::Value {
    serde_json::json!({"containers": [{"name": "a", "resources": {"requests": {name: amount}}}]})
}

#[test]
fn more_than_the_node_has_is_said_with_both_amounts() {
    let node = capacity(|s| {
        s.system_reserved.insert("cpu".into(), Quantity::parse("500m").expect("a quantity"));
    });
    assert_eq!(refusal(&node, requesting("cpu", "1500m")), "");
    assert_eq!(
        refusal(&node, requesting("cpu", "100")),
        "OutOfcpu: the pod requests cpu 100 and this node has 1500m for pods (2 less a reserve of 500m); lower the request, or set capacity in the settings"
    );
    assert!(refusal(&node, requesting("memory", "1000Gi")).starts_with("OutOfmemory: "));
    assert!(refusal(&node, requesting("ephemeral-storage", "11Gi")).starts_with("OutOfephemeral-storage: "));
    assert!(refusal(&node, requesting("hugepages-2Mi", "2Mi")).starts_with("OutOfhugepages-2Mi: "));
    assert_eq!(refusal(&node, requesting("example.com/device", "1")), "");
    let larger = capacity(|s| {
        s.capacity.insert("cpu".into(), Quantity::parse("200").expect("a quantity"));
    });
    assert_eq!(refusal(&larger, requesting("cpu", "100")), "");
}

#[test]
fn selectors_are_held_against_the_nodes_labels() {
    let node = capacity(|s| {
        s.node_labels.insert("disktype".into(), "ssd".into());
        s.node_labels.insert("cores".into(), "8".into());
    });
    let select = |key: &str, value: &str| serde_json::json!({"nodeSelector": {key: value}});
    assert_eq!(refusal(&node, select("disktype", "ssd")), "");
    assert_eq!(refusal(&node, select("kubernetes.io/hostname", "node1")), "");
    assert_eq!(refusal(&node, select("beta.kubernetes.io/arch", "amd64")), "");
    assert_eq!(
        refusal(&node, select("disktype", "hdd")),
        "NodeAffinity: spec.nodeSelector wants disktype=hdd, and this node has ssd; set nodeLabels in the settings, or change the manifest"
    );
    assert!(refusal(&node, select("zone", "a")).contains("has no such label"));
    let affinity = |key: &str, operator: &str, values: &[&str]| {
        serde_json::json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}}})
    };
    for (key, operator, values, fits) in [
        ("disktype", "In", &["hdd", "ssd"][..], true),
        ("disktype", "NotIn", &["ssd"], false),
        ("zone", "NotIn", &["a"], true),
        ("zone", "Exists", &[], false),
        ("zone", "DoesNotExist", &[], true),
        ("cores", "Gt", &["4"], true),
        ("cores", "Lt", &["4"], false),
        ("disktype", "Gt", &["4"], false),
    ] {
        assert_eq!(
            refusal(&node, affinity(key, operator, values)).is_empty(),
            fits,
            "{key} {operator} {values:?}"
        );
    }
    let by_name = serde_json::json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]}}}});
    assert_eq!(refusal(&node, by_name), "");
}

#[test]
fn priority_classes_are_the_systems_and_those_of_the_settings() {
    let node = capacity(|s| {
        s.priority_classes.insert("high".into(), 1000);
    });
    let priority = |spec: serde_json::Value| {
        let mut spec = spec;
        spec["containers"] = serde_json::json!([]);
        node.priority(&serde_json::from_value(spec).expect("a spec"))
    };
    assert_eq!(priority(serde_json::json!({})), Ok(0));
    assert_eq!(priority(serde_json::json!({"priority": 7})), Ok(7));
    assert_eq!(priority(serde_json::json!({"priorityClassName": "high"})), Ok(1000));
    assert_eq!(priority(serde_json::json!({"priorityClassName": "system-node-critical"})), Ok(2_000_001_000));
    assert_eq!(
        refusal(&node, serde_json::json!({"priorityClassName": "low"})),
        "PriorityClassNotFound: spec.priorityClassName: there is no priority class \"low\"; define it under priorityClasses in the settings, or use one of system-cluster-critical, system-node-critical, high"
    );
}

fn overlooked(capacity: &Capacity, spec: serde_json::Value) -> Vec<String> {
    let mut spec = spec;
    spec["containers"] = serde_json::json!([]);
    let pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
    capacity.overlooked(&pod).into_iter().map(|w| w.reason).collect()
}

#[test]
fn without_labels_in_the_settings_only_name_and_system_are_held_against_a_pod() {
    let affinity = |key: &str| {
        serde_json::json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": ["x"]}]}]}}}})
    };
    let node = capacity(|_| {});
    let labelled = capacity(|s| {
        s.node_labels.insert("zone".into(), "a".into());
    });
    for (spec, waits, told) in [
        (serde_json::json!({"nodeSelector": {"disktype": "ssd"}}), false, true),
        (serde_json::json!({"nodeSelector": {"kubernetes.io/arch": "wasm32-wasi"}}), false, true),
        (serde_json::json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}), false, false),
        (serde_json::json!({"nodeSelector": {"kubernetes.io/hostname": "other"}}), true, false),
        (serde_json::json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), true, false),
        (affinity("disktype"), false, true),
        (affinity("kubernetes.io/hostname"), true, false),
    ] {
        assert_eq!(!refusal(&node, spec.clone()).is_empty(), waits, "{spec}");
        assert_eq!(!overlooked(&node, spec.clone()).is_empty(), told, "{spec}");
        assert_eq!(!refusal(&labelled, spec.clone()).is_empty(), waits || told, "{spec}");
        assert!(overlooked(&labelled, spec.clone()).is_empty(), "{spec}");
    }
}

#[test]
fn without_classes_in_the_settings_a_class_is_only_told() {
    let node = capacity(|_| {});
    let spec = serde_json::json!({"priorityClassName": "low", "priority": 3});
    assert_eq!(refusal(&node, spec.clone()), "");
    assert_eq!(overlooked(&node, spec), ["PriorityClassNotFound"]);
    assert!(overlooked(&node, serde_json::json!({"priorityClassName": "system-node-critical"})).is_empty());
}

#[test]
fn a_pod_for_another_system_is_not_for_this_node() {
    let node = capacity(|_| {});
    assert!(
        refusal(&node, serde_json::json!({"os": {"name": "windows"}})).starts_with("PodOSNotSupported: ")
    );
    assert_eq!(refusal(&node, serde_json::json!({"os": {"name": "linux"}})), "");
}

#[test]
fn what_stands_for_a_limit_that_is_not_set_is_what_the_reserves_leave() {
    let node = capacity(|s| {
        s.system_reserved.insert("cpu".into(), Quantity::parse("500m").expect("a quantity"));
        s.kube_reserved.insert("memory".into(), Quantity::parse("1Gi").expect("a quantity"));
        s.capacity.insert("ephemeral-storage".into(), Quantity::parse("7").expect("a quantity"));
    });
    let expected = Allocatable { milli_cpu: 1500, memory: 3 << 30, ephemeral_storage: 7 };
    assert_eq!(node.for_pods(), expected);
}
