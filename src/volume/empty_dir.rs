//! emptyDir: a directory of the pod's own, on the disk or in memory.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use rustix::mount::{MountFlags, mount};

use super::mount_table::MountTable;
use super::{PreparedVolume, VolumeError, huge_pages, make_dir, volume_dir};
use crate::manifest::Quantity;

/// Directory of all emptyDirs of a pod.
pub(super) const PLUGIN: &str = "kubernetes.io~empty-dir";

/// Makes one ready; `node` is the memory that pods may have of the node, 0 when it is not known.
pub(super) fn prepare(
    volume: &Volume,
    spec: &PodSpec,
    pod_dir: &Path,
    mounts: &MountTable,
    node: i64,
) -> Result<PreparedVolume, VolumeError> {
    let source = volume.empty_dir.clone().unwrap_or_default();
    let directory = volume_dir(pod_dir, PLUGIN, &volume.name);
    make_dir(directory.parent().unwrap_or(pod_dir), 0o750)?;
    let wanted = source.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o777) & 0o1777;
    make_dir(&directory, wanted)?;
    match source.medium.as_deref().unwrap_or_default() {
        "" => {}
        "Memory" => {
            let limit = source.size_limit.as_ref().map(|limit| parse(&volume.name, limit)).transpose()?;
            if !mounts.is_mount_point(&directory) {
                mount_tmpfs(&directory, smallest(limit, spec, node), wanted)?;
            }
        }
        medium if medium.starts_with(huge_pages::MEDIUM) => {
            let limit = source.size_limit.as_ref().map(|limit| parse(&volume.name, limit)).transpose()?;
            if !mounts.is_mount_point(&directory) {
                huge_pages::mount(&volume.name, medium, spec, &directory, limit.filter(|l| *l > 0))?;
            }
        }
        other => {
            let what = format!("emptyDir medium {other:?}");
            return Err(VolumeError::Unsupported { volume: volume.name.clone(), what });
        }
    }
    // Explicit, as the umask took some of it: any user of the pod may write, unless the manifest says otherwise.
    let mode = fs::metadata(&directory).map_err(VolumeError::io("look at", &directory))?.permissions().mode();
    // Left alone when it is so, or has what fsGroup adds: rights of the group.
    let group = 0o070;
    if (mode ^ wanted) & 0o1777 & !group != 0 || wanted & !mode & group != 0 {
        fs::set_permissions(&directory, Permissions::from_mode(wanted))
            .map_err(VolumeError::io("change the mode of", &directory))?;
    }
    Ok(PreparedVolume { host_path: directory, is_file: false, read_only: false })
}

fn parse(volume: &str, limit: &ApiQuantity) -> Result<u64, VolumeError> {
    let bad = || VolumeError::Size { volume: volume.to_owned(), value: limit.0.clone() };
    bytes(limit).ok_or_else(bad)
}

/// Whole bytes; none for what is no quantity or less than nothing.
fn bytes(quantity: &ApiQuantity) -> Option<u64> {
    u64::try_from(Quantity::parse(&quantity.0).ok()?.value()).ok()
}

/// What the pages may come to: the volume's limit, the pod's memory limit, or the node's memory for pods, whichever is
/// lowest.
fn smallest(limit: Option<u64>, spec: &PodSpec, node: i64) -> Option<u64> {
    let node = u64::try_from(node).unwrap_or_default();
    // A limit of zero means none, as in the API.
    limit.into_iter().chain(pod_memory_limit(spec)).chain([node]).filter(|bytes| *bytes > 0).min()
}

/// The sum over the containers, if each has a limit; for pod-level resources, theirs.
fn pod_memory_limit(spec: &PodSpec) -> Option<u64> {
    let memory = |resources: &Option<k8s_openapi::api::core::v1::ResourceRequirements>| {
        let limits = resources.as_ref()?.limits.as_ref()?;
        bytes(limits.get("memory")?)
    };
    memory(&spec.resources).or_else(|| {
        let each: Option<Vec<u64>> = spec.containers.iter().map(|c| memory(&c.resources)).collect();
        each.map(|limits| limits.iter().fold(0u64, |sum, limit| sum.saturating_add(*limit)))
            .filter(|sum| *sum > 0)
    })
}

fn mount_tmpfs(directory: &Path, size: Option<u64>, mode: u32) -> Result<(), VolumeError> {
    let options = match size {
        Some(bytes) => format!("mode={mode:o},size={bytes}"),
        None => format!("mode={mode:o}"),
    };
    let options = CString::new(options).map_err(|e| VolumeError::io("mount", directory)(e.into()))?;
    mount("tmpfs", directory, "tmpfs", MountFlags::empty(), options.as_c_str())
        .map_err(|e| VolumeError::io("mount a tmpfs on", directory)(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_what_pods_may_have_of_the_node_where_nothing_else_bounds_it() {
        let spec = PodSpec::default();
        assert_eq!(smallest(None, &spec, 1000), Some(1000));
        assert_eq!(smallest(Some(0), &spec, 1000), Some(1000));
        assert_eq!(smallest(Some(10), &spec, 1000), Some(10));
        assert_eq!(smallest(Some(2000), &spec, 1000), Some(1000));
        assert_eq!(smallest(None, &spec, 0), None);
    }
}
