//! Which ConfigMaps and Secrets a pod takes values from. Pods see those of their own namespace only.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use super::data::{ObjectKey, ObjectKind};

/// Names of objects, as they stand in a spec.
type Names<'a> = Vec<(ObjectKind, &'a str)>;

/// All that any part of the pod names: variables, volumes, pull secrets.
pub fn of_pod(pod: &Pod) -> BTreeSet<ObjectKey> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut names: Names<'_> = containers.flat_map(variables).collect();
    names.extend(spec.volumes.iter().flatten().flat_map(volume));
    names.extend(spec.image_pull_secrets.iter().flatten().map(|s| (ObjectKind::Secret, s.name.as_str())));
    keys(pod, names)
}

/// What one container names by itself: its variables, and the volumes it mounts.
pub fn of_container(pod: &Pod, spec: &PodSpec, container: &Container) -> BTreeSet<ObjectKey> {
    let mut names = variables(container);
    let mounts = |name: &str| container.volume_mounts.iter().flatten().any(|m| m.name == name);
    names.extend(spec.volumes.iter().flatten().filter(|v| mounts(&v.name)).flat_map(volume));
    keys(pod, names)
}

fn keys(pod: &Pod, names: Names<'_>) -> BTreeSet<ObjectKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = names.into_iter().filter(|(_, name)| !name.is_empty());
    named.map(|(kind, name)| ObjectKey::new(kind, namespace, name)).collect()
}

fn variables(container: &Container) -> Names<'_> {
    let mut names = Vec::new();
    for from in container.env_from.iter().flatten() {
        names.extend(from.config_map_ref.iter().map(|r| (ObjectKind::ConfigMap, r.name.as_str())));
        names.extend(from.secret_ref.iter().map(|r| (ObjectKind::Secret, r.name.as_str())));
    }
    for from in container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()) {
        names.extend(from.config_map_key_ref.iter().map(|r| (ObjectKind::ConfigMap, r.name.as_str())));
        names.extend(from.secret_key_ref.iter().map(|r| (ObjectKind::Secret, r.name.as_str())));
    }
    names
}

fn volume(volume: &Volume) -> Names<'_> {
    let mut names = Vec::new();
    names.extend(volume.config_map.iter().map(|v| (ObjectKind::ConfigMap, v.name.as_str())));
    let secret = volume.secret.iter().filter_map(|v| v.secret_name.as_deref());
    names.extend(secret.map(|name| (ObjectKind::Secret, name)));
    for source in volume.projected.iter().flat_map(|v| v.sources.iter().flatten()) {
        names.extend(source.config_map.iter().map(|s| (ObjectKind::ConfigMap, s.name.as_str())));
        names.extend(source.secret.iter().map(|s| (ObjectKind::Secret, s.name.as_str())));
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_names_its_variables_and_mounts_and_the_pod_names_all() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {
                "imagePullSecrets": [{"name": "pull"}],
                "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "init"}}]}],
                "containers": [{
                    "name": "a",
                    "envFrom": [{"secretRef": {"name": "all"}}],
                    "env": [
                        {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
                        {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                    ],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }],
                "volumes": [
                    {"name": "v", "projected": {"sources": [{"secret": {"name": "in-v"}}, {"configMap": {"name": "in-v"}}]}},
                    {"name": "w", "secret": {"secretName": "in-w"}},
                ],
            },
        }))
        .expect("a pod");
        let spec = pod.spec.as_ref().expect("a spec");
        let names = |set: BTreeSet<ObjectKey>| set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let own = names(of_container(&pod, spec, &spec.containers[0]));
        assert_eq!(
            own,
            [
                "ConfigMap shop/in-v",
                "ConfigMap shop/one",
                "Secret shop/all",
                "Secret shop/in-v",
                "Secret shop/one"
            ]
        );
        let all = names(of_pod(&pod));
        assert_eq!(all.len(), 8, "{all:?}");
        assert!(
            ["ConfigMap shop/init", "Secret shop/in-w", "Secret shop/pull"]
                .iter()
                .all(|n| all.iter().any(|a| a == n))
        );
    }
}
