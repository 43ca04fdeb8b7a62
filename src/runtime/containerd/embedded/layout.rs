//! Where the private containerd keeps its things, and its configuration.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::EmbeddedError;
use crate::runtime::containerd::SUN_PATH_MAX;
use crate::settings::Paths;

/// The log is cut when it is longer than this, in bytes.
const LOG_MAX: u64 = 8 << 20;
/// containerd adds this to its socket's path for a second socket, whose path must fit as well.
const TTRPC_SUFFIX: &str = ".ttrpc";
/// What a runner of pods does not need. Names that a version does not know are ignored by it.
const DISABLED: &[&str] = &[
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images",
    "io.containerd.cri.v1.runtime",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.nri.v1.nri",
];

/// All paths of one private containerd.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
    pub(super) state: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) config: PathBuf,
    pub(super) log: PathBuf,
    pub(super) pid_file: PathBuf,
    /// A directory that exists only for the socket, where the state directory's path is too long.
    short: Option<PathBuf>,
}

impl Layout {
    pub(super) fn new(paths: &Paths) -> io::Result<Self> {
        let root = std::path::absolute(paths.containerd_root())?;
        let state = std::path::absolute(paths.containerd_state())?;
        let socket = state.join("containerd.sock");
        let fits = socket.as_os_str().len() + TTRPC_SUFFIX.len() <= SUN_PATH_MAX;
        let short = (!fits).then(|| {
            // Derived from the path, so that the next podling with this root finds the server.
            let hash = hex::encode(Sha256::digest(state.as_os_str().as_bytes()));
            PathBuf::from(format!("/run/podling-{}", &hash[..16]))
        });
        Ok(Self {
            socket: short.as_ref().map_or(socket, |dir| dir.join("containerd.sock")),
            config: state.join("config.toml"),
            log: state.join("containerd.log"),
            pid_file: state.join("containerd.pid"),
            root,
            state,
            short,
        })
    }

    /// Makes the directories and writes the configuration.
    pub(super) fn write(&self) -> Result<(), EmbeddedError> {
        for dir in [&self.root, &self.state].into_iter().chain(&self.short) {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o711)
                .create(dir)
                .map_err(|e| EmbeddedError::io("make directory", dir, e))?;
        }
        fs::write(&self.config, self.configuration()).map_err(|e| EmbeddedError::io("write", &self.config, e))
    }

    /// Configuration version 2: the oldest and the newest that 1.6 and 2.x both read.
    fn configuration(&self) -> String {
        let disabled = DISABLED.iter().map(|name| format!("  {},\n", quote(name))).collect::<String>();
        format!(
            "# Written by podling at every start; changes are lost.\n\
             version = 2\nroot = {}\nstate = {}\nimports = []\ndisabled_plugins = [\n{disabled}]\n\n\
             [grpc]\n  address = {}\n\n[debug]\n  level = \"warn\"\n\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\n  path = {}\n",
            quote(&self.root.to_string_lossy()),
            quote(&self.state.to_string_lossy()),
            quote(&self.socket.to_string_lossy()),
            quote(&self.root.join("opt").to_string_lossy()),
        )
    }

    /// The log, opened so that it can be cut while containerd writes.
    pub(super) fn open_log(&self) -> Result<fs::File, EmbeddedError> {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(|e| EmbeddedError::io("open", &self.log, e))
    }

    /// Moves the log aside when it is too long. containerd keeps its file open, so the content is copied
    /// and the file cut; it writes in append mode, so it goes on at the new end.
    pub(super) fn bound_log(&self) {
        self.bound_log_to(LOG_MAX);
    }

    fn bound_log_to(&self, max: u64) {
        if fs::metadata(&self.log).map_or(0, |m| m.len()) <= max {
            return;
        }
        let old = self.log.with_extension("log.1");
        let cut = fs::copy(&self.log, &old)
            .and_then(|_| fs::OpenOptions::new().write(true).open(&self.log))
            .and_then(|file| file.set_len(0));
        if let Err(e) = cut {
            tracing::warn!("cannot bound the log {}: {e}", self.log.display());
        }
    }

    /// The last line of the log, for messages.
    pub(super) fn last_log_line(&self) -> String {
        let tail = tail(&self.log, 4096).unwrap_or_default();
        let line = String::from_utf8_lossy(&tail);
        let line = line.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("its log is empty");
        line.trim().to_owned()
    }

    /// Removes what only a running server needs.
    pub(super) fn remove_run_files(&self) {
        let mut ttrpc = self.socket.clone().into_os_string();
        ttrpc.push(TTRPC_SUFFIX);
        for file in [&self.socket, Path::new(&ttrpc), &self.pid_file] {
            // What is not there need not go.
            let _ = fs::remove_file(file);
        }
        if let Some(dir) = &self.short {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// A TOML basic string; JSON's escapes are a subset of TOML's.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn tail(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut data = Vec::new();
    file.take(bytes).read_to_end(&mut data)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_root_gets_a_short_socket_that_is_the_same_every_time() {
        let deep = Paths::under(format!("/tmp/{}", "d".repeat(100)));
        let layout = Layout::new(&deep).unwrap();
        assert!(layout.socket.starts_with("/run") && layout.socket.as_os_str().len() < 60);
        assert_eq!(layout.socket, Layout::new(&deep).unwrap().socket);
        assert!(layout.state.starts_with(&deep.root));
        let other = Layout::new(&Paths::under(format!("/tmp/{}", "e".repeat(100)))).unwrap();
        assert_ne!(layout.socket, other.socket);
    }

    #[test]
    fn an_ordinary_root_has_its_socket_inside() {
        let layout = Layout::new(&Paths::under("/tmp/x")).unwrap();
        assert_eq!(layout.socket, Path::new("/tmp/x/run/podling/containerd/containerd.sock"));
    }

    #[test]
    fn the_configuration_keeps_to_its_own_directories_and_leaves_cri_out() {
        let text = Layout::new(&Paths::under("/tmp/a \"b\"")).unwrap().configuration();
        assert!(text.contains("version = 2\n"));
        assert!(text.contains(r#"root = "/tmp/a \"b\"/var/lib/podling/containerd""#), "{text}");
        assert!(text.contains("  \"io.containerd.grpc.v1.cri\",\n"));
    }

    #[test]
    fn a_log_that_grew_too_long_is_cut_and_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&Paths::under(dir.path())).unwrap();
        layout.write().unwrap();
        let mut writer = layout.open_log().unwrap();
        io::Write::write_all(&mut writer, b"one\ntwo\n\n").unwrap();
        assert_eq!(layout.last_log_line(), "two");
        layout.bound_log_to(100);
        assert_eq!(fs::read(&layout.log).unwrap(), b"one\ntwo\n\n");
        layout.bound_log_to(5);
        io::Write::write_all(&mut writer, b"three\n").unwrap();
        assert_eq!(fs::read(&layout.log).unwrap(), b"three\n");
        assert_eq!(fs::read(layout.log.with_extension("log.1")).unwrap(), b"one\ntwo\n\n");
    }
}
