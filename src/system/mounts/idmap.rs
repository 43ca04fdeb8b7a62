//! Mounts whose ids are those of a user namespace: what is root's on the disk is root's in there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::{RootfsMount, mount_rootfs, read_mountinfo, unescape};
use crate::system::{SystemError, raw};

/// Binds `source`, with all mounted below it, onto `target` with its ids mapped into the namespace that
/// `user_namespace` pins. The target is made, as a directory or file like the source; beside it, under names that begin
/// with its name and a dot, what it is made of where the source is of an overlay.
///
/// # Errors
/// The kernel's: `Invalid argument` where the file system cannot map ids, such as one of a network.
pub fn bind_mapped(source: &Path, target: &Path, user_namespace: &Path) -> Result<(), SystemError> {
    match InOverlay::find(&read_mountinfo()?, source) {
        // An overlay maps no ids, but its layers do, and one made of these has theirs.
        Some(found) => found.bind_mapped(target, user_namespace),
        None => bind_layer(source, target, user_namespace),
    }
}

fn bind_layer(source: &Path, target: &Path, user_namespace: &Path) -> Result<(), SystemError> {
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

/// A place in an overlay that cannot be written to, such as the image of a volume.
#[derive(Debug, PartialEq, Eq)]
struct InOverlay {
    layers: Vec<PathBuf>,
    /// Below the overlay's root.
    place: PathBuf,
}

impl InOverlay {
    /// None also where something is mounted below `path`, which would be lost, and where the table does not say what
    /// the layers are, as some of their paths are relative.
    fn find(table: &[u8], path: &Path) -> Option<Self> {
        let real = fs::canonicalize(path).ok()?;
        let (mut top, mut found) = (PathBuf::new(), None);
        for line in table.split(|b| *b == b'\n') {
            let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
            let Some(point) = fields.get(4).map(|f| to_path(f)) else { continue };
            if point != real && point.starts_with(&real) {
                return None;
            }
            // A later line of the same place lies on top.
            if real.starts_with(&point) && point.as_os_str().len() >= top.as_os_str().len() {
                found = Self::of_line(&fields, real.strip_prefix(&point).ok()?);
                top = point;
            }
        }
        found
    }

    fn of_line(fields: &[&[u8]], below: &Path) -> Option<Self> {
        let root = to_path(fields.get(3)?);
        let tail: Vec<&&[u8]> = fields.iter().skip_while(|f| **f != b"-").collect();
        if **tail.get(1)? != *b"overlay" {
            return None;
        }
        let options = std::str::from_utf8(tail.get(3)?).ok()?;
        if options.contains('\\') || options.split(',').any(|o| o.starts_with("upperdir=")) {
            return None;
        }
        let layers = options.split(',').find_map(|o| o.strip_prefix("lowerdir="))?;
        let layers: Vec<PathBuf> = layers.split(':').map(PathBuf::from).collect();
        // Collected: joining nothing to the path of a file would leave it with a slash at its end.
        let place = root.strip_prefix("/").ok()?.components().chain(below.components()).collect();
        layers.iter().all(|layer| layer.is_absolute()).then_some(Self { layers, place })
    }

    fn bind_mapped(&self, target: &Path, user_namespace: &Path) -> Result<(), SystemError> {
        let beside = |name: &str| {
            let mut path = target.as_os_str().to_owned();
            path.push(format!(".{name}"));
            PathBuf::from(path)
        };
        let mut mapped = Vec::new();
        for (n, layer) in self.layers.iter().enumerate() {
            let layer_target = beside(&n.to_string());
            bind_layer(layer, &layer_target, user_namespace)?;
            mapped.push(layer_target.display().to_string());
        }
        let whole = beside("all");
        fs::create_dir_all(&whole).map_err(|e| SystemError::path("create", &whole, e))?;
        let overlay = RootfsMount {
            kind: "overlay".to_owned(),
            source: "overlay".to_owned(),
            options: vec!["ro".to_owned(), format!("lowerdir={}", mapped.join(":"))],
        };
        mount_rootfs(&[overlay], &whole)?;
        let source: PathBuf = whole.components().chain(self.place.components()).collect();
        make_like(&source, target).map_err(|e| SystemError::path("create", target, e))?;
        super::bind(&source, target, false)
    }
}

fn to_path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(root: &str, point: &Path, options: &str, more: &str) -> Vec<u8> {
        let line = format!("9 1 0:9 {root} {} rw - overlay overlay {options}", point.display());
        format!("1 1 0:1 / / rw - ext4 /dev/a rw\n{line}\n{more}").into_bytes()
    }

    #[test]
    fn a_place_in_a_read_only_overlay_is_found_with_its_layers() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("v/x")).unwrap();
        let point = real.join("v");
        let find = |root: &str, options: &str, more: &str, path: &str| {
            InOverlay::find(&table(root, &point, options, more), &real.join(path))
        };
        let of = |place: &str| InOverlay { layers: vec!["/a".into(), "/b".into()], place: place.into() };
        assert_eq!(find("/", "ro,lowerdir=/a:/b,x=y", "", "v"), Some(of("")));
        let file = find("/etc/f", "ro,lowerdir=/a:/b", "", "v").unwrap();
        assert_eq!(file.place.as_os_str(), "etc/f", "without a slash at its end");
        assert_eq!(find("/etc", "ro,lowerdir=/a:/b", "", "v/x"), Some(of("etc/x")));
        let rest = [
            ("rw,lowerdir=/a:/b,upperdir=/u,workdir=/w", "", "v"),
            ("ro,lowerdir=1/fs:2/fs", "", "v"),
            ("ro,lowerdir=/a:/b", "", "."),
        ];
        for (options, more, path) in rest {
            assert_eq!(find("/", options, more, path), None, "{options}");
        }
        let over = format!("10 9 0:10 / {} rw - tmpfs tmpfs rw", point.display());
        assert_eq!(find("/", "ro,lowerdir=/a:/b", &over, "v"), None, "something else lies on top");
        let below = format!("10 9 0:10 / {}/x rw - tmpfs tmpfs rw", point.display());
        assert_eq!(find("/", "ro,lowerdir=/a:/b", &below, "v"), None, "something is mounted in it");
    }
}
