//! What a container is to the runtime: a pure function from pod, container and image to an OCI runtime spec,
//! as containerd's CRI plugin builds it under a kubelet.
//!
//! Nothing here touches the machine, except `user`, which reads two files of an image. What depends on the
//! machine comes in as [`NodeFeatures`]; what others prepared comes in as paths.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use oci_spec::image::ImageConfiguration;
use oci_spec::runtime::{
    Linux, LinuxDevice, LinuxDeviceType, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType, Root,
    Spec,
};

use crate::manifest::QuantityError;
use crate::system::cgroup::CgroupVersion;
use crate::system::devices::HostDevice;
use crate::system::node::NodeFeatures;

mod annotations;
mod apparmor;
mod capabilities;
mod expansion;
mod extras;
mod mounts;
mod pause;
mod process;
pub mod qos;
mod resources;
mod seccomp;
mod seccomp_default;
mod seccomp_file;
mod security;
mod selinux;
pub mod sysctls;
pub mod user;

pub use apparmor::AppArmor;
pub use expansion::{expand, expand_strictly};
pub use extras::{DeviceGrant, Extras};
pub use mounts::{Propagation, VolumeMountSource};
pub use pause::{PauseInput, pause};
pub use process::exec_process;
pub use seccomp_file::SeccompFile;
pub use security::localhost_profile;
pub use user::{ResolvedUser, UserError, UserSpec};

/// Version of the runtime specification that is written.
const OCI_VERSION: &str = "1.0.2";

/// All that a container's spec depends on.
#[derive(Clone, Copy, Debug)]
pub struct SpecInput<'a> {
    /// The pod, with defaults.
    pub pod: &'a Pod,
    /// The pod's uid.
    pub uid: &'a str,
    /// One of its containers.
    pub container: &'a Container,
    /// The image's configuration.
    pub image: &'a ImageConfiguration,
    /// The image as the manifest names it.
    pub image_name: &'a str,
    /// Who to run as, from [`user::resolve`].
    pub user: &'a ResolvedUser,
    /// What the pod's containers share.
    pub sandbox: &'a SandboxPaths,
    /// The manifest's variables, from [`crate::runtime::environment`].
    pub env: &'a [(String, String)],
    /// Volume mounts in the manifest's order, with their places on the host.
    pub mounts: &'a [VolumeMountSource],
    /// The file behind `terminationMessagePath`.
    pub termination_log: Option<&'a Path>,
    /// `cgroupsPath`.
    pub cgroup_path: &'a str,
    /// `oom_score_adj` wanted, see [`qos::oom_score_adj`]; limited here to what the machine allows.
    pub oom_score_adj: i32,
    /// The machine.
    pub node: &'a NodeFeatures,
    /// Whether containers without a seccomp profile get the default one.
    pub seccomp_default: bool,
    /// The profile that [`localhost_profile`] names, read.
    pub seccomp_file: Option<&'a SeccompFile>,
    /// Directories behind the image's `VOLUME`s: path in the container, path on the host.
    pub image_volumes: &'a [(String, PathBuf)],
    /// Devices for a privileged container, from [`crate::system::devices::host_devices`].
    pub host_devices: &'a [HostDevice],
    /// What it is given beyond the Pod API.
    pub extras: &'a Extras,
    /// How many instances of this container there were before.
    pub attempt: u32,
}

/// What the containers of a pod share. For namespaces, None is the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxPaths {
    /// Id of the sandbox; the containers of one share a shim.
    pub id: String,
    /// Pinned network namespace.
    pub net: Option<PathBuf>,
    /// Pinned IPC namespace.
    pub ipc: Option<PathBuf>,
    /// Pinned UTS namespace.
    pub uts: Option<PathBuf>,
    /// Process ids.
    pub pid: PidNamespace,
    /// The user namespace that owns the others (`hostUsers: false`).
    pub user: Option<UserNamespace>,
    /// The pod's `/dev/shm`; None with the host's IPC namespace.
    pub shm: Option<PathBuf>,
    /// Source of `/etc/hosts`.
    pub etc_hosts: Option<PathBuf>,
    /// Source of `/etc/hostname`.
    pub etc_hostname: Option<PathBuf>,
    /// Source of `/etc/resolv.conf`.
    pub etc_resolv_conf: Option<PathBuf>,
    /// The hostname the containers see.
    pub hostname: String,
    /// The pod's log directory.
    pub log_directory: PathBuf,
}

