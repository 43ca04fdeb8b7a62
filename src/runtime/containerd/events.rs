//! containerd's events. They are hints: some are lost at every restart of containerd, so whoever acts on
//! them also lists from time to time ([`super::pleg`] does).

use std::collections::HashMap;
use std::time::Duration;

use containerd_client::events::{NamespaceUpdate, TaskDelete, TaskExit, TaskOom, TaskStart};
use containerd_client::services::v1::events_client::EventsClient;
use containerd_client::services::v1::{PublishRequest, SubscribeRequest};
use containerd_client::types::Envelope;
use jiff::Timestamp;
use prost::Message;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::{ANSWER_MAX, DEADLINE, Lane};
use super::containers::quote;
use super::error::RuntimeError;
use super::{Containerd, timestamp};

/// What containerd said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// Events flow from here on. What happened before may have been missed.
    Connected,
    /// Events stopped; [`RuntimeEvent::Connected`] follows when they flow again.
    Lost,
    /// A container's first process started.
    TaskStart {
        /// The container.
        container_id: String,
        /// Its process id.
        pid: u32,
    },
    /// A container's first process ended. Never sent for exec processes.
    TaskExit {
        /// The container.
        container_id: String,
        /// Exit code; 128 + signal for one that was killed.
        code: u32,
        /// When, by the wall clock.
        at: Option<Timestamp>,
    },
    /// The kernel killed a process of the container for want of memory.
    TaskOom {
        /// The container.
        container_id: String,
    },
    /// A task was deleted.
    TaskDelete {
        /// The container.
        container_id: String,
    },
}

/// The topic by which a subscription learns that it is live.
const ARMED_TOPIC: &str = "/podling/armed";
/// cgroup v1 reports one OOM dozens of times; those within this time of the first are dropped.
const OOM_WINDOW: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

