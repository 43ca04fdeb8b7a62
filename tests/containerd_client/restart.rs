use super::*;
use std::sync::Arc;

#[tokio::test]
async fn containers_live_through_a_restart_of_containerd_and_so_do_waits_and_events() {
    let mut server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let (wake, mut wakes) = mpsc::channel::<Wake>(64);
    // Longer than the test: what is seen comes from events and from the listing after a reconnect.
    let watch = pleg::spawn(client.clone(), Duration::from_secs(600), wake, Arc::default());
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
    let mut woken = within(10, wakes.recv()).await.unwrap();
    while woken.container_id.is_none() {
        woken = within(10, wakes.recv()).await.unwrap();
    }
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
    // The signal takes a moment to reach all threads.
    let stat = format!("/proc/{}/stat", hung.as_raw_nonzero());
    within(10, async {
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (stuck, fine) = tokio::join!(within(8, state_is_unknown(&client, "hung")), client.task("fine"));
    assert_eq!(fine.unwrap().unwrap().status, TaskStatus::Running);
    assert!(stuck, "a stopped shim must not answer");
    rustix::process::kill_process(hung, rustix::process::Signal::CONT).unwrap();
    remove(&client, "hung").await;
    remove(&client, "fine").await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}

/// True when the state of `id` is not told within the deadline.
async fn state_is_unknown(client: &Containerd, id: &str) -> bool {
    match client.task(id).await {
        // containerd has a deadline of its own of 2 s and then says that it does not know.
        Ok(Some(task)) => {
            assert_eq!(task.status, TaskStatus::Unknown);
            true
        }
        Ok(None) => false,
        Err(e) => {
            assert_eq!(e.class(), ErrorClass::Timeout, "{e}");
            true
        }
    }
}
