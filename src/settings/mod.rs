//! Settings: flags over config file over defaults, into one [`Settings`] value.
//!
//! The config file uses the KubeletConfiguration's field names where the meaning is the same.
//! Nothing else reads flags, environment or the config file.

mod check;
mod error;
mod file;
mod images;
mod log;
mod node;
mod paths;
mod runtime_class;
mod tree;
mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::manifest::Quantity;

pub use error::{Finding, SettingsError};
pub use images::ImageSettings;
pub use log::{LogFormat, LogOptions};
pub use paths::Paths;
pub use runtime_class::RuntimeClass;
pub use units::parse_duration;

/// What the command line says, before the config file is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `--root`.
    pub root: PathBuf,
    /// `--config`; a file named here must exist.
    pub config: Option<PathBuf>,
    /// `--manifest-dir`; any of them replaces what the config file says.
    pub manifest_dirs: Vec<PathBuf>,
    /// `--containerd`.
    pub containerd: Option<String>,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// `--node-name`.
    pub node_name: Option<String>,
}

impl Default for Flags {
    fn default() -> Self {
        Self::under("/")
    }
}

impl Flags {
    /// No flag but `--root`.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            config: None,
            manifest_dirs: Vec::new(),
            containerd: None,
            namespace: None,
            node_name: None,
        }
    }
}

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
    /// Directories watched for ConfigMaps and Secrets only (`objectDirs`); default none. The manifest
    /// directories may hold them too.
    pub object_dirs: Vec<PathBuf>,
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
    /// Directory below which `localhostProfile` of seccomp profiles is looked for (`seccompProfileRoot`); default
    /// `/var/lib/podling/seccomp`.
    pub seccomp_root: PathBuf,
    /// Sysctls beyond the safe ones that pods may set, `*` at the end of one meaning anything
    /// (`allowedUnsafeSysctls`); default none.
    pub allowed_sysctls: Vec<String>,
    /// What a pod's `runtimeClassName` means (`runtimeClasses`); default none.
    pub runtime_classes: BTreeMap<String, RuntimeClass>,
    /// Root of podling's cgroups (`cgroupRoot`); default `/podling`.
    pub cgroup_root: String,
    /// Log size at which the logger rotates (`containerLogMaxSize`), in bytes; default 10 MiB.
    pub log_max_size: u64,
    /// Log files kept per container (`containerLogMaxFiles`), the live one included; default 5.
    pub log_max_files: u32,
    /// Earlier runs of a container whose logs stay (`maximumDeadContainersPerContainer`); default 1, as with a kubelet.
    pub logs_kept: u32,
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
    /// How long logs of removed pods stay (`removedPodLogRetention`); default 24 h.
    pub log_retention: Duration,
    /// Pulling, credentials, collecting.
    pub images: ImageSettings,
    /// Most pods at a time (`maxPods`); default 110.
    pub max_pods: u32,
    /// What of the node is not for pods (`systemReserved`); default nothing.
    pub system_reserved: BTreeMap<String, Quantity>,
    /// The same once more (`kubeReserved`); both count.
    pub kube_reserved: BTreeMap<String, Quantity>,
    /// What the node has, in place of what is found on the machine; default nothing.
    pub capacity: BTreeMap<String, Quantity>,
    /// Labels of the node beside those that every node has (`nodeLabels`); default none.
    pub node_labels: BTreeMap<String, String>,
    /// Priorities of classes beside the system's; default none.
    pub priority_classes: BTreeMap<String, i32>,
    /// The flags behind all this, so that a reload gives them the last word again.
    pub flags: Flags,
}

