//! The memory of the file source: what each directory and file was last known to hold, and what a new
//! look at them means.
//!
//! Events are hints about *when* to read; what is there is always found by listing. [`Scanner::scan`]
//! may therefore be called at any time, and calling it once more than needed changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use tokio::time::Instant;

use crate::manifest::{DataObject, ObjectKey, PodKey, PodManifest};

use super::aside::Asides;
use super::claims::{Claim, Claims};
use super::entry::{Entry, PATIENCE};
use super::interest::{Interest, Kind};
use super::judge::keeping;
use super::look::{self, DirIdentity, Listing, Node, Place, Refusal, Seen};
use super::names::{NameClass, classify};
use super::reading::{At, POLL, Reader};
use super::{FileSourceOptions, Seed, SourceProblem};

/// What a look found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The complete set, in order of key.
    pub pods: Vec<Arc<PodManifest>>,
    /// The complete set of ConfigMaps and Secrets, likewise.
    pub objects: Vec<Arc<DataObject>>,
    /// All findings, in order of path.
    pub problems: Vec<SourceProblem>,
    /// When to look again though nothing is seen to happen.
    pub next: Option<Instant>,
}

/// A path of the settings.
#[derive(Debug, Default)]
struct Root {
    /// The directory in which pods were last known.
    identity: Option<DirIdentity>,
    problem: Option<SourceProblem>,
}

/// The state machine. It reads files, and does nothing else to the world.
#[derive(Debug)]
pub struct Scanner {
    options: FileSourceOptions,
    roots: BTreeMap<PathBuf, Root>,
    entries: BTreeMap<PathBuf, Entry>,
    asides: Asides,
    claims: Claims<PodManifest>,
    object_claims: Claims<DataObject>,
    interest: Interest,
    started: bool,
    next: Option<Instant>,
}

impl Scanner {
    /// Starts from what was accepted before.
    pub fn new(options: FileSourceOptions, seed: Seed) -> Self {
        let mut scanner = Self {
            options,
            roots: BTreeMap::new(),
            entries: BTreeMap::new(),
            asides: Asides::default(),
            claims: Claims::new(&seed.pods),
            object_claims: Claims::new(&seed.objects),
            interest: Interest::default(),
            started: false,
            next: None,
        };
        for pod in seed.pods {
            scanner.entries.entry(pod.origin.file.clone()).or_insert_with(Entry::seeded).pods.push(pod);
        }
        for object in seed.objects {
            scanner
                .entries
                .entry(object.origin.file.clone())
                .or_insert_with(Entry::seeded)
                .objects
                .push(object);
        }
        scanner.adopt_roots(&seed.dirs);
        scanner
    }

    /// Changes the settings; files are read again by the new ones.
    pub fn set_options(&mut self, options: FileSourceOptions, now: Instant) {
        let reread = options.read != self.options.read || options.object_dirs != self.options.object_dirs;
        self.options = options;
        if reread {
            self.entries.values_mut().for_each(|e| e.reread(now));
        }
        self.adopt_roots(&BTreeMap::new());
    }

    /// Takes the settings' paths as roots, and forgets what lies under others.
    fn adopt_roots(&mut self, known: &BTreeMap<PathBuf, DirIdentity>) {
        let mut before = std::mem::take(&mut self.roots);
        for path in self.options.dirs.iter().chain(&self.options.object_dirs) {
            let path = normal(path);
            let mut root = before.remove(&path).unwrap_or_default();
            root.identity = root.identity.or(known.get(&path).copied());
            self.roots.insert(path, root);
        }
        let roots = &self.roots;
        self.entries.retain(|file, _| {
            roots.contains_key(file) || file.parent().is_some_and(|dir| roots.contains_key(dir))
        });
    }

    /// The settings in force.
    pub fn options(&self) -> &FileSourceOptions {
        &self.options
    }

    /// Which directories to watch.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Each directory in which pods may be known, and which one it was.
    pub fn identities(&self) -> BTreeMap<PathBuf, DirIdentity> {
        self.roots.iter().filter_map(|(path, r)| Some((path.clone(), r.identity?))).collect()
    }

    /// Takes note of an event at `path`; true when it is worth a look.
    pub fn event(&mut self, path: &Path, kind: Kind, now: Instant) -> bool {
        let (files, look) = self.interest.concerns(path, kind, self.options.extensionless);
        for (file, arrival) in files {
            self.entries.entry(file).or_default().hint(arrival, now);
        }
        look
    }

