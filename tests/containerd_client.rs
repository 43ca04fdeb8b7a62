//! The client, the images and the private containerd, against a real containerd.

#[path = "support/containerd.rs"]
mod containerd;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use containerd::{Compression, TestContainerd, TestImage, compress, tar_of};
use oci_spec::runtime::Spec;
use podling::image::{ImageRef, PullPolicy, import_path};
use podling::runtime::containerd::{
    Containerd, ErrorClass, ExecRequest, NewContainer, OciRuntime, RuntimeEvent, TaskIo, TaskStatus, Wake,
    WakeKind, pleg,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

const IMAGE: &str = "docker.io/library/busybox:test";

/// Fails the test instead of hanging it.
async fn within<T>(seconds: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), what).await.expect("took too long")
}

fn spec(server: &TestContainerd, id: &str, command: &str) -> Spec {
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

async fn import_busybox(server: &TestContainerd, client: &Containerd) {
    let path = server.path().join("busybox.tar");
    fs::write(&path, TestImage::busybox().oci_archive(IMAGE, Compression::None)).unwrap();
    assert_eq!(import_path(client, &path).await.unwrap(), [IMAGE]);
}

/// A created, not started container.
async fn create(server: &TestContainerd, client: &Containerd, id: &str, command: &str, io: &TaskIo) {
    record(server, client, id, command).await;
    let (image, _) = client.image_for(IMAGE, PullPolicy::Never).await.unwrap();
    let mounts = client.prepare_rootfs(id, &image.chain_id).await.unwrap();
    let pid = client.create_task(id, &mounts, io, &OciRuntime::default()).await.unwrap();
    assert!(pid > 0);
}

async fn record(server: &TestContainerd, client: &Containerd, id: &str, command: &str) {
    let container = NewContainer {
        id: id.to_owned(),
        image: IMAGE.to_owned(),
        labels: BTreeMap::from([("app".to_owned(), id.to_owned()), ("all".to_owned(), "yes".to_owned())]),
        snapshotter: client.snapshotter().await.unwrap(),
        snapshot_key: Some(id.to_owned()),
        runtime: OciRuntime::default(),
        spec: spec(server, id, command),
    };
    client.create_container(&container).await.unwrap();
}

async fn run(server: &TestContainerd, client: &Containerd, id: &str, command: &str) {
    create(server, client, id, command, &TaskIo::Null).await;
    client.start_task(id).await.unwrap();
}

async fn remove(client: &Containerd, id: &str) {
    // Gone already in some tests.
    let _ = client.kill(id, 9, true).await;
    if client.task(id).await.unwrap().is_some() {
        within(20, client.wait(id)).await.unwrap();
    }
    client.delete_task(id).await.unwrap();
    client.remove_container(id).await.unwrap();
    client.remove_snapshot(id).await.unwrap();
}

async fn ctr(server: &TestContainerd, args: &[&str]) -> String {
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

#[tokio::test]
async fn archives_of_every_kind_become_the_same_unpacked_image() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let archives = [
        ("oci.tar", "oci:1", image.oci_archive("oci:1", Compression::None)),
        ("oci.tar.gz", "oci:2", compress(&image.oci_archive("oci:2", Compression::Gzip), Compression::Gzip)),
        // The name lies about the compression.
        ("z.tar", "oci:3", compress(&image.oci_archive("oci:3", Compression::Zstd), Compression::Zstd)),
        ("docker.tar", "team/app:4", image.docker_archive(&["team/app:4"])),
        ("d.tar.zst", "app:5", compress(&image.docker_archive(&["app:5"]), Compression::Zstd)),
    ];
    let mut chains = Vec::new();
    for (file, name, data) in archives {
        let path = server.path().join(file);
        fs::write(&path, data).unwrap();
        let reference = ImageRef::parse(name).unwrap();
        let names = import_path(&client, &path).await.unwrap();
        assert_eq!(names, [reference.name()], "{file}");
        let image = client.image(&reference).await.unwrap().unwrap();
        assert!(image.unpacked, "{file}");
        assert_eq!(image.config.config().clone().unwrap().cmd().clone().unwrap(), ["sh"]);
        chains.push(image.chain_id);
    }
    chains.dedup();
    assert_eq!(chains.len(), 1);
    let list = client.images().await.unwrap();
    assert_eq!(list.len(), 5);
    assert!(list.iter().all(|i| i.size.unwrap() > 500_000 && i.created.is_some()), "{list:?}");
    assert_eq!(ctr(&server, &["leases", "ls", "-q"]).await.trim(), "");
    // All that the images need is held by them: a collection takes nothing.
    let before = ctr(&server, &["content", "ls", "-q"]).await;
    let held = client.remove_image(&ImageRef::parse("oci:2").unwrap()).await.unwrap();
    assert!(held && !client.remove_image(&ImageRef::parse("oci:2").unwrap()).await.unwrap());
    let after = ctr(&server, &["content", "ls", "-q"]).await;
    assert!(after.lines().count() < before.lines().count());
    for name in ["oci:1", "oci:3", "team/app:4", "app:5"] {
        let (image, _) = client.image_for(name, PullPolicy::IfNotPresent).await.unwrap();
        assert!(image.unpacked, "{name}");
        // Unpacked from its own blobs too, once the layers are gone.
        assert!(client.rootfs_mounts("none").await.unwrap().is_none());
    }
    for name in ["oci:1", "oci:3", "team/app:4", "app:5"] {
        client.remove_image(&ImageRef::parse(name).unwrap()).await.unwrap();
    }
    assert_eq!(ctr(&server, &["content", "ls", "-q"]).await.trim(), "");
    assert_eq!(ctr(&server, &["snapshots", "ls"]).await.lines().count(), 1);
}

#[tokio::test]
async fn an_image_that_lost_its_layers_is_unpacked_again_by_two_at_once() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let reference = ImageRef::parse(IMAGE).unwrap();
    let image = client.image(&reference).await.unwrap().unwrap();
    ctr(&server, &["snapshots", "rm", &image.chain_id]).await;
    let image = client.image(&reference).await.unwrap().unwrap();
    assert!(!image.unpacked);
    let (one, two) = tokio::join!(client.ensure_unpacked(&image), client.ensure_unpacked(&image));
    one.unwrap();
    two.unwrap();
    assert!(client.image(&reference).await.unwrap().unwrap().unpacked);
}

