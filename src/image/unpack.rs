//! Layers become snapshots, one on the other, synced to disk before they count as there.

use std::collections::HashMap;
use std::path::PathBuf;

use super::documents::{Descriptor, Manifest, chain_ids};
use crate::runtime::containerd::{Containerd, Mount, RuntimeError};

/// Unpacks the layers of `manifest` that are not unpacked yet, and ties them to the configuration blob
/// so that they live as long as the image. The client should be under a lease. Safe to run twice at
/// once: who comes second finds the layers there.
pub(super) async fn unpack(
    client: &Containerd,
    manifest: &Manifest,
    config_digest: &str,
    diff_ids: &[String],
) -> Result<(), RuntimeError> {
    let from = unpacked_layers(client, diff_ids).await?;
    unpack_from(client, manifest, config_digest, diff_ids, from, &mut AllHere).await
}

/// Where layers come from.
pub(super) trait Layers {
    /// Why one does not come.
    type Error: From<RuntimeError>;
    /// Returns when layer `n` is in the content store.
    fn ready(&mut self, n: usize) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// They are all there.
struct AllHere;

impl Layers for AllHere {
    type Error = RuntimeError;
    async fn ready(&mut self, _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }
}

/// How many layers, from the lowest, are unpacked; they are held by the client's lease from then on.
pub(super) async fn unpacked_layers(client: &Containerd, diff_ids: &[String]) -> Result<usize, RuntimeError> {
    let chain = chain_ids(diff_ids);
    let kind = format!("snapshots/{}", client.snapshotter().await?);
    for name in &chain {
        client.hold(&kind, name).await?;
    }
    for (n, name) in chain.iter().enumerate().rev() {
        if client.has_snapshot(name).await? {
            return Ok(n + 1);
        }
    }
    Ok(0)
}

/// [`unpack`] of the layers from number `from` on, each when it is there.
pub(super) async fn unpack_from<L: Layers>(
    client: &Containerd,
    manifest: &Manifest,
    config_digest: &str,
    diff_ids: &[String],
    from: usize,
    layers: &mut L,
) -> Result<(), L::Error> {
    let chain = chain_ids(diff_ids);
    let Some(top) = chain.last() else { return Ok(()) };
    let snapshotter = client.snapshotter().await?;
    for (n, layer) in manifest.layers.iter().enumerate().skip(from) {
        layers.ready(n).await?;
        let parent = if n == 0 { "" } else { &chain[n - 1] };
        unpack_layer(client, layer, parent, &chain[n], &diff_ids[n]).await?;
    }
    let label = (format!("containerd.io/gc.ref.snapshot.{snapshotter}"), top.clone());
    Ok(client.label_blob(config_digest, HashMap::from([label])).await?)
}

async fn unpack_layer(
    client: &Containerd,
    layer: &Descriptor,
    parent: &str,
    name: &str,
    diff_id: &str,
) -> Result<(), RuntimeError> {
    if client.has_snapshot(name).await? {
        return Ok(());
    }
    let key = format!("podling-unpack-{} {name}", uuid::Uuid::new_v4().simple());
    let label = ("containerd.io/snapshot.ref", name);
    let mounts = match client.prepare("prepare layer", &key, parent, &[label]).await {
        // The snapshotter knows the layer already, from another namespace.
        Err(e) if e.is_already_exists() => return Ok(()),
        other => other?,
    };
    let result = fill(client, layer, &mounts, diff_id).await;
    let result = match result {
        Ok(()) => client.commit(name, &key, label).await,
        Err(e) => Err(e),
    };
    let lost_the_race = result.as_ref().is_err_and(RuntimeError::is_already_exists);
    if result.is_err()
        && let Err(e) = client.remove_snapshot(&key).await
    {
        tracing::debug!("{e}; it goes with the lease");
    }
    if lost_the_race { Ok(()) } else { result }
}

async fn fill(
    client: &Containerd,
    layer: &Descriptor,
    mounts: &[Mount],
    diff_id: &str,
) -> Result<(), RuntimeError> {
    let applied = client.apply(layer.into(), mounts).await?;
    if applied != diff_id {
        let why = format!("its content has digest {applied}, but the image's configuration says {diff_id}");
        return Err(RuntimeError::invalid("unpack layer", &layer.digest, why));
    }
    if client.syncs_layers().await? {
        return Ok(());
    }
    // containerd before 2.0 does not sync what it unpacks: a power cut would leave a layer that counts as
    // unpacked and has empty files.
    for dir in mounts.iter().filter_map(Mount::writable_dir).map(PathBuf::from) {
        let sync = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&dir)?;
            rustix::fs::syncfs(&file).map_err(std::io::Error::from)
        });
        match sync.await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(RuntimeError::from_io("sync layer", &layer.digest, &e)),
            Err(e) => return Err(RuntimeError::local("sync layer", &layer.digest, e)),
        }
    }
    Ok(())
}
