//! The kernel: namespaces, mounts, cgroups, processes, clocks. The only folder with `unsafe`, all of it
//! in `raw.rs` and, for network links, in `link.rs`. Nothing here knows of pods or containerd; callers hand in
//! paths, ids and numbers.
//!
//! Everything here blocks. Calls are short (no network, no containerd), but callers on a tokio worker
//! should still use `spawn_blocking` for what touches many mounts or cgroups.

use std::path::PathBuf;

pub mod cgroup;
pub mod clock;
pub mod copy;
pub mod devices;
pub mod files;
pub mod link;
pub mod machine;
pub mod mounts;
pub mod namespaces;
pub mod node;
pub mod notify;
pub mod process;
pub mod programs;
pub mod raw;
pub mod signal_names;
pub mod subpath;
pub mod userns;

/// A kernel call that failed, with what it was for.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A call on a path failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Path {
        /// What was tried, as a verb: `mount a tmpfs on`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A call without a path failed.
    #[error("cannot {action}: {source}")]
    Call {
        /// What was tried, as a verb: `create namespaces`.
        action: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The process ended, or its id now belongs to another one.
    #[error("process {pid} is gone")]
    ProcessGone {
        /// Its id.
        pid: u32,
    },
    /// A number that is no signal on Linux.
    #[error("{0} is not a signal; signals are 1 to 64 without 32 and 33")]
    NoSuchSignal(i32),
    /// A mount option that only a mount helper understands, or a root file system without mounts.
    #[error("cannot mount a root file system: {0}")]
    Rootfs(String),
    /// The calling user lacks the rights podling needs.
    #[error(
        "podling must run as root to create namespaces, mounts and cgroups; it runs as uid {uid}: start it with sudo or from its systemd unit"
    )]
    NotRoot {
        /// The effective uid.
        uid: u32,
    },
}

impl SystemError {
    fn path(action: &'static str, path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Self::Path { action, path: path.into(), source: source.into() }
    }

    fn call(action: &'static str, source: impl Into<std::io::Error>) -> Self {
        Self::Call { action, source: source.into() }
    }
}

/// Refuses to go on without root, with a sentence that says how to get it.
///
/// # Errors
/// [`SystemError::NotRoot`] when the effective uid is not 0.
pub fn require_root() -> Result<(), SystemError> {
    root_or_error(rustix::process::geteuid().as_raw())
}

fn root_or_error(uid: u32) -> Result<(), SystemError> {
    if uid == 0 { Ok(()) } else { Err(SystemError::NotRoot { uid }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_root_is_told_how_to_start_podling() {
        assert!(root_or_error(0).is_ok());
        let text = root_or_error(1000).unwrap_err().to_string();
        assert!(text.contains("it runs as uid 1000: start it with sudo"), "{text}");
    }

    #[test]
    fn an_error_names_the_action_the_path_and_the_kernels_answer() {
        let text = SystemError::path("unmount", "/run/x", rustix::io::Errno::BUSY).to_string();
        assert_eq!(text, "cannot unmount /run/x: Device or resource busy (os error 16)");
    }
}