    /// Makes the next look try again what failed before.
    pub fn retry(&mut self) {
        for entry in self.entries.values_mut().filter(|e| e.retry) {
            entry.stamp = None;
        }
    }

    /// Looks at everything.
    pub fn scan(&mut self, now: Instant) -> Outcome {
        self.next = None;
        self.interest = Interest::default();
        self.asides.begin();
        for path in self.roots.keys().cloned().collect::<Vec<_>>() {
            self.interest.root(&path);
            self.visit_root(&path, now);
        }
        self.started = true;
        self.outcome(now)
    }

    fn outcome(&mut self, now: Instant) -> Outcome {
        let (mut claims, mut object_claims) = (Vec::new(), Vec::new());
        let mut problems: Vec<SourceProblem> =
            self.roots.values().filter_map(|r| r.problem.clone()).collect();
        for entry in self.entries.values() {
            let vanished = entry.gone_since.is_some();
            claims.extend(entry.pods.iter().map(|pod| Claim { of: Arc::clone(pod), vanished }));
            object_claims
                .extend(entry.objects.iter().map(|object| Claim { of: Arc::clone(object), vanished }));
            problems.extend(entry.problems.iter().cloned());
        }
        let (pods, duplicates) = self.claims.settle(&claims);
        problems.extend(duplicates);
        let (objects, duplicates) = self.object_claims.settle(&object_claims);
        problems.extend(duplicates);
        let (asides, due) = self.asides.finish(now);
        problems.extend(asides);
        if let Some(due) = due {
            self.wake(due);
        }
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        Outcome { pods, objects, problems, next: self.next }
    }

