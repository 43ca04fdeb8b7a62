//! Container logs: where they are, how the shim is told to write them, and how they are read.
//!
//! ```text
//! /var/log/pods/<ns>_<pod>_<uid>/<container>/<attempt>.log                    the live file
//!                                            <attempt>.log.YYYYMMDD-HHMMSS    rotated, oldest first by name
//! /var/log/containers/<pod>_<ns>_<container>-<container id>.log               link to the live file
//! ```
//!
//! Writing is done by `podling-logger` alone; nothing here writes into a log.

mod files;
mod line;
mod reader;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use crate::manifest::PodKey;
use crate::settings::Paths;

pub use files::{attempts, prune_attempts};
pub use line::{LogLine, Stream};
pub use reader::{LogQuery, Since, stream};

/// File names are at most 255 bytes on all the file systems logs live on.
const NAME_MAX: usize = 255;

/// What goes wrong with logs.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The container has written no log under this name.
    #[error("no log at {}: the container has not started yet, or its log was removed", path.display())]
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// `--previous` without an earlier instance.
    #[error("no log of a previous instance in {}: this is the first, or the earlier logs were removed", directory.display())]
    NoPrevious {
        /// The container's log directory.
        directory: PathBuf,
    },
    /// The file system said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LogError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        let path = path.to_owned();
        move |source| LogError::Io { action, path, source }
    }
}

/// The URI that makes containerd's shim start the logger `helper` for one container, writing to `log`.
/// `max_size` is in bytes (0 never rotates); `max_files` counts the live file.
pub fn logger_uri(helper: &Path, log: &Path, max_size: u64, max_files: u32) -> String {
    format!(
        "binary://{}?path={}&max-size={max_size}&max-files={max_files}",
        percent_encode(helper.as_os_str().as_bytes(), b"/-._~"),
        percent_encode(log.as_os_str().as_bytes(), b"/-._~"),
    )
}

/// As [`logger_uri`] for a container with a terminal. There the shim never closes its end of stderr, so the
/// logger must take the end of stdout for the end.
pub fn logger_uri_tty(helper: &Path, log: &Path, max_size: u64, max_files: u32) -> String {
    logger_uri(helper, log, max_size, max_files) + "&tty=1"
}

fn percent_encode(bytes: &[u8], keep: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || keep.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `/var/log/pods/<ns>_<pod>_<uid>`: all logs of one pod.
pub fn pod_log_dir(paths: &Paths, key: &PodKey, uid: &str) -> PathBuf {
    paths.pod_logs().join(format!("{}_{}_{uid}", key.namespace, key.name))
}

/// `/var/log/pods/<ns>_<pod>_<uid>/<container>`.
pub fn container_log_dir(paths: &Paths, key: &PodKey, uid: &str, container: &str) -> PathBuf {
    pod_log_dir(paths, key, uid).join(container)
}

/// `/var/log/pods/<ns>_<pod>_<uid>/<container>/<attempt>.log`; the attempt is the restart count.
pub fn log_path(paths: &Paths, key: &PodKey, uid: &str, container: &str, attempt: u32) -> PathBuf {
    container_log_dir(paths, key, uid, container).join(format!("{attempt}.log"))
}

/// Makes the directory that holds `log`: 0750 for `/var/log/pods` itself and 0755 below, as the kubelet does.
pub fn create_log_dir(paths: &Paths, log: &Path) -> Result<(), LogError> {
    let make = |path: &Path, mode| {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(LogError::io("create", path))
    };
    make(&paths.pod_logs(), 0o750)?;
    make(log.parent().unwrap_or(Path::new("/")), 0o755)
}

/// `/var/log/containers/<pod>_<ns>_<container>-<id>.log`, its name cut to what a file name may have (the id
/// loses its end first, as with the kubelet).
pub fn link_path(paths: &Paths, key: &PodKey, container: &str, container_id: &str) -> PathBuf {
    let mut name = format!("{}_{}_{container}-{container_id}", key.name, key.namespace);
    name.truncate(NAME_MAX - ".log".len());
    paths.container_logs().join(name + ".log")
}

/// Makes the link in `/var/log/containers`, replacing an older one of the same name.
pub fn create_link(
    paths: &Paths,
    key: &PodKey,
    container: &str,
    container_id: &str,
    log: &Path,
) -> Result<(), LogError> {
    let link = link_path(paths, key, container, container_id);
    fs::create_dir_all(paths.container_logs()).map_err(LogError::io("create", &paths.container_logs()))?;
    match symlink(log, &link) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&link).map_err(LogError::io("remove", &link))?;
            symlink(log, &link).map_err(LogError::io("link", &link))
        }
        result => result.map_err(LogError::io("link", &link)),
    }
}

/// Removes all links to the logs of a removed pod; the logs themselves stay for a time. Repeating it is fine.
pub fn remove_links(paths: &Paths, key: &PodKey, uid: &str) {
    let directory = pod_log_dir(paths, key, uid);
    remove_links_where(paths, |target| target.starts_with(&directory));
}

/// Removes the links to logs of earlier runs in a container's `directory` that are not there any more: one is made
/// at each start.
pub fn remove_dead_links(paths: &Paths, directory: &Path) {
    remove_links_where(paths, |target| target.starts_with(directory) && !target.exists());
}

fn remove_links_where(paths: &Paths, goes: impl Fn(&Path) -> bool) {
    for link in fs::read_dir(paths.container_logs()).into_iter().flatten().flatten().map(|entry| entry.path())
    {
        if fs::read_link(&link).is_ok_and(|target| goes(&target)) {
            // A link that cannot be removed points nowhere and harms nobody.
            let _ = fs::remove_file(&link);
        }
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
