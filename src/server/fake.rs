//! A runtime in memory and a server around it, for tests of the server and, through `tests/cli.rs`, of
//! the program.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::wire::{Imported, PullLine, Reading};
use super::{
    AccessError, ArchiveRequest, Backend, BoxFuture, ExecRequest, ExecStreams, ImageInfo, LogRequest,
    PruneRequest, RuntimeAccess, ServerError, TerminalSize, bind, serve_on,
};
use crate::manifest::{Hashes, Origin, PodKey, PodManifest};
use crate::pod::board::{Board, Control, PodView};
use crate::settings::Paths;

/// What the fake runtime holds and what it was asked for.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    pub images: Mutex<Vec<String>>,
    pub log_requests: Mutex<Vec<LogRequest>>,
    pub execs: Mutex<Vec<ExecRequest>>,
    pub imports: Mutex<Vec<(PathBuf, Vec<u8>)>>,
}

impl RuntimeAccess for FakeRuntime {
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>> {
        let (sender, receiver) = mpsc::channel(1);
        let (container, endless) = (request.container.clone(), request.follow);
        let missing = request.previous;
        self.log_requests.lock().unwrap().push(request);
        Box::pin(async move {
            if missing {
                let text = format!("previous terminated container {container:?} not found");
                return Err(AccessError::Invalid(text));
            }
            tokio::spawn(async move {
                let mut n = 0;
                while endless || n < 2 {
                    n += 1;
                    let line = Bytes::from(format!("{container} line {n}\n"));
                    if sender.send(line).await.is_err() {
                        return;
                    }
                }
            });
            Ok(receiver)
        })
    }

    /// Knows `cat`, `sleep` (for ever, reading nothing), `false`, and `shout` (stdout and stderr).
    fn exec(&self, request: ExecRequest) -> BoxFuture<'_, Result<ExecStreams, AccessError>> {
        self.execs.lock().unwrap().push(request.clone());
        Box::pin(async move {
            let (stdin, mut command_in) = duplex(1024);
            let (mut command_out, stdout) = duplex(1024);
            let (mut command_err, stderr) = duplex(1024);
            let (resize, mut sizes) = mpsc::channel::<TerminalSize>(1);
            let cancel = request.cancel.clone();
            let run = match request.command[0].as_str() {
                "cat" | "sleep" | "false" | "shout" => request.command[0].clone(),
                other => return Err(AccessError::Invalid(format!("exec: {other:?}: not found in $PATH"))),
            };
            let exit = Box::pin(async move {
                let work = async {
                    match run.as_str() {
                        "cat" => {
                            let _ = tokio::io::copy(&mut command_in, &mut command_out).await;
                            0
                        }
                        "shout" => {
                            let _ = command_out.write_all(b"out\n").await;
                            let _ = command_err.write_all(b"err\n").await;
                            if let Some(size) = request.size {
                                let text = format!("{}x{}\n", size.columns, size.rows);
                                let _ = command_out.write_all(text.as_bytes()).await;
                            }
                            0
                        }
                        "sleep" => {
                            let _ = sizes.recv().await;
                            std::future::pending::<i32>().await
                        }
                        _ => 3,
                    }
                };
                tokio::select! {
                    code = work => Ok(code),
                    () = cancel.cancelled() => Ok(137),
                }
            });
            let stdin = request.stdin.then(|| Box::new(stdin) as _);
            let stderr = (!request.tty).then(|| Box::new(stderr) as _);
            Ok(ExecStreams { stdin, stdout: Box::new(stdout), stderr, resize, exit })
        })
    }

    fn images(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, AccessError>> {
        let names = self.images.lock().unwrap().clone();
        let info = |name: String| ImageInfo {
            name,
            digest: "sha256:abcdef0123456789".into(),
            size: 1 << 20,
            created: None,
            id: "sha256:1d".into(),
            pinned: false,
        };
        Box::pin(async move { Ok(names.into_iter().map(info).collect()) })
    }

    fn import(&self, archive: ArchiveRequest) -> BoxFuture<'_, Result<Imported, AccessError>> {
        Box::pin(async move {
            let (mut content, archive) = (Vec::new(), archive.file);
            let file = tokio::fs::File::open(&archive).await;
            let mut file =
                file.map_err(|e| AccessError::Invalid(format!("cannot read {}: {e}", archive.display())))?;
            file.read_to_end(&mut content).await.unwrap();
            self.imports.lock().unwrap().push((archive, content));
            Ok(Imported { names: vec!["localhost/new:1".into()], ..Imported::default() })
        })
    }

    fn pulls(&self) -> Vec<(String, Reading)> {
        let reading = Reading { total: 40_000_000, fetched: 10_000_000, layers: 2, unpacked: 1, begun: true };
        vec![("docker.io/library/busybox:1".into(), reading), ("docker.io/library/other:1".into(), reading)]
    }

    fn pull_image(&self, name: String) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>> {
        let (sender, receiver) = mpsc::channel(4);
        Box::pin(async move {
            let digest = "sha256:1".to_owned();
            let last = match name.contains("absent") {
                true => PullLine::Error(format!("cannot pull {name}")),
                false => PullLine::Done { name: name.clone(), digest, unchanged: false },
            };
            for line in [PullLine::Progress(Default::default()), last] {
                let mut text = serde_json::to_vec(&line).unwrap();
                text.push(b'\n');
                sender.send(text.into()).await.unwrap();
            }
            self.images.lock().unwrap().push(name);
            Ok(receiver)
        })
    }

    fn inspect_image(&self, name: String) -> BoxFuture<'_, Result<serde_json::Value, AccessError>> {
        Box::pin(async move { Ok(json!({ "name": name })) })
    }

    fn export_images(&self, names: Vec<String>, archive: PathBuf) -> BoxFuture<'_, Result<(), AccessError>> {
        Box::pin(async move {
            std::fs::write(archive, names.join(" ")).map_err(|e| AccessError::Failed(e.to_string()))
        })
    }

    fn prune_images(&self, _: PruneRequest) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        Box::pin(async move { Ok(std::mem::take(&mut *self.images.lock().unwrap())) })
    }

    fn remove_image(&self, name: String, _: bool) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        let mut images = self.images.lock().unwrap();
        let before = images.len();
        images.retain(|i| *i != name);
        let gone = images.len() < before;
        Box::pin(async move {
            if gone {
                Ok(vec![name])
            } else {
                Err(AccessError::NotFound(format!("image {name:?} not found")))
            }
        })
    }

    fn containerd_version(&self) -> BoxFuture<'_, Result<String, AccessError>> {
        Box::pin(async { Ok("1.6.20".to_owned()) })
    }
}