impl Settings {
    /// The defaults for these paths, with no flag and no config file.
    pub fn defaults(paths: Paths) -> Self {
        let seconds = Duration::from_secs;
        Self {
            manifest_dirs: vec![paths.manifests()],
            object_dirs: Vec::new(),
            containerd: ContainerdChoice::Auto,
            namespace: "podling".to_owned(),
            node_name: host_name(),
            append_node_name: false,
            strict: false,
            extensionless: false,
            settle: Duration::from_millis(200),
            file_check: seconds(20),
            relist: seconds(10),
            backoff_initial: seconds(10),
            backoff_max: seconds(300),
            backoff_reset: seconds(600),
            seccomp_default: true,
            seccomp_root: paths.state().join("seccomp"),
            allowed_sysctls: Vec::new(),
            runtime_classes: BTreeMap::new(),
            cgroup_root: default_cgroup_root(&paths),
            log_max_size: 10 << 20,
            log_max_files: 5,
            logs_kept: 1,
            // Under a root of its own the host's CNI configuration is not looked at; at `/` they are the same.
            cni_conf_dir: paths.root.join("etc/cni/net.d"),
            cni_bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            resolv_conf: "/etc/resolv.conf".into(),
            cluster_dns: Vec::new(),
            cluster_domain: None,
            runtime: None,
            log_retention: seconds(24 * 3600),
            images: ImageSettings::defaults(&paths),
            max_pods: 110,
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            capacity: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            priority_classes: BTreeMap::new(),
            flags: Flags::under(paths.root.clone()),
            paths,
        }
    }

    /// Flags over config file over defaults.
    pub fn load(flags: &Flags) -> Result<Self, SettingsError> {
        let root = absolute("--root", &flags.root)?;
        let paths = Paths::under(std::fs::canonicalize(&root).unwrap_or(root));
        let file = read_file(flags, &paths)?;
        let mut settings = Self::defaults(paths);
        settings.apply_file(file);
        settings.apply_flags(flags)?;
        if settings.backoff_initial > settings.backoff_max {
            settings.backoff_initial = settings.backoff_max;
        }
        settings.flags = flags.clone();
        Ok(settings)
    }

    /// Reads the config file anew, under the same flags.
    pub fn reload(&self) -> Result<Self, SettingsError> {
        Self::load(&self.flags)
    }

