//! One manifest file: whether to read it now, and what becomes of what was read.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::manifest::{ObjectKey, PodKey, ReadOptions};

use super::entry::{Arrival, Entry, PATIENCE, Pending};
use super::judge::{Accepted, judge, keeping};
use super::look::{self, MAX_FILE, Node, ReadFailure, Seen, Stamp};
use super::{FileSourceOptions, SourceProblem};

/// How often to look again at what cannot be watched: a missing directory, a link to nothing.
pub const POLL: Duration = Duration::from_secs(1);

/// A file and where it was found.
pub struct At<'a> {
    /// Its path.
    pub file: &'a Path,
    /// The directory that was listed.
    pub dir: &'a OwnedFd,
    /// Its name in there.
    pub name: &'a OsStr,
}

/// What a reading depends on besides the file.
pub struct Reader<'a> {
    /// The settings.
    pub options: &'a FileSourceOptions,
    /// The first look is over: a file that was not known before has only just come.
    pub started: bool,
    /// The time of the look.
    pub now: Instant,
}

impl Reader<'_> {
    /// Brings an entry that is there up to date; returns when to look at it again, if not by an event.
    pub fn visit(&self, at: &At<'_>, entry: &mut Entry, seen: Seen) -> Option<Instant> {
        match seen.node {
            Node::File(stamp) => self.file(at, entry, stamp, seen.link),
            Node::Dangling(target) => {
                let what = format!("is a link to {}, which does not exist", target.display());
                set_aside(entry, at.file, "Unreadable", &what, "it is read as soon as it appears");
                Some(self.now + POLL)
            }
            Node::Unreadable(why) => {
                let what = format!("cannot be looked at ({why})");
                set_aside(entry, at.file, "Unreadable", &what, "it is tried again by itself");
                Some(self.now + POLL)
            }
            Node::Directory => not_a_file(entry, at.file, "directory"),
            Node::Special(kind) => not_a_file(entry, at.file, kind),
            Node::Gone => None,
        }
    }

    fn file(&self, at: &At<'_>, entry: &mut Entry, stamp: Stamp, link: bool) -> Option<Instant> {
        // A write that was seen counts more than the stamp: two writes within one tick of the file
        // system's clock share it.
        let seen = entry.pending.is_some_and(|p| p.arrival != Arrival::Found);
        if entry.stamp == Some(stamp) && !seen {
            entry.pending = None;
            return None;
        }
        let pending = self.pending(entry, stamp, link);
        if stamp.size == 0 {
            return self.empty(entry, at.file, &pending);
        }
        let due = pending.due(self.options.settle);
        if self.now < due {
            return Some(due);
        }
        match look::read(at.dir, at.name, &stamp) {
            Ok(bytes) => return self.take(at.file, entry, stamp, &bytes, &pending),
            Err(ReadFailure::Changed) => {
                entry.pending = Some(Pending { arrival: Arrival::Written, since: self.now, stamp: None });
                return Some(self.now + self.options.settle * PATIENCE);
            }
            Err(ReadFailure::TooLarge(size)) => {
                let what = format!("is {size} bytes, more than the {MAX_FILE} that a manifest may have");
                set_aside(entry, at.file, "TooLarge", &what, "split it or move it out");
            }
            Err(ReadFailure::Io(why)) => {
                let what = format!("cannot be read ({why})");
                set_aside(entry, at.file, "Unreadable", &what, "correct its owner, mode or file system");
                entry.retry = true;
            }
        }
        // Not again until it changes.
        entry.stamp = Some(stamp);
        None
    }

    /// The content that waits, with what this look adds to what is known of it.
    fn pending(&self, entry: &mut Entry, stamp: Stamp, link: bool) -> Pending {
        let arrival = if self.started { Arrival::Found } else { Arrival::There };
        let fresh = Pending { arrival, since: self.now, stamp: None };
        let pending = entry.pending.get_or_insert(fresh);
        if pending.stamp.is_some_and(|s| s != stamp) && pending.arrival != Arrival::Whole {
            // It goes on changing, though nothing was seen: no inotify on this file system.
            pending.since = self.now;
        }
        pending.stamp = Some(stamp);
        if link && pending.arrival == Arrival::Appeared {
            // Links are not written to: what it leads to was there before.
            pending.arrival = Arrival::Whole;
        }
        *pending
    }

    /// Judges what was read. Returns when to read again, where it may be half of something.
    fn take(
        &self,
        file: &Path,
        entry: &mut Entry,
        stamp: Stamp,
        bytes: &[u8],
        pending: &Pending,
    ) -> Option<Instant> {
        let settle = self.options.settle;
        let exposed = stamp.is_exposed();
        // Whether it is exposed decides about its Secrets as much as its content does.
        let digest: [u8; 32] =
            Sha256::new().chain_update(bytes).chain_update([u8::from(exposed)]).finalize().into();
        if entry.digest != Some(digest) {
            if bytes.iter().all(|b| b.is_ascii_whitespace() || *b == 0) {
                return self.empty(entry, file, pending);
            }
            let documents =
                crate::manifest::read(bytes, &ReadOptions { exposed, ..self.options.read.clone() });
            let before = Accepted { pods: &entry.pods, objects: &entry.objects };
            let judgement = judge(file, documents, before, self.options.is_for_objects(file));
            // Text that stops in the middle of a line is rarely whole; JSON that is cut does not parse.
            // At the start most such files just lack it, and a boot should not wait for each.
            let cut =
                pending.arrival != Arrival::There && !bytes.ends_with(b"\n") && !bytes.starts_with(b"{");
            if (judgement.doubtful || cut) && pending.may_be_half(self.now, settle) {
                entry.pending = Some(Pending { arrival: Arrival::Doubtful, ..*pending });
                return Some(pending.since + settle * PATIENCE);
            }
            entry.pods = judgement.pods;
            entry.objects = judgement.objects;
            entry.problems = judgement.problems;
        }
        entry.stamp = Some(stamp);
        entry.digest = Some(digest);
        entry.pending = None;
        entry.retry = false;
        None
    }

    /// A file without content is one that is about to get some; it removes nothing.
    fn empty(&self, entry: &mut Entry, file: &Path, pending: &Pending) -> Option<Instant> {
        let due = pending.since + self.options.settle * PATIENCE;
        if self.now < due && pending.arrival != Arrival::Whole {
            return Some(due);
        }
        set_aside(entry, file, "Empty", "is empty", "write a manifest into it or delete it");
        // Still waiting, so that the first bytes are given time.
        entry.pending = Some(Pending { arrival: Arrival::Found, ..*pending });
        None
    }
}

fn not_a_file(entry: &mut Entry, file: &Path, kind: &str) -> Option<Instant> {
    let reason = if entry.stands_for_something() { "Unreadable" } else { "Ignored" };
    set_aside(entry, file, reason, &format!("is a {kind}, not a file"), "put a regular file in its place");
    None
}

/// Keeps what a file stands for as last accepted, and says why nothing new is taken from it.
fn set_aside(entry: &mut Entry, file: &Path, reason: &'static str, what: &str, remedy: &str) {
    let keeps: Vec<PodKey> = entry.pods.iter().map(|p| p.key.clone()).collect();
    let objects: Vec<ObjectKey> = entry.objects.iter().map(|o| o.key.clone()).collect();
    let message = format!("{}: {what}{}; {remedy}", file.display(), keeping(&keeps, &objects));
    entry.problems =
        vec![SourceProblem { path: file.into(), reason, message, diagnostics: Vec::new(), keeps }];
    entry.stamp = None;
    entry.digest = None;
    entry.pending = None;
}
