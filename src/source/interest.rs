//! Which directories matter, and which names in them: what to watch, and what an event there concerns.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::entry::Arrival;
use super::look;
use super::names::{NameClass, classify};

/// What happened to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It appeared.
    Created,
    /// Its content was written to.
    Modified,
    /// A writer closed it.
    Closed,
    /// It was renamed to this.
    MovedHere,
    /// It went away: deleted, or renamed to something else.
    Gone,
    /// Its mode, owner or times changed.
    Attributes,
}

/// Who depends on a name.
#[derive(Clone, Debug)]
enum Dependent {
    /// A path of the settings is found through it.
    Root,
    /// A manifest's link chain goes through it.
    Link(PathBuf),
    /// It is the file that a manifest's link leads to.
    Target(PathBuf),
}

#[derive(Clone, Debug, Default)]
struct Watched {
    /// Roots that this directory is: all names in it matter.
    roots: Vec<PathBuf>,
    names: BTreeMap<OsString, Vec<Dependent>>,
}

/// Directories by their path free of links.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    dirs: BTreeMap<PathBuf, Watched>,
}

impl Interest {
    /// The directories to watch.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.dirs.keys().map(PathBuf::as_path)
    }

    /// Adds a path of the settings: the directory itself, and all through which it is found.
    pub fn root(&mut self, path: &Path) {
        for (dir, name) in look::trace(path) {
            self.dirs.entry(dir).or_default().names.entry(name).or_default().push(Dependent::Root);
        }
        if let Ok(real) = path.canonicalize()
            && real.is_dir()
        {
            self.dirs.entry(real).or_default().roots.push(path.to_owned());
        }
    }

    /// Adds a manifest that is a link, or stands alone.
    pub fn entry(&mut self, path: &Path, link: bool) {
        let alone = self.dirs.values().all(|w| !w.roots.iter().any(|r| path.parent() == Some(r)));
        if !link && !alone {
            return;
        }
        let hops = look::trace(path);
        let last = hops.len().saturating_sub(1);
        for (i, (dir, name)) in hops.into_iter().enumerate() {
            let dependent = match i == last {
                true => Dependent::Target(path.to_owned()),
                false => Dependent::Link(path.to_owned()),
            };
            self.dirs.entry(dir).or_default().names.entry(name).or_default().push(dependent);
        }
    }

    /// The manifests that an event concerns, how they came by it, and whether to look at all.
    pub fn concerns(&self, path: &Path, kind: Kind, extensionless: bool) -> (Vec<(PathBuf, Arrival)>, bool) {
        let mut files = Vec::new();
        // The directory itself: moved, deleted, its mode changed.
        let mut look = self.dirs.contains_key(path);
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return (files, look);
        };
        let Some(watched) = self.dirs.get(dir) else {
            return (files, look);
        };
        let class = classify(name, extensionless);
        let visible = class != NameClass::Other || !is_plain(name);
        for root in &watched.roots {
            look |= visible;
            if class == NameClass::Manifest
                && let Some(arrival) = arrival(kind)
            {
                files.push((root.join(name), arrival));
            }
        }
        for dependent in watched.names.get(name).into_iter().flatten() {
            look = true;
            match dependent {
                Dependent::Root => {}
                Dependent::Target(file) => files.extend(target_arrival(kind).map(|a| (file.clone(), a))),
                // A link that now leads elsewhere leads to something complete.
                Dependent::Link(file) if matches!(kind, Kind::Created | Kind::MovedHere) => {
                    files.push((file.clone(), Arrival::Whole));
                }
                Dependent::Link(_) => {}
            }
        }
        (files, look)
    }
}

/// Names that are never mentioned either; anything else may be a sub-directory worth a word.
fn is_plain(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b".") || bytes.ends_with(b".swp") || bytes.ends_with(b".tmp")
}

fn arrival(kind: Kind) -> Option<Arrival> {
    match kind {
        Kind::Created => Some(Arrival::Appeared),
        Kind::Modified => Some(Arrival::Written),
        Kind::Closed => Some(Arrival::Closed),
        Kind::MovedHere => Some(Arrival::Whole),
        Kind::Gone | Kind::Attributes => None,
    }
}

/// As [`arrival`]; a target that appears is being created, whereas a link that does is complete.
fn target_arrival(kind: Kind) -> Option<Arrival> {
    match kind {
        Kind::Created => Some(Arrival::Written),
        kind => arrival(kind),
    }
}
