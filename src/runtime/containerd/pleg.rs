//! Wake-ups for pods: containerd's events early, and a regular listing for what events missed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Containerd, ErrorClass, RuntimeEvent, TaskInfo, TaskStatus};

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
}

/// Starts the watch: events wake at once, and every `relist`, and after each reconnect, all tasks are
/// listed and those that changed are woken. Ends when the receiver of `wake` is gone.
pub fn spawn(client: Containerd, relist: Duration, wake: mpsc::Sender<Wake>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut events = client.events();
        let mut seen = Snapshot::default();
        let mut tick = tokio::time::interval_at(Instant::now(), relist);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wakes = tokio::select! {
                () = wake.closed() => return,
                event = events.recv() => match event {
                    None => return,
                    Some(RuntimeEvent::Connected) => {
                        tick.reset();
                        list(&client, &mut seen).await
                    }
                    Some(event) => {
                        seen.note(&event);
                        from_event(event).into_iter().collect()
                    }
                },
                _ = tick.tick() => list(&client, &mut seen).await,
            };
            for w in wakes {
                if wake.send(w).await.is_err() {
                    return;
                }
            }
        }
    })
}

fn from_event(event: RuntimeEvent) -> Option<Wake> {
    let (container_id, kind) = match event {
        RuntimeEvent::Connected | RuntimeEvent::Lost => return None,
        RuntimeEvent::TaskStart { container_id, .. } => (container_id, WakeKind::Started),
        RuntimeEvent::TaskExit { container_id, .. } => (container_id, WakeKind::Exited),
        RuntimeEvent::TaskOom { container_id } => (container_id, WakeKind::Oom),
        RuntimeEvent::TaskDelete { container_id } => (container_id, WakeKind::Deleted),
    };
    Some(Wake { container_id: Some(container_id), kind })
}

async fn list(client: &Containerd, seen: &mut Snapshot) -> Vec<Wake> {
    match client.tasks().await {
        Ok(tasks) => seen.compare(tasks),
        Err(e) if e.class() == ErrorClass::Timeout => {
            tracing::warn!("{e}; looking at every pod");
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
    fn events_about_the_connection_wake_nobody() {
        assert_eq!(from_event(RuntimeEvent::Lost), None);
        assert_eq!(
            from_event(RuntimeEvent::TaskOom { container_id: "a".into() }),
            Some(Wake { container_id: Some("a".into()), kind: WakeKind::Oom })
        );
    }
}
