//! The unix socket: one daemon a root, paths of any length, and nobody else's access.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;

use crate::settings::Paths;
use crate::system::clock;

/// Longest path that fits into a `sockaddr_un` with its final zero.
const LONGEST: usize = 107;

/// How long a daemon waits for the one before it to be gone: one that was killed holds its lock for some
/// milliseconds more, one that was told to end for as long as it takes leave.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another daemon holds this root.
    #[error(
        "another podling runs on this root ({}); stop it, or give this one a root of its own with --root",
        socket.display()
    )]
    Taken {
        /// The other one's socket.
        socket: PathBuf,
    },
    /// The socket or its directory cannot be made.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A bound socket, and the lock that keeps others off this root for as long as it lives.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) listener: UnixListener,
    pub(super) path: PathBuf,
    // Held, not read: the lock goes with the file.
    pub(super) _lock: File,
}

/// Takes the root for this process and binds its socket (0600, in a directory of 0700). What a dead
/// daemon left is replaced; a living one is [`ServerError::Taken`].
pub fn bind(paths: &Paths) -> Result<Endpoint, ServerError> {
    let (dir, path) = (paths.run(), paths.socket());
    let error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| ServerError::Io { action, path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(error("create", &dir))?;
    let private = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(error("set the mode of", path))
    };
    private(&dir, 0o700)?;
    let lock_path = dir.join("podling.lock");
    let lock = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(error("open", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ServerError::Taken { socket: path }),
        Err(TryLockError::Error(e)) => return Err(error("lock", &lock_path)(e)),
    }
    // Under the lock, whatever lies at the path belongs to a daemon that is gone.
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(error("replace", &path)(e)),
        _ => {}
    }
    let listener = short(&path, |path| UnixListener::bind(path)).map_err(error("listen on", &path))?;
    private(&path, 0o600)?;
    listener.set_nonblocking(true).map_err(error("listen on", &path))?;
    Ok(Endpoint { listener, path, _lock: lock })
}

/// As [`bind`], and waits for a daemon that is about to end.
pub async fn bind_after(paths: &Paths) -> Result<Endpoint, ServerError> {
    let begun = clock::now();
    loop {
        match bind(paths) {
            Err(ServerError::Taken { .. }) if clock::now().since(begun) < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            verdict => return verdict,
        }
    }
}

/// Opens a connection to the daemon at `path`.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = short(path, |path| std::os::unix::net::UnixStream::connect(path))?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Calls `with` with `path`, or with a short path to the same file when `path` is too long for a socket
/// address: the directory is opened, and the file named through it.
fn short<T>(path: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= LONGEST {
        return with(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return with(path);
    };
    let dir = File::open(dir)?;
    with(&Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_socket_is_for_its_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        let _endpoint = bind(&paths).unwrap();
        assert_eq!((mode(&paths.run()), mode(&paths.socket())), (0o700, 0o600));
    }

    #[test]
    fn a_second_daemon_on_the_same_root_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        let first = bind(&paths).unwrap();
        let text = bind(&paths).unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "another podling runs on this root ({}); stop it, or give this one a root of its own with --root",
                paths.socket().display()
            )
        );
        drop(first);
        bind(&paths).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_is_about_to_end_is_waited_for_and_a_living_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        let first = bind(&paths).unwrap();
        let leave = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(bind_after(&paths), leave);
        let _second = second.unwrap();
        assert!(matches!(bind_after(&paths).await, Err(ServerError::Taken { .. })));
    }

    #[test]
    fn a_socket_left_by_a_dead_daemon_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        std::fs::create_dir_all(paths.run()).unwrap();
        drop(UnixListener::bind(paths.socket()).unwrap());
        bind(&paths).unwrap();
    }

    #[tokio::test]
    async fn a_path_longer_than_a_socket_address_works_at_both_ends() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("x".repeat(120));
        let paths = Paths::under(&deep);
        assert!(paths.socket().as_os_str().len() > LONGEST);
        let _endpoint = bind(&paths).unwrap();
        connect(&paths.socket()).await.unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("run"), "a file").unwrap();
        let paths = Paths::under(root.path());
        let text = bind(&paths).unwrap_err().to_string();
        assert!(text.starts_with(&format!("cannot create {}: ", paths.run().display())), "{text}");
    }
}
