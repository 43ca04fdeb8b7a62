//! Mounts of a container: the kernel's file systems, the pod's shared files, the volumes.

use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Mount;

use super::{SandboxPaths, SpecError, SpecInput, extras};

/// A volume mount, with what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMountSource {
    /// Path in the container.
    pub mount_path: String,
    /// Refuses writes.
    pub read_only: bool,
    /// What becomes of mounts made later.
    pub propagation: Propagation,
    /// Further restrictions: `noexec`, `nodev`, `nosuid`.
    pub restrictions: Vec<String>,
    /// File or directory on the host; exists.
    pub host_path: PathBuf,
}

/// `mountPropagation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// `None`: later mounts stay on their side.
    #[default]
    Private,
    /// `HostToContainer`: later mounts on the host appear in the container.
    HostToContainer,
    /// `Bidirectional`: and the other way round.
    Bidirectional,
}

impl Propagation {
    fn option(self) -> &'static str {
        match self {
            Self::Private => "rprivate",
            Self::HostToContainer => "rslave",
            Self::Bidirectional => "rshared",
        }
    }
}

/// All mounts in the order they are made: what lies inside comes after what it lies in.
pub(super) fn of(input: &SpecInput<'_>) -> Result<Vec<Mount>, SpecError> {
    let own = volume_mounts(input)?;
    let taken = |path: &Path| own.iter().any(|m| m.destination() == path);
    let mut extra: Vec<Mount> = sandbox_mounts(input.sandbox, input.read_only_rootfs())
        .into_iter()
        .filter(|m| !taken(m.destination()))
        .collect();
    if let Some(log) = input.termination_log {
        let path = input.container.termination_message_path.as_deref().filter(|p| !p.is_empty());
        let path = clean(input, "terminationMessagePath", path.unwrap_or("/dev/termination-log"))?;
        if !taken(&path) {
            extra.push(bind(path, log, false, Propagation::Private));
        }
    }
    for (path, host) in input.image_volumes {
        let path = clean(input, "the image's VOLUME", path)?;
        if !taken(&path) && !extra.iter().any(|m| *m.destination() == path) {
            extra.push(bind(path, host, false, Propagation::Private));
        }
    }
    for (path, host) in &input.extras.files {
        if extras::is_free(path, own.iter().map(Mount::destination)) {
            extra.push(bind(path.clone(), host, true, Propagation::Private));
        }
    }
    extra.extend(own);
    extra.sort_by_key(|m| m.destination().components().count());

    // Whoever mounts all of /dev has the devices there.
    let replaced = |kernel: &Path| {
        extra
            .iter()
            .map(|m| m.destination().as_path())
            .any(|own| own == kernel || (own == Path::new("/dev") && kernel.starts_with(own)))
    };
    let mut all: Vec<Mount> =
        kernel_mounts(input.privileged()).into_iter().filter(|m| !replaced(m.destination())).collect();
    all.extend(extra);
    Ok(all)
}

/// `rootfsPropagation`: the root must let through what a mount asks for.
pub(super) fn rootfs_propagation(mounts: &[VolumeMountSource]) -> Option<String> {
    [Propagation::Bidirectional, Propagation::HostToContainer]
        .into_iter()
        .find(|wanted| mounts.iter().any(|m| m.propagation == *wanted))
        .map(|p| p.option().to_owned())
}

fn volume_mounts(input: &SpecInput<'_>) -> Result<Vec<Mount>, SpecError> {
    input
        .mounts
        .iter()
        .map(|m| {
            let path = clean(input, "mountPath", &m.mount_path)?;
            let mut mount = bind(path, &m.host_path, m.read_only, m.propagation);
            mount.options_mut().get_or_insert_default().extend(m.restrictions.iter().cloned());
            Ok(mount)
        })
        .collect()
}

/// An absolute path without empty and `.` components. `..` is refused rather than resolved: what it means
/// depends on links in the image.
pub(super) fn clean(input: &SpecInput<'_>, field: &'static str, path: &str) -> Result<PathBuf, SpecError> {
    let bad = || SpecError::BadPath { container: input.name(), field, path: path.to_owned() };
    if path.is_empty() || path.contains('\0') {
        return Err(bad());
    }
    let mut cleaned = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => return Err(bad()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(cleaned)
}

/// Files that the containers of a pod share, unless a volume is mounted there. With a read-only root file
/// system they are read-only too, but for `/etc/hosts`, which the kubelet hands in as a volume.
fn sandbox_mounts(sandbox: &SandboxPaths, read_only: bool) -> Vec<Mount> {
    let shared = |path: &str, source: &Option<PathBuf>, read_only: bool| {
        source.as_ref().map(|source| bind(path.into(), source, read_only, Propagation::Private))
    };
    let shm = match (&sandbox.shm, &sandbox.ipc) {
        (Some(shm), _) => Some(bind("/dev/shm".into(), shm, false, Propagation::Private)),
        (None, None) => Some(bind("/dev/shm".into(), Path::new("/dev/shm"), false, Propagation::Private)),
        (None, Some(_)) => {
            let options = ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"];
            Some(mount("/dev/shm", "tmpfs", "shm", &options))
        }
    };
    [
        shared("/etc/hostname", &sandbox.etc_hostname, read_only),
        shared("/etc/hosts", &sandbox.etc_hosts, false),
        shared("/etc/resolv.conf", &sandbox.etc_resolv_conf, read_only),
        shm,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The kernel's file systems, as the CRI plugin mounts them (without its `/run`).
pub(super) fn kernel_mounts(privileged: bool) -> Vec<Mount> {
    let access = if privileged { "rw" } else { "ro" };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}

fn mount(path: &str, kind: &str, source: &str, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_destination(path.into())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(source.into()))
        .set_options(Some(options.iter().map(|o| (*o).to_owned()).collect()));
    mount
}

pub(super) fn bind(path: PathBuf, source: &Path, read_only: bool, propagation: Propagation) -> Mount {
    let access = if read_only { "ro" } else { "rw" };
    let mut mount = mount("", "bind", "", &["rbind", propagation.option(), access]);
    mount.set_destination(path).set_source(Some(source.to_owned()));
    mount
}
