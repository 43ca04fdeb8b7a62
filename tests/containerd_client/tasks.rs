use super::*;

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
    // The last word of a shim, that its task was deleted, does not always get out before it ends.
    while !matches!(seen.last(), Some(RuntimeEvent::TaskExit { .. })) {
        match tokio::time::timeout(Duration::from_secs(10), events.recv()).await {
            Ok(event) => seen.push(event.unwrap()),
            Err(_) => panic!("no exit after {seen:?}"),
        }
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
    client.create_container(container.clone()).await.unwrap();
    assert_eq!(client.create_container(container).await.unwrap_err().class(), ErrorClass::AlreadyExists);
    let image = client.local_image(IMAGE).await.unwrap();
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
    for id in ["a", "b", "c-d"] {
        record(&server, &client, id, "true").await;
    }
    let ids = |records: Vec<podling::runtime::containerd::ContainerRecord>| {
        let mut ids: Vec<_> = records.into_iter().map(|r| r.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(client.containers(&[]).await.unwrap()), ["a", "b", "c-d"]);
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
    let io = TaskIo::Logger {
        uri: format!("file://{}", output.display()),
        terminal: false,
        stdin: Some(stdin.clone()),
    };
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
