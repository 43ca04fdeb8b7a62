//! The server over a real socket, with a runtime in memory.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::fake::{Daemon, running, view};
use super::frame::{ExecFrame, PROTOCOL};
use super::{Body, connect};
use crate::pod::board::{Control, EventType};
use crate::source::{SourceProblem, SourceReport};

const LONG: Duration = Duration::from_secs(5);

async fn sender(daemon: &Daemon) -> SendRequest<Body> {
    let stream = connect(&daemon.paths.socket()).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

fn request(method: &str, target: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(target).header(HOST, "podling").body(body).unwrap()
}

async fn send(daemon: &Daemon, method: &str, target: &str) -> Response<Incoming> {
    let body = Body::Whole(None);
    sender(daemon).await.send_request(request(method, target, body)).await.unwrap()
}

async fn object(response: Response<Incoming>) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

async fn get(daemon: &Daemon, target: &str) -> (u16, Value) {
    object(send(daemon, "GET", target).await).await
}

async fn refusal(daemon: &Daemon, method: &str, target: &str) -> (u16, String, String) {
    let (code, status) = object(send(daemon, method, target).await).await;
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
    assert_eq!(status["code"], json!(code));
    let text = |name: &str| status[name].as_str().unwrap().to_owned();
    (code, text("reason"), text("message"))
}

/// Lines of a watch.
struct Lines(Incoming, Vec<u8>);

impl Lines {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.1.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(LONG, self.0.frame()).await.expect("a line within its time")?.ok()?;
            self.1.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    async fn summary(&mut self) -> (String, String) {
        let line = self.next().await.unwrap();
        let name = line["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (line["type"].as_str().unwrap().to_owned(), name)
    }
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn pods_are_listed_and_got_as_kubernetes_objects() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    daemon.board.publish(running("db"));
    let (code, list) = get(&daemon, "/api/v1/pods").await;
    assert_eq!((code, &list["kind"], &list["apiVersion"]), (200, &json!("PodList"), &json!("v1")));
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|p| &p["metadata"]["name"]).collect();
    assert_eq!(names, ["db", "web"]);
    let (_, pod) = get(&daemon, "/api/v1/namespaces/default/pods/web").await;
    assert_eq!((&pod["kind"], &pod["status"]["phase"]), (&json!("Pod"), &json!("Running")));
    assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.hash"], json!("hash-of-web"));
    let (_, none) = get(&daemon, "/api/v1/namespaces/other/pods").await;
    assert_eq!(none["items"], json!([]));
    let (_, details) = get(&daemon, "/podling/v1/namespaces/default/pods/web").await;
    assert_eq!((&details["file"], &details["hash"]), (&json!("/etc/pods/web.yaml"), &json!("hash-of-web")));
}

#[tokio::test]
async fn refusals_are_status_objects_with_kubernetes_words() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    for (method, target, expected) in [
        ("GET", "/api/v1/namespaces/default/pods/x", (404, "NotFound", "pods \"x\" not found")),
        ("GET", "/nonsense", (404, "NotFound", "the server could not find the requested resource")),
        ("PUT", "/api/v1/pods", (405, "MethodNotAllowed", "PUT is not allowed on /api/v1/pods")),
        (
            "GET",
            "/api/v1/pods?fieldSelector=spec.x%3D1",
            (400, "BadRequest", "field selector `spec.x=1` is not metadata.name=NAME"),
        ),
        (
            "GET",
            "/api/v1/pods?x=%zz",
            (400, "BadRequest", "the path or the query is not properly percent-encoded"),
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/web/log?container=no",
            (400, "BadRequest", "container no is not valid for pod web"),
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/web/log?tailLines=-3",
            (400, "BadRequest", "tailLines: `-3` is not a whole number of 0 or more"),
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/web/log?sinceTime=noon",
            (400, "BadRequest", "sinceTime: `noon` is not an RFC 3339 time"),
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/web/log?previous=true",
            (400, "BadRequest", "previous terminated container \"app\" not found"),
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/web/exec?command=ls",
            (400, "BadRequest", "exec needs `Upgrade: podling-exec/1`"),
        ),
        ("DELETE", "/podling/v1/images?name=gone", (404, "NotFound", "image \"gone\" not found")),
        ("DELETE", "/podling/v1/images", (400, "BadRequest", "name: an image name is needed")),
        (
            "POST",
            "/podling/v1/images?path=a.tar",
            (400, "BadRequest", "path: `a.tar` is not an absolute path"),
        ),
    ] {
        let (code, reason, message) = refusal(&daemon, method, target).await;
        assert_eq!((code, reason.as_str(), message.as_str()), expected, "{method} {target}");
    }
}

