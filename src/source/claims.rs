//! Who runs a pod that several documents define: the one that runs already, else the first by path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::{PodKey, PodManifest};

use super::SourceProblem;

/// A document's claim to be the definition of a pod.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The pod; `origin.file` is the claimant.
    pub pod: Arc<PodManifest>,
    /// The file is no longer there, though maybe only for the blink in which an editor replaces it.
    pub vanished: bool,
}

/// Who holds which pod.
#[derive(Debug, Default)]
pub struct Claims {
    holders: BTreeMap<PodKey, Arc<PodManifest>>,
}

impl Claims {
    /// Starts with what was accepted before.
    pub fn new(pods: &[Arc<PodManifest>]) -> Self {
        let mut holders = BTreeMap::new();
        for pod in pods {
            holders.entry(pod.key.clone()).or_insert_with(|| Arc::clone(pod));
        }
        Self { holders }
    }

    /// Decides between all claims, which must come in order of path and line. Returns the pods in
    /// order of key, and one finding for each claim that has to wait.
    pub fn settle(&mut self, claims: &[Claim]) -> (Vec<Arc<PodManifest>>, Vec<SourceProblem>) {
        let mut by_key: BTreeMap<&PodKey, Vec<&Claim>> = BTreeMap::new();
        for claim in claims {
            by_key.entry(&claim.pod.key).or_default().push(claim);
        }
        let mut problems = Vec::new();
        let mut holders = BTreeMap::new();
        for (key, rivals) in by_key {
            let Some(winner) = choose(&rivals, self.holders.get(key)) else { continue };
            for loser in &rivals {
                if !Arc::ptr_eq(&loser.pod, winner) && !loser.vanished {
                    problems.push(duplicate(&loser.pod, winner));
                }
            }
            holders.insert(key.clone(), Arc::clone(winner));
        }
        self.holders = holders;
        (self.holders.values().cloned().collect(), problems)
    }
}

fn choose<'a>(rivals: &[&'a Claim], holder: Option<&Arc<PodManifest>>) -> Option<&'a Arc<PodManifest>> {
    // A file that moved away claims only until another one shows up: that may be its new name.
    let present = || rivals.iter().filter(|c| !c.vanished);
    let of_holder = |c: &&&Claim| holder.is_some_and(|h| h.origin.file == c.pod.origin.file);
    let same = |c: &&&Claim| holder.is_some_and(|h| h.hashes == c.pod.hashes);
    let winner = present()
        .filter(of_holder)
        .find(same)
        .or_else(|| present().find(of_holder))
        .or_else(|| present().next())
        .or_else(|| rivals.iter().find(of_holder))
        .or_else(|| rivals.first());
    winner.map(|c| &c.pod)
}

fn duplicate(loser: &PodManifest, winner: &PodManifest) -> SourceProblem {
    let place = |file: &Path, line: u32| format!("{}:{line}", file.display());
    let (file, line): (&PathBuf, u32) = (&loser.origin.file, loser.origin.line);
    let winner_at = place(&winner.origin.file, winner.origin.line);
    SourceProblem {
        path: file.clone(),
        reason: "Duplicate",
        message: format!(
            "{}: pod {} is already defined by {winner_at}, which has it; this one takes over when that one \
             goes, so rename this pod or delete one of the two",
            place(file, line),
            loser.key,
        ),
        diagnostics: Vec::new(),
        keeps: Vec::new(),
    }
}
