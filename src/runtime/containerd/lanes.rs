//! A queue in which the more important go first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::manifest::PodKey;

/// A pod's place in the order of starts: those of higher priority first, then those that others start after, then
/// by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The pod's priority.
    pub priority: Reverse<i32>,
    /// How many others have to start before it, one after the other.
    pub depth: usize,
    /// The pod.
    pub key: PodKey,
}

tokio::task_local! {
    /// The rank of the pod for which this task works.
    static RANK: Rank;
}

/// Runs something for a pod of this rank: its starts pass those of pods that come after it in the queue.
pub async fn with_rank<T>(rank: Rank, work: impl Future<Output = T>) -> T {
    RANK.scope(rank, work).await
}

#[derive(Debug)]
struct State {
    free: usize,
    /// By rank, then in the order of arrival; what is done for no pod comes first.
    queue: BTreeMap<(Option<Rank>, u64), oneshot::Sender<Permit>>,
    arrivals: u64,
}

/// So many at a time, in the order of ranks.
#[derive(Clone, Debug)]
pub struct RankedQueue {
    state: Arc<Mutex<State>>,
}

/// The right to go on, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    queue: Option<RankedQueue>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.give_back();
        }
    }
}

impl RankedQueue {
    /// A queue that lets so many go on at a time.
    pub fn new(at_a_time: usize) -> Self {
        let state = State { free: at_a_time, queue: BTreeMap::new(), arrivals: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for its turn, at the rank of the task's pod.
    pub async fn acquire(&self) -> Permit {
        let rank = RANK.try_with(Rank::clone).ok();
        let turn = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit { queue: Some(self.clone()) };
            }
            let (tx, rx) = oneshot::channel();
            state.arrivals += 1;
            let place = (rank, state.arrivals);
            state.queue.insert(place, tx);
            rx
        };
        // A sender is only dropped with the queue; then there is nothing to wait for.
        turn.await.unwrap_or(Permit { queue: None })
    }

    fn give_back(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                match state.queue.pop_first() {
                    Some((_, next)) => next,
                    None => {
                        state.free += 1;
                        return;
                    }
                }
            };
            // One that gave up waiting is passed over; the permit that it did not take must not be given back twice.
            match next.send(Permit { queue: Some(self.clone()) }) {
                Ok(()) => return,
                Err(mut unused) => unused.queue = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock cannot leave the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_goes_by_rank_and_not_by_arrival() {
        let queue = RankedQueue::new(1);
        let first = queue.acquire().await;
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut jobs = Vec::new();
        for (name, priority, depth) in [("c", 0, 0), ("b", 5, 0), ("a", 0, 1), ("x", 0, 0), ("d", 9, 0)] {
            let (queue, done) = (queue.clone(), done.clone());
            let rank = Rank { priority: Reverse(priority), depth, key: PodKey::new("default", name) };
            jobs.push(tokio::spawn(with_rank(rank, async move {
                let _permit = queue.acquire().await;
                done.lock().unwrap().push(name);
            })));
            tokio::task::yield_now().await;
        }
        drop(first);
        for job in jobs {
            job.await.unwrap();
        }
        assert_eq!(*done.lock().unwrap(), ["d", "b", "c", "x", "a"]);
    }

    #[tokio::test]
    async fn a_place_that_was_given_up_is_passed_over() {
        let queue = RankedQueue::new(1);
        let first = queue.acquire().await;
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { drop(queue.acquire().await) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        drop(first);
        drop(queue.acquire().await);
        drop(queue.acquire().await);
    }
}