    /// Settings, by their names in the file, that differ in `fresh` and that a running daemon does not take up.
    pub fn waiting_for_restart(&self, fresh: &Self) -> Vec<&'static str> {
        let pairs = [
            ("nodeName", self.node_name == fresh.node_name),
            ("containerd", self.containerd == fresh.containerd),
            ("containerdNamespace", self.namespace == fresh.namespace),
            ("ociRuntime", self.runtime == fresh.runtime),
            ("relistPeriod", self.relist == fresh.relist),
            ("seccompDefault", self.seccomp_default == fresh.seccomp_default),
            ("seccompProfileRoot", self.seccomp_root == fresh.seccomp_root),
            ("allowedUnsafeSysctls", self.allowed_sysctls == fresh.allowed_sysctls),
            ("runtimeClasses", self.runtime_classes == fresh.runtime_classes),
            ("cgroupRoot", self.cgroup_root == fresh.cgroup_root),
            ("containerLogMaxSize", self.log_max_size == fresh.log_max_size),
            ("maximumDeadContainersPerContainer", self.logs_kept == fresh.logs_kept),
            ("containerLogMaxFiles", self.log_max_files == fresh.log_max_files),
            ("cniConfDir", self.cni_conf_dir == fresh.cni_conf_dir),
            ("cniBinDirs", self.cni_bin_dirs == fresh.cni_bin_dirs),
            ("resolvConf", self.resolv_conf == fresh.resolv_conf),
            ("clusterDNS", self.cluster_dns == fresh.cluster_dns),
            ("clusterDomain", self.cluster_domain == fresh.cluster_domain),
            ("removedPodLogRetention", self.log_retention == fresh.log_retention),
            ("settings of images", self.images == fresh.images),
        ];
        pairs.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    fn apply_file(&mut self, file: file::FileSettings) {
        fn set<T>(slot: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *slot = value;
            }
        }
        set(&mut self.manifest_dirs, file.manifest_dirs);
        set(&mut self.object_dirs, file.object_dirs);
        set(&mut self.containerd, file.containerd);
        set(&mut self.namespace, file.namespace);
        set(&mut self.node_name, file.node_name);
        set(&mut self.append_node_name, file.append_node_name);
        set(&mut self.strict, file.strict);
        set(&mut self.extensionless, file.extensionless);
        set(&mut self.settle, file.settle);
        set(&mut self.file_check, file.file_check);
        set(&mut self.relist, file.relist);
        set(&mut self.backoff_initial, file.backoff_initial);
        set(&mut self.backoff_max, file.backoff_max);
        set(&mut self.backoff_reset, file.backoff_reset);
        set(&mut self.seccomp_default, file.seccomp_default);
        set(&mut self.seccomp_root, file.seccomp_root);
        set(&mut self.allowed_sysctls, file.allowed_sysctls);
        set(&mut self.runtime_classes, file.runtime_classes);
        set(&mut self.cgroup_root, file.cgroup_root);
        set(&mut self.log_max_size, file.log_max_size);
        set(&mut self.log_max_files, file.log_max_files);
        set(&mut self.logs_kept, file.logs_kept);
        set(&mut self.cni_conf_dir, file.cni_conf_dir);
        set(&mut self.cni_bin_dirs, file.cni_bin_dirs);
        set(&mut self.resolv_conf, file.resolv_conf);
        set(&mut self.cluster_dns, file.cluster_dns);
        set(&mut self.max_pods, file.max_pods);
        set(&mut self.system_reserved, file.system_reserved);
        set(&mut self.kube_reserved, file.kube_reserved);
        set(&mut self.capacity, file.capacity);
        set(&mut self.node_labels, file.node_labels);
        set(&mut self.priority_classes, file.priority_classes);
        self.cluster_domain = file.cluster_domain;
        self.runtime = file.runtime;
        set(&mut self.log_retention, file.log_retention);
        self.images.apply(file.images);
    }

    fn apply_flags(&mut self, flags: &Flags) -> Result<(), SettingsError> {
        let wrong = |flag| move |text| SettingsError::Flag { flag, text };
        if !flags.manifest_dirs.is_empty() {
            self.manifest_dirs = flags
                .manifest_dirs
                .iter()
                .map(|dir| absolute("--manifest-dir", dir))
                .collect::<Result<_, _>>()?;
        }
        if let Some(value) = &flags.containerd {
            self.containerd = check::containerd(value).map_err(wrong("--containerd"))?;
        }
        if let Some(value) = &flags.namespace {
            self.namespace = check::namespace(value).map_err(wrong("--namespace"))?;
        }
        if let Some(value) = &flags.node_name {
            self.node_name = check::node_name(value).map_err(wrong("--node-name"))?;
        }
        Ok(())
    }
}

fn read_file(flags: &Flags, paths: &Paths) -> Result<file::FileSettings, SettingsError> {
    let path = flags.config.clone().unwrap_or_else(|| paths.config());
    match std::fs::read_to_string(&path) {
        Ok(text) => file::parse(&path, &text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && flags.config.is_none() => {
            Ok(file::FileSettings::default())
        }
        Err(source) => Err(SettingsError::Read { path, source }),
    }
}

/// The path seen from `/`, without a trailing slash.
fn absolute(flag: &'static str, path: &Path) -> Result<PathBuf, SettingsError> {
    let full = std::path::absolute(path)
        .map_err(|e| SettingsError::Flag { flag, text: format!("`{}`: {e}", path.display()) })?;
    Ok(full.components().collect())
}

/// The host's name in lower case, as the kubelet names its node.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}

/// `/podling`, or one of its own for each other root, so that several can run side by side.
fn default_cgroup_root(paths: &Paths) -> String {
    if paths.is_system() {
        return "/podling".to_owned();
    }
    let digest = Sha256::digest(paths.root.as_os_str().as_encoded_bytes());
    format!("/podling-{}", hex::encode(&digest[..4]))
}

#[cfg(test)]
mod tests;
