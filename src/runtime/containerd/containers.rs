//! Container records: what containerd remembers of a container whether or not it runs.

use std::collections::BTreeMap;

use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::{
    Container, CreateContainerRequest, DeleteContainerRequest, GetContainerRequest, ListContainersRequest,
    UpdateContainerRequest, container,
};
use jiff::Timestamp;
use oci_spec::runtime::Spec;
use prost_types::{Any, FieldMask};
use tonic::transport::Channel;

use super::client::{ANSWER_MAX, DEADLINE, Lane};
use super::error::RuntimeError;
use super::{Containerd, OciRuntime, timestamp};

const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// A container to be recorded.
#[derive(Clone, Debug)]
pub struct NewContainer {
    /// Its id.
    pub id: String,
    /// The image's full name.
    pub image: String,
    /// Labels, from which the world is rebuilt after a restart.
    pub labels: BTreeMap<String, String>,
    /// The snapshotter of its root.
    pub snapshotter: String,
    /// Key of its root snapshot, which may not exist yet; none for a root outside containerd.
    pub snapshot_key: Option<String>,
    /// Its runtime.
    pub runtime: OciRuntime,
    /// The OCI spec.
    pub spec: Spec,
}

/// A container as recorded.
#[derive(Clone, Debug)]
pub struct ContainerRecord {
    /// Its id.
    pub id: String,
    /// The image's full name.
    pub image: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// The snapshotter of its root.
    pub snapshotter: String,
    /// Key of its root snapshot.
    pub snapshot_key: Option<String>,
    /// containerd's name of the runtime.
    pub runtime: String,
    /// When the record was made, by the wall clock; for display.
    pub created_at: Option<Timestamp>,
    /// The spec's JSON; empty in lists, where 100 of them would be megabytes.
    spec: Vec<u8>,
}

impl ContainerRecord {
    /// The OCI spec. Only what [`Containerd::container`] returns has one.
    pub fn spec(&self) -> Result<Spec, RuntimeError> {
        serde_json::from_slice(&self.spec)
            .map_err(|e| RuntimeError::local("read the OCI spec of container", &self.id, e))
    }

    fn new(c: Container, with_spec: bool) -> Self {
        Self {
            id: c.id,
            image: c.image,
            labels: c.labels.into_iter().collect(),
            snapshotter: c.snapshotter,
            snapshot_key: Some(c.snapshot_key).filter(|k| !k.is_empty()),
            runtime: c.runtime.map(|r| r.name).unwrap_or_default(),
            created_at: timestamp(c.created_at),
            spec: c.spec.filter(|_| with_spec).map(|s| s.value).unwrap_or_default(),
        }
    }
}

impl Containerd {
    fn containers_client(&self) -> ContainersClient<Channel> {
        ContainersClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX)
    }

    /// Records a container. Do this **before** [`Containerd::prepare_rootfs`]: the record's snapshot key
    /// is what keeps the garbage collector from a snapshot that no container uses yet.
    pub async fn create_container(&self, c: NewContainer) -> Result<(), RuntimeError> {
        let operation = "create container";
        let spec = serde_json::to_vec(&c.spec).map_err(|e| RuntimeError::local(operation, &c.id, e))?;
        // As a tree it is some thousand small pieces, and there may be a queue.
        drop(c.spec);
        let container = Container {
            id: c.id.clone(),
            labels: c.labels.into_iter().collect(),
            image: c.image,
            runtime: Some(container::Runtime { name: c.runtime.name.clone(), options: c.runtime.options() }),
            spec: Some(Any { type_url: SPEC_TYPE.to_owned(), value: spec }),
            snapshotter: c.snapshotter,
            snapshot_key: c.snapshot_key.unwrap_or_default(),
            ..Default::default()
        };
        let mut client = self.containers_client();
        let request = self.request(CreateContainerRequest { container: Some(container) });
        self.call(operation, &c.id, DEADLINE, Lane::Store, client.create(request)).await?;
        Ok(())
    }

    /// The record of container `id`, with its spec.
    pub async fn container(&self, id: &str) -> Result<Option<ContainerRecord>, RuntimeError> {
        let mut client = self.containers_client();
        let request = self.request(GetContainerRequest { id: id.to_owned() });
        match self.call("get container", id, DEADLINE, Lane::Store, client.get(request)).await {
            Ok(answer) => Ok(answer.container.map(|c| ContainerRecord::new(c, true))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The records, without specs, of all containers that have all of `labels`.
    pub async fn containers(&self, labels: &[(&str, &str)]) -> Result<Vec<ContainerRecord>, RuntimeError> {
        let operation = "list containers";
        let filter = labels.iter().map(|(k, v)| label_filter(k, v)).collect::<Vec<_>>().join(",");
        let filters = if filter.is_empty() { vec![] } else { vec![filter] };
        // The streaming form: one message a container, so that no limit on message size is met.
        let collect = async {
            let mut client = self.containers_client();
            let request = self.request(ListContainersRequest { filters });
            let mut stream = client.list_stream(request).await?.into_inner();
            let mut records = Vec::new();
            while let Some(message) = stream.message().await? {
                records.extend(message.container.map(|c| ContainerRecord::new(c, false)));
            }
            Ok(tonic::Response::new(records))
        };
        self.call(operation, "", DEADLINE, Lane::Store, collect).await
    }

    /// Sets `labels` on container `id`; its other labels stay.
    pub async fn set_labels(&self, id: &str, labels: &BTreeMap<String, String>) -> Result<(), RuntimeError> {
        let container = Container {
            id: id.to_owned(),
            labels: labels.clone().into_iter().collect(),
            ..Default::default()
        };
        let paths = labels.keys().map(|k| format!("labels.{k}")).collect();
        let mut client = self.containers_client();
        let request = self.request(UpdateContainerRequest {
            container: Some(container),
            update_mask: Some(FieldMask { paths }),
        });
        self.call("set labels of container", id, DEADLINE, Lane::Store, client.update(request)).await?;
        Ok(())
    }

    /// Removes the record of container `id`, if there is one. Its snapshot goes with the next garbage
    /// collection at the latest.
    pub async fn remove_container(&self, id: &str) -> Result<(), RuntimeError> {
        let mut client = self.containers_client();
        let request = self.request(DeleteContainerRequest { id: id.to_owned() });
        match self.call("remove container", id, DEADLINE, Lane::Store, client.delete(request)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }
}

/// containerd's filter for one label. Key and value are quoted: both may hold any character.
pub(super) fn label_filter(key: &str, value: &str) -> String {
    format!("labels.{}=={}", quote(key), quote(value))
}

/// A Go string literal, which is what containerd's filter language takes.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_filters_quote_what_they_are_given() {
        assert_eq!(
            label_filter("io.kubernetes.pod.name", "a\"b\\c,d\n"),
            r#"labels."io.kubernetes.pod.name"=="a\"b\\c,d\u000a""#
        );
    }
}
