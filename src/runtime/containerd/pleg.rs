//! Wake-ups for pods: containerd's events early, and a regular listing for what events missed.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Containerd, ErrorClass, RuntimeError, RuntimeEvent, TaskInfo, TaskStatus};

/// Somebody should look at a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Which container; none for all.
    pub container_id: Option<String>,
    /// Why.
    pub kind: WakeKind,
}

/// Why a container deserves a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeKind {
    /// An event told of a start.
    Started,
    /// An event told of an exit.
    Exited,
    /// An event told of an OOM kill.
    Oom,
    /// An event told of a deletion.
    Deleted,
    /// The listing differs from the one before.
    Changed,
    /// The listing did not answer in time, so nothing is known of anything.
    Blind,
    /// containerd went away.
    Lost,
    /// containerd is there, for the first time or again.
    Connected,
}

/// Starts the watch: events wake at once, and every `relist`, and after each reconnect, all tasks are
/// listed and those that changed are woken; `listed` is told when that is done. Ends when the receiver of `wake`
/// is gone.
pub fn spawn(
    client: Containerd,
    relist: Duration,
    wake: mpsc::Sender<Wake>,
    listed: Arc<Notify>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut events = client.events();
        let mut seen = Snapshot::default();
        let mut tick = tokio::time::interval_at(Instant::now(), relist);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Beside the events, never before them: shims that do not answer hold a listing up.
        let mut listing = None;
        let mut blind = false;
        loop {
            let wakes = tokio::select! {
                () = wake.closed() => return,
                event = events.recv() => match event {
                    None => return,
                    Some(event) => {
                        if event == RuntimeEvent::Connected {
                            tick.reset_immediately();
                        }
                        seen.note(&event);
                        vec![from_event(event)]
                    }
                },
                answer = join(&mut listing) => {
                    listing = None;
                    listed.notify_one();
                    take_in(answer, &mut seen, &mut blind)
                }
                _ = tick.tick(), if listing.is_none() => {
                    let client = client.clone();
                    listing = Some(Box::pin(async move { client.tasks().await }));
                    continue;
                }
            };
            for w in wakes {
                if wake.send(w).await.is_err() {
                    return;
                }
            }
        }
    })
}

fn from_event(event: RuntimeEvent) -> Wake {
    let (container_id, kind) = match event {
        RuntimeEvent::Connected => (None, WakeKind::Connected),
        RuntimeEvent::Lost => (None, WakeKind::Lost),
        RuntimeEvent::TaskStart { container_id, .. } => (Some(container_id), WakeKind::Started),
        RuntimeEvent::TaskExit { container_id, .. } => (Some(container_id), WakeKind::Exited),
        RuntimeEvent::TaskOom { container_id } => (Some(container_id), WakeKind::Oom),
        RuntimeEvent::TaskDelete { container_id } => (Some(container_id), WakeKind::Deleted),
    };
    Wake { container_id, kind }
}

type Listed = Result<Vec<TaskInfo>, RuntimeError>;

/// The answer of the listing under way; waits for ever while there is none.
async fn join(listing: &mut Option<Pin<Box<dyn Future<Output = Listed> + Send>>>) -> Listed {
    match listing {
        Some(listing) => listing.await,
        None => std::future::pending().await,
    }
}

/// Whom a listing wakes. Says only once that there is none.
fn take_in(listed: Listed, seen: &mut Snapshot, blind: &mut bool) -> Vec<Wake> {
    let timed_out = matches!(&listed, Err(e) if e.class() == ErrorClass::Timeout);
    let first = timed_out && !*blind;
    *blind = timed_out;
    match listed {
        Ok(tasks) => seen.compare(tasks),
        Err(e) if timed_out => {
            if first {
                tracing::warn!("{e}; looking at every pod instead");
            }
            vec![Wake { container_id: None, kind: WakeKind::Blind }]
        }
        // Nothing to see without containerd; its return brings a reconnect and with it a listing.
        Err(e) => {
            tracing::debug!("{e}");
            vec![]
        }
    }
}

/// The tasks as last listed, and as events changed them since. Without the events a task that started
/// after one listing and vanished before the next, as from containerd 1.7 on those do that end while it
/// is down, would not be missed.
#[derive(Default)]
struct Snapshot {
    tasks: HashMap<String, (u32, TaskStatus)>,
}