/// A user namespace and the ids of the host behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNamespace {
    /// Its pin.
    pub path: PathBuf,
    /// User and group id on the host that is 0 inside.
    pub first_id: u32,
    /// How many ids there are.
    pub count: u32,
}

/// Where a container's processes are numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// In a namespace of the container's own.
    #[default]
    Own,
    /// On the host (`hostPID`).
    Host,
    /// In that of another process, such as the pause container's (`shareProcessNamespace`).
    Path(PathBuf),
}

/// A container that cannot be described to the runtime. All are for the author of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing to run.
    #[error(
        "container {container}: neither the manifest nor the image {image} says what to run: set command in the manifest"
    )]
    NoCommand {
        /// The container's name.
        container: String,
        /// The image's name.
        image: String,
    },
    /// The empty string as a program.
    #[error("container {container}: the command is an empty string: set command to the program to run")]
    EmptyCommand {
        /// The container's name.
        container: String,
    },
    /// A text that cannot be handed to a process.
    #[error("container {container}: {field} holds a zero byte, which no process can be given")]
    ZeroByte {
        /// The container's name.
        container: String,
        /// Which field.
        field: String,
    },
    /// Not a capability of Linux.
    #[error(
        "container {container}: {capability:?} is not a capability; names are as in capabilities(7) without CAP_, such as NET_ADMIN, or ALL"
    )]
    UnknownCapability {
        /// The container's name.
        container: String,
        /// What was written.
        capability: String,
    },
    /// A capability that podling itself does not have.
    #[error(
        "container {container}: capability {capability} cannot be added, since podling does not have it on this machine"
    )]
    CapabilityUnavailable {
        /// The container's name.
        container: String,
        /// Its name.
        capability: String,
    },
    /// A quantity that is none.
    #[error("container {container}: resources {resource}: {source}")]
    Quantity {
        /// The container's name.
        container: String,
        /// Such as `limits.cpu`.
        resource: String,
        /// Why.
        source: QuantityError,
    },
    /// A seccomp profile that cannot be had.
    #[error("container {container}: seccomp profile {profile} cannot be used: {reason}")]
    Seccomp {
        /// The container's name.
        container: String,
        /// Its type.
        profile: String,
        /// Why.
        reason: &'static str,
    },
    /// A seccomp profile from a file that is no profile.
    #[error("container {container}: seccomp profile {} cannot be used: {reason}", path.display())]
    SeccompFile {
        /// The container's name.
        container: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An AppArmor profile on a host without AppArmor.
    #[error(
        "container {container}: appArmorProfile {profile:?} cannot be enforced: AppArmor is not enabled on this \
         host; enable it and load the profile, or use RuntimeDefault or Unconfined"
    )]
    NoAppArmor {
        /// The container's name.
        container: String,
        /// The profile's.
        profile: String,
    },
    /// A path that is none.
    #[error(
        "container {container}: {field} {path:?} is not a path a container can have: it must be absolute and without `..`"
    )]
    BadPath {
        /// The container's name.
        container: String,
        /// Which field.
        field: &'static str,
        /// The path.
        path: String,
    },
}

impl SpecError {
    /// The reason a container waits with, in the kubelet's words.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoCommand { .. } | Self::EmptyCommand { .. } => "CreateContainerError",
            _ => "CreateContainerConfigError",
        }
    }
}

impl SpecInput<'_> {
    fn name(&self) -> String {
        self.container.name.clone()
    }

    fn privileged(&self) -> bool {
        self.container.security_context.as_ref().and_then(|c| c.privileged).unwrap_or(false)
    }

    fn read_only_rootfs(&self) -> bool {
        self.container.security_context.as_ref().and_then(|c| c.read_only_root_filesystem).unwrap_or(false)
    }
}

