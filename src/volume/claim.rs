//! persistentVolumeClaim: a named directory below the state directory, as podman maps claims to named volumes. It is
//! made when it is missing and stays when pods go. An operator may put something else in its place: a link to a
//! directory elsewhere, a mount point, or a link to a block device (for `volumeDevices`).

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;

use super::{PreparedVolume, VolumeError, VolumeInput, make_dir};

pub(super) fn prepare(volume: &Volume, input: &VolumeInput) -> Result<PreparedVolume, VolumeError> {
    let mut claim = volume.persistent_volume_claim.clone().unwrap_or_default();
    if let Some(name) = named_by_path(volume) {
        name.clone_into(&mut claim.claim_name);
    }
    let namespace = input.pod.metadata.namespace.as_deref().unwrap_or("default");
    let path = directory(&input.claims, namespace, &claim.claim_name);
    let found = match fs::metadata(&path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&path).is_err() => {
            // Users of the host stay out; any user of a pod may write, as with provisioners of local volumes.
            make_dir(path.parent().unwrap_or(&path), 0o700)?;
            make_dir(&path, 0o777)?;
            fs::set_permissions(&path, Permissions::from_mode(0o777))
                .map_err(VolumeError::io("change the mode of", &path))?;
            return Ok(ready(path, false, claim.read_only));
        }
        Err(e) => return Err(VolumeError::io("look at", &path)(e)),
    };
    if !found.is_dir() && !found.is_block_device() {
        return Err(VolumeError::Claim { volume: volume.name.clone(), path });
    }
    Ok(ready(path, found.is_block_device(), claim.read_only))
}

/// The claim that a hostPath without any slash names; in podman that is a volume, as a claim is.
pub(super) fn named_by_path(volume: &Volume) -> Option<&str> {
    let path = volume.host_path.as_ref()?.path.as_str();
    (!path.contains('/')).then_some(path)
}

fn ready(host_path: PathBuf, is_file: bool, read_only: Option<bool>) -> PreparedVolume {
    PreparedVolume { host_path, is_file, read_only: read_only == Some(true) }
}

/// `<claims>/<namespace>/<name>`.
fn directory(claims: &Path, namespace: &str, name: &str) -> PathBuf {
    claims.join(namespace).join(name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::super::tests::input;
    use super::*;

    fn claim(read_only: bool) -> Volume {
        let source = serde_json::json!({"claimName": "data", "readOnly": read_only});
        serde_json::from_value(serde_json::json!({"name": "v", "persistentVolumeClaim": source})).unwrap()
    }

    #[test]
    fn a_claim_is_a_directory_that_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let input = VolumeInput {
            claims: dir.path().join("claims"),
            ..input(&Pod::default(), &dir.path().join("pod"))
        };
        let made = prepare(&claim(false), &input).unwrap();
        assert_eq!(made.host_path, input.claims.join("default/data"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&made.host_path), mode(&input.claims)), (0o777, 0o700));
        fs::set_permissions(&made.host_path, Permissions::from_mode(0o750)).unwrap();
        assert!(prepare(&claim(true), &input).unwrap().read_only);
        assert_eq!(mode(&made.host_path), 0o750, "what an operator changed stays");
        super::super::teardown(&input.dir).unwrap();
        assert!(made.host_path.is_dir());
    }

    #[test]
    fn a_host_path_without_a_slash_is_the_claim_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let input = VolumeInput {
            claims: dir.path().join("claims"),
            ..input(&Pod::default(), &dir.path().join("pod"))
        };
        let named = |path: &str| -> Volume {
            serde_json::from_value(serde_json::json!({"name": "v", "hostPath": {"path": path}})).unwrap()
        };
        assert_eq!(named_by_path(&named("/data")), None);
        let made = prepare(&named("data"), &input).unwrap();
        assert_eq!(made, prepare(&claim(false), &input).unwrap());
    }

    #[test]
    fn what_an_operator_put_there_is_used_and_a_link_into_nowhere_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let input = VolumeInput {
            claims: dir.path().join("claims"),
            ..input(&Pod::default(), &dir.path().join("pod"))
        };
        fs::create_dir_all(input.claims.join("default")).unwrap();
        let path = input.claims.join("default/data");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(prepare(&claim(false), &input).is_err());
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        assert!(prepare(&claim(false), &input).is_ok());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        let said = prepare(&claim(false), &input).unwrap_err().to_string();
        assert!(
            said.ends_with("is neither a directory nor a block device, so no claim can be mapped to it"),
            "{said}"
        );
    }
}
