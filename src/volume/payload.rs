//! What belongs into a volume whose files come from ConfigMaps, Secrets and the pod's own fields.

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Volume, VolumeProjection,
};

use super::VolumeError;
use super::atomic::{Entry, Payload};
use crate::objects::{ObjectKey, ObjectKind, Objects};
use crate::runtime::downward::{self, DownwardFacts};

/// Mode of files for which the manifest names none.
const DEFAULT_MODE: i32 = 0o644;

/// Where content comes from.
pub(super) struct Sources<'a> {
    pub pod: &'a Pod,
    pub objects: &'a Objects,
    pub facts: &'a DownwardFacts,
}

/// A reference to a ConfigMap or Secret, as the volumes of both kinds and projections make it.
struct Reference<'a> {
    kind: ObjectKind,
    name: &'a str,
    items: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
}

/// Mode and owner of files that have none of their own.
#[derive(Clone, Copy)]
struct Defaults {
    mode: Option<i32>,
    user: Option<i64>,
}

impl Defaults {
    fn entry(self, data: Vec<u8>, mode: Option<i32>, user: Option<i64>) -> Entry {
        let mode = mode.or(self.mode).unwrap_or(DEFAULT_MODE);
        let user = user.or(self.user).unwrap_or_default();
        Entry { data, mode: mode.unsigned_abs() & 0o777, user: u32::try_from(user).unwrap_or_default() }
    }
}

/// The files of one volume as they should be now. A volume of another kind has none.
pub(super) fn collect(volume: &Volume, sources: &Sources<'_>) -> Result<Payload, VolumeError> {
    let spec = sources.pod.spec.as_ref();
    let group = spec.and_then(|s| s.security_context.as_ref()?.fs_group);
    let payload = Payload { group: group.and_then(|g| u32::try_from(g).ok()), ..Payload::default() };
    let mut collector = Collector { volume: &volume.name, sources, payload };
    if let Some(map) = &volume.config_map {
        let reference = Reference {
            kind: ObjectKind::ConfigMap,
            name: &map.name,
            items: map.items.as_deref(),
            optional: map.optional,
        };
        collector.object(&reference, Defaults { mode: map.default_mode, user: map.default_user })?;
    }
    if let Some(secret) = &volume.secret {
        let reference = Reference {
            kind: ObjectKind::Secret,
            name: secret.secret_name.as_deref().unwrap_or_default(),
            items: secret.items.as_deref(),
            optional: secret.optional,
        };
        collector.object(&reference, Defaults { mode: secret.default_mode, user: secret.default_user })?;
    }
    if let Some(fields) = &volume.downward_api {
        let defaults = Defaults { mode: fields.default_mode, user: fields.default_user };
        collector.fields(fields.items.as_deref().unwrap_or_default(), defaults)?;
    }
    if let Some(projected) = &volume.projected {
        collector.projected(projected)?;
    }
    Ok(collector.payload)
}

struct Collector<'a> {
    volume: &'a str,
    sources: &'a Sources<'a>,
    payload: Payload,
}

impl Collector<'_> {
    fn projected(&mut self, volume: &ProjectedVolumeSource) -> Result<(), VolumeError> {
        let defaults = Defaults { mode: volume.default_mode, user: volume.default_user };
        for source in volume.sources.iter().flatten() {
            self.projection(source, defaults)?;
        }
        Ok(())
    }

    fn projection(&mut self, source: &VolumeProjection, defaults: Defaults) -> Result<(), VolumeError> {
        if let Some(map) = &source.config_map {
            let reference = Reference {
                kind: ObjectKind::ConfigMap,
                name: &map.name,
                items: map.items.as_deref(),
                optional: map.optional,
            };
            self.object(&reference, defaults)?;
        }
        if let Some(secret) = &source.secret {
            let reference = Reference {
                kind: ObjectKind::Secret,
                name: &secret.name,
                items: secret.items.as_deref(),
                optional: secret.optional,
            };
            self.object(&reference, defaults)?;
        }
        if let Some(fields) = &source.downward_api {
            self.fields(fields.items.as_deref().unwrap_or_default(), defaults)?;
        }
        // The others need an API server; without one they are refused, or what they would add is missing.
        Ok(())
    }

    fn object(&mut self, reference: &Reference<'_>, defaults: Defaults) -> Result<(), VolumeError> {
        let namespace = self.sources.pod.metadata.namespace.as_deref().unwrap_or("default");
        let key = || ObjectKey::new(reference.kind, namespace, reference.name);
        let optional = reference.optional == Some(true);
        let Some(object) = self.sources.objects.get(reference.kind, namespace, reference.name) else {
            if optional {
                return Ok(());
            }
            return Err(VolumeError::MissingObject { volume: self.volume.to_owned(), object: key() });
        };
        let items = reference.items.unwrap_or_default();
        if items.is_empty() {
            for (name, data) in &object.data {
                self.add(name, defaults.entry(data.clone(), None, None))?;
            }
        }
        for item in items {
            match object.data.get(&item.key) {
                Some(data) => self.add(&item.path, defaults.entry(data.clone(), item.mode, item.user))?,
                None if optional => {}
                None => {
                    return Err(VolumeError::MissingKey {
                        volume: self.volume.to_owned(),
                        object: key(),
                        key: item.key.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    fn fields(&mut self, items: &[DownwardAPIVolumeFile], defaults: Defaults) -> Result<(), VolumeError> {
        let Sources { pod, facts, .. } = *self.sources;
        for item in items {
            let value = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => downward::field_ref(pod, facts, &field.field_path),
                (None, Some(resource)) => downward::resource_field_ref(pod, None, facts, resource),
                (None, None) => Ok(String::new()),
            };
            let value = value.map_err(|e| self.content(&item.path, &e.to_string()))?;
            self.add(&item.path, defaults.entry(value.into_bytes(), item.mode, item.user))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<(), VolumeError> {
        let added = self.payload.insert(path, entry);
        added.map_err(|why| self.content(path, why))
    }

    fn content(&self, path: &str, reason: &str) -> VolumeError {
        VolumeError::Content {
            volume: self.volume.to_owned(),
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
