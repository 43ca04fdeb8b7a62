//! What can be wrong with settings.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Settings that cannot be used. podling exits with 64 on any of them.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The config file cannot be read.
    #[error("cannot read the config file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The config file says something that cannot be used; all findings, one a line.
    #[error("{}", lines(.0))]
    File(Vec<Finding>),
    /// A flag has a value that cannot be used.
    #[error("{flag}: {text}")]
    Flag {
        /// The flag as typed, such as `--containerd`.
        flag: &'static str,
        /// What is wrong with the value and what is allowed.
        text: String,
    },
}

/// One thing that is wrong in the config file.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// 1-based line.
    pub line: u64,
    /// 1-based column.
    pub column: u64,
    /// What is wrong, with the field, the value and what is allowed.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.text)
    }
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
}
