use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::objects::DataObject;

fn object(kind: ObjectKind, name: &str, data: &[(&str, &str)]) -> Arc<DataObject> {
    let data = data.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()));
    Arc::new(DataObject {
        key: ObjectKey::new(kind, "apps", name),
        data: data.collect(),
        secret_type: None,
        binary: Default::default(),
        immutable: false,
        origin: Default::default(),
    })
}

fn objects() -> Objects {
    let objects = Objects::default();
    objects.replace(vec![
        object(ObjectKind::ConfigMap, "app", &[("a.conf", "A"), ("b.conf", "B")]),
        object(ObjectKind::Secret, "app", &[("password", "pw")]),
    ]);
    objects
}

/// The files as `path mode user content`, or what is wrong.
fn files(objects: &Objects, volume: Value) -> Result<Vec<String>, String> {
    let mut volume = volume;
    volume["name"] = json!("v");
    let volume: Volume = serde_json::from_value(volume).unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "apps", "labels": {"tier": "front", "app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi"}}}]},
    }))
    .unwrap();
    let facts = DownwardFacts { uid: "u-1".into(), ..DownwardFacts::default() };
    let payload = collect(&volume, &Sources { pod: &pod, objects, facts: &facts });
    let line = |(path, e): (&String, &Entry)| {
        format!("{path} {:04o} {} {}", e.mode, e.user, String::from_utf8_lossy(&e.data))
    };
    payload.map(|p| p.files.iter().map(line).collect()).map_err(|e| e.to_string())
}

#[test]
fn without_items_each_key_is_a_file() {
    let found = files(&objects(), json!({"configMap": {"name": "app"}}));
    assert_eq!(found.unwrap(), ["a.conf 0644 0 A", "b.conf 0644 0 B"]);
    let found =
        files(&objects(), json!({"secret": {"secretName": "app", "defaultMode": 256, "defaultUser": 5}}));
    assert_eq!(found.unwrap(), ["password 0400 5 pw"]);
}

#[test]
fn items_choose_keys_and_give_them_paths_modes_and_owners() {
    let items = json!([{"key": "b.conf", "path": "conf.d//b", "mode": 0o600, "user": 7}]);
    let found =
        files(&objects(), json!({"configMap": {"name": "app", "defaultMode": 0o440, "items": items}}));
    assert_eq!(found.unwrap(), ["conf.d/b 0600 7 B"]);
}

#[test]
fn what_is_missing_is_named_unless_it_is_optional() {
    let some = objects();
    let missing = |volume| files(&some, volume).unwrap_err();
    assert_eq!(
        missing(json!({"secret": {"secretName": "tls"}})),
        "volume \"v\": waiting for Secret apps/tls: no manifest file defines it (`podling get pods` names the files that were refused)"
    );
    let items = json!([{"key": "x", "path": "x"}, {"key": "a.conf", "path": "a"}]);
    assert_eq!(
        missing(json!({"configMap": {"name": "app", "items": items}})),
        "volume \"v\": waiting for the key \"x\" of ConfigMap apps/app, which does not have it"
    );
    let optional = |volume| files(&some, volume).unwrap();
    assert!(optional(json!({"secret": {"secretName": "tls", "optional": true}})).is_empty());
    let found = optional(json!({"configMap": {"name": "app", "optional": true, "items": items}}));
    assert_eq!(found, ["a 0644 0 A"]);
}

#[test]
fn fields_of_the_pod_become_files() {
    let items = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "tier", "mode": 0o400, "fieldRef": {"fieldPath": "metadata.labels['tier']"}},
        {"path": "id", "fieldRef": {"fieldPath": "metadata.uid"}},
        {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
    ]);
    let found = files(&objects(), json!({"downwardAPI": {"items": items}})).unwrap();
    assert_eq!(
        found,
        ["id 0644 0 u-1", "labels 0644 0 app=\"web\"\ntier=\"front\"", "mem 0644 0 64", "tier 0400 0 front"]
    );
}

#[test]
fn a_projected_volume_joins_its_sources_and_the_later_wins() {
    let sources = json!([
        {"configMap": {"name": "app"}},
        {"secret": {"name": "app", "items": [{"key": "password", "path": "a.conf", "mode": 0o400}]}},
        {"configMap": {"name": "none", "optional": true}},
        {"downwardAPI": {"items": [{"path": "pod/name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"clusterTrustBundle": {"path": "ca.pem", "optional": true}},
    ]);
    let found = files(&objects(), json!({"projected": {"defaultMode": 0o640, "sources": sources}}));
    assert_eq!(found.unwrap(), ["a.conf 0400 0 pw", "b.conf 0640 0 B", "pod/name 0640 0 web"]);
}

#[test]
fn a_path_that_is_file_and_directory_at_once_is_named() {
    let sources = json!([
        {"configMap": {"name": "app", "items": [{"key": "a.conf", "path": "x"}]}},
        {"secret": {"name": "app", "items": [{"key": "password", "path": "x/y"}]}},
    ]);
    assert_eq!(
        files(&objects(), json!({"projected": {"sources": sources}})).unwrap_err(),
        "volume \"v\": file \"x/y\": would be a file and a directory at once, by another item's path"
    );
}

#[test]
fn objects_of_other_namespaces_are_not_seen() {
    let objects = Objects::default();
    let mut other = (*object(ObjectKind::ConfigMap, "app", &[("k", "v")])).clone();
    other.key.namespace = "default".into();
    objects.replace(vec![Arc::new(DataObject { data: BTreeMap::new(), ..other })]);
    assert!(files(&objects, json!({"configMap": {"name": "app"}})).is_err());
}