#[tokio::test]
async fn names_come_from_annotations_or_from_the_file() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let cases = [
        ("web.tar", json!({}), "docker.io/library/web:latest"),
        ("Web-App.oci.tar.gz", json!({"org.opencontainers.image.ref.name": "v2"}), "docker.io/library/web-app:v2"),
        ("x.tar", json!({"org.opencontainers.image.ref.name": "quay.io/a/b:3"}), "quay.io/a/b:3"),
    ];
    for (file, annotations, name) in cases {
        let path = server.path().join(file);
        fs::write(&path, tar_of(&image.oci_files(Compression::None, annotations))).unwrap();
        assert_eq!(import_path(&client, &path).await.unwrap(), [name]);
    }
    let dir = server.path().join("layout");
    for (path, data) in image.oci_files(Compression::Gzip, json!({"org.opencontainers.image.ref.name": "9"})) {
        fs::create_dir_all(dir.join(&path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), data).unwrap();
    }
    assert_eq!(import_path(&client, &dir).await.unwrap(), ["docker.io/library/layout:9"]);
    // By digest, found under its tag.
    let tagged = client.image(&ImageRef::parse("layout:9").unwrap()).await.unwrap().unwrap();
    let by_digest = ImageRef::parse(&format!("layout@{}", tagged.digest)).unwrap();
    assert_eq!(client.image(&by_digest).await.unwrap().unwrap().name, "docker.io/library/layout:9");
}

#[tokio::test]
async fn several_images_and_builds_in_one_archive() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let other = TestImage { architecture: "s390x".into(), ..TestImage::busybox() };
    let two = server.path().join("two.tar");
    fs::write(&two, image.docker_archive(&["one:1", "two:2"])).unwrap();
    let names = import_path(&client, &two).await.unwrap();
    assert_eq!(names, ["docker.io/library/one:1", "docker.io/library/two:2"]);
    // An index of two builds, the foreign one first and without its blobs.
    let mut files = image.oci_files(Compression::None, json!({}));
    let host = serde_json::from_slice::<serde_json::Value>(&files[1].1).unwrap()["manifests"][0].clone();
    let foreign = other.oci_files(Compression::None, json!({}));
    let foreign = serde_json::from_slice::<serde_json::Value>(&foreign[1].1).unwrap()["manifests"][0].clone();
    let with = |mut d: serde_json::Value, arch: &str| {
        d["platform"] = json!({"os": "linux", "architecture": arch});
        d
    };
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                       "manifests": [with(foreign, "s390x"), with(host, &image.architecture)]});
    let index = serde_json::to_vec(&index).unwrap();
    let top = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.index.v1+json", "digest": containerd::digest(&index),
        "size": index.len(), "annotations": {"io.containerd.image.name": "docker.io/library/multi:1"}}]});
    files[1].1 = serde_json::to_vec(&top).unwrap();
    files.push((format!("blobs/{}", containerd::digest(&index).replace(':', "/")), index.clone()));
    let multi = server.path().join("multi.tar");
    fs::write(&multi, tar_of(&files)).unwrap();
    import_path(&client, &multi).await.unwrap();
    let found = client.image(&ImageRef::parse("multi:1").unwrap()).await.unwrap().unwrap();
    assert_eq!(found.digest, containerd::digest(&index));
    assert!(found.unpacked);
}

