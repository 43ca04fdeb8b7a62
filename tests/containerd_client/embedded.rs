//! The private containerd, the images directory, and the choice of the OCI runtime.

use std::path::Path;

use podling::image::Preloader;
use podling::runtime::containerd::{ContainerdHandle, Embedded, EmbeddedError, probe, resolve};
use podling::settings::{ContainerdChoice, Paths};

use super::*;

/// Ends what a test's private containerd left, also when the test fails.
struct Root(tempfile::TempDir);

impl Root {
    fn new(depth: &str) -> (Self, Paths) {
        let dir = tempfile::Builder::new().prefix("podling-root-").tempdir().unwrap();
        let paths = Paths::under(dir.path().join(depth));
        (Self(dir), paths)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for pid in servers_of(self.0.path()) {
            containerd::kill(pid);
        }
        containerd::remove_traces(self.0.path());
    }
}

/// Process ids of containerds whose configuration is under `dir`.
fn servers_of(dir: &Path) -> Vec<i32> {
    let dir = dir.to_string_lossy();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
        cmdline.contains("--config") && cmdline.contains(&*dir)
    })
    .collect()
}

fn pid_of(embedded: &Embedded) -> i32 {
    fs::read_to_string(embedded.pid_file()).unwrap().trim().parse().unwrap()
}

