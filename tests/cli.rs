//! The program as people run it, against a server with a runtime in memory.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

// The names under which the shared fake finds the library.
use podling::{manifest, pod, settings};

#[path = "../src/server"]
mod server {
    pub(crate) use podling::server::*;
    #[path = "fake.rs"]
    #[allow(dead_code, reason = "the library's own tests use the rest of it")]
    pub(crate) mod fake;
}

use pod::board::{Control, EventType};
use podling::source::{SourceProblem, SourceReport};
use serde_json::{Value, json};
use server::fake::{Daemon, running, view};

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b:1}]}\n";

fn podling(root: &Path, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podling"));
    command.arg("--root").arg(root).args(line).env_remove("PODLING_LOG").stdin(Stdio::null());
    command
}

/// Exit code, stdout and stderr.
fn parts(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn offline(root: &Path, line: &[&str]) -> (i32, String, String) {
    parts(podling(root, line).output().expect("the program starts"))
}

/// Runs the program beside the server that this test's runtime drives.
async fn run(daemon: &Daemon, line: &[&str]) -> (i32, String, String) {
    fed(daemon, line, b"").await
}

async fn fed(daemon: &Daemon, line: &[&str], input: &'static [u8]) -> (i32, String, String) {
    let mut command = podling(daemon.root.path(), line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let work = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // One that does not read its input is no failure.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("the program ends")
    });
    parts(tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time").expect("no panic"))
}

#[test]
fn a_daemon_that_is_not_running_is_one_sentence_with_the_command_that_starts_it() {
    let root = tempfile::tempdir().unwrap();
    for line in [&["get", "pods"][..], &["logs", "web"], &["exec", "web", "--", "ls"], &["stop", "pod/web"]] {
        let (code, out, err) = offline(root.path(), line);
        let dir = root.path().display();
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (
                1,
                "",
                format!(
                    "error: podling is not running: nothing answers on {dir}/run/podling/podling.sock; \
                     start it with `podling --root {dir} run`\n"
                )
                .as_str()
            )
        );
    }
}

#[test]
fn bad_usage_and_bad_settings_exit_with_64() {
    let root = tempfile::tempdir().unwrap();
    for line in [
        &[][..],
        &["frobnicate"],
        &["get"],
        &["get", "services"],
        &["get", "pods", "-o", "xml"],
        &["exec", "web", "ls"],
        &["wait", "pod/web", "--for=Happy"],
        &["run", "--containerd", "docker"],
        &["run", "--log-level", "loud"],
        &["run", "--config", "/nonexistent"],
        &["check", "--config", "/nonexistent", "x.yaml"],
    ] {
        let (code, out, err) = offline(root.path(), line);
        assert_eq!((code, out.as_str()), (64, ""), "{line:?}: {err}");
        assert!(!err.is_empty());
    }
    let config = root.path().join("c.yaml");
    std::fs::write(&config, "strict: maybe\n").unwrap();
    let (code, _, err) = offline(root.path(), &["run", "--config", config.to_str().unwrap()]);
    let expected = format!("error: {}:1:9: strict: `maybe` is not true or false\n", config.display());
    assert_eq!((code, err), (64, expected));
}

#[test]
fn help_version_and_completions_need_no_daemon() {
    let root = tempfile::tempdir().unwrap();
    let (code, out, _) = offline(root.path(), &["--help"]);
    assert!(code == 0 && out.contains("Examples:") && out.contains("podling get pods -o wide -w"), "{out}");
    let (code, out, _) = offline(root.path(), &["--version"]);
    assert_eq!((code, out), (0, format!("podling {}\n", env!("CARGO_PKG_VERSION"))));
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = offline(root.path(), &["completions", shell]);
        assert!(code == 0 && out.contains("podling"), "{shell}");
    }
    let (code, out, err) = offline(root.path(), &["version"]);
    assert_eq!((code, out), (1, format!("Client: {}\n", env!("CARGO_PKG_VERSION"))));
    assert!(err.starts_with("error: podling is not running"), "{err}");
    assert_eq!(offline(root.path(), &["version", "--client"]).0, 0);
}

