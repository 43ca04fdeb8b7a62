//! emptyDir with medium `HugePages`: a hugetlbfs of the pod's own.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::PodSpec;
use rustix::mount::{MountFlags, mount as mount_at};

use super::VolumeError;
use crate::manifest::Quantity;

/// The medium, alone or with a size: `HugePages-2Mi`.
pub(super) const MEDIUM: &str = "HugePages";
/// One directory for each size that the kernel has.
const SIZES: &str = "/sys/kernel/mm/hugepages";

/// Mounts a hugetlbfs with pages of the medium's size. A medium without a size takes the one size that the pod's
/// containers ask for.
pub(super) fn mount(
    volume: &str,
    medium: &str,
    spec: &PodSpec,
    directory: &Path,
    limit: Option<u64>,
) -> Result<(), VolumeError> {
    let failed = |reason: String| VolumeError::HugePages { volume: volume.to_owned(), reason };
    let size = match medium.strip_prefix(MEDIUM).and_then(|rest| rest.strip_prefix('-')) {
        Some(size) => size.to_owned(),
        None => only_size(spec).map_err(failed)?,
    };
    let bytes = Quantity::parse(&size).ok().and_then(|q| u64::try_from(q.value()).ok()).filter(|b| *b > 0);
    let bytes = bytes.ok_or_else(|| failed(format!("{size:?} is no size of huge pages such as 2Mi")))?;
    available(Path::new(SIZES), bytes, &size).map_err(failed)?;
    let size_option = limit.map(|limit| format!(",size={limit}")).unwrap_or_default();
    let options = CString::new(format!("mode=0777,pagesize={bytes}{size_option}"))
        .map_err(|e| VolumeError::io("mount", directory)(e.into()))?;
    mount_at("hugetlbfs", directory, "hugetlbfs", MountFlags::NODEV | MountFlags::NOSUID, options.as_c_str())
        .map_err(|e| VolumeError::io("mount a hugetlbfs on", directory)(e.into()))
}

/// The size of huge pages that the containers ask for.
fn only_size(spec: &PodSpec) -> Result<String, String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let resources = containers.filter_map(|c| c.resources.as_ref()).flat_map(|r| [&r.limits, &r.requests]);
    let mut sizes: Vec<&str> = resources
        .flatten()
        .flat_map(|amounts| amounts.keys())
        .filter_map(|n| n.strip_prefix("hugepages-"))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes[..] {
        [size] => Ok(size.to_owned()),
        [] => {
            Err("medium HugePages needs a container with a limit such as hugepages-2Mi, or write the size: \
                   HugePages-2Mi"
                .to_owned())
        }
        _ => Err(format!(
            "the containers ask for huge pages of {}: write the size, as in HugePages-2Mi",
            sizes.join(" and ")
        )),
    }
}

/// Whether the host has pages of this size set aside.
fn available(sizes: &Path, bytes: u64, shown: &str) -> Result<(), String> {
    let directory = sizes.join(format!("hugepages-{}kB", bytes >> 10));
    match fs::read_to_string(directory.join("nr_hugepages")) {
        Ok(text) if text.trim() == "0" && !may_grow(&directory) => Err(format!(
            "waiting for huge pages of {shown}: this host has set none aside; write a number to {}, or boot with \
             hugepages=",
            directory.join("nr_hugepages").display()
        )),
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "this host's kernel has no huge pages of {shown}; see {} for what it has",
            sizes.display()
        )),
    }
}

/// Whether the kernel may take more pages when they are asked for.
fn may_grow(directory: &Path) -> bool {
    fs::read_to_string(directory.join("nr_overcommit_hugepages")).is_ok_and(|text| text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(names: &[&str]) -> PodSpec {
        let containers: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"name": "a", "resources": {"limits": {*name: "4Mi"}}}))
            .collect();
        serde_json::from_value(serde_json::json!({"containers": containers})).unwrap()
    }

    #[test]
    fn the_size_is_that_of_the_medium_or_the_only_one_that_is_asked_for() {
        assert_eq!(only_size(&spec(&["hugepages-2Mi", "hugepages-2Mi", "cpu"])).unwrap(), "2Mi");
        assert!(only_size(&spec(&["cpu"])).unwrap_err().contains("write the size: HugePages-2Mi"));
        assert!(only_size(&spec(&["hugepages-2Mi", "hugepages-1Gi"])).unwrap_err().contains("1Gi and 2Mi"));
    }

    #[test]
    fn a_host_without_huge_pages_is_told_apart_from_one_that_set_none_aside() {
        let dir = tempfile::tempdir().unwrap();
        let said = |bytes, shown: &str| available(dir.path(), bytes, shown).unwrap_err();
        assert!(said(2 << 20, "2Mi").starts_with("this host's kernel has no huge pages of 2Mi"));
        let two = dir.path().join("hugepages-2048kB");
        fs::create_dir(&two).unwrap();
        fs::write(two.join("nr_hugepages"), "0\n").unwrap();
        assert!(
            said(2 << 20, "2Mi").starts_with("waiting for huge pages of 2Mi: this host has set none aside")
        );
        fs::write(two.join("nr_overcommit_hugepages"), "8\n").unwrap();
        assert!(available(dir.path(), 2 << 20, "2Mi").is_ok());
    }
}
