//! The client, the images and the private containerd, against a real containerd.

#[path = "../support/containerd.rs"]
mod containerd;
mod embedded;
mod exec;
mod images;
mod restart;
mod tasks;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use containerd::{Compression, TestContainerd, TestImage, compress, tar_of};
use oci_spec::runtime::Spec;
use podling::image::{ImageRef, import_path};
use podling::runtime::containerd::{
    Containerd, ErrorClass, ExecRequest, NewContainer, OciRuntime, RuntimeEvent, TaskIo, TaskStatus, Wake,
    WakeKind, pleg,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

const IMAGE: &str = "docker.io/library/busybox:test";

/// Fails the test instead of hanging it.
pub async fn within<T>(seconds: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), what).await.expect("took too long")
}

pub fn spec(server: &TestContainerd, id: &str, command: &str) -> Spec {
    let namespaces: Vec<_> =
        ["pid", "mount", "ipc", "uts", "network"].iter().map(|n| json!({"type": n})).collect();
    serde_json::from_value(json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["sh", "-c", command],
            "env": ["PATH=/bin", "TERM=xterm"],
            "cwd": "/",
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["newinstance", "ptmxmode=0666", "mode=0620"]},
        ],
        "linux": {"cgroupsPath": format!("{}/{id}", server.cgroup()), "namespaces": namespaces},
    }))
    .unwrap()
}

pub async fn import_busybox(server: &TestContainerd, client: &Containerd) {
    let path = server.path().join("busybox.tar");
    fs::write(&path, TestImage::busybox().oci_archive(IMAGE, Compression::None)).unwrap();
    assert_eq!(import_path(client, &path, None).await.unwrap(), [IMAGE]);
}

/// A created, not started container.
pub async fn create(server: &TestContainerd, client: &Containerd, id: &str, command: &str, io: &TaskIo) {
    record(server, client, id, command).await;
    let image = client.local_image(IMAGE).await.unwrap();
    let mounts = client.prepare_rootfs(id, &image.chain_id).await.unwrap();
    let pid = client.create_task(id, &mounts, io, &OciRuntime::default()).await.unwrap();
    assert!(pid > 0);
}

pub async fn record(server: &TestContainerd, client: &Containerd, id: &str, command: &str) {
    let container = NewContainer {
        id: id.to_owned(),
        image: IMAGE.to_owned(),
        labels: BTreeMap::from([("app".to_owned(), id.to_owned()), ("all".to_owned(), "yes".to_owned())]),
        snapshotter: client.snapshotter().await.unwrap(),
        snapshot_key: Some(id.to_owned()),
        runtime: OciRuntime::default(),
        spec: spec(server, id, command),
    };
    client.create_container(container).await.unwrap();
}

pub async fn run(server: &TestContainerd, client: &Containerd, id: &str, command: &str) {
    create(server, client, id, command, &TaskIo::Null).await;
    client.start_task(id).await.unwrap();
}

pub async fn remove(client: &Containerd, id: &str) {
    // Gone already in some tests.
    let _ = client.kill(id, 9, true).await;
    if client.task(id).await.unwrap().is_some() {
        within(20, client.wait(id)).await.unwrap();
    }
    client.delete_task(id).await.unwrap();
    client.remove_container(id).await.unwrap();
    client.remove_snapshot(id).await.unwrap();
}

pub async fn ctr(server: &TestContainerd, args: &[&str]) -> String {
    let output = tokio::process::Command::new("ctr")
        .arg("--address")
        .arg(server.socket())
        .args(["--namespace", server.namespace()])
        .args(args)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "ctr {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