#[tokio::test]
async fn a_watch_tells_what_is_there_then_what_changes() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let target = "/api/v1/namespaces/default/pods?watch=1&allowWatchBookmarks=1";
    let mut lines = Lines(send(&daemon, "GET", target).await.into_body(), Vec::new());
    assert_eq!(lines.summary().await, pair("ADDED", "web"));
    assert_eq!(lines.next().await.unwrap()["type"], "BOOKMARK");
    daemon.board.publish(running("db"));
    assert_eq!(lines.summary().await, pair("ADDED", "db"));
    let mut changed = running("web");
    changed.status.phase = Some("Failed".into());
    daemon.board.publish(changed);
    assert_eq!(lines.summary().await, pair("MODIFIED", "web"));
    daemon.board.forget(&running("db").manifest.key);
    assert_eq!(lines.summary().await, pair("DELETED", "db"));
}

#[tokio::test]
async fn a_pod_replaced_between_two_looks_is_told_as_gone_and_new() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let target = "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Dweb";
    let mut lines = Lines(send(&daemon, "GET", target).await.into_body(), Vec::new());
    assert_eq!(lines.summary().await, pair("ADDED", "web"));
    daemon.board.publish(running("other"));
    let mut successor = running("web");
    successor.uid = "another".into();
    daemon.board.publish(successor);
    assert_eq!(lines.summary().await, pair("DELETED", "web"));
    assert_eq!(lines.summary().await, pair("ADDED", "web"));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_nobody_up() {
    let daemon = Daemon::start();
    let _stuck = send(&daemon, "GET", "/api/v1/pods?watch=1").await;
    let _log = {
        daemon.board.publish(running("web"));
        send(&daemon, "GET", "/api/v1/namespaces/default/pods/web/log?follow=true").await
    };
    for n in 0..2000 {
        let mut pod = running("web");
        pod.status.message = Some(format!("{n} {}", "x".repeat(1000)));
        daemon.board.publish(pod);
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let (code, _) = timeout(LONG, get(&daemon, "/api/v1/pods")).await.unwrap();
    assert_eq!(code, 200);
}

#[tokio::test]
async fn logs_come_as_text_with_their_parameters_passed_on() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let target =
        "/api/v1/namespaces/default/pods/web/log?tailLines=5&timestamps=true&sinceTime=2026-01-01T00:00:00Z";
    let text = send(&daemon, "GET", target).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "app line 1\napp line 2\n");
    let asked = daemon.runtime.log_requests.lock().unwrap()[0].clone();
    assert_eq!((asked.uid.as_str(), asked.tail, asked.timestamps), ("uid-of-web", Some(5), true));
    assert_eq!(asked.since.unwrap().to_string(), "2026-01-01T00:00:00Z");
    assert!(!asked.follow && !asked.previous);
}

#[tokio::test]
async fn a_container_that_never_ran_says_what_it_waits_for() {
    let daemon = Daemon::start();
    let spec = json!({ "containers": [{ "name": "app" }, { "name": "side" }] });
    let status = json!({ "phase": "Pending", "containerStatuses": [{
        "name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ErrImagePull" } },
    }] });
    daemon.board.publish(view("web", spec, status));
    let target = "/api/v1/namespaces/default/pods/web/log";
    let (_, _, message) = refusal(&daemon, "GET", &format!("{target}?container=app")).await;
    assert_eq!(message, "container \"app\" in pod \"web\" is waiting to start: ErrImagePull");
    let (_, _, message) = refusal(&daemon, "GET", target).await;
    assert_eq!(message, "a container name must be specified for pod web, choose one of: [app side]");
}

