//! The connection: one channel, the headers every call carries, deadlines, and bounds on bursts.

use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use containerd_client::services::v1::namespaces_client::NamespacesClient;
use containerd_client::services::v1::version_client::VersionClient;
use containerd_client::services::v1::{CreateNamespaceRequest, Namespace};
use tokio::sync::{OnceCell, Semaphore};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::error::{RuntimeError, SUN_PATH_MAX};
use super::lanes::RankedQueue;

/// Deadline of calls that only touch containerd's database.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of calls that run the OCI runtime: create and start can wait for a slow disk or many
/// neighbours, delete for a logger that has up to 12 s to end.
pub(crate) const DEADLINE_RUNTIME: Duration = Duration::from_secs(120);
/// Deadline of state queries: a stopped shim (SIGSTOP) never answers one.
pub(crate) const DEADLINE_STATE: Duration = Duration::from_secs(5);
/// Deadline of listing tasks, which adds up the time of all shims that do not answer.
pub(crate) const DEADLINE_LIST: Duration = Duration::from_secs(30);
/// Deadline of applying or committing one layer, which writes all its files and syncs them.
pub(crate) const DEADLINE_LAYER: Duration = Duration::from_secs(1800);
/// Largest answer accepted. tonic's own limit of 4 MiB is under the list of a few hundred images.
pub(crate) const ANSWER_MAX: usize = 64 << 20;

/// A client of one containerd in one namespace. Cheap to clone; all clones share one connection, which
/// is made at the first call and made again whenever containerd comes back.
#[derive(Clone)]
pub struct Containerd {
    inner: Arc<Inner>,
    lease: Option<MetadataValue<Ascii>>,
}

struct Inner {
    channel: Channel,
    socket: PathBuf,
    namespace: String,
    namespace_header: MetadataValue<Ascii>,
    lanes: Lanes,
    snapshotter: OnceCell<String>,
    exec_dir: OnceLock<PathBuf>,
}

/// Bounds on concurrent calls, by what they wait for, so that calls into one hung shim never hold up
/// calls to the database. Every call in flight costs HTTP/2 buffers, too.
struct Lanes {
    store: Semaphore,
    shim: Semaphore,
    exec: Semaphore,
    start: RankedQueue,
    delete: Semaphore,
    layer: Semaphore,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// containerd's own database and stores.
    Store,
    /// A shim's answer.
    Shim,
    /// A process being started in a container. Apart from other questions to shims, as a container that is
    /// frozen holds it up.
    Exec,
    /// Creation and start by the OCI runtime: twice the cores, above that only latency grows. The most important
    /// pods go first.
    Start,
    /// Deletion by the OCI runtime.
    Delete,
    /// Unpacking, which keeps a core and the disk busy.
    Layer,
}

impl std::fmt::Debug for Containerd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Containerd({} namespace {})", self.inner.socket.display(), self.inner.namespace)
    }
}

impl Containerd {
    /// A client of the containerd at `socket`, using containerd namespace `namespace`. Nothing is sent
    /// yet; a socket that is not there shows at the first call, and heals by itself.
    pub async fn connect(socket: &Path, namespace: &str) -> Result<Self, RuntimeError> {
        let length = socket.as_os_str().as_bytes().len();
        if length > SUN_PATH_MAX {
            return Err(RuntimeError::SocketPath { path: socket.to_owned(), length });
        }
        if !valid_namespace(namespace) {
            return Err(RuntimeError::Namespace(namespace.to_owned()));
        }
        let namespace_header =
            namespace.parse().map_err(|_| RuntimeError::Namespace(namespace.to_owned()))?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let lanes = Lanes {
            store: Semaphore::new(32),
            shim: Semaphore::new(32),
            exec: Semaphore::new(32),
            start: RankedQueue::new(2 * cores),
            delete: Semaphore::new(2 * cores),
            layer: Semaphore::new(cores),
        };
        let inner = Inner {
            channel: channel(socket),
            socket: socket.to_owned(),
            namespace: namespace.to_owned(),
            namespace_header,
            lanes,
            snapshotter: OnceCell::new(),
            exec_dir: OnceLock::new(),
        };
        Ok(Self { inner: Arc::new(inner), lease: None })
    }