/// A server on a root of its own; ends when dropped.
pub(crate) struct Daemon {
    pub root: tempfile::TempDir,
    pub paths: Paths,
    pub board: Board,
    pub runtime: Arc<FakeRuntime>,
    pub control: mpsc::Receiver<Control>,
    pub shutdown: CancellationToken,
    pub serving: tokio::task::JoinHandle<Result<(), ServerError>>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Daemon {
    /// Starts it; must be called inside a runtime.
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        let (control, orders) = mpsc::channel(1);
        let (board, runtime) = (Board::default(), Arc::new(FakeRuntime::default()));
        let backend = Backend {
            objects: Default::default(),
            board: board.clone(),
            control,
            runtime: runtime.clone(),
            node_name: "node1".into(),
            paths: paths.clone(),
        };
        let shutdown = CancellationToken::new();
        let endpoint = bind(&paths).unwrap();
        let serving = tokio::spawn(serve_on(endpoint, backend, shutdown.clone()));
        Self { root, paths, board, runtime, control: orders, shutdown, serving }
    }
}

/// A pod as a worker would publish it, from its spec and status as JSON.
pub(crate) fn view(name: &str, spec: serde_json::Value, status: serde_json::Value) -> PodView {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": spec,
    });
    let pod: Pod = serde_json::from_value(object).unwrap();
    let status: PodStatus = serde_json::from_value(status).unwrap();
    PodView {
        manifest: Arc::new(PodManifest {
            key: PodKey::new("default", name),
            uid: None,
            pod,
            hashes: Hashes { manifest: format!("hash-of-{name}"), ..Hashes::default() },
            origin: Origin { file: format!("/etc/pods/{name}.yaml").into(), line: 1 },
            warnings: Vec::new(),
        }),
        uid: format!("uid-of-{name}"),
        seen: Timestamp::now(),
        source: "file",
        deleting: None,
        status,
    }
}

/// A pod with one container that runs and is ready.
pub(crate) fn running(name: &str) -> PodView {
    view(
        name,
        json!({ "nodeName": "node1", "containers": [{ "name": "app", "image": "busybox:1" }] }),
        json!({
            "phase": "Running", "podIP": "10.88.0.2",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{
                "name": "app", "image": "busybox:1", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
            }],
        }),
    )
}
