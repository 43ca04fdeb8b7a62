//! The private containerd: what makes one command enough on a bare machine.
//!
//! podling uses the system's containerd where one answers; else it starts its own as a child, with root,
//! state and socket under podling's own directories. The child has its own process group, so Ctrl-C does
//! not reach it, and pods outlive podling: the next podling finds the socket answering and adopts the
//! server. While podling runs it starts the server again when it dies.

mod layout;
mod server;
mod shims;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Containerd, RuntimeError};
use crate::settings::{ContainerdChoice, Paths};
use layout::Layout;
use server::Server;

/// The system's containerd.
pub const SYSTEM_SOCKET: &str = "/run/containerd/containerd.sock";
/// How long a server may take to answer when it is asked whether it is there.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a new server may take to come up. It takes under 200 ms, on a busy small board seconds.
const BOOT: Duration = Duration::from_secs(60);
/// Pause before a server that died is started again: doubles up to the second value, and starts anew
/// after the server ran for the third.
const RESTART: (Duration, Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30), Duration::from_secs(60));
/// How often the log's size is looked at.
const LOG_CHECK: Duration = Duration::from_secs(30);

/// Why there is no containerd to use.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No binary.
    #[error(
        "cannot start a private containerd: no containerd binary in {searched}; install it (Debian and \
         Ubuntu: apt-get install containerd runc), or name a running one with --containerd SOCKET"
    )]
    NoBinary {
        /// The directories that were searched.
        searched: String,
    },
    /// It ended at once.
    #[error("the private containerd ended with {status} while starting: {last}; its log is {log}")]
    Ended {
        /// How it ended.
        status: String,
        /// The last line of its log.
        last: String,
        /// The log.
        log: PathBuf,
    },
    /// It runs but does not answer.
    #[error("the private containerd does not answer on {socket} after {} s: {last}; its log is {log}", .after.as_secs())]
    Silent {
        /// Its socket.
        socket: PathBuf,
        /// How long was waited.
        after: Duration,
        /// The last line of its log.
        last: String,
        /// The log.
        log: PathBuf,
    },
    /// A file or process operation failed.
    #[error("cannot start a private containerd: cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The client could not be made.
    #[error(transparent)]
    Client(#[from] RuntimeError),
}

impl EmbeddedError {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }
}

/// The containerd in use.
#[derive(Debug)]
pub enum ContainerdHandle {
    /// Somebody else's; podling neither starts nor stops it.
    System(PathBuf),
    /// podling's own.
    Embedded(Embedded),
}

impl ContainerdHandle {
    /// Its socket.
    pub fn socket(&self) -> &Path {
        match self {
            Self::System(socket) => socket,
            Self::Embedded(embedded) => embedded.socket(),
        }
    }

    /// Stops the server if it is podling's own. Running containers stay, but nothing can manage them
    /// until a server is started again.
    pub async fn stop(self) {
        if let Self::Embedded(embedded) = self {
            embedded.stop().await;
        }
    }
}

/// Finds or starts the containerd that `choice` asks for, for containers in containerd namespace
/// `namespace`. A socket that was named is taken as it is, answering or not: it may come later.
///
/// `Auto` takes the one under which containers of ours run, if there are any, so that a containerd that
/// comes or goes between two starts of podling never makes a pod run twice; else the system's if it
/// answers; else a private one.
pub async fn resolve(
    choice: &ContainerdChoice,
    paths: &Paths,
    namespace: &str,
) -> Result<ContainerdHandle, EmbeddedError> {
    match choice {
        ContainerdChoice::Socket(socket) => Ok(ContainerdHandle::System(socket.clone())),
        ContainerdChoice::Auto if use_system(paths, namespace).await? => {
            Ok(ContainerdHandle::System(PathBuf::from(SYSTEM_SOCKET)))
        }
        ContainerdChoice::Auto | ContainerdChoice::Embedded => {
            Embedded::start(paths).await.map(ContainerdHandle::Embedded)
        }
    }
}

