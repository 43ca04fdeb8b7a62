use super::*;

#[tokio::test]
async fn exec_has_input_output_a_terminal_and_an_end() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    client.set_exec_dir(server.path().join("exec"));
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
    drop(session);

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
        let n = tokio::time::timeout(Duration::from_secs(5), stdout.read(&mut buffer)).await;
        let n = n.unwrap_or_else(|_| panic!("no size in {text:?}")).unwrap();
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
    drop(session);

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
    within(20, async {
        while fs::read_dir(server.path().join("exec")).unwrap().next().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(server.leftovers(), Vec::<String>::new());
}