#[tokio::test]
async fn a_bad_archive_says_what_is_wrong_and_leaves_nothing() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let write = |name: &str, data: &[u8]| {
        let path = server.path().join(name);
        fs::write(&path, data).unwrap();
        path
    };
    let whole = image.oci_archive(IMAGE, Compression::None);
    let mut flipped = image.oci_files(Compression::None, json!({}));
    let last = flipped.last_mut().unwrap();
    last.1[0] ^= 1;
    let mut lacking = image.oci_files(Compression::None, json!({}));
    let longest = (0..lacking.len()).max_by_key(|i| lacking[*i].1.len()).unwrap();
    lacking.remove(longest);
    let foreign = TestImage { architecture: "s390x".into(), ..TestImage::busybox() };
    let mut lying = image.docker_archive(&["x:1"]);
    let motd = lying.windows(6).position(|w| w == b"hello\n").unwrap();
    lying[motd] = b'H';
    let cases = [
        (write("cut.tar", &whole[..whole.len() / 2]), "cut.tar is damaged: "),
        (write("flipped.tar", &tar_of(&flipped)), "does not have the digest that its name says"),
        (write("lacking.tar", &tar_of(&lacking)), "is missing; copy or export it again"),
        (write("text.tar", b"just text"), "text.tar is not an image archive: it has neither"),
        (write("empty.tar", b""), "is not an image archive"),
        (write("other.tar", &tar_of(&[("a.txt".into(), vec![1])])), "is not an image archive"),
        (write("gz.tar.gz", &[0x1f, 0x8b, 8, 0, 1, 2]), "gz.tar.gz is"),
        (write("s390x.tar", &foreign.docker_archive(&["x:1"])), "has no build of docker.io/library/x:1 for linux/"),
        (write("BAD NAME!.tar", &tar_of(&image.oci_files(Compression::None, json!({})))), "or rename the file"),
        (write("lying.tar", &lying), "but the image's configuration says sha256:"),
        (server.path().join("none.tar"), "cannot read "),
    ];
    for (path, want) in cases {
        let e = import_path(&client, &path).await.unwrap_err();
        assert!(e.to_string().contains(want), "{e}");
        assert!(!e.to_string().contains('\n'), "{e}");
    }
    assert!(client.images().await.unwrap().is_empty());
    assert_eq!(ctr(&server, &["leases", "ls", "-q"]).await.trim(), "");
}

#[tokio::test]
async fn a_missing_image_names_the_namespace_and_what_else_there_is() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let e = client.image_for("busybox:nope", PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(e.reason(), "ErrImagePull");
    assert_eq!(
        e.to_string(),
        format!(
            "image \"docker.io/library/busybox:nope\" is not in containerd namespace \"{}\" and podling does \
             not pull from registries: import it with `podling image import FILE` (of this repository there \
             is {IMAGE})",
            server.namespace()
        )
    );
    let e = client.image_for("other", PullPolicy::Never).await.unwrap_err();
    assert_eq!(e.reason(), "ErrImageNeverPull");
    let e = client.image_for("NO", PullPolicy::Never).await.unwrap_err();
    assert_eq!(e.reason(), "InvalidImageName");
}