#[test]
fn check_reads_files_directories_and_standard_input() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("pods");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("web.yaml"), POD).unwrap();
    std::fs::write(dir.join("web.yaml~"), "spec: [").unwrap();
    let (code, out, _) = offline(root.path(), &["check", dir.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (0, "1 document in 1 file: 1 ok, 0 with warnings, 0 refused\n"));
    std::fs::write(dir.join("bad.yaml"), "spec: [").unwrap();
    assert_eq!(offline(root.path(), &["check", dir.to_str().unwrap()]).0, 1);

    let mut command = podling(root.path(), &["check", "-", "-o", "json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(POD.as_bytes()).unwrap();
    let (code, out, _) = parts(child.wait_with_output().unwrap());
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &line["verdict"], &line["file"]), (0, &json!("ok"), &json!("<stdin>")));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_shown_as_kubectl_shows_them() {
    let daemon = Daemon::start();
    let (code, out, err) = run(&daemon, &["get", "pods"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "No resources found in default namespace.\n"));
    daemon.board.publish(running("web"));
    let (code, out, err) = run(&daemon, &["get", "po"]).await;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines[0], err.as_str()), (0, "NAME   READY   STATUS    RESTARTS   AGE", ""));
    assert!(lines[1].starts_with("web    1/1     Running   0          "), "{out}");
    let (_, out, _) = run(&daemon, &["get", "pods", "-A", "-o", "wide"]).await;
    assert!(
        out.starts_with("NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE   IP          NODE    NOMINATED NODE   READINESS GATES\n"),
        "{out}"
    );
    assert!(out.contains("10.88.0.2   node1   <none>"), "{out}");
    assert_eq!(run(&daemon, &["get", "pods", "-o", "name"]).await.1, "pod/web\n");
    assert_eq!(run(&daemon, &["get", "pods", "-o", "name", "-l", "app!=web"]).await.1, "");
    assert_eq!(
        run(&daemon, &["-n", "other", "get", "pods"]).await.2,
        "No resources found in other namespace.\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_printed_as_an_object_and_several_as_a_list() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    daemon.board.publish(running("db"));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let list = json(&run(&daemon, &["get", "pods", "-o", "json"]).await.1);
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("List"), 2));
    let (_, one, _) = run(&daemon, &["get", "pod/web", "-o", "json"]).await;
    assert!(one.starts_with("{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"Pod\",\n"), "{one}");
    assert_eq!(json(&one)["status"]["podIP"], "10.88.0.2");
    let (_, yaml, _) = run(&daemon, &["get", "pod", "web", "-o", "yaml"]).await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n"), "{yaml}");
    let back: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(back["spec"], json(&one)["spec"]);
    let (code, out, err) = run(&daemon, &["get", "pod", "web", "x"]).await;
    assert_eq!((code, err.as_str()), (1, "Error from server (NotFound): pods \"x\" not found\n"));
    assert!(out.contains("web"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_files_and_node_follows_on_stderr() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let problem = SourceProblem {
        path: "/etc/pods/web.yaml".into(),
        reason: "ParseError",
        message: "/etc/pods/web.yaml:3:5: expected a mapping".into(),
        diagnostics: Vec::new(),
        keeps: vec![manifest::PodKey::new("default", "web")],
    };
    daemon.board.report("file", SourceReport { problems: vec![problem], overflows: 0 });
    daemon.board.node("ContainerdUnavailable", Some("no answer since 3 s".into()));
    let (code, _, err) = run(&daemon, &["get", "pods"]).await;
    assert_eq!(code, 0);
    assert_eq!(
        err,
        "warning: /etc/pods/web.yaml:3:5: expected a mapping; default/web keeps running as last accepted\n\
         warning: ContainerdUnavailable: no answer since 3 s\n"
    );
    let (_, out, _) = run(&daemon, &["describe", "pod", "web"]).await;
    assert!(out.contains("Manifest:         /etc/pods/web.yaml:1\n"), "{out}");
    assert!(
        out.contains("Warnings:         /etc/pods/web.yaml:3:5: expected a mapping; default/web keeps"),
        "{out}"
    );
    let (code, _, err) = run(&daemon, &["describe", "pod", "x"]).await;
    assert_eq!((code, err.as_str()), (1, "Error from server (NotFound): pods \"x\" not found\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_kubectls_columns() {
    let daemon = Daemon::start();
    let key = manifest::PodKey::new("default", "web");
    daemon.board.event(EventType::Normal, "Started", Some(&key), "container app started");
    let (code, out, _) = run(&daemon, &["get", "events"]).await;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines[0]), (0, "LAST SEEN   TYPE     REASON    OBJECT    MESSAGE"));
    assert!(lines[1].ends_with("Normal   Started   pod/web   container app started"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_choose_a_container_and_say_so() {
    let daemon = Daemon::start();
    let spec = json!({ "containers": [{ "name": "app" }, { "name": "side" }] });
    daemon.board.publish(view("web", spec, json!({ "phase": "Running" })));
    let (code, out, err) = run(&daemon, &["logs", "pod/web"]).await;
    assert_eq!((code, out.as_str()), (0, "app line 1\napp line 2\n"));
    assert_eq!(err, "Defaulted container \"app\" out of: app, side\n");
    let (_, out, err) = run(&daemon, &["logs", "web", "side", "--tail=1", "--since", "90s"]).await;
    assert_eq!((out.as_str(), err.as_str()), ("side line 1\nside line 2\n", ""));
    let asked = daemon.runtime.log_requests.lock().unwrap().last().cloned().unwrap();
    assert_eq!(asked.tail, Some(1));
    assert!(asked.since.is_some());
    let (_, out, _) = run(&daemon, &["logs", "web", "--all-containers", "--prefix"]).await;
    assert_eq!(
        out,
        "[pod/web/app] app line 1\n[pod/web/app] app line 2\n[pod/web/side] side line 1\n[pod/web/side] side line 2\n"
    );
    let (code, _, err) = run(&daemon, &["logs", "web", "-c", "no"]).await;
    assert_eq!(
        (code, err.as_str()),
        (1, "Error from server (BadRequest): container no is not valid for pod web\n")
    );
    let (code, _, err) = run(&daemon, &["logs", "x"]).await;
    assert_eq!((code, err.as_str()), (1, "Error from server (NotFound): pods \"x\" not found\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_closes_the_pipe_ends_an_endless_log_quietly() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let mut command = podling(daemon.root.path(), &["logs", "-f", "web"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let work = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut first = [0; 10];
        std::io::Read::read_exact(&mut out, &mut first).unwrap();
        drop(out);
        (first, child.wait_with_output().unwrap())
    });
    let (first, output) = tokio::time::timeout(Duration::from_secs(10), work).await.unwrap().unwrap();
    assert_eq!(&first, b"app line 1");
    assert_eq!(parts(output), (141, String::new(), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_works_in_pipes_and_ends_with_the_commands_exit_code() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let (code, out, err) = fed(&daemon, &["exec", "-i", "web", "--", "cat"], b"through\n").await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "through\n", ""));
    let (code, out, err) = run(&daemon, &["exec", "web", "--", "shout"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "out\n", "err\n"));
    let (code, _, err) = run(&daemon, &["exec", "web", "--", "false"]).await;
    assert_eq!((code, err.as_str()), (3, "command terminated with exit code 3\n"));
    let (code, _, err) = run(&daemon, &["exec", "web", "--", "nope"]).await;
    assert_eq!(
        (code, err.as_str()),
        (1, "Error from server (BadRequest): exec: \"nope\": not found in $PATH\n")
    );
    let (code, out, err) = fed(&daemon, &["exec", "-it", "web", "--", "cat"], b"piped").await;
    assert_eq!((code, out.as_str()), (0, "piped"));
    assert_eq!(err, "Unable to use a TTY - input is not a terminal or the right kind of file\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_on_a_terminal_passes_its_size_and_leaves_it_as_it_was() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let slave = std::fs::File::options().read(true).write(true).open(name).unwrap();
    let mut command = podling(daemon.root.path(), &["exec", "-it", "web", "--", "shout"]);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
    let status = tokio::task::spawn_blocking(move || command.status().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(10), status).await.unwrap().unwrap();
    assert!(status.success());
    assert!(tcgetattr(&slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    let mut shown = [0; 64];
    let n = rustix::io::read(&master, &mut shown).unwrap();
    // Raw: no carriage return was put before the line breaks.
    assert_eq!(&shown[..n], b"out\n100x30\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_kubectls_words() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let (code, out, _) = run(&daemon, &["wait", "pod/web", "--for=Ready"]).await;
    assert_eq!((code, out.as_str()), (0, "pod/web condition met\n"));
    let (code, out, err) = run(&daemon, &["wait", "pod/web", "--for=delete", "--timeout=200ms"]).await;
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (1, "", "error: timed out waiting for the condition on pods/web\n")
    );
    let (code, _, err) = run(&daemon, &["wait", "pod/web", "--for=Deleted", "--file", "x"]).await;
    assert_eq!((code, err.as_str()), (64, "error: --file goes with --for=Applied only\n"));
    let (code, out, _) = run(&daemon, &["wait", "pod/web", "--for=condition=Ready", "--timeout=0"]).await;
    assert_eq!((code, out.as_str()), (0, "pod/web condition met\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_given_by_name() {
    let mut daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let mut orders = std::mem::replace(&mut daemon.control, tokio::sync::mpsc::channel(1).1);
    tokio::spawn(async move {
        while let Some(Control::Stop(_, answer) | Control::Start(_, answer) | Control::Restart(_, answer)) =
            orders.recv().await
        {
            answer.send(Ok(())).unwrap();
        }
    });
    assert_eq!(run(&daemon, &["stop", "pod/web"]).await, (0, "pod/web stopping\n".into(), String::new()));
    assert_eq!(run(&daemon, &["start", "web"]).await.1, "pod/web starting\n");
    assert_eq!(run(&daemon, &["restart", "po/web"]).await.1, "pod/web restarting\n");
    let (code, _, err) = run(&daemon, &["stop", "pod/x"]).await;
    assert_eq!((code, err.as_str()), (1, "Error from server (NotFound): pods \"x\" not found\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_imported_from_files_and_pipes() {
    let daemon = Daemon::start();
    let (code, out, err) = run(&daemon, &["image", "ls"]).await;
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(err, "No images found; import one with `podling image import FILE`.\n");
    let archive = daemon.root.path().join("a.tar");
    std::fs::write(&archive, "content").unwrap();
    let (code, out, _) = run(&daemon, &["image", "import", archive.to_str().unwrap()]).await;
    assert_eq!((code, out.as_str()), (0, "image/localhost/new:1 imported\n"));
    let (code, out, _) = fed(&daemon, &["image", "import", "-"], b"streamed").await;
    assert_eq!((code, out.as_str()), (0, "image/localhost/new:1 imported\n"));
    assert_eq!(daemon.runtime.imports.lock().unwrap()[1].1, b"streamed");
    let (code, _, err) = run(&daemon, &["image", "import", "/nonexistent.tar"]).await;
    assert_eq!(code, 1);
    assert_eq!(err, "error: cannot import /nonexistent.tar: No such file or directory (os error 2)\n");
    *daemon.runtime.images.lock().unwrap() = vec!["localhost/new:1".into()];
    let (_, out, _) = run(&daemon, &["get", "images"]).await;
    assert_eq!(
        out,
        "IMAGE             DIGEST         SIZE     AGE\nlocalhost/new:1   abcdef012345   1.05MB   <unknown>\n"
    );
    assert_eq!(run(&daemon, &["image", "rm", "localhost/new:1"]).await.1, "image/localhost/new:1 removed\n");
    let (code, _, err) = run(&daemon, &["image", "rm", "localhost/new:1"]).await;
    assert_eq!(
        (code, err.as_str()),
        (1, "Error from server (NotFound): image \"localhost/new:1\" not found\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_all_three_are_shown() {
    let daemon = Daemon::start();
    let version = env!("CARGO_PKG_VERSION");
    let (code, out, _) = run(&daemon, &["version"]).await;
    assert_eq!((code, out), (0, format!("Client: {version}\nServer: {version}\ncontainerd: 1.6.20\n")));
    let (_, out, _) = run(&daemon, &["version", "-o", "json"]).await;
    let versions: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(versions, json!({ "client": version, "server": version, "containerd": "1.6.20" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_a_row_for_each_change_under_one_header() {
    let daemon = Daemon::start();
    daemon.board.publish(running("web"));
    let mut command = podling(daemon.root.path(), &["get", "pods", "-w"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let lines = tokio::task::spawn_blocking(move || {
        std::io::BufRead::lines(std::io::BufReader::new(out)).take(3).map(Result::unwrap).collect::<Vec<_>>()
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    daemon.board.publish(running("db"));
    let lines = tokio::time::timeout(Duration::from_secs(10), lines).await.unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lines[0], "NAME   READY   STATUS    RESTARTS   AGE");
    assert!(
        lines[1].starts_with("web    1/1     Running") && lines[2].starts_with("db     1/1     Running"),
        "{lines:?}"
    );
}
