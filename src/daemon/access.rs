//! What the server needs of the runtime: logs, exec and images. Answers «not ready» until containerd is
//! there.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::image::{self, ImageRef};
use crate::pod::board::Board;
use crate::runtime::Runtime;
use crate::runtime::containerd::{ErrorClass, ExecRequest as Process, RuntimeError};
use crate::runtime::logs::{self, LogQuery, Since};
use crate::server::wire::PullLine;
use crate::server::{
    AccessError, BoxFuture, ExecRequest, ExecStreams, ImageInfo, LogRequest, RuntimeAccess, TerminalSize,
};

/// The runtime as the server sees it, filled in when containerd answers.
#[derive(Clone)]
pub struct RuntimeSlot {
    runtime: Arc<OnceLock<Runtime>>,
    board: Board,
    paths: crate::settings::Paths,
    manifest_dirs: Vec<PathBuf>,
    signature_policy: PathBuf,
}

impl RuntimeSlot {
    /// An empty slot; the board tells which container of a pod is current.
    pub fn new(board: Board, settings: &crate::settings::Settings) -> Self {
        let (paths, manifest_dirs) = (settings.paths.clone(), settings.manifest_dirs.clone());
        let signature_policy = settings.images.signature_policy.clone();
        Self { runtime: Arc::default(), board, paths, manifest_dirs, signature_policy }
    }

    /// containerd answers.
    pub fn fill(&self, runtime: Runtime) {
        // Filled once; a second runtime would be the same one.
        let _ = self.runtime.set(runtime);
    }

    fn get(&self) -> Result<&Runtime, AccessError> {
        self.runtime.get().ok_or_else(|| AccessError::Unavailable("containerd is not available yet".into()))
    }

    /// Id of the running container, from the pod's status.
    fn container_id(&self, uid: &str, container: &str) -> Option<String> {
        running_id(&self.board.subscribe().borrow(), uid, container)
    }
}

fn running_id(state: &crate::pod::board::Snapshot, uid: &str, container: &str) -> Option<String> {
    let pod = state.pods.values().find(|p| p.uid == uid)?;
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses).flatten();
    let status = statuses.into_iter().find(|s| s.name == container)?;
    status.state.as_ref()?.running.as_ref()?;
    Some(status.container_id.as_ref()?.trim_start_matches("containerd://").to_owned())
}

fn line(line: &PullLine) -> Bytes {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

fn access_error(e: RuntimeError) -> AccessError {
    let text = e.to_string();
    match e.class() {
        ErrorClass::Unavailable | ErrorClass::Timeout => AccessError::Unavailable(text),
        ErrorClass::NotFound => AccessError::NotFound(text),
        ErrorClass::InvalidArgument | ErrorClass::FailedPrecondition => AccessError::Invalid(text),
        _ => AccessError::Failed(text),
    }
}

impl RuntimeAccess for RuntimeSlot {
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>> {
        Box::pin(async move { self.read_logs(request) })
    }

    fn exec(&self, request: ExecRequest) -> BoxFuture<'_, Result<ExecStreams, AccessError>> {
        Box::pin(self.run(request))
    }

    fn images(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, AccessError>> {
        Box::pin(async move {
            let images = self.get()?.containerd().images().await.map_err(access_error)?;
            let info = |i: image::ImageSummary| ImageInfo {
                name: i.name,
                digest: i.digest,
                size: i.size.unwrap_or_default(),
                created: i.created,
            };
            Ok(images.into_iter().map(info).collect())
        })
    }

    fn import(&self, archive: PathBuf) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        Box::pin(async move {
            let names =
                image::import_path(self.get()?.containerd(), &archive, Some(&self.signature_policy)).await;
            let names = names.map_err(|e| AccessError::Failed(e.to_string()))?;
            tracing::info!("imported {}", names.join(", "));
            self.get()?.images().arrived();
            Ok(names)
        })
    }

    fn remove_image(&self, name: String) -> BoxFuture<'_, Result<(), AccessError>> {
        Box::pin(async move {
            let reference = ImageRef::parse(&name).map_err(|e| AccessError::Invalid(e.to_string()))?;
            match self.get()?.containerd().remove_image(&reference).await.map_err(access_error)? {
                true => Ok(()),
                false => Err(AccessError::NotFound(format!("image \"{name}\" not found"))),
            }
        })
    }

    fn pull_image(&self, name: String) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>> {
        Box::pin(async move {
            let puller = self.get()?.images().clone();
            let (lines, receiver) = mpsc::channel(8);
            tokio::spawn(async move {
                // A client that reads slowly misses steps, not the end.
                let pulled = puller.pull(&name, |r| drop(lines.try_send(line(&PullLine::Progress(r))))).await;
                let last = match pulled {
                    Ok(p) => PullLine::Done { name: p.name, digest: p.digest, unchanged: p.unchanged },
                    Err(e) => PullLine::Error(e.to_string()),
                };
                let _ = lines.send(line(&last)).await;
            });
            Ok(receiver)
        })
    }

    fn inspect_image(&self, name: String) -> BoxFuture<'_, Result<serde_json::Value, AccessError>> {
        Box::pin(async move {
            let reference = ImageRef::parse(&name).map_err(|e| AccessError::Invalid(e.to_string()))?;
            let found = self.get()?.containerd().image(&reference).await;
            let found = found.map_err(|e| AccessError::Failed(e.to_string()))?;
            let image = found.ok_or_else(|| AccessError::NotFound(format!("image \"{name}\" not found")))?;
            let layers =
                image.layers().into_iter().map(|(digest, size)| json!({"digest": digest, "size": size}));
            Ok(json!({
                "name": image.name, "digest": image.digest, "manifest": image.manifest_digest,
                "id": image.config_digest, "size": image.size, "unpacked": image.unpacked,
                "layers": layers.collect::<Vec<_>>(), "config": image.config,
            }))
        })
    }

    fn export_images(&self, names: Vec<String>, archive: PathBuf) -> BoxFuture<'_, Result<(), AccessError>> {
        Box::pin(async move {
            let exported = image::export(self.get()?.containerd(), &names, &archive).await;
            exported.map_err(|e| AccessError::Failed(e.to_string()))
        })
    }

    fn prune_images(&self) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        Box::pin(async move {
            let wanted = super::collect::wanted(&self.paths, &self.manifest_dirs).await;
            image::collect::prune(self.get()?.containerd(), &wanted).await.map_err(access_error)
        })
    }

    fn containerd_version(&self) -> BoxFuture<'_, Result<String, AccessError>> {
        Box::pin(async move { self.get()?.containerd().version().await.map_err(access_error) })
    }
}

