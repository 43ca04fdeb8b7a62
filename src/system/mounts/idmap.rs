//! Mounts whose ids are those of a user namespace: what is root's on the disk is root's in there.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::system::{SystemError, raw};

/// Binds `source`, with all mounted below it, onto `target` with its ids mapped into the namespace that
/// `user_namespace` pins. The target is made, as a directory or file like the source.
///
/// # Errors
/// The kernel's: `Invalid argument` where the file system cannot map ids, such as one of a network.
pub fn bind_mapped(source: &Path, target: &Path, user_namespace: &Path) -> Result<(), SystemError> {
    let namespace =
        File::open(user_namespace).map_err(|e| SystemError::path("open the namespace", user_namespace, e))?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree =
        open_tree(CWD, source, flags).map_err(|e| SystemError::path("copy the mount of", source, e))?;
    raw::map_mount_ids(tree.as_fd(), namespace.as_fd()).map_err(|e| {
        SystemError::path(
            "map the user ids (hostUsers: false, which not every file system can) of",
            source,
            e,
        )
    })?;
    make_like(source, target).map_err(|e| SystemError::path("create", target, e))?;
    move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|e| SystemError::path("mount on", target, e))
}

fn make_like(source: &Path, target: &Path) -> std::io::Result<()> {
    if fs::metadata(source)?.is_dir() {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(target).map(drop)
}
