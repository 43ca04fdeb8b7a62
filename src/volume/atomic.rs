//! Files that change as one: the kubelet's layout of volumes whose content comes from objects.
//!
//! ```text
//! <volume>/..2026_01_02_03_04_05.1a2b3c4d/    the content, never changed once it is in use
//! <volume>/..data -> ..2026_…                 replaced by rename: the moment of change
//! <volume>/key    -> ..data/key               what users open, one for each first part of a path
//! ```
//!
//! Whoever reads by way of the links sees the old files or the new ones, never some of both. A write that
//! is cut short at any point leaves the old content in force; the next write clears away what it left.
//! What is there already, with the same modes and owners, is not written again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::VolumeError;
use super::remove::remove_tree;

/// The link to the content in force.
const DATA: &str = "..data";
/// The same link on its way there.
const DATA_NEW: &str = "..data_tmp";
/// Longest path of a file in a volume, and longest part of one, in bytes.
const MAX_PATH: usize = 4096;
const MAX_PART: usize = 255;
/// What fsGroup adds for the group in a volume that nobody may write to: reading, and entering directories
/// that pass the group on.
const GROUP_FILE: u32 = 0o440;
const GROUP_DIR: u32 = 0o2550;

/// One file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its content.
    pub data: Vec<u8>,
    /// Its mode, at most 0777.
    pub mode: u32,
    /// Who owns it; root where it says nothing.
    pub user: u32,
}

/// The files of a volume, by path below it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Payload {
    pub files: BTreeMap<String, Entry>,
    /// fsGroup: the group of all files, which may read them.
    pub group: Option<u32>,
}

impl Payload {
    /// Adds a file; one that has its path is replaced. Answers what is wrong with the path.
    pub fn insert(&mut self, path: &str, entry: Entry) -> Result<(), &'static str> {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let wrong = if path.starts_with('/') {
            Some("must be relative")
        } else if parts.is_empty() {
            Some("must not be empty")
        } else if parts.contains(&"..") {
            Some("must not contain '..'")
        } else if parts[0].starts_with("..") {
            Some("must not begin with '..'")
        } else if path.len() > MAX_PATH || parts.iter().any(|part| part.len() > MAX_PART) {
            Some("is too long")
        } else if path.contains('\0') {
            Some("must not contain a zero byte")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let path = parts.join("/");
        let above = |at: usize| self.files.contains_key(&path[..at]);
        let below = format!("{path}/");
        let next = self.files.range(below.clone()..).next();
        if path.match_indices('/').any(|(at, _)| above(at))
            || next.is_some_and(|(p, _)| p.starts_with(&below))
        {
            return Err("would be a file and a directory at once, by another item's path");
        }
        self.files.insert(path, entry);
        Ok(())
    }

    /// What a user sees in the top directory.
    fn tops(&self) -> BTreeSet<&str> {
        self.files.keys().filter_map(|path| path.split('/').next()).collect()
    }

    fn mode(&self, entry: &Entry) -> u32 {
        entry.mode | if self.group.is_some() { GROUP_FILE } else { 0 }
    }

    fn group(&self) -> u32 {
        self.group.unwrap_or(0)
    }
}

/// Whether a volume has content in force.
pub(super) fn is_written(dir: &Path) -> bool {
    in_force(dir).is_some()
}

/// Puts the payload in force in `dir`; false when it was already. A user sees all of the old content until
/// then and all of the new one from then on.
pub(super) fn write(dir: &Path, payload: &Payload) -> Result<bool, VolumeError> {
    if let Some(current) = in_force(dir).filter(|current| holds(&dir.join(current), payload)) {
        link(dir, payload)?;
        tidy(dir, payload, &current)?;
        return Ok(false);
    }
    let (name, content) = fresh(dir)?;
    if let Err(e) = fill(&content, payload) {
        remove_tree(&content);
        return Err(e);
    }
    link(dir, payload)?;
    put_in_force(dir, &name)?;
    tidy(dir, payload, OsStr::new(&name))?;
    Ok(true)
}

/// The directory that `..data` leads to, if it is one of ours and there.
fn in_force(dir: &Path) -> Option<std::ffi::OsString> {
    let target = fs::read_link(dir.join(DATA)).ok()?;
    let name = target.file_name()?.to_owned();
    (Path::new(&name) == target && dir.join(&name).symlink_metadata().is_ok_and(|m| m.is_dir()))
        .then_some(name)
}