impl Containerd {
    /// The events of this namespace's tasks, for as long as the receiver lives. Subscribes again, with
    /// back-off, whenever containerd goes away.
    pub fn events(&self) -> mpsc::Receiver<RuntimeEvent> {
        let (sender, receiver) = mpsc::channel(256);
        let client = self.clone();
        tokio::spawn(async move {
            let follow = async {
                let mut backoff = BACKOFF_MIN;
                loop {
                    match follow(&client, &sender).await {
                        Ok(()) => backoff = BACKOFF_MIN,
                        Err(e) => tracing::debug!("{e}; trying again"),
                    }
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            };
            tokio::select! {
                () = sender.closed() => {}
                () = follow => {}
            }
        });
        receiver
    }

    /// Publishes the event that arms a subscription. Its type is one of containerd's own, so that other
    /// listeners (`ctr events`) can print it.
    async fn publish_armed(&self) -> Result<(), RuntimeError> {
        let event = NamespaceUpdate { name: self.namespace().to_owned(), labels: Default::default() };
        let event =
            Any { type_url: "containerd.events.NamespaceUpdate".to_owned(), value: event.encode_to_vec() };
        let mut client = EventsClient::new(self.channel());
        let request = self.request(PublishRequest { topic: ARMED_TOPIC.to_owned(), event: Some(event) });
        self.call("publish event", "", DEADLINE, Lane::Store, client.publish(request)).await?;
        Ok(())
    }
}

/// One subscription, until it breaks. An error means that it never came to be.
async fn follow(client: &Containerd, sender: &mpsc::Sender<RuntimeEvent>) -> Result<(), RuntimeError> {
    let namespace = quote(client.namespace());
    let filters = vec![
        format!("namespace=={namespace},topic~={}", quote("^/tasks/")),
        format!("namespace=={namespace},topic=={}", quote(ARMED_TOPIC)),
    ];
    let mut events = EventsClient::new(client.channel()).max_decoding_message_size(ANSWER_MAX);
    let subscribe = events.subscribe(client.request(SubscribeRequest { filters }));
    tokio::pin!(subscribe);
    // containerd sends no headers before the first event: on a quiet node this call would hang, and
    // nothing would tell from when on events are seen. So we make an event ourselves until one comes.
    let mut pause = Duration::from_millis(10);
    let mut stream = loop {
        tokio::select! {
            answer = &mut subscribe => match answer {
                Ok(stream) => break stream.into_inner(),
                Err(status) => return Err(RuntimeError::from_status("subscribe to events", "", &status)),
            },
            () = tokio::time::sleep(pause) => client.publish_armed().await?,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    };
    // A closed receiver ends the whole task, so nobody need look at failed sends.
    let _ = sender.send(RuntimeEvent::Connected).await;
    let mut ooms = OomFilter::default();
    while let Ok(Some(envelope)) = stream.message().await {
        if envelope.namespace != client.namespace() {
            continue;
        }
        if let Some(event) = decode(&envelope).filter(|e| ooms.passes(e, Instant::now())) {
            let _ = sender.send(event).await;
        }
    }
    let _ = sender.send(RuntimeEvent::Lost).await;
    Ok(())
}

/// Lets the first of a burst of OOM events pass.
#[derive(Default)]
struct OomFilter {
    seen: HashMap<String, Instant>,
}

impl OomFilter {
    fn passes(&mut self, event: &RuntimeEvent, now: Instant) -> bool {
        match event {
            RuntimeEvent::TaskOom { container_id } => {
                let fresh = self.seen.get(container_id).is_none_or(|t| now.duration_since(*t) >= OOM_WINDOW);
                if fresh {
                    self.seen.insert(container_id.clone(), now);
                }
                fresh
            }
            RuntimeEvent::TaskDelete { container_id } => {
                self.seen.remove(container_id);
                true
            }
            _ => true,
        }
    }
}

/// The event in an envelope, none for those that are not of interest or of an exec process.
fn decode(envelope: &Envelope) -> Option<RuntimeEvent> {
    let event = envelope.event.as_ref()?;
    let value = event.value.as_slice();
    // Versions differ in what stands before the name.
    match event.type_url.rsplit('/').next()? {
        "containerd.events.TaskStart" => {
            let e = TaskStart::decode(value).ok()?;
            Some(RuntimeEvent::TaskStart { container_id: e.container_id, pid: e.pid })
        }
        "containerd.events.TaskExit" => {
            let e = TaskExit::decode(value).ok()?;
            (e.id.is_empty() || e.id == e.container_id).then(|| RuntimeEvent::TaskExit {
                container_id: e.container_id,
                code: e.exit_status,
                at: timestamp(e.exited_at),
            })
        }
        "containerd.events.TaskOOM" => {
            let e = TaskOom::decode(value).ok()?;
            Some(RuntimeEvent::TaskOom { container_id: e.container_id })
        }
        "containerd.events.TaskDelete" => {
            let e = TaskDelete::decode(value).ok()?;
            (e.id.is_empty() || e.id == e.container_id)
                .then_some(RuntimeEvent::TaskDelete { container_id: e.container_id })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(type_url: &str, message: &impl Message) -> Envelope {
        let event = Any { type_url: type_url.to_owned(), value: message.encode_to_vec() };
        Envelope { event: Some(event), ..Default::default() }
    }

    #[test]
    fn exits_of_exec_processes_are_not_events_of_the_container() {
        let mut exit =
            TaskExit { container_id: "c".into(), id: "c".into(), exit_status: 7, ..Default::default() };
        let want = RuntimeEvent::TaskExit { container_id: "c".into(), code: 7, at: None };
        assert_eq!(decode(&envelope("containerd.events.TaskExit", &exit)), Some(want.clone()));
        assert_eq!(decode(&envelope("types.containerd.io/containerd.events.TaskExit", &exit)), Some(want));
        exit.id = "exec-1".into();
        assert_eq!(decode(&envelope("containerd.events.TaskExit", &exit)), None);
    }

    #[test]
    fn events_that_do_not_decode_or_are_unknown_are_skipped() {
        let broken = Any { type_url: "containerd.events.TaskExit".into(), value: vec![0xff; 3] };
        assert_eq!(decode(&Envelope { event: Some(broken), ..Default::default() }), None);
        assert_eq!(decode(&envelope("containerd.events.ImageCreate", &TaskOom::default())), None);
        assert_eq!(decode(&Envelope::default()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_ooms_is_one_event_and_a_later_one_another() {
        let mut filter = OomFilter::default();
        let oom = |id: &str| RuntimeEvent::TaskOom { container_id: id.into() };
        let start = Instant::now();
        assert!(filter.passes(&oom("a"), start));
        assert!(!filter.passes(&oom("a"), start + Duration::from_millis(3)));
        assert!(filter.passes(&oom("b"), start));
        assert!(filter.passes(&oom("a"), start + OOM_WINDOW));
        assert!(filter.passes(&RuntimeEvent::TaskDelete { container_id: "a".into() }, start + OOM_WINDOW));
        assert!(filter.passes(&oom("a"), start + OOM_WINDOW));
    }
}