async fn answers(client: &Containerd) {
    within(30, async {
        while client.version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_private_containerd_starts_is_started_again_and_stops() {
    let (root, paths) = Root::new("");
    let handle = within(70, resolve(&ContainerdChoice::Embedded, &paths, "podling-test")).await.unwrap();
    let ContainerdHandle::Embedded(embedded) = handle else { panic!("not embedded") };
    let client = Containerd::connect(embedded.socket(), "podling-test").await.unwrap();
    client.ensure_namespace().await.unwrap();
    client.ensure_namespace().await.unwrap();
    assert!(["overlayfs", "native"].contains(&client.snapshotter().await.unwrap().as_str()));

    let first = pid_of(&embedded);
    assert_eq!(servers_of(root.0.path()), [first]);
    // Not in our process group, so that Ctrl-C does not reach it.
    let stat = fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    let group: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(group, first);

    containerd::kill(first);
    within(30, async {
        while pid_of(&embedded) == first {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    answers(&client).await;

    let socket = embedded.socket().to_owned();
    within(30, embedded.stop()).await;
    assert!(!socket.exists());
    assert!(servers_of(root.0.path()).is_empty());
    assert!(containerd::mounts_under(root.0.path()).is_empty());
}

#[tokio::test]
async fn a_private_containerd_that_runs_is_adopted_and_watched_over() {
    let (root, paths) = Root::new("");
    let earlier = within(70, Embedded::start(&paths)).await.unwrap();
    let first = pid_of(&earlier);
    // As when podling is killed: the server stays.
    drop(earlier);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let adopted = within(70, Embedded::start(&paths)).await.unwrap();
    assert_eq!(pid_of(&adopted), first);
    assert_eq!(servers_of(root.0.path()), [first]);
    containerd::kill(first);
    within(30, async {
        while pid_of(&adopted) == first {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    answers(&Containerd::connect(adopted.socket(), "x").await.unwrap()).await;
    within(30, adopted.stop()).await;
    assert!(servers_of(root.0.path()).is_empty());
}

/// A process that looks like a shim until it is dropped.
async fn fake_shim(socket: &Path, namespace: &str) -> tokio::process::Child {
    let child = tokio::process::Command::new("sh")
        .arg0("/usr/bin/containerd-shim-runc-v2")
        .args(["-c", "read x", "-namespace", namespace, "-id", "x", "-address"])
        .arg(socket)
        .stdin(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // The kernel fills it in a moment after the start counts as done.
    let cmdline = format!("/proc/{}/cmdline", child.id().unwrap());
    within(10, async {
        while fs::read(&cmdline).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    child
}

#[tokio::test]
async fn the_choice_falls_on_the_containerd_under_which_containers_run() {
    let (root, paths) = Root::new("");
    let namespace = root.0.path().file_name().unwrap().to_string_lossy().into_owned();
    let auto = || resolve(&ContainerdChoice::Auto, &paths, &namespace);
    let system = Path::new("/run/containerd/containerd.sock");

    // Even when it does not answer at this moment.
    let mut shim = fake_shim(system, &namespace).await;
    assert_eq!(within(10, auto()).await.unwrap().socket(), system);
    shim.kill().await.unwrap();

    let own = paths.containerd_state().join("containerd.sock");
    let mut shim = fake_shim(&own, &namespace).await;
    let handle = within(70, auto()).await.unwrap();
    assert_eq!(handle.socket(), own);
    within(30, handle.stop()).await;
    shim.kill().await.unwrap();

    // Neither has containers: the system's if it answers, else ours.
    let handle = within(70, auto()).await.unwrap();
    match &handle {
        ContainerdHandle::System(socket) => answers(&Containerd::connect(socket, "x").await.unwrap()).await,
        ContainerdHandle::Embedded(embedded) => assert_eq!(embedded.socket(), own),
    }
    within(30, handle.stop()).await;
}

#[tokio::test]
async fn a_deep_root_works_by_a_short_socket_that_goes_at_the_end() {
    let (root, paths) = Root::new(&format!("{}/{}", "a".repeat(60), "b".repeat(60)));
    let embedded = within(70, Embedded::start(&paths)).await.unwrap();
    let socket = embedded.socket().to_owned();
    assert!(!socket.starts_with(root.0.path()));
    answers(&Containerd::connect(&socket, "x").await.unwrap()).await;
    within(30, embedded.stop()).await;
    assert!(!socket.parent().unwrap().exists());
}

#[tokio::test]
async fn a_private_containerd_that_cannot_start_says_why_and_where_its_log_is() {
    let (_root, paths) = Root::new("");
    // Where its socket should be, and not to be removed.
    fs::create_dir_all(paths.containerd_state().join("containerd.sock/full")).unwrap();
    let e = within(70, Embedded::start(&paths)).await.unwrap_err();
    assert!(matches!(e, EmbeddedError::Ended { .. }), "{e}");
    let text = e.to_string();
    assert!(text.starts_with("the private containerd ended with exit status: 1 while starting: "), "{text}");
    assert!(text.contains("containerd.log"), "{text}");
}

#[tokio::test]
async fn an_archive_of_which_an_image_was_left_out_is_not_read_again_before_it_changes() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let (dir, state) = (server.path().join("images"), server.path().join("images.json"));
    fs::create_dir(&dir).unwrap();
    let image = TestImage::busybox();
    fs::write(dir.join("a.tar"), image.docker_archive(&["one:1", "BAD:1"])).unwrap();
    let mut preloader = Preloader::new(dir.clone(), state.clone());
    let report = preloader.run(&client, None).await;
    assert_eq!(report.imported, ["docker.io/library/one:1"]);
    assert_eq!((report.failed.len(), report.left_out.len()), (0, 1));
    assert!(report.left_out[0].to_string().contains("a.tar: invalid image name \"BAD:1\""));
    // Nor by the next daemon, which says it all the same.
    for mut preloader in [preloader, Preloader::new(dir.clone(), state.clone())] {
        let report = preloader.run(&client, None).await;
        assert_eq!((report.imported.len(), report.left_out.len(), report.unchanged.len()), (0, 0, 1));
        assert!(preloader.broken().all(|text| text.contains("BAD:1")));
        assert_eq!(preloader.broken().count(), 1);
    }
    // What went comes back, and a mended archive is whole.
    let mut preloader = Preloader::new(dir.clone(), state.clone());
    client.remove_image(&ImageRef::parse("one:1").unwrap()).await.unwrap();
    assert_eq!(preloader.run(&client, None).await.imported, ["docker.io/library/one:1"]);
    fs::write(dir.join("a.tar"), image.docker_archive(&["one:1", "mended:1"])).unwrap();
    let report = preloader.run(&client, None).await;
    assert_eq!(report.imported, ["docker.io/library/one:1", "docker.io/library/mended:1"]);
    assert_eq!((report.left_out.len(), preloader.broken().count()), (0, 0));
    // One of which nothing is left is not tried again either.
    fs::write(dir.join("a.tar"), image.docker_archive(&["BAD:1", "BAD:2"])).unwrap();
    assert_eq!(preloader.run(&client, None).await.left_out.len(), 2);
    assert_eq!(preloader.run(&client, None).await.left_out.len(), 0);
    assert_eq!(preloader.broken().count(), 1);
}

#[tokio::test]
async fn the_images_directory_is_imported_once_and_again_after_changes() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let dir = server.path().join("images");
    let state = server.path().join("images.json");
    assert!(Preloader::new(dir.clone(), state.clone()).run(&client, None).await.imported.is_empty());
    fs::create_dir(&dir).unwrap();
    let image = TestImage::busybox();
    let gz = compress(&image.oci_archive("one:1", Compression::None), Compression::Gzip);
    fs::write(dir.join("one.tar.gz"), gz).unwrap();
    fs::write(dir.join("two.tar"), image.docker_archive(&["two:2"])).unwrap();
    fs::write(dir.join("bad.tar"), "no archive").unwrap();

    let report = Preloader::new(dir.clone(), state.clone()).run(&client, None).await;
    assert_eq!(report.imported, ["docker.io/library/one:1", "docker.io/library/two:2"]);
    assert_eq!(report.failed.len(), 1);
    assert!(report.failed[0].to_string().contains("bad.tar is not an image archive"));

    let report = Preloader::new(dir.clone(), state.clone()).run(&client, None).await;
    assert!(report.imported.is_empty());
    assert_eq!(report.unchanged.len(), 2);
    assert_eq!(report.failed.len(), 1);

    // Copied anew: another file, the same content.
    fs::copy(dir.join("two.tar"), dir.join(".copy")).unwrap();
    fs::rename(dir.join(".copy"), dir.join("two.tar")).unwrap();
    let report = Preloader::new(dir.clone(), state.clone()).run(&client, None).await;
    assert_eq!((report.imported.len(), report.unchanged.len()), (0, 2));

    // An image that went and an archive that changed are imported again.
    client.remove_image(&ImageRef::parse("one:1").unwrap()).await.unwrap();
    fs::write(dir.join("two.tar"), image.docker_archive(&["two:3"])).unwrap();
    let report = Preloader::new(dir.clone(), state.clone()).run(&client, None).await;
    assert_eq!(report.imported, ["docker.io/library/one:1", "docker.io/library/two:3"]);

    // Another archive with the old one's size and time is another archive.
    let before = fs::metadata(dir.join("two.tar")).unwrap();
    fs::write(dir.join("two.tar"), image.docker_archive(&["two:4"])).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    fs::File::options().write(true).open(dir.join("two.tar")).unwrap().set_times(times).unwrap();
    assert_eq!(fs::metadata(dir.join("two.tar")).unwrap().len(), before.len());
    let report = Preloader::new(dir.clone(), state.clone()).run(&client, None).await;
    assert_eq!(report.imported, ["docker.io/library/two:4"]);

    // What is broken for good is said once as long as it is the same, and again when it changes.
    let mut preloader = Preloader::new(dir.clone(), state.clone());
    assert_eq!(preloader.run(&client, None).await.failed.len(), 1);
    assert_eq!(preloader.run(&client, None).await.failed.len(), 0);
    assert_eq!(preloader.broken().count(), 1);
    fs::write(dir.join("bad.tar"), "BZh and so on").unwrap();
    let report = preloader.run(&client, None).await;
    assert!(report.failed[0].to_string().contains("bad.tar is packed with bzip2"), "{}", report.failed[0]);
    fs::remove_file(dir.join("bad.tar")).unwrap();
    preloader.run(&client, None).await;
    assert_eq!(preloader.broken().count(), 0);
}

#[tokio::test]
async fn the_probed_runtime_runs_containers_and_the_probe_leaves_no_cgroup() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let paths = Paths::under(server.path().join("podling"));
    let runtime = within(40, probe::probe(None, &paths)).await;
    assert_eq!(within(40, probe::probe(None, &paths)).await, runtime);
    let name = format!("podling-probe-{}", std::process::id());
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let left: Vec<_> = hierarchies.map(|h| h.path().join(&name)).filter(|p| p.exists()).collect();
    assert!(left.is_empty(), "{left:?}");

    record(&server, &client, "probed", "exit 4").await;
    let image = client.local_image(IMAGE).await.unwrap();
    let mounts = client.prepare_rootfs("probed", &image.chain_id).await.unwrap();
    client.create_task("probed", &mounts, &TaskIo::Null, &runtime).await.unwrap();
    client.start_task("probed").await.unwrap();
    assert_eq!(within(20, client.wait("probed")).await.unwrap().code, 4);
    remove(&client, "probed").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}
