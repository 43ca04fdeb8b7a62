use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use serde_json::json;

use super::super::tests::input;
use super::super::{prepare, reset, teardown};
use super::*;
use crate::objects::{DataObject, ObjectKey, ObjectKind};

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {"v": "1"}},
        "spec": {"containers": [], "volumes": [
            {"name": "cfg", "configMap": {"name": "app"}},
            {"name": "maybe", "secret": {"secretName": "later", "optional": true}},
            {"name": "me", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "app"}}]}},
        ]},
    }))
    .unwrap()
}

fn object(kind: ObjectKind, name: &str, value: &str) -> Arc<DataObject> {
    Arc::new(DataObject {
        key: ObjectKey::new(kind, "default", name),
        data: [("k".to_owned(), value.as_bytes().to_vec())].into(),
        secret_type: None,
        binary: Default::default(),
        immutable: false,
        origin: Default::default(),
    })
}

fn unprivileged() -> bool {
    !rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn volumes_are_in_memory_follow_their_objects_and_go_with_the_pod() {
    if unprivileged() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let pod_dir = home.path().join("uid");
    let mut input = input(&pod(), &pod_dir);
    assert!(prepare(input.clone()).await.unwrap_err().is_missing());
    assert_eq!(missing(&input.pod, &input.objects).len(), 2);
    input.objects.replace(vec![object(ObjectKind::ConfigMap, "app", "1")]);
    let ready = prepare(input.clone()).await.unwrap();
    let cfg = pod_dir.join("volumes/kubernetes.io~configmap/cfg");
    assert_eq!(ready["cfg"], PreparedVolume { host_path: cfg.clone(), is_file: false, read_only: true });
    assert!(ready.values().all(|v| mounts::is_in_memory(&v.host_path).unwrap()));
    let read = |volume: &str, file: &str| fs::read_to_string(ready[volume].host_path.join(file)).ok();
    assert_eq!((read("cfg", "k"), read("all", "k")), (Some("1".into()), Some("1".into())));
    assert_eq!((read("maybe", "k"), read("me", "labels")), (None, Some("v=\"1\"".into())));

    // All of it changes; what did not change is not written.
    assert!(refresh(input.clone()).await.unwrap().changed.is_empty());
    let new = vec![object(ObjectKind::ConfigMap, "app", "2"), object(ObjectKind::Secret, "later", "s")];
    input.objects.replace(new);
    input.pod.metadata.labels = Some([("v".to_owned(), "2".to_owned())].into());
    let done = refresh(input.clone()).await.unwrap();
    assert_eq!(done.changed, ["cfg", "maybe", "me", "all"]);
    assert_eq!((read("cfg", "k"), read("all", "k")), (Some("2".into()), Some("2".into())));
    assert_eq!((read("maybe", "k"), read("me", "labels")), (Some("s".into()), Some("v=\"2\"".into())));

    // What is gone stays, also for a container that restarts; what was optional goes.
    input.objects.replace(Vec::new());
    let done = refresh(input.clone()).await.unwrap();
    assert_eq!((done.changed, done.kept.len(), done.failed.len()), (vec!["maybe".to_owned()], 2, 0));
    let before = fs::metadata(cfg.join("k")).unwrap().ino();
    assert_eq!(prepare(input.clone()).await.unwrap(), ready);
    assert_eq!(fs::metadata(cfg.join("k")).unwrap().ino(), before);

    // A pod that is made anew waits for it.
    reset(&pod_dir).unwrap();
    assert!(!cfg.exists());
    assert!(refresh(input.clone()).await.unwrap().changed.is_empty(), "nothing is there to refresh");
    assert!(prepare(input.clone()).await.unwrap_err().is_missing());
    teardown(&pod_dir).unwrap();
    assert!(!pod_dir.exists());
}

#[test]
fn pods_without_such_volumes_are_told() {
    assert!(has_data_volumes(&pod()));
    let plain = json!({"spec": {"containers": [], "volumes": [{"name": "e", "emptyDir": {}}]}});
    assert!(!has_data_volumes(&serde_json::from_value(plain).unwrap()));
}
