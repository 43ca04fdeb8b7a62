//! inotify, through `notify`: keeps a watch on each directory that matters, whatever becomes of it.
//!
//! A watch sits on an inode while we mean a path. Directories are moved away, replaced and mounted
//! over, so each look compares the inode under the path with the one that is watched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::UnboundedSender;

use super::interest::Kind;
use super::look;

/// What the watch has to say.
#[derive(Debug)]
pub enum Notice {
    /// Something happened to a path.
    Event(PathBuf, Kind),
    /// The kernel's queue overflowed: anything may have happened.
    Overflow,
}

/// The watches.
pub struct Watch {
    watcher: Option<RecommendedWatcher>,
    notices: UnboundedSender<Notice>,
    held: BTreeMap<PathBuf, (u64, u64)>,
    failure: Option<String>,
}

impl Watch {
    /// Watches nothing yet; notices go to `notices`.
    pub fn new(notices: UnboundedSender<Notice>) -> Self {
        let mut watch = Self { watcher: None, notices, held: BTreeMap::new(), failure: None };
        watch.open();
        watch
    }

    fn open(&mut self) {
        let notices = self.notices.clone();
        let handler = move |event: notify::Result<Event>| forward(event, &notices);
        match notify::recommended_watcher(handler) {
            Ok(watcher) => (self.watcher, self.failure) = (Some(watcher), None),
            Err(e) => {
                self.failure =
                    Some(format!("inotify cannot be used ({e}); raise fs.inotify.max_user_instances"));
            }
        }
    }

    /// Why changes may be seen late, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Forgets watches that an event says are gone; `notify` drops them by path as we do here.
    pub fn lost(&mut self, path: &Path) {
        self.held.retain(|held, _| !held.starts_with(path));
    }

    /// Watches exactly these directories. With `renew`, existing watches are set once more, which the
    /// kernel takes as no change. Returns true when a directory is watched that was not before: what
    /// happened in it until now was not seen.
    pub fn apply<'a>(&mut self, wanted: impl Iterator<Item = &'a Path>, renew: bool) -> bool {
        if self.watcher.is_none() && renew {
            self.open();
        }
        let Some(watcher) = &mut self.watcher else { return false };
        let wanted: BTreeMap<&Path, (u64, u64)> =
            wanted.filter_map(|path| Some((path, look::inode(path)?))).collect();
        self.held.retain(|path, inode| {
            let keep = wanted.get(path.as_path()) == Some(inode);
            if !keep {
                // The kernel may have dropped it already, with the directory or its mount.
                let _ = watcher.unwatch(path);
            }
            keep
        });
        let mut added = false;
        self.failure = None;
        for (path, inode) in wanted {
            let known = self.held.contains_key(path);
            if known && !renew {
                continue;
            }
            match watcher.watch(path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    added |= !known;
                    self.held.insert(path.to_owned(), inode);
                }
                Err(e) => {
                    self.held.remove(path);
                    if !matches!(e.kind, notify::ErrorKind::PathNotFound) {
                        self.failure = Some(why(path, &e));
                    }
                }
            }
        }
        added
    }
}

fn why(path: &Path, e: &notify::Error) -> String {
    match e.kind {
        notify::ErrorKind::MaxFilesWatch => {
            format!(
                "{} cannot be watched, the limit is reached; raise fs.inotify.max_user_watches",
                path.display()
            )
        }
        _ => format!("{} cannot be watched ({e})", path.display()),
    }
}

fn forward(event: notify::Result<Event>, notices: &UnboundedSender<Notice>) {
    let Ok(event) = event else { return };
    // Sending fails only when the source is being dropped.
    if event.need_rescan() {
        let _ = notices.send(Notice::Overflow);
    }
    let Some(kind) = kind(&event.kind) else { return };
    for path in event.paths {
        let _ = notices.send(Notice::Event(path, kind));
    }
}

/// Our word for an event; `None` for those that change nothing (our own opening of files).
fn kind(kind: &EventKind) -> Option<Kind> {
    match kind {
        EventKind::Create(_) => Some(Kind::Created),
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => Some(Kind::Gone),
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => Some(Kind::MovedHere),
        // Comes with a From and a To of its own.
        EventKind::Modify(ModifyKind::Name(_)) => None,
        EventKind::Modify(ModifyKind::Metadata(_)) => Some(Kind::Attributes),
        EventKind::Modify(_) => Some(Kind::Modified),
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Kind::Closed),
        _ => None,
    }
}
