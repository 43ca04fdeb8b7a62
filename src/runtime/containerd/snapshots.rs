//! Snapshots: the root file systems of containers, and the unpacked layers below them.

use containerd_client::services::v1::introspection_client::IntrospectionClient;
use containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, MountsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest, StatSnapshotRequest,
    ViewSnapshotRequest,
};
use containerd_client::services::v1::{ApplyRequest, PluginsRequest, diff_client::DiffClient};
use containerd_client::types::Descriptor;
use tonic::transport::Channel;

use super::client::{ANSWER_MAX, DEADLINE, DEADLINE_LAYER, Lane};
use super::error::RuntimeError;
use super::{Containerd, Mount};

impl Containerd {
    fn snapshots_client(&self) -> SnapshotsClient<Channel> {
        SnapshotsClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX)
    }

    /// The snapshotter in use: the one that was set, else overlayfs where containerd could load it on
    /// this host, else native (plain copies, which work everywhere). Asked once per client.
    pub async fn snapshotter(&self) -> Result<String, RuntimeError> {
        let chosen = self.snapshotter_cell().get_or_try_init(|| async {
            let mut client = IntrospectionClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX);
            let filters = vec!["type==io.containerd.snapshotter.v1,id==overlayfs".to_owned()];
            let request = self.request(PluginsRequest { filters });
            let call = client.plugins(request);
            let plugins =
                self.call("list containerd's snapshotters", "", DEADLINE, Lane::Store, call).await?;
            let works = plugins.plugins.iter().any(|p| p.id == "overlayfs" && p.init_err.is_none());
            if !works {
                tracing::warn!(
                    "containerd cannot use overlayfs here: images and containers are plain copies"
                );
            }
            Ok::<_, RuntimeError>(if works { "overlayfs" } else { "native" }.to_owned())
        });
        chosen.await.cloned()
    }

    /// The directory where the snapshotter keeps its files, when containerd tells.
    pub async fn snapshot_dir(&self) -> Option<std::path::PathBuf> {
        let snapshotter = self.snapshotter().await.ok()?;
        let mut client = IntrospectionClient::new(self.channel()).max_decoding_message_size(ANSWER_MAX);
        let filters = vec![format!("type==io.containerd.snapshotter.v1,id=={snapshotter}")];
        let call = client.plugins(self.request(PluginsRequest { filters }));
        let found =
            self.call("list containerd's snapshotters", "", DEADLINE, Lane::Store, call).await.ok()?;
        found.plugins.into_iter().find_map(|p| p.exports.get("root").map(Into::into))
    }

    /// Makes the writable root `key` over the image layers `chain_id` (empty: over nothing), or finds it
    /// there, and returns the mounts that make it visible.
    pub async fn prepare_rootfs(&self, key: &str, chain_id: &str) -> Result<Vec<Mount>, RuntimeError> {
        match self.prepare("prepare root file system", key, chain_id, &[]).await {
            Err(e) if e.is_already_exists() => self.mounts(key).await,
            other => other,
        }
    }

    /// The mounts of root `key`, if that root exists.
    pub async fn rootfs_mounts(&self, key: &str) -> Result<Option<Vec<Mount>>, RuntimeError> {
        match self.mounts(key).await {
            Ok(mounts) => Ok(Some(mounts)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes the read-only root `key` over the image layers `chain_id`, or finds it there.
    pub async fn view_rootfs(&self, key: &str, chain_id: &str) -> Result<Vec<Mount>, RuntimeError> {
        self.view(key, chain_id, Default::default()).await
    }

    /// As [`Containerd::view_rootfs`], for a view that no container or lease holds: it stays until it is removed.
    pub async fn keep_view(&self, key: &str, chain_id: &str) -> Result<Vec<Mount>, RuntimeError> {
        // The collector spares what has this label, and what it is made of.
        let label = ("containerd.io/gc.root".to_owned(), jiff::Timestamp::now().to_string());
        self.view(key, chain_id, [label].into()).await
    }

    async fn view(
        &self,
        key: &str,
        chain_id: &str,
        labels: std::collections::HashMap<String, String>,
    ) -> Result<Vec<Mount>, RuntimeError> {
        let mut client = self.snapshots_client();
        let request = self.request(ViewSnapshotRequest {
            snapshotter: self.snapshotter().await?,
            key: key.to_owned(),
            parent: chain_id.to_owned(),
            labels,
        });
        match self.call("view root file system", key, DEADLINE, Lane::Store, client.view(request)).await {
            Ok(answer) => Ok(answer.mounts.into_iter().map(Mount::from).collect()),
            Err(e) if e.is_already_exists() => self.mounts(key).await,
            Err(e) => Err(e),
        }
    }

    /// Removes snapshot `key`, if it is still there: the garbage collector may have been faster.
    pub async fn remove_snapshot(&self, key: &str) -> Result<(), RuntimeError> {
        let mut client = self.snapshots_client();
        let request = self
            .request(RemoveSnapshotRequest { snapshotter: self.snapshotter().await?, key: key.to_owned() });
        match self.call("remove snapshot", key, DEADLINE, Lane::Store, client.remove(request)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    /// True when a snapshot of this name exists.
    pub(crate) async fn has_snapshot(&self, key: &str) -> Result<bool, RuntimeError> {
        let mut client = self.snapshots_client();
        let request =
            self.request(StatSnapshotRequest { snapshotter: self.snapshotter().await?, key: key.to_owned() });
        match self.call("look for snapshot", key, DEADLINE, Lane::Store, client.stat(request)).await {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn prepare(
        &self,
        operation: &'static str,
        key: &str,
        parent: &str,
        labels: &[(&str, &str)],
    ) -> Result<Vec<Mount>, RuntimeError> {
        let mut client = self.snapshots_client();
        let request = self.request(PrepareSnapshotRequest {
            snapshotter: self.snapshotter().await?,
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        });
        let answer = self.call(operation, key, DEADLINE, Lane::Store, client.prepare(request)).await?;
        Ok(answer.mounts.into_iter().map(Mount::from).collect())
    }

    /// Names the active snapshot `key` `name`, read-only from then on.
    pub(crate) async fn commit(
        &self,
        name: &str,
        key: &str,
        label: (&str, &str),
    ) -> Result<(), RuntimeError> {
        let mut client = self.snapshots_client();
        let request = self.request(CommitSnapshotRequest {
            snapshotter: self.snapshotter().await?,
            name: name.to_owned(),
            key: key.to_owned(),
            labels: [(label.0.to_owned(), label.1.to_owned())].into(),
        });
        self.call("commit layer", name, DEADLINE_LAYER, Lane::Layer, client.commit(request)).await?;
        Ok(())
    }

    /// Unpacks the layer blob `diff` into `mounts`; the answer is the digest of the uncompressed layer.
    pub(crate) async fn apply(&self, diff: Descriptor, mounts: &[Mount]) -> Result<String, RuntimeError> {
        let mut client = DiffClient::new(self.channel());
        let digest = diff.digest.clone();
        let request = self.request(ApplyRequest {
            diff: Some(diff),
            mounts: mounts.iter().map(Into::into).collect(),
            payloads: Default::default(),
            sync_fs: true,
        });
        let call = client.apply(request);
        let answer = self.call("unpack layer", &digest, DEADLINE_LAYER, Lane::Layer, call).await?;
        Ok(answer.applied.map(|d| d.digest).unwrap_or_default())
    }

    /// True when containerd honours `sync_fs` in [`Containerd::apply`]; others ignore it.
    pub(crate) async fn syncs_layers(&self) -> Result<bool, RuntimeError> {
        let version = self.version().await?;
        let major = version.trim_start_matches('v').split('.').next().and_then(|m| m.parse::<u32>().ok());
        Ok(major.is_some_and(|m| m >= 2))
    }

    async fn mounts(&self, key: &str) -> Result<Vec<Mount>, RuntimeError> {
        let mut client = self.snapshots_client();
        let request =
            self.request(MountsRequest { snapshotter: self.snapshotter().await?, key: key.to_owned() });
        let answer =
            self.call("get mounts of snapshot", key, DEADLINE, Lane::Store, client.mounts(request)).await?;
        Ok(answer.mounts.into_iter().map(Mount::from).collect())
    }
}
