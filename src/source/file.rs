//! The file source: manifests in directories on this machine.
//!
//! `scan` remembers and decides, `look` looks, `watch` says when; this file runs them: one look at a
//! time, off the async threads, at each event, at each timer, and every `relist` in any case. Mounts
//! are invisible to inotify, so the kernel's mount table is watched as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::Interest as Readiness;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::manifest::{DataObject, PodManifest, ReadOptions};

use super::interest::Kind;
use super::look::DirIdentity;
use super::scan::{Outcome, Scanner, is_under, normal};
use super::watch::{Notice, Watch};
use super::{SourceProblem, SourceReport, SourceUpdate};

/// The name of this source.
pub const FILE_SOURCE: &str = "file";

/// Mount tables change in bursts, also by our own doing; one look serves all changes of this time.
const MOUNT_SETTLE: Duration = Duration::from_millis(250);

/// How often to look while there is no inotify to say when.
const BLIND: Duration = Duration::from_secs(2);

/// What the file source is told by the settings.
#[derive(Clone, Debug)]
pub struct FileSourceOptions {
    /// Manifest directories; a path may also name a single file.
    pub dirs: Vec<PathBuf>,
    /// Directories, or single files, that hold ConfigMaps and Secrets only.
    pub object_dirs: Vec<PathBuf>,
    /// How manifests are read.
    pub read: ReadOptions,
    /// Quiet time after the last write before a file is read, unless it was renamed in or closed.
    pub settle: Duration,
    /// How often to look though nothing happens.
    pub relist: Duration,
    /// Take names without an extension too.
    pub extensionless: bool,
}

impl FileSourceOptions {
    /// Whether a file stands where only ConfigMaps and Secrets may be.
    pub fn is_for_objects(&self, file: &Path) -> bool {
        let under = |dirs: &[PathBuf]| dirs.iter().any(|dir| is_under(file, &normal(dir)));
        under(&self.object_dirs) && !under(&self.dirs)
    }
}

/// What was accepted before this start.
#[derive(Clone, Debug, Default)]
pub struct Seed {
    /// The pods; `origin.file` says from which file each came.
    pub pods: Vec<Arc<PodManifest>>,
    /// The ConfigMaps and Secrets; `origin.file` says the same of them.
    pub objects: Vec<Arc<DataObject>>,
    /// Which directory each manifest directory was.
    pub dirs: BTreeMap<PathBuf, DirIdentity>,
}

enum Command {
    Relist,
    Options(FileSourceOptions),
}

/// Handle to the running source, which ends when this is dropped or its updates are no longer taken.
#[derive(Debug)]
pub struct FileSource {
    commands: mpsc::UnboundedSender<Command>,
    identities: Arc<Mutex<BTreeMap<PathBuf, DirIdentity>>>,
}

impl FileSource {
    /// Starts the source. It sends the complete set once the first listing is done, also an empty one,
    /// and then whenever the set or the report changes. Must be called within a tokio runtime.
    pub fn spawn(options: FileSourceOptions, seed: Seed, updates: mpsc::Sender<SourceUpdate>) -> Self {
        let (commands, orders) = mpsc::unbounded_channel();
        let identities = Arc::new(Mutex::new(seed.dirs.clone()));
        let (sender, notices) = mpsc::unbounded_channel();
        let looker = Looker {
            scanner: Scanner::new(options, seed),
            watch: None,
            sender,
            renew: true,
            overflows: 0,
            sent: None,
        };
        tokio::spawn(run(looker, orders, notices, updates, Arc::clone(&identities)));
        Self { commands, identities }
    }

    /// Asks for a look now, also at what failed before. Returns at once: what it finds comes as an
    /// update.
    pub async fn relist(&self) {
        let _ = self.commands.send(Command::Relist);
    }

    /// Which directory each readable manifest directory is: what to store as [`Seed::dirs`] before the
    /// pods of an update are stored. Up to date whenever an update is received.
    pub fn dir_identities(&self) -> BTreeMap<PathBuf, DirIdentity> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the settings. Pods from directories that are no longer among them are removed.
    pub fn set_options(&self, options: FileSourceOptions) {
        let _ = self.commands.send(Command::Options(options));
    }
}

/// All that a look needs; it travels between the task and the thread that does the work.
struct Looker {
    scanner: Scanner,
    watch: Option<Watch>,
    sender: mpsc::UnboundedSender<Notice>,
    /// Set all watches once more.
    renew: bool,
    overflows: u64,
    sent: Option<SourceUpdate>,
}

impl Looker {
    /// Looks; returns what to send, if anything changed, and when to look again.
    fn look(&mut self, now: Instant) -> (Option<SourceUpdate>, Option<Instant>) {
        let watch = self.watch.get_or_insert_with(|| Watch::new(self.sender.clone()));
        let renew = std::mem::take(&mut self.renew);
        // Watches must be in place before what they watch is read. A look tells which are needed, so
        // where one was missing, look again. Links to links to links end this, each adding one.
        let mut outcome = self.scanner.scan(now);
        let mut added = watch.apply(self.scanner.interest().dirs(), renew);
        for _ in 0..3 {
            if !added {
                break;
            }
            outcome = self.scanner.scan(now);
            added = watch.apply(self.scanner.interest().dirs(), false);
        }
        let mut next = outcome.next;
        if let Some(why) = watch.failure() {
            let soon = now + BLIND;
            next = Some(next.map_or(soon, |n| n.min(soon)));
            self.renew = true;
            outcome.problems.insert(0, unwatched(why));
        }
        (self.changed(outcome), next)
    }

