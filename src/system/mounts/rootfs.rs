//! A look into a container's root file system before the container runs.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

use crate::system::{SystemError, namespaces, raw};

/// One mount that makes up a root file system, as a snapshotter describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootfsMount {
    /// File system such as `overlay` or `bind`.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options as in fstab: flags such as `ro` and `rbind`, and the file system's own.
    pub options: Vec<String>,
}

/// Mount data is limited to one page; longer lists of layers are shortened to relative paths.
const MAX_DATA: usize = 4095;

/// Mounts `mounts` in order on a temporary directory under `work_dir`, calls `look` with its path, and
/// unmounts. It happens in a mount namespace of its own, so that neither a panic nor a kill leaves a mount
/// behind, and nobody else sees it.
///
/// # Errors
/// What could not be mounted and why, or the temporary directory's error; `look` was not called then.
pub fn with_rootfs<T: Send>(
    mounts: &[RootfsMount],
    work_dir: &Path,
    look: impl FnOnce(&Path) -> T + Send,
) -> Result<T, SystemError> {
    if mounts.is_empty() {
        return Err(SystemError::Rootfs("the snapshotter named no mounts".into()));
    }
    let dir = tempfile::Builder::new()
        .prefix("rootfs-")
        .tempdir_in(work_dir)
        .map_err(|e| SystemError::path("create a temporary directory in", work_dir, e))?;
    namespaces::on_own_thread("look-at-rootfs", || {
        raw::unshare_thread(UnshareFlags::NEWNS)
            .map_err(|e| SystemError::call("create a mount namespace", e))?;
        // Downstream: unmounts by others still arrive here, mounts made here stay here.
        rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .map_err(|e| SystemError::path("change the propagation of", "/", e))?;
        for mount in mounts {
            mount_one(mount, dir.path())?;
        }
        Ok(look(dir.path()))
    })
}

/// Mounts `mounts` in order on `target`, for all to see.
///
/// # Errors
/// What could not be mounted and why; what was mounted until then stays.
pub fn mount_rootfs(mounts: &[RootfsMount], target: &Path) -> Result<(), SystemError> {
    namespaces::on_own_thread("mount-rootfs", || {
        // A working directory of its own, for long lists of layers.
        raw::unshare_thread(UnshareFlags::FS)
            .map_err(|e| SystemError::call("leave the working directory", e))?;
        for mount in mounts {
            mount_one(mount, target)?;
        }
        super::make_private(target)
    })
}

fn mount_one(mount: &RootfsMount, target: &Path) -> Result<(), SystemError> {
    let (flags, mut data) = split_options(&mount.options)?;
    let failed = |e: rustix::io::Errno| {
        SystemError::Rootfs(format!("{} from {} on {}: {e}", mount.kind, mount.source, target.display()))
    };
    if flags.contains(MountFlags::BIND) || mount.kind == "bind" {
        return super::bind(Path::new(&mount.source), target, flags.contains(MountFlags::RDONLY));
    }
    if data.len() > MAX_DATA
        && let Some((base, short)) = shorten(&data)
    {
        // Only this thread moves: it has left the process's file system context with its namespace.
        std::env::set_current_dir(&base).map_err(|e| SystemError::path("enter", base, e))?;
        data = short;
    }
    let data = CString::new(data).map_err(|_| SystemError::Rootfs("an option holds a zero byte".into()))?;
    rustix::mount::mount(mount.source.as_str(), target, mount.kind.as_str(), flags, data.as_c_str())
        .map_err(failed)
}

fn split_options(options: &[String]) -> Result<(MountFlags, String), SystemError> {
    let mut flags = MountFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for option in options {
        flags |= match option.as_str() {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "relatime" => MountFlags::RELATIME,
            "bind" => MountFlags::BIND,
            "rbind" => MountFlags::BIND | MountFlags::REC,
            "rw" | "suid" | "dev" | "exec" | "defaults" => MountFlags::empty(),
            "loop" => return Err(SystemError::Rootfs("loop devices are not supported".into())),
            other => {
                data.push(other);
                MountFlags::empty()
            }
        };
    }
    Ok((flags, data.join(",")))
}

