//! User namespaces that live without a process, with the namespaces they own.
//!
//! A process of several threads cannot leave its user namespace, so a child does, which is held only until all
//! is pinned.

use std::fs;
use std::path::Path;

use rustix::thread::UnshareFlags;

use super::namespaces::{self, Ns};
use super::{SystemError, raw};

/// Ids of the host, one behind another, that stand for 0 and the following in a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// What is 0 inside.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Creates a user namespace with these ids and in it the namespaces `which`, and pins each as `dir/<name>`, the
/// user namespace as `dir/user`; otherwise as [`namespaces::create_pinned`]. `program` is any that waits until it
/// is killed.
///
/// # Errors
/// What failed and where; nothing stays pinned then.
pub fn create_pinned(
    dir: &Path,
    which: &[Ns],
    hostname: Option<&str>,
    range: IdRange,
    program: &Path,
) -> Result<(), SystemError> {
    let all: Vec<Ns> = which.iter().copied().chain([Ns::User]).collect();
    if all.iter().all(|ns| namespaces::is_pinned(&dir.join(ns.name()))) {
        return Ok(());
    }
    namespaces::make_pin_files(dir, &all)?;
    let flags = which.iter().fold(UnshareFlags::empty(), |flags, ns| flags | ns.flag());
    let made = raw::spawn_in_user_namespace(program, flags, hostname)
        .map_err(|e| SystemError::call("create a user namespace (hostUsers: false)", e))
        .and_then(|mut child| {
            let pinned = map_and_pin(dir, &all, range, child.id());
            // It has done nothing and knows nothing: how it ends does not matter.
            let _ = child.kill();
            let _ = child.wait();
            pinned
        });
    if made.is_err() {
        // The first error is the one to tell; what is left is found by the next call or by the clean-up.
        let _ = namespaces::unpin(dir);
    }
    made
}

fn map_and_pin(dir: &Path, all: &[Ns], range: IdRange, pid: u32) -> Result<(), SystemError> {
    let map = format!("0 {} {}\n", range.first, range.count);
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, &map).map_err(|e| SystemError::path("write", path, e))?;
    }
    for ns in all {
        let target = dir.join(ns.name());
        rustix::mount::mount_bind(format!("/proc/{pid}/ns/{}", ns.name()), &target)
            .map_err(|e| SystemError::path("pin a namespace on", target, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::system::mounts::{bind_mapped, unmount};

    #[test]
    fn a_pinned_user_namespace_maps_ids_of_a_mount() {
        let dir = tempfile::tempdir().unwrap();
        let pins = dir.path().join("pins");
        let range = IdRange { first: 1_000_000, count: 65_536 };
        let which = [Ns::Net, Ns::Ipc, Ns::Uts];
        match create_pinned(&pins, &which, Some("inside"), range, Path::new("/bin/cat")) {
            // A machine without user namespaces says so.
            Err(e) => return assert!(e.to_string().contains("hostUsers"), "{e}"),
            Ok(()) => create_pinned(&pins, &which, None, range, Path::new("/nonexistent")).unwrap(),
        }
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "").unwrap();
        let target = dir.path().join("target");
        let mapped = bind_mapped(&source, &target, &pins.join("user"));
        let uid = mapped.is_ok().then(|| fs::metadata(target.join("file")).unwrap().uid());
        let _ = unmount(&target);
        namespaces::unpin(&pins).unwrap();
        assert!(!pins.exists());
        if let Some(uid) = uid {
            assert_eq!(uid, 1_000_000);
        }
    }
}
