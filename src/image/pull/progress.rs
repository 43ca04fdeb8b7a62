//! How far a pull has got, readable while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// Counters of one pull.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    fetched: AtomicU64,
    layers: AtomicU64,
    unpacked: AtomicU64,
    /// 0 waiting for its turn, 1 asking, 2 fetching and unpacking.
    stage: AtomicU64,
}

/// A reading of [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// Bytes to fetch; 0 until known.
    pub total: u64,
    /// Bytes that are here.
    pub fetched: u64,
    /// Layers of the image.
    pub layers: u64,
    /// Layers that are unpacked.
    pub unpacked: u64,
    /// False while it waits for its turn.
    pub begun: bool,
}

impl Progress {
    pub(super) fn begin(&self) {
        self.stage.store(1, Relaxed);
    }

    pub(super) fn plan(&self, bytes: u64, layers: usize) {
        self.total.store(bytes, Relaxed);
        self.layers.store(layers as u64, Relaxed);
        self.stage.store(2, Relaxed);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.fetched.fetch_add(bytes, Relaxed);
    }

    /// What counted as fetched has to be fetched again.
    pub(super) fn lost(&self, bytes: u64) {
        self.fetched.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn unpacked(&self, layers: usize) {
        self.unpacked.store(layers as u64, Relaxed);
    }

    /// Where it is.
    pub fn read(&self) -> Reading {
        Reading {
            total: self.total.load(Relaxed),
            fetched: self.fetched.load(Relaxed),
            layers: self.layers.load(Relaxed),
            unpacked: self.unpacked.load(Relaxed),
            begun: self.stage.load(Relaxed) > 0,
        }
    }
}

impl std::fmt::Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        match self {
            Self { begun: false, .. } => write!(f, "waits for other pulls"),
            Self { layers: 0, .. } => write!(f, "asks the registry"),
            r => write!(
                f,
                "{:.1} of {:.1} MB, {} of {} layers unpacked",
                megabytes(r.fetched),
                megabytes(r.total),
                r.unpacked,
                r.layers
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_people_say_it() {
        let progress = Progress::default();
        assert_eq!(progress.read().to_string(), "waits for other pulls");
        progress.begin();
        assert_eq!(progress.read().to_string(), "asks the registry");
        progress.plan(40_000_000, 7);
        progress.fetched(12_345_678);
        progress.unpacked(2);
        assert_eq!(progress.read().to_string(), "12.3 of 40.0 MB, 2 of 7 layers unpacked");
    }
}