    fn changed(&mut self, outcome: Outcome) -> Option<SourceUpdate> {
        let report = SourceReport { problems: outcome.problems, overflows: self.overflows };
        let update = SourceUpdate {
            source: FILE_SOURCE,
            pods: Some(outcome.pods),
            objects: Some(outcome.objects),
            report,
        };
        if self.sent.as_ref().is_some_and(|sent| same(sent, &update)) {
            return None;
        }
        self.sent = Some(update.clone());
        Some(update)
    }

    /// Takes note; true when a look is due.
    fn notice(&mut self, notice: Notice, now: Instant) -> bool {
        match notice {
            Notice::Overflow => {
                self.overflows += 1;
                self.renew = true;
                tracing::warn!(overflows = self.overflows, "inotify queue overflowed, listing all manifests");
                true
            }
            Notice::Event(path, kind) => {
                if kind == Kind::Gone
                    && let Some(watch) = &mut self.watch
                {
                    watch.lost(&path);
                }
                self.scanner.event(&path, kind, now)
            }
        }
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Relist => self.relist(),
            Command::Options(options) => {
                self.scanner.set_options(options, now);
                self.relist();
            }
        }
    }

    fn relist(&mut self) {
        self.renew = true;
        self.scanner.retry();
    }
}

fn same(a: &SourceUpdate, b: &SourceUpdate) -> bool {
    fn equal<T: PartialEq>(a: &Option<Vec<Arc<T>>>, b: &Option<Vec<Arc<T>>>) -> bool {
        let (a, b) = (a.as_deref().unwrap_or_default(), b.as_deref().unwrap_or_default());
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
    equal(&a.pods, &b.pods) && equal(&a.objects, &b.objects) && a.report == b.report
}

fn unwatched(why: &str) -> SourceProblem {
    SourceProblem {
        path: PathBuf::new(),
        reason: "Unwatched",
        message: format!("{why}; until then changes are found by looking every {} s", BLIND.as_secs()),
        diagnostics: Vec::new(),
        keeps: Vec::new(),
    }
}

async fn run(
    mut looker: Looker,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut notices: mpsc::UnboundedReceiver<Notice>,
    updates: mpsc::Sender<SourceUpdate>,
    identities: Arc<Mutex<BTreeMap<PathBuf, DirIdentity>>>,
) {
    let mounts = mount_table();
    let mut relist_at = Instant::now();
    loop {
        let now = Instant::now();
        if now >= relist_at {
            looker.relist();
            relist_at = now + looker.scanner.options().relist;
        }
        let looked = tokio::task::spawn_blocking(move || {
            let found = looker.look(now);
            (looker, found)
        });
        // Fails only when the runtime is shutting down or the look panicked; both end the source.
        let Ok((back, (update, next))) = looked.await else {
            tracing::error!("the file source ended: manifests are no longer followed until podling restarts");
            return;
        };
        looker = back;
        *identities.lock().unwrap_or_else(PoisonError::into_inner) = looker.scanner.identities();
        if let Some(update) = update
            && updates.send(update).await.is_err()
        {
            return;
        }
        let mut wake_at = next.map_or(relist_at, |n| n.min(relist_at));
        // Until there is something to look for.
        loop {
            let look = tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => { looker.command(command, Instant::now()); true }
                    None => return,
                },
                Some(notice) = notices.recv() => {
                    let now = Instant::now();
                    let mut look = looker.notice(notice, now);
                    while let Ok(notice) = notices.try_recv() {
                        look |= looker.notice(notice, now);
                    }
                    look
                }
                () = mounted(mounts.as_ref()) => {
                    wake_at = wake_at.min(Instant::now() + MOUNT_SETTLE);
                    false
                }
                () = tokio::time::sleep_until(wake_at) => true,
                () = updates.closed() => return,
            };
            if look {
                break;
            }
        }
    }
}

/// The kernel's mount table, which signals each change as priority data.
fn mount_table() -> Option<AsyncFd<File>> {
    // What replaces this call is unsafe, for the sake of types whose descriptor may change under it. A
    // `File` keeps its own as long as it lives.
    #[allow(deprecated)]
    let register = |file| AsyncFd::with_interest(file, Readiness::PRIORITY);
    File::open("/proc/self/mountinfo")
        .and_then(register)
        .inspect_err(|e| tracing::debug!("mounts are not watched: {e}"))
        .ok()
}

/// Returns when the mount table changed; never when it cannot be watched.
async fn mounted(mounts: Option<&AsyncFd<File>>) {
    let Some(mounts) = mounts else { return std::future::pending().await };
    match mounts.ready(Readiness::PRIORITY).await {
        Ok(mut guard) => guard.clear_ready(),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
