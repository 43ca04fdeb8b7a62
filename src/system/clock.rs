//! The one place where time comes from.
//!
//! Durations are measured on a monotonic clock that counts from boot, so that they survive a restart of
//! podling and ignore jumps of the wall clock. Inside a process they advance with tokio's clock, which
//! tests pause. The wall clock is for display only.

use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A point in time, as the time since boot. Only comparable within one boot (see [`boot_id`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(pub Duration);

impl Moment {
    /// Time from `earlier` to here, zero when it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, d: Duration) -> Moment {
        Moment(self.0.saturating_add(d))
    }
}

/// Now.
pub fn now() -> Moment {
    static START: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (start, uptime) = START.get_or_init(|| {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (Instant::now(), Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32))
    });
    Moment(*uptime + Instant::now().saturating_duration_since(*start))
}

/// The kernel's id of this boot.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|s| s.trim().to_owned())
            .unwrap_or_else(|_| "unknown".to_owned())
    })
}
