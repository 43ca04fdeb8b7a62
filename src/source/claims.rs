//! Who provides what several documents define: the one that is in force already, else the first by path.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use crate::manifest::{DataObject, ObjectKey, Origin, PodKey, PodManifest};

use super::SourceProblem;

/// What a document can define.
pub trait Claimed {
    /// What tells one from another.
    type Key: Ord + Clone + Display;
    /// Its key.
    fn key(&self) -> &Self::Key;
    /// Where it stands.
    fn origin(&self) -> &Origin;
    /// Whether both say the same.
    fn says_the_same(&self, other: &Self) -> bool;
    /// What a message calls it.
    fn called(&self) -> String;
}

impl Claimed for PodManifest {
    type Key = PodKey;

    fn key(&self) -> &PodKey {
        &self.key
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }

    fn called(&self) -> String {
        format!("pod {}", self.key)
    }
}

impl Claimed for DataObject {
    type Key = ObjectKey;

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.data == other.data
    }

    fn called(&self) -> String {
        self.key.to_string()
    }
}

/// A document's claim to be the definition of something.
#[derive(Debug)]
pub struct Claim<T> {
    /// What it defines; its origin is the claimant.
    pub of: Arc<T>,
    /// The file is no longer there, though maybe only for the blink in which an editor replaces it.
    pub vanished: bool,
}

/// Who holds what.
#[derive(Debug)]
pub struct Claims<T: Claimed> {
    holders: BTreeMap<T::Key, Arc<T>>,
}

impl<T: Claimed> Claims<T> {
    /// Starts with what was accepted before.
    pub fn new(accepted: &[Arc<T>]) -> Self {
        let mut holders = BTreeMap::new();
        for one in accepted {
            holders.entry(one.key().clone()).or_insert_with(|| Arc::clone(one));
        }
        Self { holders }
    }

    /// Decides between all claims, which must come in order of path and line. Returns what counts in
    /// order of key, and one finding for each claim that has to wait.
    pub fn settle(&mut self, claims: &[Claim<T>]) -> (Vec<Arc<T>>, Vec<SourceProblem>) {
        let mut by_key: BTreeMap<&T::Key, Vec<&Claim<T>>> = BTreeMap::new();
        for claim in claims {
            by_key.entry(claim.of.key()).or_default().push(claim);
        }
        let mut problems = Vec::new();
        let mut holders = BTreeMap::new();
        for (key, rivals) in by_key {
            let Some(winner) = choose(&rivals, self.holders.get(key)) else { continue };
            for loser in &rivals {
                if !Arc::ptr_eq(&loser.of, winner) && !loser.vanished {
                    problems.push(duplicate(&*loser.of, &**winner));
                }
            }
            holders.insert(key.clone(), Arc::clone(winner));
        }
        self.holders = holders;
        (self.holders.values().cloned().collect(), problems)
    }
}

fn choose<'a, T: Claimed>(rivals: &[&'a Claim<T>], holder: Option<&Arc<T>>) -> Option<&'a Arc<T>> {
    // A file that moved away claims only until another one shows up: that may be its new name.
    let present = || rivals.iter().filter(|c| !c.vanished);
    let of_holder = |c: &&&'a Claim<T>| holder.is_some_and(|h| h.origin().file == c.of.origin().file);
    let same = |c: &&&'a Claim<T>| holder.is_some_and(|h| h.says_the_same(&c.of));
    let winner = present()
        .filter(of_holder)
        .find(same)
        .or_else(|| present().find(of_holder))
        .or_else(|| present().next())
        .or_else(|| rivals.iter().find(of_holder))
        .or_else(|| rivals.first());
    winner.map(|c| &c.of)
}

fn duplicate<T: Claimed>(loser: &T, winner: &T) -> SourceProblem {
    let place = |file: &Path, line: u32| format!("{}:{line}", file.display());
    let (own, other) = (loser.origin(), winner.origin());
    SourceProblem {
        path: own.file.clone(),
        reason: "Duplicate",
        message: format!(
            "{}: {} is already defined by {}, which has it; this one takes over when that one goes, so rename \
             this one or delete one of the two",
            place(&own.file, own.line),
            loser.called(),
            place(&other.file, other.line),
        ),
        diagnostics: Vec::new(),
        keeps: Vec::new(),
    }
}