/// Describes a container to the runtime.
///
/// # Errors
/// See [`SpecError`]: something in the manifest or the image that cannot be had.
pub fn build(input: &SpecInput<'_>) -> Result<Spec, SpecError> {
    let capabilities = capabilities::of(input)?;
    let mut root = Root::default();
    root.set_path("rootfs".into()).set_readonly(Some(input.read_only_rootfs()));

    let mut linux = bare_linux();
    linux
        .set_namespaces(Some(namespaces(input.sandbox, input.node, input.privileged())))
        .set_cgroups_path(Some(input.cgroup_path.into()))
        .set_resources(Some(resources::of(input)?))
        .set_sysctl(sysctls(input.pod, input.sandbox))
        .set_seccomp(security::seccomp(input, &capabilities)?)
        .set_rootfs_propagation(mounts::rootfs_propagation(input.mounts));
    map_ids(&mut linux, input.sandbox);
    let labels = selinux::labels(input);
    linux.set_mount_label(labels.as_ref().map(|l| l.mount.clone()));
    let host_devices = if input.privileged() { input.host_devices } else { &[] };
    let nodes = extras::nodes(host_devices, &input.extras.devices);
    if input.privileged() || !nodes.is_empty() {
        linux.set_devices(Some(nodes.into_iter().map(device).collect()));
    }
    if !input.privileged() && !security::unmasked_proc(input) {
        linux
            .set_masked_paths(Some(security::masked_paths(input.node)))
            .set_readonly_paths(Some(security::read_only_paths()));
    }

    let mut spec = bare_spec();
    spec.set_root(Some(root))
        .set_process(Some(process::of(input, &capabilities, labels.map(|l| l.process))?))
        .set_mounts(Some(mounts::of(input)?))
        .set_annotations(Some(annotations::of(input)))
        .set_linux(Some(linux));
    Ok(spec)
}

/// A spec with nothing in it. (The crate's defaults describe a container of its authors' taste.)
fn bare_spec() -> Spec {
    let mut spec = Spec::default();
    spec.set_version(OCI_VERSION.to_owned())
        .set_root(None)
        .set_mounts(None)
        .set_process(None)
        .set_hostname(None)
        .set_annotations(None)
        .set_linux(None);
    spec
}

fn bare_linux() -> Linux {
    let mut linux = Linux::default();
    linux
        .set_resources(None)
        .set_namespaces(None)
        .set_masked_paths(None)
        .set_readonly_paths(None)
        .set_devices(None)
        .set_seccomp(None);
    linux
}

/// Namespaces: mount always own; net, ipc and uts the pod's or the host's; a cgroup namespace on version 2,
/// where the whole tree would be visible otherwise.
fn namespaces(sandbox: &SandboxPaths, node: &NodeFeatures, privileged: bool) -> Vec<LinuxNamespace> {
    let namespace = |kind: LinuxNamespaceType, path: Option<&PathBuf>| {
        let mut namespace = LinuxNamespace::default();
        namespace.set_typ(kind).set_path(path.cloned());
        namespace
    };
    let mut all = vec![namespace(LinuxNamespaceType::Mount, None)];
    if let Some(user) = &sandbox.user {
        all.push(namespace(LinuxNamespaceType::User, Some(&user.path)));
    }
    match &sandbox.pid {
        PidNamespace::Own => all.push(namespace(LinuxNamespaceType::Pid, None)),
        PidNamespace::Path(path) => all.push(namespace(LinuxNamespaceType::Pid, Some(path))),
        PidNamespace::Host => {}
    }
    for (kind, pin) in [
        (LinuxNamespaceType::Network, &sandbox.net),
        (LinuxNamespaceType::Ipc, &sandbox.ipc),
        (LinuxNamespaceType::Uts, &sandbox.uts),
    ] {
        if pin.is_some() {
            all.push(namespace(kind, pin.as_ref()));
        }
    }
    if node.cgroup_version == CgroupVersion::V2 && !privileged {
        all.push(namespace(LinuxNamespaceType::Cgroup, None));
    }
    all
}

fn sysctls(pod: &Pod, sandbox: &SandboxPaths) -> Option<HashMap<String, String>> {
    let all = sysctls::of(pod.spec.as_ref(), sandbox.net.is_some(), sandbox.user.is_some());
    Some(all).filter(|all| !all.is_empty())
}

/// Tells the runtime the ids of a user namespace that it joins, as it checks users against them.
fn map_ids(linux: &mut Linux, sandbox: &SandboxPaths) {
    if let Some(user) = &sandbox.user {
        let mapping =
            LinuxIdMappingBuilder::default().host_id(user.first_id).container_id(0u32).size(user.count);
        // Every field of this builder has a default, so there is nothing that could be missing.
        let mapping = mapping.build().expect("a builder with defaults builds");
        linux.set_uid_mappings(Some(vec![mapping])).set_gid_mappings(Some(vec![mapping]));
    }
}

fn device(host: &HostDevice) -> LinuxDevice {
    let mut device = LinuxDevice::default();
    device
        .set_path(host.path.clone())
        .set_typ(if host.block { LinuxDeviceType::B } else { LinuxDeviceType::C })
        .set_major(host.major.into())
        .set_minor(host.minor.into())
        .set_file_mode(Some(host.mode))
        .set_uid(Some(host.uid))
        .set_gid(Some(host.gid));
    device
}

#[cfg(test)]
mod tests;