/// A new directory for content.
fn fresh(dir: &Path) -> Result<(String, PathBuf), VolumeError> {
    loop {
        let time = Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S");
        let name = format!("{time}.{:08x}", uuid::Uuid::new_v4().as_fields().0);
        let path = dir.join(&name);
        match DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => return Ok((name, path)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(VolumeError::io("create", &path)(e)),
        }
    }
}

fn fill(content: &Path, payload: &Payload) -> Result<(), VolumeError> {
    own_dir(content, payload)?;
    for (path, entry) in &payload.files {
        let mut at = content.to_owned();
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            at.push(part);
            if parts.peek().is_none() {
                make_file(&at, payload, entry)?;
            } else if !at.is_dir() {
                DirBuilder::new().mode(0o755).create(&at).map_err(VolumeError::io("create", &at))?;
                own_dir(&at, payload)?;
            }
        }
    }
    Ok(())
}

/// Owner first: changing it takes the special bits of the mode away.
fn own_dir(path: &Path, payload: &Payload) -> Result<(), VolumeError> {
    let mode = 0o755 | payload.group.map_or(0, |_| GROUP_DIR);
    chown(path, None, payload.group)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(VolumeError::io("change the mode of", path))
}

fn make_file(path: &Path, payload: &Payload, entry: &Entry) -> Result<(), VolumeError> {
    let make = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&entry.data)?;
        chown(path, Some(entry.user), Some(payload.group()))?;
        // By number, as the umask would take some of it.
        file.set_permissions(Permissions::from_mode(payload.mode(entry)))
    };
    make().map_err(VolumeError::io("write", path))
}

/// The links that users open. Made before the content is in force, so that a file is there from that moment.
fn link(dir: &Path, payload: &Payload) -> Result<(), VolumeError> {
    for top in payload.tops() {
        let path = dir.join(top);
        let target = Path::new(DATA).join(top);
        match fs::read_link(&path) {
            Ok(found) if found == target => continue,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            _ => remove(&path)?,
        }
        symlink(&target, &path)
            .and_then(|()| lchown(&path, None, payload.group))
            .map_err(VolumeError::io("link", &path))?;
    }
    Ok(())
}

fn put_in_force(dir: &Path, name: &str) -> Result<(), VolumeError> {
    let (new, data) = (dir.join(DATA_NEW), dir.join(DATA));
    remove(&new)?;
    symlink(name, &new).map_err(VolumeError::io("link", &new))?;
    fs::rename(&new, &data).map_err(VolumeError::io("replace", &data))
}

/// Removes what neither the content in force needs nor a user should see: older content, links to files that
/// are gone, and the rests of a write that was cut short.
fn tidy(dir: &Path, payload: &Payload, current: &OsStr) -> Result<(), VolumeError> {
    let tops = payload.tops();
    for entry in fs::read_dir(dir).map_err(VolumeError::io("read", dir))? {
        let name = entry.map_err(VolumeError::io("read", dir))?.file_name();
        let wanted = name == DATA || name == current || name.to_str().is_some_and(|n| tops.contains(n));
        if !wanted {
            remove(&dir.join(name))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), VolumeError> {
    remove_tree(path).into_iter().next().map_or(Ok(()), Err)
}

/// Whether a directory of content is exactly the payload.
fn holds(content: &Path, payload: &Payload) -> bool {
    let mut files = Vec::new();
    list(content, String::new(), &mut files).is_ok()
        && files.len() == payload.files.len()
        && files.iter().all(|path| {
            payload.files.get(path).is_some_and(|entry| is_same(&content.join(path), payload, entry))
        })
}

fn list(content: &Path, below: String, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(content.join(&below))? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() { list(content, path, files)? } else { files.push(path) }
    }
    Ok(())
}

fn is_same(path: &Path, payload: &Payload, entry: &Entry) -> bool {
    let same = || -> io::Result<bool> {
        let meta = path.symlink_metadata()?;
        if !meta.is_file()
            || meta.mode() & 0o7777 != payload.mode(entry)
            || (meta.uid(), meta.gid()) != (entry.user, payload.group())
            || meta.len() != entry.data.len() as u64
        {
            return Ok(false);
        }
        let mut found = Vec::with_capacity(entry.data.len());
        fs::File::open(path)?.read_to_end(&mut found)?;
        Ok(found == entry.data)
    };
    same().unwrap_or(false)
}

#[cfg(test)]
mod tests;