    /// The containerd namespace.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.inner.socket
    }

    /// containerd's version, as "1.6.20".
    pub async fn version(&self) -> Result<String, RuntimeError> {
        let mut client = VersionClient::new(self.channel());
        let request = self.request(());
        let answer =
            self.call("ask containerd's version", "", DEADLINE_STATE, Lane::Store, client.version(request));
        Ok(answer.await?.version)
    }

    /// Creates the containerd namespace unless it exists.
    pub async fn ensure_namespace(&self) -> Result<(), RuntimeError> {
        let mut client = NamespacesClient::new(self.channel());
        let namespace = Namespace { name: self.namespace().to_owned(), labels: Default::default() };
        let request = self.request(CreateNamespaceRequest { namespace: Some(namespace) });
        let id = self.namespace().to_owned();
        let created = self
            .call("create containerd namespace", &id, DEADLINE, Lane::Store, client.create(request))
            .await;
        match created {
            Err(e) if !e.is_already_exists() => Err(e),
            _ => Ok(()),
        }
    }

    /// Puts the FIFOs of exec processes under `dir` instead of the directory for temporary files. What
    /// is there when podling starts was left by one that was killed, and may be removed.
    pub fn set_exec_dir(&self, dir: PathBuf) {
        // The first choice stays.
        let _ = self.inner.exec_dir.set(dir);
    }

    pub(crate) fn exec_dir(&self) -> PathBuf {
        self.inner.exec_dir.get().cloned().unwrap_or_else(std::env::temp_dir)
    }

    pub(crate) fn snapshotter_cell(&self) -> &OnceCell<String> {
        &self.inner.snapshotter
    }

    pub(crate) fn channel(&self) -> Channel {
        self.inner.channel.clone()
    }

    /// The same client with every call held by lease `id`.
    pub(crate) fn under_lease(&self, id: &str) -> Result<Self, RuntimeError> {
        let lease = id.parse().map_err(|e| RuntimeError::local("use lease", id, e))?;
        Ok(Self { inner: self.inner.clone(), lease: Some(lease) })
    }

    /// The same client with its calls held by no lease.
    pub(crate) fn without_lease(&self) -> Self {
        Self { inner: self.inner.clone(), lease: None }
    }

    pub(crate) fn lease_id(&self) -> Option<&str> {
        self.lease.as_ref().and_then(|lease| lease.to_str().ok())
    }

    /// `message` with the headers that all calls need.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let headers = request.metadata_mut();
        headers.insert("containerd-namespace", self.inner.namespace_header.clone());
        if let Some(lease) = &self.lease {
            headers.insert("containerd-lease", lease.clone());
        }
        request
    }

    /// Awaits one call within its lane and deadline. The deadline starts when the call does; dropping a
    /// call that is late cancels it on containerd's side too.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        id: &str,
        deadline: Duration,
        lane: Lane,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, RuntimeError> {
        let lanes = &self.inner.lanes;
        let (semaphore, _turn) = match lane {
            Lane::Store => (Some(&lanes.store), None),
            Lane::Shim => (Some(&lanes.shim), None),
            Lane::Exec => (Some(&lanes.exec), None),
            Lane::Start => (None, Some(lanes.start.acquire().await)),
            Lane::Delete => (Some(&lanes.delete), None),
            Lane::Layer => (Some(&lanes.layer), None),
        };
        // The semaphores are never closed, so an error cannot happen; without a permit the call still
        // goes on, unbounded.
        let _permit = match semaphore {
            Some(semaphore) => semaphore.acquire().await.ok(),
            None => None,
        };
        match tokio::time::timeout(deadline, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(RuntimeError::from_status(operation, id, &status)),
            Err(_) => Err(RuntimeError::Timeout { operation, id: id.to_owned(), after: deadline }),
        }
    }
}

/// A channel that connects at the first call. The address is never looked at, but must parse.
fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    Endpoint::from_static("http://containerd.invalid").connect_with_connector_lazy(tower::service_fn(
        move |_: tonic::codegen::http::Uri| {
            let socket = socket.clone();
            async move {
                let stream = tokio::net::UnixStream::connect(&socket)
                    .await
                    .map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", socket.display())))?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
            }
        },
    ))
}

/// containerd's rule for namespaces: an identifier of at most 76 bytes.
fn valid_namespace(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 76 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::containerd::ErrorClass;

    #[tokio::test]
    async fn a_socket_path_that_is_too_long_says_so() {
        let path = PathBuf::from(format!("/run/{}/containerd.sock", "x".repeat(100)));
        let e = Containerd::connect(&path, "podling").await.unwrap_err();
        assert!(e.to_string().ends_with("at most 107: use a shorter path"), "{e}");
        assert_eq!(e.class(), ErrorClass::InvalidArgument);
    }

    #[tokio::test]
    async fn a_namespace_that_containerd_would_refuse_is_refused_first() {
        for bad in ["", "-a", "a b", "a/b", "ä"] {
            let e = Containerd::connect(Path::new("/run/x.sock"), bad).await.unwrap_err();
            assert!(e.to_string().starts_with(&format!("containerd namespace {bad:?} is not valid")), "{e}");
        }
        assert!(Containerd::connect(Path::new("/run/x.sock"), "k8s.io").await.is_ok());
    }

    #[tokio::test]
    async fn no_containerd_at_the_socket_is_unavailable_and_names_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("none.sock");
        let client = Containerd::connect(&socket, "podling").await.unwrap();
        let e = client.version().await.unwrap_err();
        assert_eq!(e.class(), ErrorClass::Unavailable);
        let text = e.to_string();
        assert!(text.starts_with("cannot ask containerd's version: containerd is not reachable: "), "{text}");
        assert!(text.contains("none.sock"), "{text}");
    }
}
