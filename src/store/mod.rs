//! The store: small checkpoint files under the state directory, readable by a person.
//!
//! ```text
//! <state>/pods/<uid>/pod.json      what was accepted: the manifest, and what was ordered about it
//! <state>/pods/<uid>/status.json   what a restart must know and containerd may have forgotten
//! <state>/source.json              which directory each manifest directory is
//! ```
//!
//! It owns these files and nothing else in the pods' directories. Each is replaced as a whole, so that a
//! crash or a power cut leaves the old or the new one; one that is damaged all the same is set aside and
//! reported, and never keeps the others from being read. Nothing here decides anything.

mod atomic;
mod lifecycle;
mod records;
mod versioned;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::manifest::PodKey;
use crate::source::DirIdentity;
use crate::system::files::{self, Durability};

pub use atomic::write_atomic;
pub use lifecycle::*;
pub use records::*;
pub use versioned::{ReadError, read_versioned, set_aside};

/// Mode of the checkpoint files: manifests may hold passwords.
const FILE_MODE: u32 = 0o600;
/// Mode of the directories made here.
const DIR_MODE: u32 = 0o700;

const POD: &str = "pod.json";
const STATUS: &str = "status.json";
/// Files beside them that podling makes from the manifest, and that nobody misses.
const GENERATED: [&str; 3] = ["etc-hosts", "resolv.conf", "hostname"];
const SOURCE: &str = "source.json";

/// What could not be done on disk.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No space or no quota left: passes when somebody makes room.
    #[error("cannot {what} {}: the disk is full; make room and it goes on by itself", path.display())]
    Full {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Any other answer of the kernel.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The record cannot be written as JSON.
    #[error("cannot write {} as JSON: {source}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A uid that cannot name a directory.
    #[error("pod uid {uid:?} cannot name a directory: use letters, digits, `-`, `_` and `.`, at most 128")]
    BadUid {
        /// As given.
        uid: String,
    },
}

impl StoreError {
    /// For a failed call of the kernel; sorts out the full disk.
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { what, path, source },
            _ => Self::Io { what, path, source },
        }
    }

    /// Whether the disk is full, and the write is worth repeating later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// Something found wrong while reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreProblem {
    /// The file.
    pub path: PathBuf,
    /// The pod whose file it is.
    pub uid: Option<String>,
    /// One line for a person.
    pub message: String,
    /// Where the damaged file was put.
    pub set_aside: Option<PathBuf>,
}

/// The checkpoint files of one state directory. Calls block for as long as the disk takes to sync;
/// calls for one pod must not overlap.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// What each file was last written with, so that a status that did not change costs nothing.
    written: Mutex<HashMap<PathBuf, [u8; 32]>>,
    /// Files that are written but not yet safe from a power cut.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

impl Store {
    /// Opens the store of a state directory (`/var/lib/podling`) and makes it where it is missing.
    ///
    /// # Errors
    /// When its directories cannot be made.
    pub fn open(dir: PathBuf) -> Result<Self, StoreError> {
        atomic::make_dir(&dir.join("pods"), DIR_MODE)?;
        Ok(Self { dir, written: Mutex::default(), unsynced: Mutex::default() })
    }

