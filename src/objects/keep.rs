//! What was accepted of ConfigMaps and Secrets, kept over a restart of podling: should their file be
//! broken or their directory gone at that moment, they are still there.
//!
//! Kept in memory only: in a file under `/run/podling/objects`, with a tmpfs of its own where `/run` is
//! none. A reboot clears it, and so does the removal of the last object.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Kept;
use crate::system::files::{self, Durability};
use crate::system::mounts::{self, Tmpfs};

/// Version of the file.
const VERSION: u32 = 1;
/// Only its owner reads it.
const MODE: u32 = 0o600;
/// Most that all objects may take together, in bytes, where the tmpfs is ours. Takes memory as used only.
const SIZE: u64 = 64 << 20;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file or directory.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// Which verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file system.
    #[error("cannot keep Secrets in memory: {0}")]
    Mount(#[from] crate::system::SystemError),
    /// A file that is not what podling wrote.
    #[error("{path} cannot be read: {source}; it is left alone until objects change")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    objects: &'a [Kept],
}

#[derive(Deserialize)]
struct Read {
    objects: Vec<Kept>,
}

/// The place where objects are kept.
#[derive(Clone, Debug)]
pub struct Keep {
    dir: PathBuf,
}

impl Keep {
    /// At this directory, which is made when it is needed.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("objects.json")
    }

    /// What was kept.
    ///
    /// # Errors
    /// When there is a file and it cannot be read.
    pub fn load(&self) -> Result<Vec<Kept>, KeepError> {
        let path = self.file();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(KeepError::Io { what: "read", path, source }),
        };
        let read: Read =
            serde_json::from_slice(&bytes).map_err(|source| KeepError::Damaged { path, source })?;
        Ok(read.objects)
    }

    /// Keeps these and nothing else.
    ///
    /// # Errors
    /// When they cannot be written; what was kept before may still be there.
    pub fn save(&self, objects: &[Kept]) -> Result<(), KeepError> {
        if objects.is_empty() {
            return self.clear();
        }
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| KeepError::Io { what, path, source }
        };
        std::fs::create_dir_all(&self.dir).map_err(failed("create", &self.dir))?;
        if !mounts::is_in_memory(&self.dir)? {
            mounts::mount_tmpfs(&self.dir, Tmpfs { size: Some(SIZE), mode: 0o700, exec: false })?;
        }
        let path = self.file();
        let bytes = serde_json::to_vec(&Written { version: VERSION, objects })
            .map_err(|source| KeepError::Damaged { path: path.clone(), source })?;
        files::sweep(&self.dir);
        files::replace(&path, &bytes, MODE, Durability::Lazy).map_err(failed("write", &path))
    }

    /// Takes the tmpfs away, and what is kept with it, if it is one of our own.
    ///
    /// # Errors
    /// As [`Keep::clear`].
    pub fn leave(&self) -> Result<(), KeepError> {
        if mounts::is_mountpoint(&self.dir)? { self.clear() } else { Ok(()) }
    }

    /// Forgets everything, and takes the tmpfs away where there is one.
    ///
    /// # Errors
    /// When something is there and cannot be removed.
    pub fn clear(&self) -> Result<(), KeepError> {
        if !self.dir.exists() {
            return Ok(());
        }
        mounts::unmount_under(&self.dir)?;
        match std::fs::remove_dir_all(&self.dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(KeepError::Io { what: "remove", path: self.dir.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::manifest::{DataObject, ObjectKey, ObjectKind};

    fn secret() -> Kept {
        let object = DataObject {
            key: ObjectKey::new(ObjectKind::Secret, "default", "s"),
            data: BTreeMap::from([("k".to_owned(), vec![0, 255, b'x'])]),
            binary: Default::default(),
            secret_type: Some("Opaque".into()),
            immutable: true,
            origin: Default::default(),
        };
        Kept { since: "2026-01-01T00:00:00Z".parse().expect("a time"), object: Arc::new(object) }
    }

    #[test]
    fn what_was_kept_comes_back_from_memory_and_goes_with_the_last_object() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("objects");
        let keep = Keep::at(dir.clone());
        assert!(keep.load().expect("nothing").is_empty());
        keep.save(&[secret()]).expect("saved");
        assert!(mounts::is_in_memory(&dir).expect("a file system"));
        assert_eq!(Keep::at(dir.clone()).load().expect("kept"), [secret()]);
        keep.save(&[]).expect("cleared");
        assert!(!dir.exists());
    }

    #[test]
    fn values_do_not_show_when_an_object_is_printed() {
        assert!(!format!("{:?}", secret()).contains("255"));
    }
}