/// Rewrites the layers of an overlay relative to the directory all of them lie in.
fn shorten(data: &str) -> Option<(PathBuf, String)> {
    let layers = data.split(',').find_map(|option| option.strip_prefix("lowerdir="))?;
    let mut base = Path::new(layers.split(':').next()?).parent()?;
    while !layers.split(':').all(|layer| Path::new(layer).starts_with(base)) {
        base = base.parent()?;
    }
    let relative: Option<Vec<&str>> =
        layers.split(':').map(|layer| Path::new(layer).strip_prefix(base).ok()?.to_str()).collect();
    let short = data.replacen(layers, &relative?.join(":"), 1);
    Some((base.to_owned(), short))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mount(kind: &str, source: &Path, options: &[&str]) -> RootfsMount {
        RootfsMount {
            kind: kind.into(),
            source: source.to_str().unwrap().into(),
            options: options.iter().map(|o| (*o).to_owned()).collect(),
        }
    }

    fn mounted_below(dir: &Path) -> Vec<PathBuf> {
        crate::system::mounts::mounts_under(dir).unwrap()
    }

    #[test]
    fn an_overlay_is_seen_by_the_closure_and_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        for (layer, file) in [("lower", "a"), ("upper", "b")] {
            fs::create_dir(dir.path().join(layer)).unwrap();
            fs::write(dir.path().join(layer).join(file), file).unwrap();
        }
        fs::create_dir(dir.path().join("work")).unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let options = [
            format!("workdir={}", at("work")),
            format!("upperdir={}", at("upper")),
            format!("lowerdir={}", at("lower")),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mounts = [mount("overlay", Path::new("overlay"), &options)];
        let host_view = dir.path().to_owned();
        let (merged, root) = with_rootfs(&mounts, dir.path(), |root| {
            let merged =
                fs::read_to_string(root.join("a")).unwrap() + &fs::read_to_string(root.join("b")).unwrap();
            (merged, root.to_owned())
        })
        .unwrap();
        assert_eq!(merged, "ab");
        assert!(!root.exists(), "the temporary directory is gone");
        assert_eq!(mounted_below(&host_view), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_read_only_bind_refuses_writes() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        let mounts = [mount("bind", &source, &["rbind", "ro"])];
        let written = with_rootfs(&mounts, dir.path(), |root| fs::write(root.join("x"), "x")).unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }

    #[test]
    fn more_layers_than_fit_a_page_are_mounted_relative_to_their_common_directory() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("l".repeat(200));
        let layers: Vec<String> = (0..30)
            .map(|n| {
                let layer = long.join(n.to_string());
                fs::create_dir_all(&layer).unwrap();
                fs::write(layer.join(format!("f{n}")), "").unwrap();
                layer.display().to_string()
            })
            .collect();
        let before = std::env::current_dir().unwrap();
        let option = format!("lowerdir={}", layers.join(":"));
        assert!(option.len() > MAX_DATA);
        let mounts = [mount("overlay", Path::new("overlay"), &[&option])];
        let count = with_rootfs(&mounts, dir.path(), |root| fs::read_dir(root).unwrap().count()).unwrap();
        assert_eq!(count, 30);
        assert_eq!(std::env::current_dir().unwrap(), before, "the process stays where it was");
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = |mounts: &[RootfsMount]| with_rootfs(mounts, dir.path(), |_| ()).unwrap_err().to_string();
        assert_eq!(text(&[]), "cannot mount a root file system: the snapshotter named no mounts");
        let overlay = mount("overlay", Path::new("overlay"), &["lowerdir=/nonexistent"]);
        assert!(text(&[overlay]).starts_with("cannot mount a root file system: overlay from overlay on "));
        let looped = mount("ext4", Path::new("/x.img"), &["loop"]);
        assert!(text(&[looped]).ends_with("loop devices are not supported"));
    }

    #[test]
    fn a_panic_of_the_closure_is_an_error_and_leaves_no_mount() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = [mount("bind", dir.path(), &["rbind"])];
        let result = with_rootfs(&mounts, Path::new("/tmp"), |_| panic!("on purpose"));
        assert!(matches!(result, Err::<(), _>(SystemError::Call { action: "finish a thread", .. })));
    }
}
