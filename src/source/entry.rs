//! What is remembered of one manifest file, and when it is due to be read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::{DataObject, PodManifest};

use super::SourceProblem;
use super::look::Stamp;

/// A file that shows signs of not being finished (its writer has it open, it does not parse, a pod or
/// the last newline is missing) is given this many settle times. Three cover a writer that pauses for
/// about as long as the settle time between two pieces.
pub const PATIENCE: u32 = 3;

/// How a file came to have its present content: decides how long to wait before reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Renamed in, or a link swapped: complete by its nature.
    Whole,
    /// There at the start. Most likely complete, but its writer may be in the middle of it.
    There,
    /// A writer closed it.
    Closed,
    /// Its name appeared; nobody was seen writing. A hard link, or a writer about to begin.
    Appeared,
    /// It differs from what was known, and nothing was seen.
    Found,
    /// Written to, and not closed since.
    Written,
    /// Read after it was closed, and found to have something missing.
    Doubtful,
}

/// A content that waits to be read.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// How it came.
    pub arrival: Arrival,
    /// When something was last seen to happen to it.
    pub since: Instant,
    /// Its stamp when last looked at.
    pub stamp: Option<Stamp>,
}

impl Pending {
    /// When to read it.
    pub fn due(&self, settle: Duration) -> Instant {
        match self.arrival {
            Arrival::Whole | Arrival::There | Arrival::Closed => self.since,
            Arrival::Appeared | Arrival::Found => self.since + settle,
            Arrival::Written | Arrival::Doubtful => self.since + settle * PATIENCE,
        }
    }

    /// Whether a reading with something missing is to be repeated before it is believed.
    pub fn may_be_half(&self, now: Instant, settle: Duration) -> bool {
        self.arrival != Arrival::Whole && now < self.since + settle * PATIENCE
    }
}

/// A manifest file.
#[derive(Debug, Default)]
pub struct Entry {
    /// Stamp of the content that was last judged; none when that must be done again.
    pub stamp: Option<Stamp>,
    /// SHA-256 of that content.
    pub digest: Option<[u8; 32]>,
    /// The pods it stands for: last accepted from it.
    pub pods: Vec<Arc<PodManifest>>,
    /// Its ConfigMaps and Secrets, likewise.
    pub objects: Vec<Arc<DataObject>>,
    /// What is wrong with it.
    pub problems: Vec<SourceProblem>,
    /// A newer content.
    pub pending: Option<Pending>,
    /// Since when the name is gone from its directory.
    pub gone_since: Option<Instant>,
    /// Reading failed for a reason that may pass: tried again at each relist.
    pub retry: bool,
}

impl Entry {
    /// A file known only by what was accepted from it before this start.
    pub fn seeded() -> Self {
        Self::default()
    }

    /// Whether anything was accepted from it.
    pub fn stands_for_something(&self) -> bool {
        !self.pods.is_empty() || !self.objects.is_empty()
    }

    /// Notes what was seen to happen to the file.
    pub fn hint(&mut self, arrival: Arrival, now: Instant) {
        let arrival = match (arrival, self.pending.map(|p| p.arrival)) {
            // The name appears before the first byte; what came after it says more.
            (Arrival::Appeared, Some(Arrival::Written | Arrival::Closed)) => Arrival::Written,
            (arrival, _) => arrival,
        };
        self.pending = Some(Pending { arrival, since: now, stamp: None });
    }

    /// Forces the file to be read again, by what the settings say now.
    pub fn reread(&mut self, now: Instant) {
        self.stamp = None;
        self.digest = None;
        self.pending = Some(Pending { arrival: Arrival::Whole, since: now, stamp: None });
    }
}
