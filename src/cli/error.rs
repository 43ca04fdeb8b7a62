//! How a verb fails, and what the shell and the person learn of it.

use std::io;
use std::process::ExitCode;

use crate::settings::SettingsError;

/// Exit code of a program that wrote into a closed pipe, as the shell reports SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// Used wrongly; exit 64.
    #[error("error: {0}")]
    Usage(String),
    /// Settings that cannot be used; exit 64.
    #[error("error: {0}")]
    Settings(#[from] SettingsError),
    /// The daemon refused, with Kubernetes' reason and words.
    #[error("Error from server ({reason}): {message}")]
    Server {
        /// Kubernetes' word, such as `NotFound`.
        reason: String,
        /// One line.
        message: String,
    },
    /// No daemon listens.
    #[error("error: podling is not running: nothing answers on {socket}; start it with `{start}`")]
    NotRunning {
        /// The socket that was tried.
        socket: String,
        /// The command that starts it.
        start: String,
    },
    /// Anything else, as one sentence.
    #[error("error: {0}")]
    Failed(String),
    /// Output could not be written, or input not read.
    #[error("error: {0}")]
    Io(#[from] io::Error),
}

impl CliError {
    /// Whether the daemon says that there is no such thing.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, CliError::Server { reason, .. } if reason == "NotFound")
    }

    /// Prints it and answers the exit code. A reader that closed the pipe wants no more words.
    pub(super) fn report(&self) -> ExitCode {
        if matches!(self, CliError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::from(BROKEN_PIPE);
        }
        say(&self.to_string());
        match self {
            CliError::Usage(_) | CliError::Settings(_) => ExitCode::from(super::USAGE),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Writes a line to stderr; nobody there is no reason to fail.
pub(super) fn say(line: &str) {
    use io::Write as _;
    let _ = writeln!(io::stderr().lock(), "{line}");
}
