//! image volumes: views of images, mounted in the pod's directory for all its containers.
//!
//! Each view is a snapshot that nothing in containerd refers to, so it is kept by a label and written down before it
//! is made: an empty file `<pod>/image-mounts/<snapshot>`. Taking the pod away removes what is written there, however
//! often it is begun.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;
use sha2::{Digest, Sha256};

use super::sandbox::pod_spec;
use super::start::{StartError, StartOrder};
use super::{Runtime, containerd};
use crate::image::Image;
use crate::system::mounts::{self, RootfsMount};
use crate::volume::image_dir;

/// Directory of the names of snapshots, in a pod's.
const NOTES: &str = "image-mounts";

impl Runtime {
    /// Mounts the images of a pod's image volumes that are not mounted yet. What is mounted stays as it is for as
    /// long as the pod lives, whatever its name points at by now.
    pub(super) async fn mount_images(&self, order: &StartOrder<'_>) -> Result<(), StartError> {
        let (spec, uid) = (pod_spec(order.manifest)?, order.uid);
        for volume in spec.volumes.iter().flatten() {
            if let Some(source) = &volume.image {
                let dir = self.inner.paths.pod(uid);
                let target = image_dir(&dir, &volume.name);
                if !mounts::is_mountpoint(&target).map_err(|e| failed(volume, e.to_string()))? {
                    let reference = source.reference.as_deref().unwrap_or_default();
                    let policy = source.pull_policy.as_deref();
                    let ready = self.image_by(order.manifest, reference, policy, order.asked).await?;
                    self.mount_image(volume, &ready.image, uid, &dir, &target).await?;
                }
            }
        }
        Ok(())
    }

    async fn mount_image(
        &self,
        volume: &Volume,
        image: &Image,
        uid: &str,
        dir: &Path,
        target: &Path,
    ) -> Result<(), StartError> {
        let said = |e: String| failed(volume, e);
        let key = key(uid, &volume.name, &image.chain_id);
        note(dir, &key).map_err(|e| said(e.to_string()))?;
        let parts = self.inner.ctd.keep_view(&key, &image.chain_id).await;
        let parts: Vec<RootfsMount> =
            parts.map_err(|e| StartError::rpc("FailedMount", &e))?.into_iter().map(part).collect();
        let target = target.to_owned();
        let job = tokio::task::spawn_blocking(move || {
            fs::create_dir_all(&target).map_err(|e| format!("cannot create {}: {e}", target.display()))?;
            mounts::mount_rootfs(&parts, &target).map_err(|e| e.to_string())
        });
        job.await.map_err(|e| said(e.to_string()))?.map_err(said)
    }

    /// Unmounts the images of a pod and removes their snapshots. For a pod without any, or a second time, it does
    /// nothing.
    pub async fn unmount_images(&self, uid: &str) -> Result<(), String> {
        let dir = self.inner.paths.pod(uid);
        let names: Vec<String> = match fs::read_dir(dir.join(NOTES)) {
            Ok(entries) => entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect(),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(format!("cannot read {}: {e}", dir.join(NOTES).display())),
        };
        let below = image_dir(&dir, "");
        let job = tokio::task::spawn_blocking(move || match below.canonicalize() {
            Ok(real) => mounts::unmount_under(&real).map_err(|e| e.to_string()),
            Err(_) => Ok(()),
        });
        job.await.map_err(|e| e.to_string())??;
        for name in names {
            self.inner.ctd.remove_snapshot(&name).await.map_err(|e| e.to_string())?;
            let note = dir.join(NOTES).join(name);
            fs::remove_file(&note).map_err(|e| format!("cannot remove {}: {e}", note.display()))?;
        }
        fs::remove_dir(dir.join(NOTES))
            .map_err(|e| format!("cannot remove {}: {e}", dir.join(NOTES).display()))
    }
}

fn failed(volume: &Volume, text: String) -> StartError {
    StartError::new("FailedMount", format!("volume {:?}: {text}", volume.name))
}

/// A name that the pod, the volume and the content make up, so that a second try finds what the first one made.
fn key(uid: &str, volume: &str, chain_id: &str) -> String {
    let content = hex::encode(&Sha256::digest(chain_id.as_bytes())[..6]);
    format!("podling-volume-{uid}-{volume}-{content}")
}

fn note(dir: &Path, key: &str) -> std::io::Result<()> {
    let notes: PathBuf = dir.join(NOTES);
    fs::create_dir_all(&notes)?;
    fs::File::create(notes.join(key))?;
    crate::system::files::sync_dir(&notes)
}

fn part(mount: containerd::Mount) -> RootfsMount {
    RootfsMount { kind: mount.kind, source: mount.source, options: mount.options }
}