impl RuntimeSlot {
    fn read_logs(&self, request: LogRequest) -> Result<mpsc::Receiver<Bytes>, AccessError> {
        let dir = logs::container_log_dir(&self.paths, &request.pod, &request.uid, &request.container);
        let attempts = logs::attempts(&dir).map_err(|e| AccessError::Failed(e.to_string()))?;
        let Some(attempt) = attempts.iter().copied().max() else {
            let text = format!(
                "container {} of pod {} has not started: it has no log",
                request.container, request.pod
            );
            return Err(AccessError::Invalid(text));
        };
        if request.previous && attempts.len() < 2 {
            let text = format!(
                "previous terminated container {:?} in pod {:?} not found",
                request.container, request.pod.name
            );
            return Err(AccessError::Invalid(text));
        }
        let query = LogQuery {
            tail: request.tail,
            since: request.since.map(Since::Time),
            timestamps: request.timestamps,
            follow: request.follow,
            previous: request.previous,
        };
        let done = self.done(&request);
        let mut lines = logs::stream(&dir, attempt, query, done);
        let (tx, rx) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Some(chunk) = lines.recv().await {
                let chunk = chunk.unwrap_or_else(|e| Bytes::from(format!("error: {e}\n")));
                if tx.send(chunk).await.is_err() {
                    return;
                }
            }
        });
        Ok(rx)
    }

    /// Turns true when the run whose log is followed has ended.
    fn done(&self, request: &LogRequest) -> watch::Receiver<bool> {
        let current = self.container_id(&request.uid, &request.container);
        let (tx, rx) = watch::channel(current.is_none());
        if current.is_none() {
            return rx;
        }
        let (mut board, uid, container) =
            (self.board.subscribe(), request.uid.clone(), request.container.clone());
        tokio::spawn(async move {
            let over = |s: &crate::pod::board::Snapshot| running_id(s, &uid, &container) != current;
            tokio::select! {
                _ = board.wait_for(over) => { tx.send_replace(true); }
                () = tx.closed() => {}
            }
        });
        rx
    }

    async fn run(&self, request: ExecRequest) -> Result<ExecStreams, AccessError> {
        let ctd = self.get()?.containerd();
        let id = self.container_id(&request.uid, &request.container).ok_or_else(|| {
            AccessError::Invalid(format!(
                "container {} of pod {} does not run",
                request.container, request.pod
            ))
        })?;
        let record = ctd.container(&id).await.map_err(access_error)?;
        let record = record.ok_or_else(|| AccessError::NotFound(format!("container {id} is gone")))?;
        let spec = record.spec().map_err(access_error)?;
        let mut process = Process::like_container(&spec, request.command, request.stdin, request.tty)
            .ok_or_else(|| AccessError::Failed(format!("container {id} has no process in its spec")))?;
        process.size = request.size.map(|s| (s.columns, s.rows));
        let mut session = ctd.exec(&id, &process).await.map_err(access_error)?;
        let (resize, mut sizes) = mpsc::channel::<TerminalSize>(1);
        let stdin = session.stdin.take().map(|s| Box::new(s) as _);
        let stdout = session.stdout.take().ok_or_else(|| AccessError::Failed("exec has no output".into()))?;
        let stderr = session.stderr.take().map(|s| Box::new(s) as _);
        let cancel = request.cancel;
        let exit = Box::pin(async move {
            loop {
                tokio::select! {
                    code = session.wait() => {
                        return code.map(|c| i32::try_from(c).unwrap_or(255)).map_err(access_error);
                    }
                    () = cancel.cancelled() => {
                        // Dropping the session kills the process.
                        return Err(AccessError::Failed("the client is gone".into()));
                    }
                    Some(size) = sizes.recv() => {
                        if let Err(e) = session.resize(size.columns, size.rows).await {
                            tracing::debug!("{e}");
                        }
                    }
                }
            }
        });
        Ok(ExecStreams { stdin, stdout: Box::new(stdout), stderr, resize, exit })
    }
}
