//! An image's `VOLUME`s: directories of the host, fresh for each run, that begin with what the image has there.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use super::start::{StartError, StartOrder};
use super::{Runtime, new_id};
use crate::image::Image;
use crate::system::copy::copy_tree;
use crate::system::mounts::{RootfsMount, with_rootfs};
use crate::system::subpath::find_in_root;

fn failed(text: impl std::fmt::Display) -> StartError {
    StartError::new("CreateContainerError", text.to_string())
}

impl Runtime {
    /// Directories for the image's `VOLUME`s, but for those that the manifest mounts something over: with owner,
    /// mode and content of the image's own directory, which programs that do not run as root rely on. Those of
    /// earlier runs are removed.
    pub(super) async fn declared_volumes(
        &self,
        order: &StartOrder<'_>,
        container: &Container,
        image: &Image,
    ) -> Result<Vec<(String, PathBuf)>, StartError> {
        let base = self.inner.paths.pod(order.uid).join("image-volumes").join(order.name);
        let free = declared(image).into_iter().filter(|dest| !is_mounted_over(container, dest));
        let made: Vec<(String, PathBuf)> =
            free.enumerate().map(|(n, dest)| (dest, base.join(format!("{}-{n}", order.attempt)))).collect();
        if made.is_empty() && !base.exists() {
            return Ok(made);
        }
        let dirs: Vec<PathBuf> = made.iter().map(|(_, dir)| dir.clone()).collect();
        let cleared = tokio::task::spawn_blocking(move || begin_anew(&base, &dirs)).await;
        cleared.map_err(failed)?.map_err(failed)?;
        if !made.is_empty() {
            let volumes = made.clone();
            self.look_into(image, move |root| {
                volumes.iter().try_for_each(|(dest, dir)| fill(root, dest, dir))
            })
            .await?
            .map_err(failed)?;
        }
        Ok(made)
    }

    /// Calls `look` with the root of the image, mounted read-only where nobody else sees it.
    pub(super) async fn look_into<T: Send + 'static>(
        &self,
        image: &Image,
        look: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, StartError> {
        let view = format!("view-{}", new_id());
        // No container names the view, so only a lease keeps it from being collected while it is read.
        let lease = self.inner.ctd.lease("view").await.map_err(failed)?;
        let ctd = lease.client();
        let mounts = ctd.view_rootfs(&view, &image.chain_id).await.map_err(failed)?;
        let mounts: Vec<_> = mounts
            .into_iter()
            .map(|m| RootfsMount { kind: m.kind, source: m.source, options: m.options })
            .collect();
        let dir = self.inner.paths.run();
        let answer = tokio::task::spawn_blocking(move || with_rootfs(&mounts, &dir, look)).await;
        let removed = ctd.remove_snapshot(&view).await;
        let released = lease.release().await;
        let answer = answer.map_err(failed)?.map_err(failed)?;
        removed.and(released).map_err(failed)?;
        Ok(answer)
    }
}

/// Empties the directory of a container's volumes and makes those of this run. What a killed podling left of them
/// may be half a copy.
fn begin_anew(base: &Path, dirs: &[PathBuf]) -> Result<(), String> {
    match fs::remove_dir_all(base) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(format!("cannot remove {}: {e}", base.display())),
    }
    for dir in dirs {
        fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    }
    Ok(())
}

/// What the image does not have there, or has as a file, begins empty.
fn fill(root: &Path, dest: &str, dir: &Path) -> Result<(), String> {
    let said = |e: &dyn std::fmt::Display| format!("cannot make the image's VOLUME {dest}: {e}");
    let Some(source) = find_in_root(root, Path::new(dest)).map_err(|e| said(&e))? else { return Ok(()) };
    let source = PathBuf::from(format!("/proc/self/fd/{}/", source.as_raw_fd()));
    if !source.is_dir() {
        return Ok(());
    }
    copy_tree(&source, dir).map_err(|e| said(&e))
}

/// The image's `VOLUME`s, in order.
fn declared(image: &Image) -> Vec<String> {
    let mut volumes = image.config.config().as_ref().and_then(|c| c.volumes().clone()).unwrap_or_default();
    volumes.sort();
    volumes
}

fn is_mounted_over(container: &Container, dest: &str) -> bool {
    let parts = |path| Path::new(path).components().filter(|c| matches!(c, Component::Normal(_)));
    let mounts = container.volume_mounts.iter().flatten();
    mounts.map(|m| m.mount_path.as_str()).any(|path| parts(path).eq(parts(dest)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_volume_begins_with_owner_mode_and_content_of_the_images_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (root, volume) = (dir.path().join("root"), dir.path().join("v"));
        fs::create_dir_all(root.join("srv/data")).unwrap();
        fs::create_dir(&volume).unwrap();
        fs::write(root.join("srv/data/seed"), "x").unwrap();
        fs::set_permissions(root.join("srv/data"), fs::Permissions::from_mode(0o700)).unwrap();
        chown(root.join("srv/data"), Some(999), Some(998)).unwrap();
        // As /var/run is in many images.
        symlink("/srv", root.join("link")).unwrap();
        fill(&root, "/link/data", &volume).unwrap();
        let meta = fs::metadata(&volume).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o700, 999, 998));
        assert_eq!(fs::read_to_string(volume.join("seed")).unwrap(), "x");
    }

    #[test]
    fn what_the_image_lacks_begins_empty_and_no_link_leads_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (root, volume) = (dir.path().join("root"), dir.path().join("v"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir(&volume).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "x").unwrap();
        symlink("../outside", root.join("out")).unwrap();
        fs::write(root.join("file"), "x").unwrap();
        for dest in ["/none", "/out", "/file", "/file/below"] {
            fill(&root, dest, &volume).unwrap();
            assert_eq!(fs::read_dir(&volume).unwrap().count(), 0, "{dest}");
        }
    }

    #[test]
    fn each_run_begins_anew_and_what_earlier_ones_wrote_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("image-volumes/web");
        fs::create_dir_all(base.join("0-0")).unwrap();
        fs::write(base.join("0-0/written"), "x").unwrap();
        begin_anew(&base, &[base.join("1-0")]).unwrap();
        assert!(!base.join("0-0").exists() && base.join("1-0").is_dir());
        begin_anew(&base, &[]).unwrap();
        assert!(!base.exists());
    }

    #[test]
    fn a_mount_of_the_manifest_stands_over_the_images_volume() {
        let mount = |path: &str| k8s_openapi::api::core::v1::VolumeMount {
            mount_path: path.into(),
            ..Default::default()
        };
        let container = Container { volume_mounts: Some(vec![mount("/data/")]), ..Default::default() };
        assert!(is_mounted_over(&container, "/data"));
        assert!(is_mounted_over(&container, "data"));
        assert!(!is_mounted_over(&container, "/data/sub"));
    }
}
