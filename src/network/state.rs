//! What the network keeps on disk: one file a sandbox, written before ADD and removed after DEL, so that
//! whatever ADD did is undone even when podling or the machine died in between.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::NetworkError;
use super::cni::{NetworkList, RuntimeConfig};
use crate::manifest::PodKey;
use crate::system::files::{self, Durability};

/// One sandbox's attachment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the file.
    pub version: u32,
    /// The pod.
    pub key: PodKey,
    /// Its uid.
    pub uid: String,
    /// Path of the network namespace.
    pub netns: PathBuf,
    /// Boot in which the namespace was made.
    pub boot_id: String,
    /// The network as it was configured then: DEL must be told the same.
    pub network: NetworkList,
    /// Host ports and addresses asked for.
    pub runtime: RuntimeConfig,
    /// What ADD answered; none while it has not.
    pub result: Option<Value>,
}

/// What is known of a sandbox.
#[derive(Debug)]
pub enum Known {
    /// Nothing: never attached, or already detached.
    Nothing,
    /// That it was attached; the file is damaged.
    Damaged,
    /// All.
    Record(Box<Record>),
}

/// The directory of records.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

impl Records {
    /// Under the network's state directory.
    pub fn new(state: &Path) -> Self {
        let directory = state.join("results");
        files::sweep(&directory);
        Self { directory }
    }

    fn file(&self, sandbox: &str) -> PathBuf {
        self.directory.join(format!("{sandbox}.json"))
    }

    /// Reads a record.
    pub fn load(&self, sandbox: &str) -> Result<Known, NetworkError> {
        let file = self.file(sandbox);
        match read_json(&file) {
            Ok(None) => Ok(Known::Nothing),
            Ok(Some(record)) => Ok(Known::Record(Box::new(record))),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(file = %file.display(), error = %e, "damaged network record; its sandbox is detached");
                Ok(Known::Damaged)
            }
            Err(source) => Err(NetworkError::State { action: "read", path: file, source }),
        }
    }

    /// Writes a record: durably before ADD, not after, since DEL works without a result.
    pub fn store(&self, sandbox: &str, record: &Record, sync: Durability) -> Result<(), NetworkError> {
        write_json(&self.file(sandbox), record, sync)
    }

    /// Forgets a sandbox.
    pub fn remove(&self, sandbox: &str) -> Result<(), NetworkError> {
        let file = self.file(sandbox);
        match fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(NetworkError::State { action: "remove", path: file, source: e })
            }
            _ => Ok(()),
        }
    }

    /// Ids of all sandboxes with a record, in order.
    pub fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok());
        let mut ids: Vec<String> =
            names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
        ids.sort();
        ids
    }
}

/// Reads a JSON file; `None` when there is none, `InvalidData` when it is damaged.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> io::Result<Option<T>> {
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Replaces a JSON file as a whole, making its directory when needed.
pub fn write_json<T: Serialize>(file: &Path, value: &T, sync: Durability) -> Result<(), NetworkError> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        files::replace(file, &serde_json::to_vec_pretty(value)?, 0o600, sync)
    };
    write().map_err(|source| NetworkError::State { action: "write", path: file.to_owned(), source })
}
