//! A queue in which the more important go first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

tokio::task_local! {
    /// How important the pod is for which this task works: its priority.
    static IMPORTANCE: i32;
}

/// Runs something for a pod of this priority: its starts pass those of less important pods in the queue.
pub async fn with_importance<T>(priority: i32, work: impl Future<Output = T>) -> T {
    IMPORTANCE.scope(priority, work).await
}

#[derive(Debug)]
struct State {
    free: usize,
    /// By importance, then in the order of arrival.
    queue: BTreeMap<(Reverse<i32>, u64), oneshot::Sender<Permit>>,
    arrivals: u64,
}

/// So many at a time, the most important first.
#[derive(Clone, Debug)]
pub(super) struct RankedQueue {
    state: Arc<Mutex<State>>,
}

/// The right to go on, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
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
    pub fn new(at_a_time: usize) -> Self {
        let state = State { free: at_a_time, queue: BTreeMap::new(), arrivals: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for its turn, at the importance of the task's pod.
    pub async fn acquire(&self) -> Permit {
        let importance = IMPORTANCE.try_with(|i| *i).unwrap_or(0);
        let turn = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit { queue: Some(self.clone()) };
            }
            let (tx, rx) = oneshot::channel();
            state.arrivals += 1;
            let place = (Reverse(importance), state.arrivals);
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
    async fn the_more_important_go_first_and_equals_in_the_order_of_arrival() {
        let queue = RankedQueue::new(1);
        let first = queue.acquire().await;
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut jobs = Vec::new();
        for (name, importance) in [("a", 0), ("b", 5), ("c", 0), ("d", 9)] {
            let (queue, done) = (queue.clone(), done.clone());
            jobs.push(tokio::spawn(with_importance(importance, async move {
                let _permit = queue.acquire().await;
                done.lock().unwrap().push(name);
            })));
            tokio::task::yield_now().await;
        }
        drop(first);
        for job in jobs {
            job.await.unwrap();
        }
        assert_eq!(*done.lock().unwrap(), ["d", "b", "a", "c"]);
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
