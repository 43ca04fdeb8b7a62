//! What the server needs of the runtime: logs and exec here, images in [`super::images`]. Waits a while for
//! containerd, then answers «not ready».

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{SetOnce, mpsc, watch};

use crate::pod::board::Board;
use crate::runtime::Runtime;
use crate::runtime::containerd::{ErrorClass, ExecRequest as Process, RuntimeError};
use crate::runtime::logs::{self, LogQuery, Since};
use crate::server::wire::Imported;
use crate::server::{
    AccessError, ArchiveRequest, BoxFuture, ExecRequest, ExecStreams, ImageInfo, LogRequest, PruneRequest,
    RuntimeAccess, TerminalSize,
};

/// How long a client waits for containerd, which has just been started.
const COMING_UP: Duration = Duration::from_secs(10);

/// The runtime as the server sees it, filled in when containerd answers.
#[derive(Clone)]
pub struct RuntimeSlot {
    runtime: Arc<SetOnce<Runtime>>,
    pub(super) board: Board,
    pub(super) paths: crate::settings::Paths,
    pub(super) manifest_dirs: Vec<PathBuf>,
    pub(super) signature_policy: PathBuf,
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

    fn now(&self) -> Result<&Runtime, AccessError> {
        self.runtime.get().ok_or_else(|| AccessError::Unavailable("containerd is not available yet".into()))
    }

    /// The runtime, also for those who ask while it is still coming up.
    pub(super) async fn ready(&self) -> Result<&Runtime, AccessError> {
        match tokio::time::timeout(COMING_UP, self.runtime.wait()).await {
            Ok(runtime) => Ok(runtime),
            Err(_) => self.now(),
        }
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

pub(super) fn access_error(e: RuntimeError) -> AccessError {
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
        Box::pin(self.list_images())
    }

    fn import(&self, archive: ArchiveRequest) -> BoxFuture<'_, Result<Imported, AccessError>> {
        Box::pin(self.import_archive(archive))
    }

    fn remove_image(&self, name: String, force: bool) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        Box::pin(self.remove_names(name, force))
    }

    fn pull_image(&self, name: String) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>> {
        Box::pin(self.pull_by_order(name))
    }

    fn pulls(&self) -> Vec<(String, crate::image::pull::Reading)> {
        self.now().map(|runtime| runtime.images().under_way()).unwrap_or_default()
    }

    fn inspect_image(&self, name: String) -> BoxFuture<'_, Result<serde_json::Value, AccessError>> {
        Box::pin(self.describe_image(name))
    }

    fn export_images(&self, names: Vec<String>, archive: PathBuf) -> BoxFuture<'_, Result<(), AccessError>> {
        Box::pin(self.write_archive(names, archive))
    }

    fn prune_images(&self, request: PruneRequest) -> BoxFuture<'_, Result<Vec<String>, AccessError>> {
        Box::pin(self.remove_unused(request))
    }

    fn containerd_version(&self) -> BoxFuture<'_, Result<String, AccessError>> {
        Box::pin(async move { self.now()?.containerd().version().await.map_err(access_error) })
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
        let ctd = self.ready().await?.containerd();
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
