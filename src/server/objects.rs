//! ConfigMaps and Secrets: names, keys and sizes. Their values are not for this socket.

use super::reply::{Answer, json};
use super::routes::Routes;
use super::wire::{ObjectInfo, ObjectList};
use crate::objects::Kept;

/// `GET /podling/v1/objects`.
pub(super) fn list(routes: &Routes) -> Answer {
    let objects = routes.backend.objects.list();
    let items = objects.iter().map(|Kept { object, since }| ObjectInfo {
        kind: object.key.kind,
        namespace: object.key.namespace.clone(),
        name: object.key.name.clone(),
        secret_type: object.secret_type.clone(),
        sizes: object.data.iter().map(|(key, value)| (key.clone(), value.len())).collect(),
        immutable: object.immutable,
        since: *since,
        file: object.origin.file.clone(),
        line: object.origin.line,
    });
    Ok(json(&ObjectList { items: items.collect() }))
}