    /// The directory of a pod, made or not.
    ///
    /// # Errors
    /// [`StoreError::BadUid`] for a uid that could lead out of the store.
    pub fn pod_dir(&self, uid: &str) -> Result<PathBuf, StoreError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let good = !uid.is_empty() && uid.len() <= 128 && !uid.starts_with('.') && uid.bytes().all(plain);
        match good {
            true => Ok(self.dir.join("pods").join(uid)),
            false => Err(StoreError::BadUid { uid: uid.to_owned() }),
        }
    }

    /// All pods, in order of uid, and what could not be read. A damaged or missing status comes as an
    /// empty one; a damaged spec as a problem alone, and its status can still be had by
    /// [`load_status`](Self::load_status).
    pub fn load(&self) -> (Vec<PodRecord>, Vec<StoreProblem>) {
        let (mut records, mut problems) = (Vec::new(), Vec::new());
        for uid in self.uids(&mut problems) {
            let Ok(dir) = self.pod_dir(&uid) else { continue };
            files::sweep(&dir);
            let path = dir.join(POD);
            let spec = match read_versioned::<PodSpecRecord>(&path, VERSION) {
                Ok(Some(spec)) if spec.uid == uid => spec,
                Ok(None) => {
                    // What a kill between making it and writing the record, or removing it and the rest,
                    // leaves. With anything else in it, it stays: somebody may want to look.
                    if !dir.join(STATUS).exists() {
                        GENERATED.iter().for_each(|name| drop(std::fs::remove_file(dir.join(name))));
                    }
                    let _ = std::fs::remove_dir(&dir);
                    continue;
                }
                Ok(Some(spec)) => {
                    let other = ReadError::Damaged {
                        path: path.clone(),
                        why: format!("it is of pod uid {:?}, not of the directory's", spec.uid),
                    };
                    problems.push(report(&path, Some(&uid), &other));
                    continue;
                }
                Err(e) => {
                    problems.push(report(&path, Some(&uid), &e));
                    continue;
                }
            };
            let (status, problem) = self.load_status(&uid);
            problems.extend(problem);
            records.push(PodRecord { spec, status });
        }
        (records, problems)
    }

    /// The status of one pod, empty where there is none; a damaged one is set aside.
    pub fn load_status(&self, uid: &str) -> (StatusRecord, Option<StoreProblem>) {
        let Ok(dir) = self.pod_dir(uid) else {
            return (StatusRecord::default(), None);
        };
        let path = dir.join(STATUS);
        match read_versioned(&path, VERSION) {
            Ok(status) => (status.unwrap_or_default(), None),
            Err(e) => (StatusRecord::default(), Some(report(&path, Some(uid), &e))),
        }
    }

    /// Uids that have a directory but no spec: left by a removal that was cut short, or by damage.
    pub fn orphans(&self) -> Vec<String> {
        let mut uids = self.uids(&mut Vec::new());
        uids.retain(|uid| self.pod_dir(uid).is_ok_and(|dir| !dir.join(POD).exists()));
        uids
    }

    /// Whether a pod's spec is on disk.
    pub fn has_spec(&self, uid: &str) -> bool {
        self.pod_dir(uid).is_ok_and(|dir| dir.join(POD).exists())
    }

    /// The pod whose spec is on disk under this uid.
    pub fn holder(&self, uid: &str) -> Option<PodKey> {
        let path = self.pod_dir(uid).ok()?.join(POD);
        let spec = read_versioned::<PodSpecRecord>(&path, VERSION).ok().flatten()?;
        Some(spec.manifest.key.clone())
    }

    /// Uids that have a directory.
    pub fn known_uids(&self) -> Vec<String> {
        self.uids(&mut Vec::new())
    }

    /// Whether [`Store::sync`] has something to do.
    pub fn needs_sync(&self) -> bool {
        !self.unsynced().is_empty()
    }

    fn uids(&self, problems: &mut Vec<StoreProblem>) -> Vec<String> {
        let pods = self.dir.join("pods");
        let mut uids = Vec::new();
        match std::fs::read_dir(&pods) {
            Ok(entries) => {
                let names = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
                uids.extend(names.filter_map(|e| e.file_name().into_string().ok()));
            }
            Err(e) => problems.push(StoreProblem {
                message: StoreError::io("list", &pods, e).to_string(),
                path: pods,
                uid: None,
                set_aside: None,
            }),
        }
        uids.retain(|uid| self.pod_dir(uid).is_ok());
        uids.sort();
        uids
    }

    /// Writes what was accepted for a pod; durable as [`Store::save_status`].
    ///
    /// # Errors
    /// When the file cannot be written; the old one is then still there.
    pub fn save_spec(&self, spec: &PodSpecRecord, sync: Durability) -> Result<(), StoreError> {
        let dir = self.pod_dir(&spec.uid)?;
        self.make_dir(&dir, sync)?;
        self.save(dir.join(POD), spec, sync)
    }

    /// Writes a pod's status, unless it is what was last written. With [`Durability::Synced`] it is durable
    /// when it returns; else it survives a kill at once and a power cut after the next [`Store::sync`].
    ///
    /// # Errors
    /// When the file cannot be written; the old one is then still there.
    pub fn save_status(&self, uid: &str, status: &StatusRecord, sync: Durability) -> Result<(), StoreError> {
        let dir = self.pod_dir(uid)?;
        self.make_dir(&dir, sync)?;
        self.save(dir.join(STATUS), status, sync)
    }

    /// Forgets a pod, and its directory when nothing else is in it. The spec goes last, so that a
    /// removal that is cut short is found again.
    ///
    /// # Errors
    /// When a file is there and cannot be removed.
    pub fn remove(&self, uid: &str) -> Result<(), StoreError> {
        let dir = self.pod_dir(uid)?;
        for name in [STATUS, POD] {
            let path = dir.join(name);
            self.written().remove(&path);
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(StoreError::io("remove", &path, e)),
            }
        }
        // Volumes and logs in it are for others to remove.
        match std::fs::remove_dir(&dir) {
            Ok(()) => atomic::sync_dir(&self.dir.join("pods")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) => atomic::sync_dir(&dir),
        }
    }

    /// Writes which directory each manifest directory is. To be called before the pods found in them
    /// are saved: pods without it cannot be told from those of an unmounted directory.
    ///
    /// # Errors
    /// When the file cannot be written; the old one is then still there.
    pub fn save_source(&self, dirs: &BTreeMap<PathBuf, DirIdentity>) -> Result<(), StoreError> {
        self.save(
            self.dir.join(SOURCE),
            &SourceRecord { version: VERSION, dirs: dirs.clone() },
            Durability::Synced,
        )
    }

    /// Which directory each manifest directory was; empty when that is not known.
    pub fn load_source(&self) -> (BTreeMap<PathBuf, DirIdentity>, Option<StoreProblem>) {
        files::sweep(&self.dir);
        let path = self.dir.join(SOURCE);
        match read_versioned::<SourceRecord>(&path, VERSION) {
            Ok(record) => (record.map(|r| r.dirs).unwrap_or_default(), None),
            Err(e) => (BTreeMap::new(), Some(report(&path, None, &e))),
        }
    }

    /// A pod's directory is as durable as the files in it have to be: a disk that is slow to sync is not waited for
    /// before a pod's first start.
    fn make_dir(&self, dir: &Path, sync: Durability) -> Result<(), StoreError> {
        if sync == Durability::Lazy && !dir.is_dir() && dir.parent().is_some_and(Path::is_dir) {
            std::fs::DirBuilder::new()
                .mode(DIR_MODE)
                .create(dir)
                .map_err(|e| StoreError::io("make directory", dir, e))?;
            self.unsynced().insert(dir.to_owned());
            return Ok(());
        }
        atomic::make_dir(dir, DIR_MODE)?;
        // A file that must outlive a power cut is worth nothing in a directory that does not.
        match dir.parent() {
            Some(above) if sync == Durability::Synced && self.unsynced().remove(dir) => {
                files::sync_dir(above).map_err(|e| StoreError::io("sync", dir, e))
            }
            _ => Ok(()),
        }
    }

    fn save<T: Serialize>(&self, path: PathBuf, record: &T, sync: Durability) -> Result<(), StoreError> {
        let mut bytes = serde_json::to_vec_pretty(record)
            .map_err(|source| StoreError::Encode { path: path.clone(), source })?;
        bytes.push(b'\n');
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if self.written().get(&path) == Some(&digest) && path.exists() {
            return Ok(());
        }
        // Whatever comes of the attempt, what stands there is no longer known.
        self.written().remove(&path);
        files::replace(&path, &bytes, FILE_MODE, sync).map_err(|e| StoreError::io("write", &path, e))?;
        if sync == Durability::Lazy {
            self.unsynced().insert(path.clone());
        }
        self.written().insert(path, digest);
        Ok(())
    }

    /// Makes durable what was written with [`Durability::Lazy`]; to be called often, off the async threads.
    pub fn sync(&self) {
        let paths = std::mem::take(&mut *self.unsynced());
        for path in paths {
            let synced =
                std::fs::File::open(&path).and_then(|f| f.sync_all()).and_then(|()| match path.parent() {
                    Some(dir) => files::sync_dir(dir),
                    None => Ok(()),
                });
            match synced {
                // Removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => tracing::warn!("{}", StoreError::io("sync", &path, e)),
                Ok(()) => {}
            }
        }
    }

    fn unsynced(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, [u8; 32]>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets a damaged file aside and says so.
fn report(path: &Path, uid: Option<&str>, e: &ReadError) -> StoreProblem {
    let mut message = e.to_string();
    let mut moved = None;
    if let ReadError::Damaged { .. } = e {
        match set_aside(path) {
            Ok(to) => {
                message.push_str(&format!("; it is kept as {}", to.display()));
                moved = Some(to);
            }
            Err(e) => message.push_str(&format!("; {e}")),
        }
    }
    StoreProblem { path: path.to_owned(), uid: uid.map(str::to_owned), message, set_aside: moved }
}

#[cfg(test)]
mod tests;
