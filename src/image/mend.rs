//! Mending: files that a power cut emptied in unpacked layers are written again from the layers' archives.

use std::path::PathBuf;

use super::documents::chain_ids;
use super::store::{Image, ImageError};
use crate::runtime::containerd::{Containerd, Mount, RuntimeError};

/// Unpacks all layers of `image` again, over what is there, without any registry. The snapshots stay, and with
/// them the containers on them. Only overlayfs has its layers in directories that can be written to.
pub async fn mend(client: &Containerd, image: &Image) -> Result<(), ImageError> {
    let failed = |source| ImageError::Runtime { name: image.name.clone(), source };
    let lease = client.lease("mend").await.map_err(failed)?;
    let result = mend_held(lease.client(), image).await;
    if let Err(e) = lease.release().await {
        tracing::debug!("{e}; it ends by itself");
    }
    result
}

async fn mend_held(client: &Containerd, image: &Image) -> Result<(), ImageError> {
    let failed = |source| ImageError::Runtime { name: image.name.clone(), source };
    for (digest, _) in image.layers() {
        if client.blob_size(&digest).await.map_err(failed)?.is_none() {
            return Err(ImageError::Incomplete { name: image.name.clone(), digest });
        }
    }
    let view = format!("podling-mend-{}", uuid::Uuid::new_v4().simple());
    let mounts = client.view_rootfs(&view, &image.chain_id).await.map_err(failed)?;
    let dirs = layer_dirs(&mounts);
    let result = match dirs {
        Some(dirs) if dirs.len() == image.layers().len() => apply_all(client, image, &dirs).await,
        _ => Err(RuntimeError::local(
            "mend image",
            &image.name,
            "its layers are in no directories of their own",
        )),
    };
    if let Err(e) = client.remove_snapshot(&view).await {
        tracing::debug!("{e}; it goes with the lease");
    }
    result.map_err(failed)
}

async fn apply_all(client: &Containerd, image: &Image, dirs: &[PathBuf]) -> Result<(), RuntimeError> {
    let diff_ids = image.config.rootfs().diff_ids();
    for (n, layer) in image.manifest().layers.iter().enumerate() {
        let applied = client.apply(layer.into(), &[writable(dirs, n)]).await?;
        if Some(&applied) != diff_ids.get(n) {
            let why = format!(
                "the archive of the layer is damaged too: it holds {applied}; pull or import the image again"
            );
            return Err(RuntimeError::invalid("mend layer", &layer.digest, why));
        }
    }
    for dir in dirs {
        let dir = dir.clone();
        let sync = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&dir)?;
            rustix::fs::syncfs(&file).map_err(std::io::Error::from)
        });
        if let Ok(Err(e)) = sync.await {
            return Err(RuntimeError::from_io("sync layer", &image.name, &e));
        }
    }
    tracing::debug!(image = image.name, chain = chain_ids(diff_ids).len(), "unpacked again");
    Ok(())
}

/// The directories of the layers, the lowest first, from the mounts of a read-only view.
fn layer_dirs(mounts: &[Mount]) -> Option<Vec<PathBuf>> {
    let [mount] = mounts else { return None };
    if mount.kind == "bind" {
        return Some(vec![PathBuf::from(&mount.source)]);
    }
    let lower = mount.options.iter().find_map(|o| o.strip_prefix("lowerdir="))?;
    let mut dirs: Vec<_> = lower.split(':').map(PathBuf::from).collect();
    dirs.reverse();
    Some(dirs)
}

/// A mount by which layer `n` is written into its directory. containerd takes it apart and mounts nothing, so
/// the work directory need not exist.
fn writable(dirs: &[PathBuf], n: usize) -> Mount {
    let own = dirs[n].display().to_string();
    if n == 0 {
        let options = vec!["rw".to_owned(), "rbind".to_owned()];
        return Mount { kind: "bind".into(), source: own, target: String::new(), options };
    }
    let below: Vec<_> = dirs[..n].iter().rev().map(|d| d.display().to_string()).collect();
    let work = dirs[n].with_file_name("work").display().to_string();
    let options =
        vec![format!("workdir={work}"), format!("upperdir={own}"), format!("lowerdir={}", below.join(":"))];
    Mount { kind: "overlay".into(), source: "overlay".into(), target: String::new(), options }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        Mount { kind: kind.into(), source: source.into(), target: String::new(), options }
    }

    #[test]
    fn the_layers_of_a_view_are_found_lowest_first() {
        let view = mount("overlay", "overlay", &["index=off", "lowerdir=/s/3/fs:/s/2/fs:/s/1/fs"]);
        let dirs = layer_dirs(&[view]).unwrap();
        assert_eq!(dirs, ["/s/1/fs", "/s/2/fs", "/s/3/fs"].map(PathBuf::from));
        assert_eq!(layer_dirs(&[mount("bind", "/s/1/fs", &["ro"])]).unwrap(), [PathBuf::from("/s/1/fs")]);
        assert!(layer_dirs(&[]).is_none());
        assert_eq!(writable(&dirs, 0), mount("bind", "/s/1/fs", &["rw", "rbind"]));
        let top = ["workdir=/s/3/work", "upperdir=/s/3/fs", "lowerdir=/s/2/fs:/s/1/fs"];
        assert_eq!(writable(&dirs, 2), mount("overlay", "overlay", &top));
    }
}