#[tokio::test]
async fn orders_reach_the_sync_loop_and_its_answer_comes_back() {
    let mut daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let mut orders = std::mem::replace(&mut daemon.control, tokio::sync::mpsc::channel(1).1);
    let sync_loop = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(control) = orders.recv().await {
            let (word, key, answer) = match control {
                Control::Stop(key, answer) => ("stop", key, answer),
                Control::Start(key, answer) => ("start", key, answer),
                Control::Restart(key, answer) => ("restart", key, answer),
                Control::Reload(_) | Control::Shutdown(..) => panic!("that was not asked for"),
            };
            seen.push(format!("{word} {key}"));
            let refuse = word == "start";
            answer.send(if refuse { Err("pod default/web is not stopped".into()) } else { Ok(()) }).unwrap();
        }
        seen
    });
    let path = "/api/v1/namespaces/default/pods/web";
    for order in ["stop", "restart"] {
        let (code, status) = object(send(&daemon, "POST", &format!("{path}/{order}")).await).await;
        assert_eq!((code, &status["status"]), (200, &json!("Success")));
    }
    let (code, _, message) = refusal(&daemon, "POST", &format!("{path}/start")).await;
    assert_eq!((code, message.as_str()), (400, "pod default/web is not stopped"));
    let (_, _, message) = refusal(&daemon, "POST", "/api/v1/namespaces/default/pods/x/stop").await;
    assert_eq!(message, "pods \"x\" not found");
    daemon.shutdown.cancel();
    drop(daemon);
    let seen = timeout(LONG, sync_loop).await.unwrap().unwrap();
    assert_eq!(seen, ["stop default/web", "restart default/web", "start default/web"]);
}

#[tokio::test]
async fn an_order_to_a_daemon_that_is_stopping_says_so() {
    let mut daemon = Daemon::start();
    daemon.board.publish(running("web"));
    daemon.control.close();
    let (code, _, message) = refusal(&daemon, "POST", "/api/v1/namespaces/default/pods/web/stop").await;
    assert_eq!((code, message.as_str()), (503, "podling is stopping; the stop was not accepted"));
}

#[tokio::test]
async fn events_are_v1_events_and_can_be_watched() {
    let daemon = Daemon::start();
    let key = running("web").manifest.key.clone();
    daemon.board.event(EventType::Normal, "Started", Some(&key), "container app started");
    daemon.board.event(EventType::Warning, "ContainerdUnavailable", None, "no answer");
    let (_, list) = get(&daemon, "/api/v1/events").await;
    let items = list["items"].as_array().unwrap();
    assert_eq!((&list["kind"], items.len()), (&json!("EventList"), 2));
    assert_eq!(items[0]["involvedObject"]["name"], "web");
    assert_eq!((&items[1]["involvedObject"]["kind"], &items[1]["type"]), (&json!("Node"), &json!("Warning")));
    assert_eq!(items[1]["involvedObject"]["name"], "node1");

    let response = send(&daemon, "GET", "/api/v1/namespaces/default/events?watch=1").await;
    let mut lines = Lines(response.into_body(), Vec::new());
    assert_eq!(lines.next().await.unwrap()["object"]["reason"], "Started");
    assert_eq!(lines.next().await.unwrap()["object"]["reason"], "ContainerdUnavailable");
    daemon.board.event(EventType::Normal, "Started", Some(&key), "container app started");
    let again = lines.next().await.unwrap();
    assert_eq!((&again["type"], &again["object"]["count"]), (&json!("MODIFIED"), &json!(2)));
}

#[tokio::test]
async fn the_status_tells_of_sources_node_and_versions() {
    let daemon = Daemon::start();
    daemon.board.node("ContainerdUnavailable", Some("no answer since 3 s".into()));
    let problem = SourceProblem {
        path: "/etc/pods/a.yaml".into(),
        reason: "ParseError",
        message: "broken".into(),
        diagnostics: Vec::new(),
        keeps: vec![running("web").manifest.key.clone()],
    };
    daemon.board.report("file", SourceReport { problems: vec![problem], overflows: 1 });
    let (_, status) = get(&daemon, "/podling/v1/status").await;
    assert_eq!((&status["containerd"], &status["nodeName"]), (&json!("1.6.20"), &json!("node1")));
    assert_eq!(status["node"]["ContainerdUnavailable"], "no answer since 3 s");
    assert_eq!(status["sources"]["file"]["problems"][0]["keeps"][0]["name"], "web");
    let health = send(&daemon, "GET", "/healthz").await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(health, "ok");
}

