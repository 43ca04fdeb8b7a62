//! nfs: an export of a server, mounted for the pod.
//!
//! By the host's `mount.nfs`, as a kubelet does: it agrees on a version with the server, resolves the name and starts
//! the lock daemon that version 3 needs, none of which the kernel does. It runs under a time limit, so a server that
//! does not answer holds up its own pod only.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Volume;

use super::mount_table::MountTable;
use super::{PreparedVolume, VolumeError, make_dir, volume_dir};

/// Directory of all of a pod's.
pub(super) const PLUGIN: &str = "kubernetes.io~nfs";
/// Where the helper is.
const HELPERS: [&str; 4] =
    ["/sbin/mount.nfs", "/usr/sbin/mount.nfs", "/usr/bin/mount.nfs", "/usr/local/sbin/mount.nfs"];
/// How long a mount may take. Below the limit for all volumes of a pod, so that its own words are heard.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

pub(super) fn prepare(
    volume: &Volume,
    pod_dir: &Path,
    mounts: &MountTable,
) -> Result<PreparedVolume, VolumeError> {
    let source = volume.nfs.clone().unwrap_or_default();
    let directory = volume_dir(pod_dir, PLUGIN, &volume.name);
    let read_only = source.read_only == Some(true);
    // Asked of the table, which never waits for a server.
    if !mounts.has(&directory) {
        let helper = HELPERS.iter().map(PathBuf::from).find(|path| path.exists());
        let export = format!("{}:{}", bracketed(&source.server), source.path);
        let failed =
            |reason: String| VolumeError::Nfs { volume: volume.name.clone(), export: export.clone(), reason };
        let helper = helper.ok_or_else(|| {
            failed("this host has no NFS client: install nfs-common (Debian) or nfs-utils".to_owned())
        })?;
        make_dir(&directory, 0o750)?;
        mount(&helper, &export, &directory, read_only, LIMIT).map_err(failed)?;
    }
    Ok(PreparedVolume { host_path: directory, is_file: false, read_only })
}

/// A server as it stands before the colon.
fn bracketed(server: &str) -> String {
    if server.contains(':') && !server.starts_with('[') { format!("[{server}]") } else { server.to_owned() }
}

fn mount(
    helper: &Path,
    export: &str,
    directory: &Path,
    read_only: bool,
    limit: Duration,
) -> Result<(), String> {
    let mut command = Command::new(helper);
    command.arg(export).arg(directory).args(["-o", if read_only { "ro" } else { "rw" }]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot run {}: {e}", helper.display()))?;
    if !ended(&mut child, limit) {
        // A helper that hangs in the kernel goes when the server answers; nothing waits for it but this pod.
        let _ = child.kill();
        std::thread::spawn(move || drop(child.wait()));
        return Err(format!("the server did not answer within {} s", limit.as_secs()));
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.by_ref().take(4096).read_to_string(&mut said);
    }
    let said = said.lines().last().unwrap_or_default().trim().to_owned();
    Err(if said.is_empty() { format!("{}: {status}", helper.display()) } else { said })
}

fn ended(child: &mut Child, limit: Duration) -> bool {
    for _ in 0..limit.as_millis().div_ceil(POLL.as_millis()) {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn helper(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("mount.nfs");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_helper_is_given_export_place_and_access() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let helper = helper(dir.path(), &format!("echo \"$@\" > {}", log.display()));
        mount(&helper, "nas:/srv", Path::new("/target"), true, LIMIT).unwrap();
        assert_eq!(fs::read_to_string(log).unwrap(), "nas:/srv /target -o ro\n");
        assert_eq!((bracketed("fe80::1"), bracketed("nas")), ("[fe80::1]".into(), "nas".into()));
    }

    #[test]
    fn what_the_helper_says_is_handed_on_and_one_that_hangs_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let refusing =
            helper(dir.path(), "echo first >&2; echo 'mount.nfs: access denied by server' >&2; exit 32");
        let said = mount(&refusing, "nas:/srv", Path::new("/t"), false, LIMIT).unwrap_err();
        assert_eq!(said, "mount.nfs: access denied by server");
        let hanging = helper(dir.path(), "exec sleep 60");
        let said =
            mount(&hanging, "nas:/srv", Path::new("/t"), false, Duration::from_millis(200)).unwrap_err();
        assert_eq!(said, "the server did not answer within 0 s");
    }
}