impl Snapshot {
    /// Takes in what an event says.
    fn note(&mut self, event: &RuntimeEvent) {
        match event {
            RuntimeEvent::TaskStart { container_id, pid } => {
                self.tasks.insert(container_id.clone(), (*pid, TaskStatus::Running));
            }
            RuntimeEvent::TaskExit { container_id, .. } => {
                if let Some(task) = self.tasks.get_mut(container_id) {
                    task.1 = TaskStatus::Stopped;
                }
            }
            RuntimeEvent::TaskDelete { container_id } => {
                self.tasks.remove(container_id);
            }
            RuntimeEvent::TaskOom { .. } | RuntimeEvent::Connected | RuntimeEvent::Lost => {}
        }
    }

    /// Takes in a new listing and wakes what came, went or changed. A task whose shim stops answering
    /// changes once, to unknown, and once back.
    fn compare(&mut self, tasks: Vec<TaskInfo>) -> Vec<Wake> {
        let new: HashMap<_, _> = tasks.into_iter().map(|t| (t.id, (t.pid, t.status))).collect();
        let changed: BTreeSet<&String> = new
            .iter()
            .filter(|(id, state)| self.tasks.get(*id) != Some(state))
            .map(|(id, _)| id)
            .chain(self.tasks.keys().filter(|id| !new.contains_key(*id)))
            .collect();
        let wakes = changed
            .into_iter()
            .map(|id| Wake { container_id: Some(id.clone()), kind: WakeKind::Changed })
            .collect();
        self.tasks = new;
        wakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, pid: u32, status: TaskStatus) -> TaskInfo {
        TaskInfo { id: id.into(), pid, status, exit_code: 0, exited_at: None }
    }

    fn woken(wakes: Vec<Wake>) -> Vec<String> {
        wakes.into_iter().map(|w| w.container_id.unwrap()).collect()
    }

    #[test]
    fn a_listing_wakes_only_what_came_went_or_changed() {
        use TaskStatus::{Running, Stopped};
        let mut seen = Snapshot::default();
        assert_eq!(woken(seen.compare(vec![task("a", 1, Running), task("b", 2, Running)])), ["a", "b"]);
        assert!(seen.compare(vec![task("b", 2, Running), task("a", 1, Running)]).is_empty());
        assert_eq!(woken(seen.compare(vec![task("a", 1, Stopped), task("b", 2, Running)])), ["a"]);
        assert_eq!(woken(seen.compare(vec![task("b", 3, Running), task("c", 4, Running)])), ["a", "b", "c"]);
        assert_eq!(woken(seen.compare(vec![])), ["b", "c"]);
    }

    #[test]
    fn a_task_that_only_events_told_of_is_missed_when_it_vanishes() {
        let mut seen = Snapshot::default();
        let id = || "a".to_owned();
        seen.note(&RuntimeEvent::TaskStart { container_id: id(), pid: 7 });
        assert!(seen.compare(vec![task("a", 7, TaskStatus::Running)]).is_empty());
        assert_eq!(woken(seen.compare(vec![])), ["a"]);
        seen.note(&RuntimeEvent::TaskStart { container_id: id(), pid: 8 });
        seen.note(&RuntimeEvent::TaskExit { container_id: id(), code: 0, at: None });
        assert!(seen.compare(vec![task("a", 8, TaskStatus::Stopped)]).is_empty());
        seen.note(&RuntimeEvent::TaskDelete { container_id: id() });
        assert!(seen.compare(vec![]).is_empty());
    }

    #[test]
    fn events_about_the_connection_name_no_container() {
        assert_eq!(from_event(RuntimeEvent::Lost), Wake { container_id: None, kind: WakeKind::Lost });
        assert_eq!(
            from_event(RuntimeEvent::TaskOom { container_id: "a".into() }),
            Wake { container_id: Some("a".into()), kind: WakeKind::Oom }
        );
    }

    #[test]
    fn a_listing_that_gives_no_answer_wakes_all_each_time() {
        let late =
            || Err(RuntimeError::Timeout { operation: "list tasks", id: String::new(), after: DEADLINE });
        let (mut seen, mut blind) = (Snapshot::default(), false);
        for _ in 0..2 {
            let wakes = take_in(late(), &mut seen, &mut blind);
            assert_eq!(wakes, [Wake { container_id: None, kind: WakeKind::Blind }]);
            assert!(blind);
        }
        assert!(take_in(Ok(vec![]), &mut seen, &mut blind).is_empty());
        assert!(!blind);
    }

    const DEADLINE: Duration = Duration::from_secs(30);
}