async fn use_system(paths: &Paths, namespace: &str) -> Result<bool, EmbeddedError> {
    let layout = Layout::new(paths).map_err(|e| EmbeddedError::io("make absolute", &paths.root, e))?;
    if shims::any(&layout.socket, namespace) {
        return Ok(false);
    }
    let system = Path::new(SYSTEM_SOCKET);
    if shims::any(system, namespace) {
        return Ok(true);
    }
    Ok(answers(system).await)
}

/// A running private containerd. Dropping this leaves the server running, without supervision.
#[derive(Debug)]
pub struct Embedded {
    socket: PathBuf,
    log: PathBuf,
    pid_file: PathBuf,
    stop: oneshot::Sender<()>,
    supervisor: JoinHandle<()>,
}

impl Embedded {
    /// Adopts the server of an earlier podling with the same paths, or starts one and waits until it
    /// answers.
    pub async fn start(paths: &Paths) -> Result<Self, EmbeddedError> {
        let layout = Layout::new(paths).map_err(|e| EmbeddedError::io("make absolute", &paths.root, e))?;
        layout.write()?;
        let server = if answers(&layout.socket).await {
            tracing::info!(socket = %layout.socket.display(), "adopting the private containerd that runs");
            Server::adopt(&layout).await?
        } else {
            Server::start(&layout).await?
        };
        let (stop, stopped) = oneshot::channel();
        let (socket, log, pid_file) = (layout.socket.clone(), layout.log.clone(), layout.pid_file.clone());
        let supervisor = tokio::spawn(supervise(layout, server, stopped));
        Ok(Self { socket, log, pid_file, stop, supervisor })
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its log, of at most 8 MiB, with as much again in a `.1` beside it.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The file that holds its process id, for whoever wants to stop it after podling ended.
    pub fn pid_file(&self) -> &Path {
        &self.pid_file
    }

    /// Ends the server, by force after 10 s, and removes its socket.
    pub async fn stop(self) {
        // A supervisor that is gone has nothing to stop.
        let _ = self.stop.send(());
        let _ = self.supervisor.await;
    }
}

/// Keeps the server running until told to stop it, or until nobody can tell any more.
async fn supervise(layout: Layout, mut server: Server, mut stopped: oneshot::Receiver<()>) {
    let (least, most, good) = RESTART;
    let mut pause = least;
    loop {
        let started = tokio::time::Instant::now();
        let mut log_check = tokio::time::interval(LOG_CHECK);
        let ended = loop {
            tokio::select! {
                told = &mut stopped => {
                    if told.is_ok() {
                        server.end().await;
                        layout.remove_run_files();
                    }
                    return;
                }
                ended = server.wait() => break ended,
                _ = log_check.tick() => layout.bound_log(),
            }
        };
        if started.elapsed() > good {
            pause = least;
        }
        tracing::warn!(
            "the private containerd ended with {ended}: {}; starting it again",
            layout.last_log_line()
        );
        loop {
            tokio::select! {
                _ = &mut stopped => return layout.remove_run_files(),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(most);
            match Server::start(&layout).await {
                Ok(new) => {
                    server = new;
                    break;
                }
                Err(e) => tracing::error!("{e}; trying again in {} s", pause.as_secs_f32()),
            }
        }
    }
}

/// True when a containerd answers at `socket`.
async fn answers(socket: &Path) -> bool {
    if !socket.exists() {
        return false;
    }
    let Ok(client) = Containerd::connect(socket, "podling").await else { return false };
    matches!(tokio::time::timeout(ANSWER, client.version()).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_binary_names_the_package_and_the_way_out() {
        let e = EmbeddedError::NoBinary { searched: "/usr/bin:/bin".into() };
        assert_eq!(
            e.to_string(),
            "cannot start a private containerd: no containerd binary in /usr/bin:/bin; install it (Debian \
             and Ubuntu: apt-get install containerd runc), or name a running one with --containerd SOCKET"
        );
    }

    #[tokio::test]
    async fn a_named_socket_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("later.sock");
        let choice = ContainerdChoice::Socket(socket.clone());
        let handle = resolve(&choice, &Paths::under(dir.path()), "podling").await.unwrap();
        assert_eq!(handle.socket(), socket);
        handle.stop().await;
    }

    #[tokio::test]
    async fn a_dead_socket_file_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(!answers(&path).await);
    }
}
