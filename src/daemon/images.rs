//! What the server needs of images: listed, looked into, imported, exported, removed.

use std::path::{Path, PathBuf};

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use super::access::{RuntimeSlot, access_error};
use crate::image::{self, FindError, Image, ImageRef, ImageSummary, LEFT_OUT, Source};
use crate::runtime::Runtime;
use crate::server::wire::{Imported, PullLine};
use crate::server::{AccessError, ArchiveRequest, ImageInfo, PruneRequest};

impl RuntimeSlot {
    pub(super) async fn list_images(&self) -> Result<Vec<ImageInfo>, AccessError> {
        let images = self.ready().await?.containerd().images().await.map_err(access_error)?;
        let info = |i: ImageSummary| ImageInfo {
            name: i.name,
            digest: i.digest,
            size: i.size.unwrap_or_default(),
            created: i.created,
            id: i.id.unwrap_or_default(),
            pinned: i.pinned,
        };
        Ok(images.into_iter().map(info).collect())
    }

    pub(super) async fn import_archive(&self, archive: ArchiveRequest) -> Result<Imported, AccessError> {
        let runtime = self.ready().await?;
        let shown = if archive.upload { Path::new("standard input") } else { &archive.file };
        let (name, policy) = (archive.name.as_deref(), Some(self.signature_policy.as_path()));
        let source = Source { file: &archive.file, shown, name, policy };
        let imported = image::import(runtime.containerd(), &source).await;
        let imported = imported.map_err(|e| match e.is_of_the_archive() {
            true => AccessError::Invalid(e.to_string()),
            false => AccessError::Failed(e.to_string()),
        })?;
        let left_out: Vec<_> = imported.left_out.iter().map(|e| format!("{LEFT_OUT}: {e}")).collect();
        left_out.iter().for_each(|text| tracing::warn!("{text}"));
        if !imported.names.is_empty() {
            tracing::info!("imported {}", imported.names.join(", "));
            runtime.images().arrived();
        }
        Ok(Imported { names: imported.names, left_out })
    }

    /// Removes what `text` names. An id or a digest may stand for several names.
    pub(super) async fn remove_names(&self, text: String, force: bool) -> Result<Vec<String>, AccessError> {
        let ctd = self.ready().await?.containerd();
        let found = ctd.find_images(&text).await.map_err(|e| find_error(e, &text))?;
        if !force && let Some((name, pod)) = found.iter().find_map(|i| self.used_by(i).map(|p| (&i.name, p)))
        {
            return Err(AccessError::Conflict(format!(
                "image \"{name}\" is used by pod {pod}; remove it all the same with --force"
            )));
        }
        let mut removed = Vec::new();
        for ImageSummary { name, .. } in found {
            let reference = ImageRef::parse(&name).map_err(|e| AccessError::Invalid(e.to_string()))?;
            if ctd.remove_image(&reference).await.map_err(access_error)? {
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// A pod that is not over and has a container of this image.
    fn used_by(&self, image: &ImageSummary) -> Option<String> {
        let board = self.board.subscribe();
        let state = board.borrow();
        let uses = |pod: &&_| {
            let pod: &crate::pod::board::PodView = pod;
            let status = &pod.status;
            let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
            let of_image = |name: &str, id: &str| {
                id.ends_with(&image.digest) && ImageRef::parse(name).is_ok_and(|r| r.name() == image.name)
            };
            !over && all.into_iter().any(|c| of_image(&c.image, &c.image_id))
        };
        state.pods.iter().find(|(_, pod)| uses(&pod.as_ref())).map(|(key, _)| key.to_string())
    }

    pub(super) async fn pull_by_order(&self, name: String) -> Result<mpsc::Receiver<Bytes>, AccessError> {
        let puller = self.ready().await?.images().clone();
        let (lines, receiver) = mpsc::channel(8);
        tokio::spawn(async move {
            // A client that reads slowly misses steps, not the end.
            let pulled = puller.pull(&name, |r| drop(lines.try_send(line(&PullLine::Progress(r))))).await;
            let last = match pulled {
                Ok(p) => PullLine::Done { name: p.name, digest: p.digest, unchanged: p.unchanged },
                Err(e) => PullLine::Error(e.to_string()),
            };
            let _ = lines.send(line(&last)).await;
        });
        Ok(receiver)
    }

    pub(super) async fn describe_image(&self, text: String) -> Result<serde_json::Value, AccessError> {
        let image = find(self.ready().await?, &text).await?;
        let layers = image.layers().into_iter().map(|(digest, size)| json!({"digest": digest, "size": size}));
        Ok(json!({
            "name": image.name, "digest": image.digest, "manifest": image.manifest_digest,
            "id": image.config_digest, "size": image.size, "unpacked": image.unpacked,
            "layers": layers.collect::<Vec<_>>(), "config": image.config,
        }))
    }

    pub(super) async fn write_archive(
        &self,
        names: Vec<String>,
        archive: PathBuf,
    ) -> Result<(), AccessError> {
        let runtime = self.ready().await?;
        let mut images = Vec::new();
        for name in names {
            let image = find(runtime, &name).await?;
            // What another image had unpacked was never fetched.
            if let Err(e) = runtime.images().complete(&image, &[]).await {
                return Err(AccessError::Failed(format!("image {} cannot be exported: {e}", image.name)));
            }
            images.push(image);
        }
        let exported = image::export(runtime.containerd(), &images, &archive).await;
        exported.map_err(|e| AccessError::Failed(e.to_string()))
    }

    pub(super) async fn remove_unused(&self, request: PruneRequest) -> Result<Vec<String>, AccessError> {
        let ctd = self.ready().await?.containerd();
        let wanted = super::collect::wanted(&self.paths, &self.manifest_dirs).await;
        let pruned = image::collect::prune(ctd, &wanted, request.all, request.dry_run).await;
        pruned.map_err(access_error)
    }
}

/// The one image that `text` names.
async fn find(runtime: &Runtime, text: &str) -> Result<Image, AccessError> {
    let ctd = runtime.containerd();
    let found = ctd.find_images(text).await.map_err(|e| find_error(e, text))?;
    let name = found.into_iter().next().map(|i| i.name).unwrap_or_default();
    let reference = ImageRef::parse(&name).map_err(|e| AccessError::Invalid(e.to_string()))?;
    let image = ctd.image(&reference).await.map_err(|e| AccessError::Failed(e.to_string()))?;
    image.ok_or_else(|| AccessError::NotFound(format!("image \"{text}\" not found")))
}

fn find_error(e: FindError, text: &str) -> AccessError {
    match e {
        FindError::None => AccessError::NotFound(format!("image \"{text}\" not found")),
        FindError::Several(_) | FindError::Name(_) => AccessError::Invalid(e.to_string()),
        FindError::Runtime(e) => access_error(e),
    }
}

fn line(line: &PullLine) -> Bytes {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
