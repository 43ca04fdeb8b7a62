//! Crash-loop back-off: how long a container that ended waits before it starts again.
//!
//! The kubelet's rule: the first restart is immediate, then 10 s doubling to 300 s, and a container that
//! ran for 600 s starts over. The state is kept per container in the store, so a restart of podling does
//! not shorten a wait; a changed container entry drops it.

use std::time::Duration;

use crate::settings::Settings;
use crate::store::Backoff;
use crate::system::clock::Moment;

/// The three numbers of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffRule {
    /// Wait before the second restart.
    pub initial: Duration,
    /// Longest wait.
    pub max: Duration,
    /// A run this long forgets the waits before it.
    pub reset: Duration,
}

impl From<&Settings> for BackoffRule {
    fn from(s: &Settings) -> Self {
        // As the kubelet does when its maximum is set below its initial value.
        Self { initial: s.backoff_initial.min(s.backoff_max), max: s.backoff_max, reset: s.backoff_reset }
    }
}

impl BackoffRule {
    /// The back-off after an exit at `finished` of a run that lasted `ran_for`.
    pub fn after_exit(&self, before: Option<Backoff>, ran_for: Duration, finished: Moment) -> Backoff {
        let delay = match before {
            Some(b) if ran_for < self.reset => match b.delay {
                Duration::ZERO => self.initial,
                d => d.saturating_mul(2).min(self.max),
            },
            _ => Duration::ZERO,
        };
        Backoff { delay, until: finished + delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: BackoffRule = BackoffRule {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(300),
        reset: Duration::from_secs(600),
    };

    fn delays(runs: &[u64]) -> Vec<u64> {
        let mut backoff = None;
        runs.iter()
            .map(|&ran| {
                let b = RULE.after_exit(backoff, Duration::from_secs(ran), Moment::default());
                backoff = Some(b);
                b.delay.as_secs()
            })
            .collect()
    }

    #[test]
    fn a_crash_loop_waits_0_10_20_40_80_160_300_300() {
        assert_eq!(delays(&[1; 8]), [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_run_of_ten_minutes_starts_over() {
        assert_eq!(delays(&[1, 1, 1, 600, 1, 1]), [0, 10, 20, 0, 10, 20]);
    }

    #[test]
    fn a_maximum_below_the_initial_wait_caps_it() {
        let rule = BackoffRule { initial: Duration::from_secs(2), max: Duration::from_secs(2), ..RULE };
        let first = rule.after_exit(None, Duration::ZERO, Moment::default());
        let second = rule.after_exit(Some(first), Duration::ZERO, Moment::default());
        let third = rule.after_exit(Some(second), Duration::ZERO, Moment::default());
        assert_eq!((second.delay.as_secs(), third.delay.as_secs()), (2, 2));
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_maximum_and_ends_that_long_after_the_exit(
            runs in proptest::collection::vec(0u64..2000, 1..50), finished in 0u64..1_000_000
        ) {
            let mut backoff = None;
            for ran in runs {
                let at = Moment(Duration::from_secs(finished));
                let b = RULE.after_exit(backoff, Duration::from_secs(ran), at);
                prop_assert!(b.delay <= RULE.max);
                prop_assert_eq!(b.until.since(at), b.delay);
                backoff = Some(b);
            }
        }
    }
}