#[tokio::test]
async fn images_are_listed_imported_and_removed() {
    let daemon = Daemon::start();
    *daemon.runtime.images.lock().unwrap() = vec!["b:1".into(), "a:1".into()];
    let (_, list) = get(&daemon, "/podling/v1/images").await;
    assert_eq!((&list["items"][0]["name"], &list["items"][1]["name"]), (&json!("a:1"), &json!("b:1")));

    let archive = daemon.root.path().join("x.tar");
    std::fs::write(&archive, "by path").unwrap();
    let target = format!("/podling/v1/images?path={}", archive.display());
    let (code, imported) = object(send(&daemon, "POST", &target).await).await;
    assert_eq!((code, &imported["names"]), (200, &json!(["localhost/new:1"])));

    let (chunks, receiver) = tokio::sync::mpsc::channel(1);
    let upload = async move {
        for chunk in ["by", " ", "body"] {
            chunks.send(Bytes::from_static(chunk.as_bytes())).await.unwrap();
        }
    };
    let request = request("POST", "/podling/v1/images", Body::Stream(receiver));
    let mut sender = sender(&daemon).await;
    let (response, ()) = tokio::join!(sender.send_request(request), upload);
    assert_eq!(response.unwrap().status(), 200);
    let imports = daemon.runtime.imports.lock().unwrap().clone();
    assert_eq!(imports[0].1, b"by path");
    assert_eq!(imports[1].1, b"by body");
    assert!(!imports[1].0.exists(), "the upload is removed once imported");

    assert_eq!(send(&daemon, "DELETE", "/podling/v1/images?name=a%3A1").await.status(), 200);
    assert_eq!(*daemon.runtime.images.lock().unwrap(), ["b:1"]);
}

async fn exec(daemon: &Daemon, query: &str) -> Result<TokioIo<Upgraded>, (u16, String)> {
    let target = format!("/api/v1/namespaces/default/pods/web/exec?{query}");
    let mut request = request("POST", &target, Body::Whole(None));
    request.headers_mut().insert(UPGRADE, PROTOCOL.parse().unwrap());
    request.headers_mut().insert(CONNECTION, "upgrade".parse().unwrap());
    let response = sender(daemon).await.send_request(request).await.unwrap();
    if response.status() != 101 {
        let (code, status) = object(response).await;
        return Err((code, status["message"].as_str().unwrap().to_owned()));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await.unwrap()))
}

async fn frames(connection: &mut TokioIo<Upgraded>) -> Vec<ExecFrame> {
    let mut all = Vec::new();
    while let Some(frame) = timeout(LONG, ExecFrame::read(connection)).await.unwrap().unwrap() {
        all.push(frame);
    }
    all
}

fn daemon_with_web() -> Daemon {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    daemon
}

#[tokio::test]
async fn exec_carries_input_output_and_the_exit_code() {
    let daemon = daemon_with_web();
    let mut connection = exec(&daemon, "command=cat&stdin=1").await.unwrap();
    for frame in [ExecFrame::Stdin("hello".into()), ExecFrame::StdinEnd] {
        connection.write_all(&frame.encode()).await.unwrap();
    }
    assert_eq!(frames(&mut connection).await, [ExecFrame::Stdout("hello".into()), ExecFrame::Exit(0)]);
    let mut connection = exec(&daemon, "command=false").await.unwrap();
    assert_eq!(frames(&mut connection).await, [ExecFrame::Exit(3)]);
}

