//! Events as v1 Event objects.

use k8s_openapi::api::core::v1::{Event as V1Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::pods::list_of;
use super::query::Query;
use super::reply::{Answer, json};
use super::routes::Routes;
use super::watch;
use crate::pod::board::{Event, EventType};

/// Namespace in which Kubernetes keeps the events of nodes.
const NODE_NAMESPACE: &str = "default";

/// `GET …/events`, with `watch` as a stream.
pub(super) fn list(routes: &Routes, namespace: Option<&str>, query: &Query) -> Answer {
    if query.flag("watch") {
        let bookmarks = query.flag("allowWatchBookmarks");
        return Ok(watch::events(routes, namespace.map(str::to_owned), bookmarks));
    }
    let events: Vec<_> = {
        let board = routes.backend.board.subscribe();
        let snapshot = board.borrow();
        snapshot.events.iter().filter(|e| in_namespace(e, namespace)).cloned().collect()
    };
    Ok(json(&list_of(events.iter().map(|e| to_event(e, &routes.backend.node_name)).collect())))
}

fn namespace_of(event: &Event) -> &str {
    event.pod.as_ref().map_or(NODE_NAMESPACE, |key| &key.namespace)
}

pub(super) fn in_namespace(event: &Event, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|ns| ns == namespace_of(event))
}

/// The v1 Event; its name carries the event's number, as the kubelet's carry a time.
pub(super) fn to_event(event: &Event, node: &str) -> V1Event {
    let (kind, name) = match &event.pod {
        Some(key) => ("Pod", key.name.as_str()),
        None => ("Node", node),
    };
    let namespace = namespace_of(event).to_owned();
    V1Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", event.sequence)),
            namespace: Some(namespace.clone()),
            creation_timestamp: Some(Time(event.first)),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            namespace: event.pod.is_some().then_some(namespace),
            ..ObjectReference::default()
        },
        type_: Some(
            match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(event.reason.clone()),
        message: Some(event.message.clone()),
        count: i32::try_from(event.count).ok(),
        first_timestamp: Some(Time(event.first)),
        last_timestamp: Some(Time(event.last)),
        source: Some(EventSource { component: Some("podling".to_owned()), host: Some(node.to_owned()) }),
        ..V1Event::default()
    }
}
