//! Reading a checkpoint file: its version first, then the rest; a damaged one is set aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{StoreError, atomic};

/// Why a checkpoint file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel's answer. The file may be as good as ever.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what podling wrote: torn, edited, or from a disk that lost it.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, where.
        why: String,
    },
    /// A newer podling wrote it in a way that this one cannot read. It is left in place.
    #[error(
        "{} has version {found}, and this podling reads up to {known}; run the podling that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it names.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads a file of JSON that names its version, up to `newest`. `None` when there is no such file.
/// Fields that are not known are skipped: a newer podling may have added them.
///
/// # Errors
/// See [`ReadError`]; the file is left where it is.
pub fn read_versioned<T: DeserializeOwned>(path: &Path, newest: u32) -> Result<Option<T>, ReadError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReadError::Io { path: path.to_owned(), source }),
    };
    let damaged = |e: serde_json::Error| ReadError::Damaged { path: path.to_owned(), why: e.to_string() };
    if bytes.is_empty() {
        return Err(ReadError::Damaged { path: path.to_owned(), why: "it is empty".into() });
    }
    let Version { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if version > newest {
        return Err(ReadError::Newer { path: path.to_owned(), found: version, known: newest });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// Renames a damaged file to `<name>.damaged-<n>`, with the first free number, and returns that path.
///
/// # Errors
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".damaged-");
    let free = (1u32..).map(|n| {
        let mut name = name.clone();
        name.push(n.to_string());
        path.with_file_name(name)
    });
    let to = free.into_iter().find(|p| p.symlink_metadata().is_err()).unwrap_or_else(|| path.to_owned());
    fs::rename(path, &to).map_err(|e| StoreError::io("set aside", path, e))?;
    if let Some(dir) = path.parent() {
        atomic::sync_dir(dir)?;
    }
    Ok(to)
}
