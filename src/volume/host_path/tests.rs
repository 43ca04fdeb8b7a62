use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;

fn claim(path: &Path, kind: &str) -> Result<PreparedVolume, VolumeError> {
    Claim { volume: "data", path, kind }.prepare(&MountTable::default(), &[])
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn without_a_type_a_missing_path_becomes_a_directory_and_anything_else_is_taken_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("a/b");
    assert_eq!(
        claim(&made, "").unwrap(),
        PreparedVolume { host_path: made.clone(), is_file: false, read_only: false }
    );
    assert_eq!(mode(&made), 0o755);
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(claim(&file, "").unwrap().is_file);
}

#[test]
fn the_creating_types_create_with_the_kubelets_modes() {
    let dir = tempfile::tempdir().unwrap();
    let (directory, file) = (dir.path().join("d/e"), dir.path().join("f"));
    assert!(!claim(&directory, "DirectoryOrCreate").unwrap().is_file);
    assert!(claim(&file, "FileOrCreate").unwrap().is_file);
    assert_eq!((mode(&directory), mode(&file)), (0o755, 0o644));
    fs::write(&file, "kept").unwrap();
    claim(&file, "FileOrCreate").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_missing_path_is_waited_for_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["Directory", "File", "Socket", "CharDevice", "BlockDevice"] {
        let path = dir.path().join("none");
        let error = claim(&path, kind).unwrap_err();
        assert!(error.is_waiting());
        let want = format!(
            "volume \"data\": waiting for {} (hostPath type {kind}): it does not exist",
            path.display()
        );
        assert_eq!(error.to_string(), want);
    }
    let error = claim(&dir.path().join("no/file"), "FileOrCreate").unwrap_err();
    assert!(
        error.to_string().ends_with("(hostPath type FileOrCreate): the directory it is in does not exist")
    );
}

#[test]
fn a_link_into_nowhere_is_waited_for_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("/nowhere/at/all", &link).unwrap();
    let error = claim(&link, "").unwrap_err();
    assert!(error.is_waiting());
    assert!(
        error
            .to_string()
            .ends_with("(hostPath type unset): it is a link to /nowhere/at/all, which does not exist")
    );
}

#[test]
fn a_mismatch_says_what_is_there_and_what_was_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let (file, socket) = (dir.path().join("file"), dir.path().join("socket"));
    fs::write(&file, "").unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let null = Path::new("/dev/null");
    assert!(claim(&socket, "Socket").unwrap().is_file && claim(null, "CharDevice").unwrap().is_file);
    for (path, kind, end) in [
        (file.as_path(), "Directory", "is a regular file, and hostPath type Directory wants a directory"),
        (
            &file,
            "DirectoryOrCreate",
            "is a regular file, and hostPath type DirectoryOrCreate wants a directory",
        ),
        (dir.path(), "File", "is a directory, and hostPath type File wants a regular file"),
        (dir.path(), "FileOrCreate", "is a directory, and hostPath type FileOrCreate wants a regular file"),
        (&socket, "File", "is a socket, and hostPath type File wants a regular file"),
        (null, "BlockDevice", "is a character device, and hostPath type BlockDevice wants a block device"),
        (null, "Socket", "is a character device, and hostPath type Socket wants a socket"),
    ] {
        let error = claim(path, kind).unwrap_err();
        assert!(!error.is_waiting());
        assert_eq!(error.to_string(), format!("volume \"data\": {} {end}", path.display()));
    }
}

#[test]
fn nothing_is_created_below_a_mount_point_that_is_declared_and_not_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().canonicalize().unwrap();
    let path = point.join("app/data");
    for kind in ["", "DirectoryOrCreate"] {
        let claim = Claim { volume: "data", path: &path, kind };
        let error = claim.prepare(&MountTable::default(), std::slice::from_ref(&point)).unwrap_err();
        assert!(error.is_waiting());
        let end = format!("{} is in /etc/fstab and not mounted", point.display());
        assert!(error.to_string().ends_with(&end), "{error}");
        assert!(!point.join("app").exists());
    }
    let mounted = MountTable { points: vec![point.clone()] };
    Claim { volume: "data", path: &path, kind: "" }.prepare(&mounted, &[point]).unwrap();
    assert!(path.is_dir());
}

#[test]
fn an_unknown_type_is_named() {
    let error = claim(Path::new("/tmp"), "Folder").unwrap_err().to_string();
    assert_eq!(error, "volume \"data\": hostPath type \"Folder\" is not supported");
}
