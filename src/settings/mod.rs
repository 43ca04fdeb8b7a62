//! Settings: flags over config file over defaults, into one [`Settings`] value.
//!
//! The config file uses the KubeletConfiguration's field names where the meaning is the same.
//! Nothing else reads flags, environment or the config file.

mod paths;

use std::path::PathBuf;
use std::time::Duration;

pub use paths::Paths;

/// Which containerd to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerdChoice {
    /// The system's socket when there is one, else a private containerd started as a child.
    Auto,
    /// Always a private containerd.
    Embedded,
    /// This socket.
    Socket(PathBuf),
}

/// Everything podling can be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where things are, all under `--root`.
    pub paths: Paths,
    /// Directories watched for manifests (`staticPodPath`, repeatable `--manifest-dir`).
    pub manifest_dirs: Vec<PathBuf>,
    /// Which containerd.
    pub containerd: ContainerdChoice,
    /// containerd namespace; default `podling`.
    pub namespace: String,
    /// Node name: lower-cased host name unless set.
    pub node_name: String,
    /// Append `-<node name>` to pod names as the kubelet does; default false.
    pub append_node_name: bool,
    /// Unknown manifest fields are errors; default false.
    pub strict: bool,
    /// Also take manifest files without an extension; default false.
    pub extensionless: bool,
    /// Quiet time after the last write before a file is read; default 200 ms.
    pub settle: Duration,
    /// How often the manifest directories are listed anyway (`fileCheckFrequency`); default 20 s.
    pub file_check: Duration,
    /// How often containerd is listed anyway; default 10 s.
    pub relist: Duration,
    /// First crash back-off; default 10 s.
    pub backoff_initial: Duration,
    /// Cap of the crash back-off (`crashLoopBackOff.maxContainerRestartPeriod`); default 300 s.
    pub backoff_max: Duration,
    /// A container that ran this long starts with a fresh back-off; default 600 s.
    pub backoff_reset: Duration,
    /// Containers without a seccomp profile get RuntimeDefault (`seccompDefault`); default true.
    pub seccomp_default: bool,
    /// Root of podling's cgroups (`cgroupRoot`); default `/podling`.
    pub cgroup_root: String,
    /// Log size at which the logger rotates (`containerLogMaxSize`), in bytes; default 10 MiB.
    pub log_max_size: u64,
    /// Log files kept per container (`containerLogMaxFiles`), the live one included; default 5.
    pub log_max_files: u32,
    /// CNI configuration directory; default `/etc/cni/net.d`.
    pub cni_conf_dir: PathBuf,
    /// Directories searched for CNI plugins; default `/opt/cni/bin`, `/usr/lib/cni`.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// Resolver file that pods inherit (`resolvConf`); default `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Cluster DNS servers (`clusterDNS`); default none.
    pub cluster_dns: Vec<String>,
    /// Cluster domain (`clusterDomain`); default none.
    pub cluster_domain: Option<String>,
    /// OCI runtime binary (`runc`, `crun`, a path) or none to probe; default none.
    pub runtime: Option<String>,
}
