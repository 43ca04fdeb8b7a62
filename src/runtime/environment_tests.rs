use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::manifest::{Document, ReadOptions, read};

const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: shop}
data: {A: from-map, B: map-b, log.level: debug, empty: ''}
binaryData: {bin: /w==}
---
apiVersion: v1
kind: Secret
metadata: {name: pass, namespace: shop}
stringData: {B: secret-b, token: t0p}
data: {raw: /wA=}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: elsewhere, namespace: other}
data: {A: a}
";

fn objects() -> Objects {
    let objects = Objects::default();
    let documents = read(OBJECTS.as_bytes(), &ReadOptions::default());
    let object = |d: Document| Arc::new(*d.object.expect("an object"));
    objects.replace(documents.into_iter().map(object).collect());
    objects
}

fn variables(container: Value, dir: &Path) -> Result<Vec<(String, String)>, EnvError> {
    let mut whole = json!({"name": "app"});
    whole.as_object_mut().expect("a map").extend(container.as_object().expect("a map").clone());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [whole]},
    }))
    .expect("a pod");
    environment(&EnvInput {
        pod: &pod,
        container: &pod.spec.as_ref().expect("a spec").containers[0],
        facts: &DownwardFacts { pod_ips: vec!["10.0.0.9".into()], ..DownwardFacts::default() },
        objects: &objects(),
        volume: &|name| (name == "data").then(|| dir.to_owned()),
    })
}

fn given(container: Value) -> String {
    match variables(container, Path::new("/nowhere")) {
        Ok(all) => all.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
        Err(e) => format!("error: {e}"),
    }
}

#[test]
fn whole_objects_come_first_and_later_ones_win() {
    let from = json!([
        {"configMapRef": {"name": "conf"}},
        {"prefix": "P_", "configMapRef": {"name": "conf"}},
        {"configMapRef": {"name": "none", "optional": true}},
    ]);
    assert_eq!(
        given(json!({"envFrom": from})),
        "A=from-map B=map-b empty= log.level=debug P_A=from-map P_B=map-b P_empty= P_log.level=debug",
        "binaryData is not for variables"
    );
    let container = json!({
        "envFrom": [{"configMapRef": {"name": "conf"}}],
        "env": [{"name": "C", "value": "$(B)/$(NOPE)/$$(B)"}, {"name": "B", "value": "own"}, {"name": "D", "value": "$(B)"}],
    });
    assert_eq!(given(container), "A=from-map B=own empty= log.level=debug C=map-b/$(NOPE)/$(B) D=own");
}

#[test]
fn single_keys_and_fields_are_taken_in_the_order_written() {
    let container = json!({"env": [
        {"name": "Z", "valueFrom": {"secretKeyRef": {"name": "pass", "key": "token"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(IP)/?t=$(Z)"},
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "A"}}},
        {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "zz", "optional": true}}},
        {"name": "AWAY", "valueFrom": {"secretKeyRef": {"name": "zz", "key": "zz", "optional": true}}},
    ]});
    assert_eq!(given(container), "Z=t0p IP=10.0.0.9 URL=http://10.0.0.9/?t=t0p A=from-map");
}

#[test]
fn what_is_missing_is_named_in_the_kubelets_words() {
    let key = |source: &str, name: &str, key: &str| {
        given(json!({"env": [{"name": "X", "valueFrom": {source: {"name": name, "key": key}}}]}))
    };
    let cases = [
        (key("configMapKeyRef", "zz", "A"), "error: configmap \"zz\" not found;"),
        (key("secretKeyRef", "zz", "A"), "error: secret \"zz\" not found;"),
        // Objects of other namespaces are not there.
        (key("configMapKeyRef", "elsewhere", "A"), "error: configmap \"elsewhere\" not found;"),
        (key("configMapKeyRef", "conf", "k"), "error: couldn't find key k in ConfigMap shop/conf"),
        (key("configMapKeyRef", "conf", "bin"), "error: couldn't find key bin in ConfigMap shop/conf"),
        (key("secretKeyRef", "pass", "k"), "error: couldn't find key k in Secret shop/pass"),
        (key("secretKeyRef", "pass", "raw"), "error: key raw in Secret shop/pass is not text"),
        (given(json!({"envFrom": [{"secretRef": {"name": "zz"}}]})), "error: secret \"zz\" not found;"),
    ];
    for (said, wanted) in cases {
        assert!(said.starts_with(wanted), "{said}");
    }
}

#[test]
fn a_file_of_a_volume_gives_single_values() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("env"), "DB='a b'\nNONE=''\n").expect("a file");
    let ask = |selector: Value| {
        let container = json!({"env": [{"name": "DB", "valueFrom": {"fileKeyRef": selector}}]});
        variables(container, dir.path()).map(BTreeMap::from_iter).map_err(|e| e.to_string())
    };
    let file = |path: &str, key: &str, optional: bool| json!({"volumeName": "data", "path": path, "key": key, "optional": optional});
    assert_eq!(ask(file("env", "DB", false)).expect("a value")["DB"], "a b");
    assert!(ask(file("env", "ZZ", true)).expect("nothing").is_empty());
    assert!(ask(file("none", "DB", true)).expect("nothing").is_empty());
    assert!(ask(file("none", "DB", false)).expect_err("missing").contains("cannot be read"));
    assert!(ask(file("env", "ZZ", false)).expect_err("missing").contains("key ZZ not found"));
    // Without a value it is as good as missing.
    assert!(ask(file("env", "NONE", true)).expect("nothing").is_empty());
    assert!(ask(file("env", "NONE", false)).expect_err("missing").contains("key NONE not found"));
    let other = json!({"volumeName": "zz", "path": "env", "key": "DB"});
    assert!(ask(other).expect_err("missing").contains("no such volume"));
}
