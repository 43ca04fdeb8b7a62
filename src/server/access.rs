//! What the server needs of the runtime: logs, exec and images.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use hyper::body::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::wire::Imported;
use crate::image::pull::Reading;
use crate::manifest::PodKey;

/// A boxed future, so that the trait can be an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why the runtime did not do it. Each text is one line for a person: lower case, no final period.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No such container, log, or image.
    #[error("{0}")]
    NotFound(String),
    /// Asked in a way that cannot be answered (the container does not run, no archive).
    #[error("{0}")]
    Invalid(String),
    /// Something else has a hold on it.
    #[error("{0}")]
    Conflict(String),
    /// containerd does not answer; trying again later may help.
    #[error("{0}")]
    Unavailable(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
}

/// Which part of which log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod.
    pub pod: PodKey,
    /// Its uid, which names the log directory.
    pub uid: String,
    /// Container or init container.
    pub container: String,
    /// Go on until the container is gone for good.
    pub follow: bool,
    /// The instance before the present one.
    pub previous: bool,
    /// Only this many lines from the end.
    pub tail: Option<u64>,
    /// Only lines not older than this.
    pub since: Option<Timestamp>,
    /// Begin each line with its RFC 3339 time and a space.
    pub timestamps: bool,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// A command to run in a container.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The pod.
    pub pod: PodKey,
    /// Its uid.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Give the command a terminal; stderr then comes with stdout.
    pub tty: bool,
    /// Give the command a standard input; without it reads end at once.
    pub stdin: bool,
    /// The terminal's size at the start.
    pub size: Option<TerminalSize>,
    /// Cancelled when the client is gone or podling stops: the command must be killed. Also cancelled
    /// when all is over, which then means nothing.
    pub cancel: CancellationToken,
}

/// A running command.
pub struct ExecStreams {
    /// Dropped when the client's input ends. `None` where none was asked for.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Ends when the command and what it left behind have closed it.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// `None` with a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// New sizes of the terminal; only the latest counts, so full means dropped.
    pub resize: mpsc::Sender<TerminalSize>,
    /// The exit code, once it has ended.
    pub exit: BoxFuture<'static, Result<i32, AccessError>>,
}

/// An archive to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRequest {
    /// Where it is.
    pub file: PathBuf,
    /// It came over the connection and has no name that means something.
    pub upload: bool,
    /// The name of an image in it that has none.
    pub name: Option<String>,
}

/// What is to be pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneRequest {
    /// Also images that came from archives.
    pub all: bool,
    /// Only tell.
    pub dry_run: bool,
}

/// An image as `get images` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Full name with tag or digest.
    pub name: String,
    /// Digest of the manifest or index, `sha256:…`.
    pub digest: String,
    /// Bytes of its content for this platform.
    pub size: u64,
    /// When containerd got it.
    pub created: Option<Timestamp>,
    /// Digest of its configuration, which docker and crictl call the id; empty when parts are missing.
    #[serde(default)]
    pub id: String,
    /// Never collected: it came from an archive, or somebody pinned it.
    #[serde(default)]
    pub pinned: bool,
}

/// The runtime as the server sees it.
pub trait RuntimeAccess: Send + Sync + 'static {
    /// Log text as `kubectl logs` prints it, in chunks. The reader may be slow: send with backpressure,
    /// and stop when the receiver is gone.
    fn logs(&self, request: LogRequest) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>>;
    /// Starts a command.
    fn exec(&self, request: ExecRequest) -> BoxFuture<'_, Result<ExecStreams, AccessError>>;
    /// Images in podling's namespace.
    fn images(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, AccessError>>;
    /// Imports an OCI or docker archive; answers the names it held, and what was left out.
    fn import(&self, archive: ArchiveRequest) -> BoxFuture<'_, Result<Imported, AccessError>>;
    /// Removes an image by name, digest or id; answers the names that went. One that a pod runs goes only by force.
    fn remove_image(&self, name: String, force: bool) -> BoxFuture<'_, Result<Vec<String>, AccessError>>;
    /// Pulls an image; a [`PullLine`](super::wire::PullLine) as JSON for each step.
    fn pull_image(&self, name: String) -> BoxFuture<'_, Result<mpsc::Receiver<Bytes>, AccessError>>;
    /// Pulls under way: full name of the image, and how far it is.
    fn pulls(&self) -> Vec<(String, Reading)>;
    /// All that is known of an image.
    fn inspect_image(&self, name: String) -> BoxFuture<'_, Result<serde_json::Value, AccessError>>;
    /// Writes images into a new archive.
    fn export_images(&self, names: Vec<String>, archive: PathBuf) -> BoxFuture<'_, Result<(), AccessError>>;
    /// Removes the images that nobody wants; their names.
    fn prune_images(&self, request: PruneRequest) -> BoxFuture<'_, Result<Vec<String>, AccessError>>;
    /// containerd's version.
    fn containerd_version(&self) -> BoxFuture<'_, Result<String, AccessError>>;
}
