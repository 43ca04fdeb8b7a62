//! ConfigMaps and Secrets with every key that the pods ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use podling::manifest::PodManifest;
use serde_json::{Value, json};

use crate::support::Instance;

/// (kind, namespace, name) to keys.
type Wanted = BTreeMap<(&'static str, String, String), BTreeSet<String>>;

/// The documents, as one file.
pub fn for_pods<'a>(pods: impl Iterator<Item = &'a PodManifest>) -> String {
    let mut wanted = Wanted::new();
    for manifest in pods {
        let spec = serde_json::to_value(&manifest.pod.spec).expect("a pod is JSON");
        collect(&spec, &manifest.key.namespace, &mut wanted);
    }
    let documents = wanted.iter().map(|((kind, namespace, name), keys)| {
        let data: BTreeMap<&String, &str> = keys.iter().map(|k| (k, "1")).collect();
        let field = if *kind == "Secret" { "stringData" } else { "data" };
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, field: data})
    });
    documents.map(|d| format!("---\n{d}\n")).collect()
}

/// Secrets are for their owner only.
pub fn protect(instance: &Instance) {
    let path = instance.manifests().join("objects.yaml");
    set_permissions(path, Permissions::from_mode(0o600)).expect("the file is ours");
}

fn collect(value: &Value, namespace: &str, wanted: &mut Wanted) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                note(field, value, namespace, wanted);
                collect(value, namespace, wanted);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, namespace, wanted)),
        _ => {}
    }
}

/// A reference to an object, by the name of the field that holds it.
fn note(field: &str, value: &Value, namespace: &str, wanted: &mut Wanted) {
    let kind = match field {
        "configMap" | "configMapRef" | "configMapKeyRef" => "ConfigMap",
        "secret" | "secretRef" | "secretKeyRef" => "Secret",
        _ => return,
    };
    let Some(name) = value["name"].as_str().or(value["secretName"].as_str()) else { return };
    if value["optional"] == true {
        return;
    }
    let keys = wanted.entry((kind, namespace.to_owned(), name.to_owned())).or_default();
    let items = value["items"].as_array().into_iter().flatten().filter_map(|i| i["key"].as_str());
    keys.extend(items.chain(value["key"].as_str()).map(str::to_owned));
}