#[tokio::test]
async fn a_container_runs_to_its_exit_code_and_leaves_nothing() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    assert!(!client.version().await.unwrap().is_empty());
    import_busybox(&server, &client).await;
    let mut events = client.events();
    assert_eq!(within(10, events.recv()).await, Some(RuntimeEvent::Connected));

    let output = server.path().join("out");
    let io = TaskIo::Logger { uri: format!("file://{}", output.display()), terminal: false, stdin: None };
    create(&server, &client, "seven", "cat /etc/motd; sleep 0.2; exit 7", &io).await;
    assert_eq!(client.task("seven").await.unwrap().unwrap().status, TaskStatus::Created);
    let pid = client.start_task("seven").await.unwrap();
    let exit = within(20, client.wait("seven")).await.unwrap();
    assert_eq!(exit.code, 7);
    assert!(exit.at.is_some());
    let task = client.task("seven").await.unwrap().unwrap();
    assert_eq!((task.status, task.exit_code, task.pid), (TaskStatus::Stopped, 7, pid));
    assert_eq!(client.delete_task("seven").await.unwrap().unwrap().code, 7);
    assert_eq!(fs::read_to_string(&output).unwrap(), "hello\n");
    assert_eq!(client.delete_task("seven").await.unwrap(), None);
    assert_eq!(client.task("seven").await.unwrap(), None);
    assert_eq!(client.wait("seven").await.unwrap_err().class(), ErrorClass::NotFound);

    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(RuntimeEvent::TaskDelete { .. })) {
        seen.push(within(10, events.recv()).await.unwrap());
    }
    let id = || "seven".to_owned();
    assert!(seen.contains(&RuntimeEvent::TaskStart { container_id: id(), pid }), "{seen:?}");
    assert!(seen.contains(&RuntimeEvent::TaskExit { container_id: id(), code: 7, at: exit.at }), "{seen:?}");

    remove(&client, "seven").await;
    // Twice is as good as once.
    client.remove_container("seven").await.unwrap();
    client.remove_snapshot("seven").await.unwrap();
    assert!(client.rootfs_mounts("seven").await.unwrap().is_none());
    assert_eq!(server.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_command_that_is_not_there_says_so_in_one_line() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let mut container = NewContainer {
        id: "bad".to_owned(),
        image: IMAGE.to_owned(),
        labels: BTreeMap::new(),
        snapshotter: client.snapshotter().await.unwrap(),
        snapshot_key: Some("bad".to_owned()),
        runtime: OciRuntime::default(),
        spec: spec(&server, "bad", ""),
    };
    let mut process = container.spec.process().clone().unwrap();
    process.set_args(Some(vec!["no-such-command".to_owned()]));
    container.spec.set_process(Some(process));
    client.create_container(&container).await.unwrap();
    assert_eq!(client.create_container(&container).await.unwrap_err().class(), ErrorClass::AlreadyExists);
    let (image, _) = client.image_for(IMAGE, PullPolicy::Never).await.unwrap();
    let mounts = client.prepare_rootfs("bad", &image.chain_id).await.unwrap();
    let again = client.prepare_rootfs("bad", &image.chain_id).await.unwrap();
    assert_eq!(mounts, again);
    let e = client.create_task("bad", &mounts, &TaskIo::Null, &OciRuntime::default()).await.unwrap_err();
    assert_eq!(e.class(), ErrorClass::Other);
    assert!(e.to_string().starts_with("cannot create task bad: "), "{e}");
    assert!(e.to_string().ends_with("exec: \"no-such-command\": executable file not found in $PATH"), "{e}");
    let missing = client.prepare_rootfs("x", "sha256:none").await.unwrap_err();
    assert_eq!(missing.class(), ErrorClass::NotFound);
    remove(&client, "bad").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn containers_are_found_by_label_and_labels_change() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    for id in ["a", "b", "quo\\te"] {
        record(&server, &client, id.trim_matches('\\').split('\\').next().unwrap(), "true").await;
    }
    let ids = |records: Vec<podling::runtime::containerd::ContainerRecord>| {
        let mut ids: Vec<_> = records.into_iter().map(|r| r.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(client.containers(&[]).await.unwrap()), ["a", "b", "quo"]);
    assert_eq!(ids(client.containers(&[("app", "b")]).await.unwrap()), ["b"]);
    assert_eq!(ids(client.containers(&[("all", "yes"), ("app", "a")]).await.unwrap()), ["a"]);
    assert!(client.containers(&[("all", "yes"), ("app", "c")]).await.unwrap().is_empty());
    let odd = BTreeMap::from([("io.kubernetes.pod.name".to_owned(), "x\"y\\z, w".to_owned())]);
    client.set_labels("a", &odd).await.unwrap();
    assert_eq!(ids(client.containers(&[("io.kubernetes.pod.name", "x\"y\\z, w")]).await.unwrap()), ["a"]);
    let a = client.container("a").await.unwrap().unwrap();
    assert_eq!(a.labels["app"], "a");
    assert_eq!(a.labels["io.kubernetes.pod.name"], "x\"y\\z, w");
    assert_eq!(a.spec().unwrap(), spec(&server, "a", "true"));
    assert_eq!(a.runtime, "io.containerd.runc.v2");
    assert!(a.created_at.is_some());
    assert!(client.container("none").await.unwrap().is_none());
    assert_eq!(client.set_labels("none", &odd).await.unwrap_err().class(), ErrorClass::NotFound);
}

#[tokio::test]
async fn exec_has_input_output_a_terminal_and_an_end() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    run(&server, &client, "box", "sleep 1000").await;
    let spec = client.container("box").await.unwrap().unwrap().spec().unwrap();
    let request = |command: &str, stdin, terminal| {
        let args = ["sh", "-c", command].map(str::to_owned).into();
        ExecRequest::like_container(&spec, args, stdin, terminal).unwrap()
    };

    // Output, errors and exit code.
    let session = client.exec("box", &request("echo out; echo err >&2; exit 3", false, false)).await.unwrap();
    let output = within(20, session.output(1 << 20)).await.unwrap();
    assert_eq!((output.code, output.stdout, output.stderr), (3, b"out\n".to_vec(), b"err\n".to_vec()));

    // Input that ends when its writer goes.
    let mut session = client.exec("box", &request("cat; echo end", true, false)).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"through\n").await.unwrap();
    drop(stdin);
    let output = within(20, session.output(1 << 20)).await.unwrap();
    assert_eq!((output.code, output.stdout), (0, b"through\nend\n".to_vec()));

    // A reader that is slow gets everything.
    let command = "dd if=/dev/zero bs=1024 count=512 2>/dev/null";
    let mut session = client.exec("box", &request(command, false, false)).await.unwrap();
    let mut stdout = session.stdout.take().unwrap();
    let (mut total, mut buffer) = (0, vec![0; 8192]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    loop {
        match within(20, stdout.read(&mut buffer)).await.unwrap() {
            0 => break,
            n => total += n,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(total, 512 << 10);
    assert_eq!(within(20, session.wait()).await.unwrap(), 0);

    // A limit on what is kept does not stop the process.
    let session = client.exec("box", &request(command, false, false)).await.unwrap();
    let output = within(20, session.output(10)).await.unwrap();
    assert_eq!((output.code, output.stdout.len()), (0, 10));

    // A terminal, of the size asked for, then of another.
    let mut tty = request("tty; stty size; read x; stty size; echo got $x", true, true);
    tty.size = Some((100, 30));
    let mut session = client.exec("box", &tty).await.unwrap();
    assert!(session.stderr.is_none());
    let mut stdout = session.stdout.take().unwrap();
    let mut text = String::new();
    while !text.contains("30 100") && !text.contains("0 0") {
        let n = within(20, stdout.read(&mut buffer)).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    assert!(text.contains("/dev/pts/"), "{text}");
    session.resize(120, 40).await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"it\n").await.unwrap();
    within(20, stdout.read_to_string(&mut text)).await.unwrap();
    assert!(text.contains("40 120") && text.contains("got it"), "{text}");
    assert_eq!(within(20, session.wait()).await.unwrap(), 0);
    drop(session);

    // A signal.
    let session = client.exec("box", &request("sleep 1000", false, false)).await.unwrap();
    session.kill(15).await.unwrap();
    assert_eq!(within(20, session.wait()).await.unwrap(), 128 + 15);

    // Dropping ends the process.
    let before = client.pids("box").await.unwrap().len();
    let session = client.exec("box", &request("exec sleep 999", false, false)).await.unwrap();
    assert_eq!(client.pids("box").await.unwrap().len(), before + 1);
    drop(session);
    within(20, async {
        while client.pids("box").await.unwrap().len() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    let mut absent = request("", false, false);
    absent.process.set_args(Some(vec!["absent".to_owned()]));
    let e = client.exec("box", &absent).await.unwrap_err();
    assert!(e.to_string().starts_with("cannot exec in container box: "), "{e}");
    assert!(e.to_string().contains("executable file not found in $PATH"), "{e}");
    let e = client.exec("none", &absent).await.unwrap_err();
    assert_eq!(e.class(), ErrorClass::NotFound);
    remove(&client, "box").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_terminal_container_logs_and_its_input_stays_open() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let output = server.path().join("out");
    let stdin = server.path().join("in");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &stdin,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let io =
        TaskIo::Logger { uri: format!("file://{}", output.display()), terminal: false, stdin: Some(stdin.clone()) };
    create(&server, &client, "in", "read x; echo got $x", &io).await;
    client.start_task("in").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.task("in").await.unwrap().unwrap().status, TaskStatus::Running);
    let mut writer = tokio::net::unix::pipe::OpenOptions::new().open_sender(&stdin).unwrap();
    writer.write_all(b"this\n").await.unwrap();
    assert_eq!(within(20, client.wait("in")).await.unwrap().code, 0);
    remove(&client, "in").await;
    assert_eq!(fs::read_to_string(&output).unwrap(), "got this\n");
}

#[tokio::test]
async fn containers_live_through_a_restart_of_containerd_and_so_do_waits_and_events() {
    let mut server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let (wake, mut wakes) = mpsc::channel::<Wake>(64);
    // Longer than the test: what is seen comes from events and from the listing after a reconnect.
    let watch = pleg::spawn(client.clone(), Duration::from_secs(600), wake);
    run(&server, &client, "stays", "sleep 1000").await;
    run(&server, &client, "ends", "sleep 1.5; exit 9").await;
    let pid = client.task("stays").await.unwrap().unwrap().pid;
    let mut events = client.events();
    assert_eq!(within(10, events.recv()).await, Some(RuntimeEvent::Connected));
    let waiter = tokio::spawn({
        let client = client.clone();
        async move { client.wait("stays").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;

    server.kill();
    let e = client.tasks().await.unwrap_err();
    assert_eq!(e.class(), ErrorClass::Unavailable, "{e}");
    assert!(e.to_string().starts_with("cannot list tasks: containerd is not reachable: "), "{e}");
    while within(10, events.recv()).await.unwrap() != RuntimeEvent::Lost {}
    // The other container ends while nobody is there to tell.
    tokio::time::sleep(Duration::from_secs(2)).await;
    while wakes.try_recv().is_ok() {}
    server.restart().await;
    while within(10, events.recv()).await.unwrap() != RuntimeEvent::Connected {}
    let task = client.task("stays").await.unwrap().unwrap();
    assert_eq!((task.pid, task.status), (pid, TaskStatus::Running));
    // Before 1.7 containerd still knows the exit; after, the task is gone. Either way somebody is woken.
    let woken = within(10, wakes.recv()).await.unwrap();
    assert_eq!(woken, Wake { container_id: Some("ends".into()), kind: WakeKind::Changed });
    match client.wait("ends").await {
        Ok(exit) => assert_eq!(exit.code, 9),
        Err(e) => assert_eq!(e.class(), ErrorClass::NotFound),
    }

    client.kill("stays", 9, false).await.unwrap();
    assert_eq!(within(20, waiter).await.unwrap().unwrap().code, 137);
    let exited = Wake { container_id: Some("stays".into()), kind: WakeKind::Exited };
    while within(10, wakes.recv()).await.unwrap() != exited {}
    assert_eq!(client.kill("stays", 9, false).await.unwrap_err().class(), ErrorClass::NotFound);
    remove(&client, "stays").await;
    remove(&client, "ends").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
    drop(wakes);
    within(10, watch).await.unwrap();
}

#[tokio::test]
async fn a_stopped_shim_times_out_and_holds_up_nobody_else() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    run(&server, &client, "hung", "sleep 1000").await;
    run(&server, &client, "fine", "sleep 1000").await;
    let shims = containerd::shims_of(server.path());
    let hung = shims
        .into_iter()
        .find(|pid| {
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            cmdline.windows(4).any(|w| w == b"hung")
        })
        .and_then(rustix::process::Pid::from_raw)
        .unwrap();
    rustix::process::kill_process(hung, rustix::process::Signal::STOP).unwrap();
    let (stuck, fine) = tokio::join!(within(8, client.kill_probe("hung")), client.task("fine"));
    assert_eq!(fine.unwrap().unwrap().status, TaskStatus::Running);
    assert!(stuck, "a stopped shim must not answer");
    rustix::process::kill_process(hung, rustix::process::Signal::CONT).unwrap();
    remove(&client, "hung").await;
    remove(&client, "fine").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}

trait KillProbe {
    /// True when the state of `id` is not told within the deadline.
    async fn kill_probe(&self, id: &str) -> bool;
}

impl KillProbe for Containerd {
    async fn kill_probe(&self, id: &str) -> bool {
        match self.task(id).await {
            // containerd has a deadline of its own of 2 s and then says that it does not know.
            Ok(Some(task)) => task.status == TaskStatus::Unknown,
            Ok(None) => false,
            Err(e) => e.class() == ErrorClass::Timeout,
        }
    }
}
