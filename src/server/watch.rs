//! Watches: JSON lines of `{type, object}`, each the difference between what the client was told and
//! what is. A slow client gets fewer, newer differences, never a queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::Response;
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::events::{in_namespace, to_event};
use super::reply::{Body, typed};
use super::routes::Routes;
use super::wire::WatchEvent;
use crate::manifest::PodKey;
use crate::pod::board::{Event, PodView, Snapshot};

/// Which pods a request is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

impl Scope {
    pub(super) fn holds(&self, key: &PodKey) -> bool {
        self.namespace.as_ref().is_none_or(|ns| *ns == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

/// The client's end of a watch.
struct Client {
    lines: mpsc::Sender<Bytes>,
    shutdown: CancellationToken,
}

impl Client {
    /// False when the client is gone.
    async fn tell(&self, kind: &str, object: impl Serialize) -> bool {
        let event = serde_json::to_value(WatchEvent { kind: kind.to_owned(), object });
        let Ok(mut line) = event.and_then(|event| serde_json::to_vec(&event)) else {
            return false;
        };
        line.push(b'\n');
        self.lines.send(line.into()).await.is_ok()
    }

    /// Says that all that was there at the start has been told, as Kubernetes says it.
    async fn bookmark(&self, kind: &str) -> bool {
        let annotations = json!({ "k8s.io/initial-events-end": "true" });
        let metadata = json!({ "annotations": annotations });
        self.tell("BOOKMARK", json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata })).await
    }

    /// Waits for a change; false when the watch is over.
    async fn changed(&self, board: &mut watch::Receiver<Snapshot>) -> bool {
        tokio::select! {
            changed = board.changed() => changed.is_ok(),
            () = self.lines.closed() => false,
            () = self.shutdown.cancelled() => false,
        }
    }
}

fn start(routes: &Routes) -> (Client, Response<Body>) {
    let (lines, receiver) = mpsc::channel(1);
    let response = typed("application/json", Body::Stream(receiver));
    (Client { lines, shutdown: routes.shutdown.clone() }, response)
}

/// A watch of pods.
pub(super) fn pods(routes: &Routes, scope: Scope, bookmarks: bool) -> Response<Body> {
    let (client, response) = start(routes);
    let board = routes.backend.board.subscribe();
    tokio::spawn(watch_pods(client, board, scope, bookmarks));
    response
}

async fn watch_pods(client: Client, mut board: watch::Receiver<Snapshot>, scope: Scope, bookmarks: bool) {
    let mut told = BTreeMap::new();
    let mut first = true;
    loop {
        let news = pod_news(&mut told, &board.borrow_and_update(), &scope);
        for (kind, view) in news {
            if !client.tell(kind, &view.to_pod()).await {
                return;
            }
        }
        if std::mem::take(&mut first) && bookmarks && !client.bookmark("Pod").await {
            return;
        }
        if !client.changed(&mut board).await {
            return;
        }
    }
}

type News = Vec<(&'static str, Arc<PodView>)>;

/// Brings `told` up to date and says what changed.
fn pod_news(told: &mut BTreeMap<PodKey, Arc<PodView>>, now: &Snapshot, scope: &Scope) -> News {
    let mut news = News::new();
    told.retain(|key, view| {
        let stays = now.pods.contains_key(key);
        if !stays {
            news.push(("DELETED", view.clone()));
        }
        stays
    });
    for (key, view) in now.pods.iter().filter(|(key, _)| scope.holds(key)) {
        let kind = match told.get(key) {
            None => "ADDED",
            Some(old) if Arc::ptr_eq(old, view) => continue,
            // Gone and back between two looks: another pod of the same name.
            Some(old) if old.uid != view.uid => {
                news.push(("DELETED", old.clone()));
                "ADDED"
            }
            Some(_) => "MODIFIED",
        };
        news.push((kind, view.clone()));
        told.insert(key.clone(), view.clone());
    }
    news
}

/// A watch of events.
pub(super) fn events(routes: &Routes, namespace: Option<String>, bookmarks: bool) -> Response<Body> {
    let (client, response) = start(routes);
    let board = routes.backend.board.subscribe();
    let node = routes.backend.node_name.clone();
    tokio::spawn(watch_events(client, board, namespace, node, bookmarks));
    response
}

async fn watch_events(
    client: Client,
    mut board: watch::Receiver<Snapshot>,
    namespace: Option<String>,
    node: String,
    bookmarks: bool,
) {
    let mut seen = 0;
    let mut first = true;
    loop {
        let news: Vec<Arc<Event>> = {
            let snapshot = board.borrow_and_update();
            let fresh = |e: &&Arc<Event>| e.sequence > seen && in_namespace(e, namespace.as_deref());
            snapshot.events.iter().filter(fresh).cloned().collect()
        };
        for event in news {
            seen = seen.max(event.sequence);
            let kind = if event.count > 1 && !first { "MODIFIED" } else { "ADDED" };
            if !client.tell(kind, to_event(&event, &node)).await {
                return;
            }
        }
        if std::mem::take(&mut first) && bookmarks && !client.bookmark("Event").await {
            return;
        }
        if !client.changed(&mut board).await {
            return;
        }
    }
}