#[tokio::test]
async fn more_than_the_buffers_hold_passes_through_exec_whole() {
    let daemon = daemon_with_web();
    let connection = exec(&daemon, "command=cat&stdin=1").await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(connection);
    let data = Bytes::from(vec![7; 10_000]);
    let write = async {
        for _ in 0..200 {
            writer.write_all(&ExecFrame::Stdin(data.clone()).encode()).await.unwrap();
        }
        writer.write_all(&ExecFrame::StdinEnd.encode()).await.unwrap();
    };
    let read = async {
        let mut total = 0;
        loop {
            match ExecFrame::read(&mut reader).await.unwrap().unwrap() {
                ExecFrame::Stdout(data) => total += data.len(),
                ExecFrame::Exit(0) => return total,
                other => panic!("{other:?}"),
            }
        }
    };
    let ((), total) = timeout(LONG, async { tokio::join!(write, read) }).await.unwrap();
    assert_eq!(total, 2_000_000);
}

#[tokio::test]
async fn stderr_is_apart_without_a_terminal_and_the_size_is_passed_with_one() {
    let daemon = daemon_with_web();
    let mut connection = exec(&daemon, "command=shout").await.unwrap();
    let got = frames(&mut connection).await;
    assert!(
        got.contains(&ExecFrame::Stdout("out\n".into())) && got.contains(&ExecFrame::Stderr("err\n".into()))
    );
    let mut connection = exec(&daemon, "command=shout&tty=1&columns=80&rows=24").await.unwrap();
    let got: Vec<u8> = frames(&mut connection)
        .await
        .into_iter()
        .flat_map(|f| if let ExecFrame::Stdout(data) = f { data.to_vec() } else { Vec::new() })
        .collect();
    assert_eq!(got, b"out\n80x24\n");
}

#[tokio::test]
async fn a_command_that_cannot_start_is_a_refusal() {
    let daemon = daemon_with_web();
    let refused = exec(&daemon, "command=nope").await.unwrap_err();
    assert_eq!(refused, (400, "exec: \"nope\": not found in $PATH".to_owned()));
    assert!(daemon.runtime.execs.lock().unwrap()[0].cancel.is_cancelled());
    let refused = exec(&daemon, "stdin=1").await.unwrap_err();
    assert_eq!(refused, (400, "command: a command to run is needed".to_owned()));
}

async fn killed(daemon: &Daemon) {
    let cancel = daemon.runtime.execs.lock().unwrap()[0].cancel.clone();
    timeout(LONG, cancel.cancelled()).await.expect("the command is killed");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_command_along() {
    let daemon = daemon_with_web();
    let connection = exec(&daemon, "command=sleep&stdin=1").await.unwrap();
    drop(connection);
    killed(&daemon).await;
}

#[tokio::test]
async fn even_one_whose_input_nobody_reads() {
    let daemon = daemon_with_web();
    let mut connection = exec(&daemon, "command=sleep&stdin=1").await.unwrap();
    let data = ExecFrame::Stdin(Bytes::from(vec![0; 16_000])).encode();
    // As much as the pipes hold: then the server waits on the command, not on the client.
    while timeout(Duration::from_millis(200), connection.write_all(&data)).await.is_ok() {}
    drop(connection);
    killed(&daemon).await;
}

#[tokio::test]
async fn a_stop_ends_watches_kills_commands_and_takes_the_socket_away() {
    let mut daemon = daemon_with_web();
    let mut lines = Lines(send(&daemon, "GET", "/api/v1/pods?watch=1").await.into_body(), Vec::new());
    assert_eq!(lines.summary().await, pair("ADDED", "web"));
    let _connection = exec(&daemon, "command=sleep").await.unwrap();
    daemon.shutdown.cancel();
    assert!(lines.next().await.is_none());
    killed(&daemon).await;
    timeout(LONG, &mut daemon.serving).await.unwrap().unwrap().unwrap();
    assert!(!daemon.paths.socket().exists());
}

#[tokio::test]
async fn nonsense_on_the_socket_ends_only_its_own_connection() {
    let daemon = daemon_with_web();
    let mut stream = connect(&daemon.paths.socket()).await.unwrap();
    stream.write_all(b"\x00\x01\x02 nonsense\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(20)).await;
    assert_eq!(get(&daemon, "/api/v1/pods").await.0, 200);
}
