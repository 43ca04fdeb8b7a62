//! What the probes of one container have said so far, and what follows from it: pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};

use super::{Outcome, ProbeKind};
use crate::system::clock::Moment;

/// A running container to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// containerd id.
    pub id: String,
    /// Name in the manifest.
    pub name: String,
    /// When it was started.
    pub since: Moment,
    /// It is being stopped: nothing but its readiness matters.
    pub stopping: bool,
    /// What was known of it before podling was restarted.
    pub restored: Option<Restored>,
}

/// What outlives podling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// It had started.
    pub started: bool,
    /// It was ready.
    pub ready: bool,
}

/// What the probes of a container say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Its startup probe has passed, or it has none.
    pub started: bool,
    /// Its readiness probe passes, or it has none and has started.
    pub ready: bool,
    /// The liveness or startup probe that failed for good, and what it said last.
    pub failed: Option<(ProbeKind, String)>,
}

/// The latest result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// When.
    pub at: Timestamp,
    /// What came of it.
    pub outcome: Outcome,
    /// How many in a row were like it.
    pub streak: u32,
}

/// One probe.
#[derive(Debug)]
pub(super) struct Track {
    pub due: Moment,
    pub running: bool,
    /// Successes or failures in a row.
    streak: Option<(bool, u32)>,
    pub last: Option<Last>,
}

/// One container.
#[derive(Debug)]
pub(super) struct Tracked {
    pub target: Target,
    pub verdict: Verdict,
    tracks: [Option<Track>; 3],
}

impl Tracked {
    /// Takes a container on. One that was known before is left as it was; its probes are spread over their
    /// periods, for all others of the node are taken on at the same moment.
    pub fn new(target: Target, container: &Container, now: Moment) -> Self {
        let restored = target.restored;
        let has = |kind: ProbeKind| kind.of(container).is_some();
        let started = restored.is_some_and(|r| r.started) || !has(ProbeKind::Startup);
        let ready = started && (restored.is_some_and(|r| r.ready) || !has(ProbeKind::Readiness));
        let spread = |probe: &Probe| match restored {
            Some(_) => period(probe).mul_f64(fraction(&target.id)),
            None => Duration::ZERO,
        };
        let track = |kind: ProbeKind| {
            let probe = kind.of(container)?;
            Some(Track::new(first_due(&target, probe, now) + spread(probe)))
        };
        let tracks = ProbeKind::ALL.map(track);
        Self { verdict: Verdict { started, ready, failed: None }, tracks, target }
    }

    pub fn track(&self, kind: ProbeKind) -> Option<&Track> {
        self.tracks[kind as usize].as_ref()
    }

    /// Whether a probe is to be made now or later.
    fn wanted(&self, kind: ProbeKind) -> bool {
        let Verdict { started, failed, .. } = &self.verdict;
        let ending = self.target.stopping || failed.is_some();
        match kind {
            ProbeKind::Startup => !started && !ending,
            ProbeKind::Liveness => *started && !ending,
            ProbeKind::Readiness => *started,
        }
    }

    /// When a probe is due; none while it runs or is not to be made.
    pub fn due(&self, kind: ProbeKind) -> Option<Moment> {
        let track = self.track(kind).filter(|t| !t.running)?;
        self.wanted(kind).then_some(track.due)
    }

    /// Notes that a run begins. Late ones are not made up for.
    pub fn begin(&mut self, kind: ProbeKind, probe: &Probe, now: Moment) {
        if let Some(track) = &mut self.tracks[kind as usize] {
            track.running = true;
            track.due = now + period(probe);
        }
    }

    /// Counts a result; true when the verdict changed by it.
    pub fn finish(&mut self, kind: ProbeKind, outcome: Outcome, container: &Container, now: Moment) -> bool {
        let Some(track) = &mut self.tracks[kind as usize] else { return false };
        track.running = false;
        let Some(probe) = kind.of(container) else { return false };
        let count = track.count(&outcome);
        track.last = Some(Last { at: Timestamp::now(), outcome: outcome.clone(), streak: count.1 });
        let (passed, streak) = count;
        let threshold = if passed { probe.success_threshold } else { probe.failure_threshold };
        let enough = streak >= threshold.unwrap_or(if passed { 1 } else { 3 }).max(1).unsigned_abs();
        if matches!(outcome, Outcome::Unknown(_)) || !enough || !self.wanted(kind) {
            return false;
        }
        let before = self.verdict.clone();
        match (kind, passed) {
            (ProbeKind::Readiness, passed) => self.verdict.ready = passed,
            (ProbeKind::Startup, true) => self.started(container, now),
            (ProbeKind::Liveness, true) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                self.verdict.failed = Some((kind, outcome.text().to_owned()));
            }
        }
        before != self.verdict
    }

    /// From here on the other probes count.
    fn started(&mut self, container: &Container, now: Moment) {
        self.verdict.started = true;
        self.verdict.ready = ProbeKind::Readiness.of(container).is_none();
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            if let (Some(track), Some(probe)) = (&mut self.tracks[kind as usize], kind.of(container)) {
                track.due = first_due(&self.target, probe, now);
            }
        }
    }

    /// Follows an edit of the manifest: a changed probe begins to count anew, verdicts stay until it has
    /// something to say.
    pub fn follow(&mut self, old: &Container, new: &Container, now: Moment) {
        for kind in ProbeKind::ALL {
            let (before, after) = (kind.of(old), kind.of(new));
            if before == after {
                continue;
            }
            let running = self.track(kind).is_some_and(|t| t.running);
            let track = after.map(|probe| Track::new(first_due(&self.target, probe, now)));
            self.tracks[kind as usize] = track.map(|t| Track { running, ..t });
        }
        self.verdict.started |= ProbeKind::Startup.of(new).is_none();
        self.verdict.ready |= self.verdict.started && ProbeKind::Readiness.of(new).is_none();
    }
}

impl Track {
    fn new(due: Moment) -> Self {
        Self { due, running: false, streak: None, last: None }
    }

    /// Whether it passed, and how many in a row did the same. What says nothing ends no row.
    fn count(&mut self, outcome: &Outcome) -> (bool, u32) {
        let passed = match outcome {
            Outcome::Success | Outcome::Warning(_) => true,
            Outcome::Failure(_) | Outcome::Broken(_) => false,
            Outcome::Unknown(_) => return self.streak.unwrap_or((false, 0)),
        };
        let streak = match self.streak {
            Some((same, n)) if same == passed => n.saturating_add(1),
            _ => 1,
        };
        self.streak = Some((passed, streak));
        (passed, streak)
    }
}

impl Outcome {
    /// What was said; nothing for plain success.
    pub fn text(&self) -> &str {
        match self {
            Self::Success => "",
            Self::Warning(text) | Self::Failure(text) | Self::Broken(text) | Self::Unknown(text) => text,
        }
    }
}

fn period(probe: &Probe) -> Duration {
    Duration::from_secs(probe.period_seconds.unwrap_or(10).max(1).unsigned_abs().into())
}

fn first_due(target: &Target, probe: &Probe, now: Moment) -> Moment {
    let delay = probe.initial_delay_seconds.unwrap_or(0).max(0).unsigned_abs();
    now.max(target.since + Duration::from_secs(delay.into()))
}

/// A number between 0 and 1 from an id, which is random.
fn fraction(id: &str) -> f64 {
    let digits = id.get(..8).and_then(|d| u32::from_str_radix(d, 16).ok()).unwrap_or(0);
    f64::from(digits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