    fn wake(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn visit_root(&mut self, path: &Path, now: Instant) {
        let single = self.entries.contains_key(path);
        match look::place(path) {
            Place::Directory(listing) => self.visit_directory(path, listing, now),
            Place::Single(fd) => self.visit_single(path, &fd, now),
            Place::Missing(Some(fd)) if single => {
                self.visit_single(path, &fd, now);
                if !self.entries.contains_key(path) {
                    self.missing(path, now);
                }
            }
            Place::Missing(_) => self.missing(path, now),
            Place::Refused(refusal) => {
                self.wake(now + POLL);
                self.freeze(path, refusal);
            }
        }
    }

    fn missing(&mut self, path: &Path, now: Instant) {
        self.wake(now + POLL);
        self.freeze(
            path,
            Refusal {
                reason: "Missing",
                what: "does not exist".into(),
                remedy: "create it, mount it, or move it back".into(),
            },
        );
    }

    /// Leaves everything under a root as it was last known, and says why.
    fn freeze(&mut self, path: &Path, refusal: Refusal) {
        let mut keeps: BTreeSet<PodKey> = BTreeSet::new();
        let mut objects: Vec<ObjectKey> = Vec::new();
        for (_, entry) in self.entries.iter_mut().filter(|(file, _)| is_under(file, path)) {
            entry.gone_since = None;
            keeps.extend(entry.pods.iter().map(|p| p.key.clone()));
            objects.extend(entry.objects.iter().map(|o| o.key.clone()));
        }
        let keeps: Vec<PodKey> = keeps.into_iter().collect();
        let reason = match refusal.reason {
            "WorldWritable" => "WorldWritable",
            _ if !keeps.is_empty() || !objects.is_empty() => "Frozen",
            reason => reason,
        };
        let message = format!(
            "{}: {}; nothing is read from it{}; to go on, {}",
            path.display(),
            refusal.what,
            keeping(&keeps, &objects),
            refusal.remedy
        );
        let problem = SourceProblem { path: path.into(), reason, message, diagnostics: Vec::new(), keeps };
        if let Some(root) = self.roots.get_mut(path) {
            root.problem = Some(problem);
        }
    }

    fn visit_single(&mut self, path: &Path, dir: &OwnedFd, now: Instant) {
        if let Some(root) = self.roots.get_mut(path) {
            root.problem = None;
        }
        let Some(name) = path.file_name() else { return };
        let seen = look::entry(dir, name);
        self.interest.entry(path, seen.link);
        self.visit_entry(&At { file: path, dir, name }, seen, now);
    }

    fn visit_directory(&mut self, path: &Path, listing: Listing, now: Instant) {
        let is_manifest = |name: &OsStr| classify(name, self.options.extensionless) == NameClass::Manifest;
        let names = listing.entries.iter().map(|(name, _)| name.as_os_str());
        let manifests: Vec<&OsStr> = names.filter(|name| is_manifest(name)).collect();
        // A file that the settings name as well is looked at on its own account.
        let own = |file: &&PathBuf| file.parent() == Some(path) && !self.roots.contains_key(*file);
        let known: Vec<PathBuf> = self.entries.keys().filter(own).cloned().collect();
        let had_pods = known.iter().any(|f| self.entries.get(f).is_some_and(Entry::stands_for_something));
        let root = self.roots.entry(path.to_owned()).or_default();
        let same = root.identity.is_some_and(|identity| identity.is_same(&listing.identity));
        if manifests.is_empty() && had_pods && !same {
            self.wake(now + POLL);
            return self.freeze(
                path,
                Refusal {
                    reason: "Frozen",
                    what: "is empty and not the directory in which pods were known (unmounted, or replaced)"
                        .into(),
                    remedy:
                        "mount it or move it back; if it is meant to be empty, put any .yaml file into it, a \
                         comment will do"
                            .into(),
                },
            );
        }
        root.identity = Some(listing.identity);
        root.problem = None;
        for name in &manifests {
            let file = path.join(name);
            let seen = look::entry(&listing.fd, name);
            self.interest.entry(&file, seen.link);
            self.visit_entry(&At { file: &file, dir: &listing.fd, name }, seen, now);
        }
        for file in known {
            let Some(name) = file.file_name().filter(|name| !manifests.contains(name)) else { continue };
            let seen = match classify(name, self.options.extensionless) {
                NameClass::Manifest => look::entry(&listing.fd, name),
                // Taken before the settings changed.
                _ => Seen { node: Node::Gone, link: false },
            };
            self.visit_entry(&At { file: &file, dir: &listing.fd, name }, seen, now);
        }
        for (name, kind) in &listing.entries {
            self.note_aside(path, &listing, name, *kind, now);
        }
    }

    /// Takes note of what lies in the directory and is not read.
    fn note_aside(&mut self, dir: &Path, listing: &Listing, name: &OsStr, kind: FileType, now: Instant) {
        let class = classify(name, self.options.extensionless);
        let hidden = name.as_encoded_bytes().starts_with(b".") || name == "lost+found";
        let at = self.started.then_some(now);
        if kind == FileType::Directory && class != NameClass::Manifest && !hidden {
            self.asides.directory(&dir.join(name), at);
        } else if class == NameClass::Backup {
            self.asides.backup(&dir.join(name), at);
        } else if class == NameClass::Extensionless {
            let seen = look::entry(&listing.fd, name);
            if let Node::File(stamp) = seen.node {
                let read = || look::read(&listing.fd, name, &stamp).unwrap_or_default();
                self.asides.extensionless(&dir.join(name), stamp, read, at);
            }
        }
    }

    fn visit_entry(&mut self, at: &At<'_>, seen: Seen, now: Instant) {
        let mut entry = self.entries.remove(at.file).unwrap_or_default();
        let due = if seen.node == Node::Gone {
            let Some(due) = self.visit_gone(&mut entry, now) else { return };
            Some(due)
        } else {
            entry.gone_since = None;
            Reader { options: &self.options, started: self.started, now }.visit(at, &mut entry, seen)
        };
        if let Some(due) = due {
            self.wake(due);
        }
        self.entries.insert(at.file.to_owned(), entry);
    }

    /// A name that its readable directory does not hold. Editors move the old file away before they
    /// write the new one, so it is believed only after a settle time, and a little later while another
    /// file waits to be read that may hold the same pod. `None`: forget the file.
    fn visit_gone(&self, entry: &mut Entry, now: Instant) -> Option<Instant> {
        let since = *entry.gone_since.get_or_insert(now);
        let unread = self.entries.values().any(|e| e.pending.is_some());
        let due = since + self.options.settle * if unread { PATIENCE + 1 } else { 1 };
        entry.problems.clear();
        entry.pending = None;
        entry.stamp = None;
        entry.digest = None;
        (self.started && entry.stands_for_something() && now < due).then_some(due)
    }
}

/// Whether a file is what a path of the settings names, or stands in the directory that it names.
pub fn is_under(file: &Path, root: &Path) -> bool {
    file == root || file.parent() == Some(root)
}

/// Absolute and without a trailing slash, so that one directory has one name.
pub fn normal(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components().collect()
}

#[cfg(test)]
mod tests;
