//! Settings of images: pulling, credentials, collecting.

use std::path::PathBuf;
use std::time::Duration;

use super::file::{HOUR, boolean, duration, integer, path, paths};
use super::paths::Paths;
use super::tree::Value;

/// The fields, as `docs/configuration.md` lists them.
pub(super) const FIELDS: &[&str] = &[
    "serializeImagePulls",
    "maxParallelImagePulls",
    "strictPull",
    "registryConfigDirs",
    "registryCredentialFiles",
    "imageCredentialProviderConfig",
    "imageCredentialProviderBinDir",
    "signaturePolicy",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
];

/// Everything that images depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSettings {
    /// One pull at a time (`serializeImagePulls`); default false.
    pub serialize: bool,
    /// Pulls at once (`maxParallelImagePulls`); default 4.
    pub parallel: u32,
    /// `imagePullPolicy: Always` runs nothing that could not be checked (`strictPull`); default false.
    pub strict: bool,
    /// Directories with `<host>/hosts.toml` (`registryConfigDirs`), the first that knows a registry counts.
    pub registry_dirs: Vec<PathBuf>,
    /// docker configuration files with credentials (`registryCredentialFiles`).
    pub credential_files: Vec<PathBuf>,
    /// CredentialProviderConfig (`imageCredentialProviderConfig`); default none.
    pub provider_config: Option<PathBuf>,
    /// Directory of its programs (`imageCredentialProviderBinDir`).
    pub provider_dir: PathBuf,
    /// Which images are taken, as containers' `policy.json` (`signaturePolicy`).
    pub signature_policy: PathBuf,
    /// Percent of the disk above which images are collected (`imageGCHighThresholdPercent`); default 85.
    pub gc_high: u32,
    /// Percent down to which (`imageGCLowThresholdPercent`); default 80.
    pub gc_low: u32,
    /// Least age of an image that is collected (`imageMinimumGCAge`); default 2 min.
    pub gc_min_age: Duration,
    /// Age at which an unused one is collected whatever the disk (`imageMaximumGCAge`); default 0, never.
    pub gc_max_age: Duration,
}

impl ImageSettings {
    /// The defaults. What the host has is looked at also under a root of its own, behind what that root has.
    pub(super) fn defaults(paths: &Paths) -> Self {
        let own = |tail: &str| paths.root.join(tail);
        let mut registry_dirs = vec![own("etc/containerd/certs.d"), own("etc/docker/certs.d")];
        let mut credential_files = vec![paths.state().join("config.json")];
        if !paths.is_system() {
            registry_dirs.extend(["/etc/containerd/certs.d".into(), "/etc/docker/certs.d".into()]);
            credential_files.push("/var/lib/podling/config.json".into());
        }
        credential_files.push("/var/lib/kubelet/config.json".into());
        // A service has no HOME; root's is where docker and podman put it.
        let home = std::env::var_os("HOME").filter(|h| !h.is_empty()).map_or("/root".into(), PathBuf::from);
        credential_files.extend([home.join(".docker/config.json"), "/.docker/config.json".into()]);
        credential_files.extend([
            "/var/lib/kubelet/.dockercfg".into(),
            home.join(".dockercfg"),
            "/.dockercfg".into(),
        ]);
        Self {
            serialize: false,
            parallel: 4,
            strict: false,
            registry_dirs,
            credential_files,
            provider_config: None,
            provider_dir: "/usr/libexec/kubernetes/kubelet-plugins/credential-provider/exec".into(),
            signature_policy: own("etc/podling/policy.json"),
            gc_high: 85,
            gc_low: 80,
            gc_min_age: Duration::from_secs(120),
            gc_max_age: Duration::ZERO,
        }
    }

    pub(super) fn apply(&mut self, file: FileImages) {
        fn set<T>(slot: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *slot = value;
            }
        }
        set(&mut self.serialize, file.serialize);
        set(&mut self.parallel, file.parallel);
        set(&mut self.strict, file.strict);
        set(&mut self.registry_dirs, file.registry_dirs);
        set(&mut self.credential_files, file.credential_files);
        set(&mut self.provider_dir, file.provider_dir);
        self.provider_config = file.provider_config;
        set(&mut self.signature_policy, file.signature_policy);
        set(&mut self.gc_high, file.gc_high);
        set(&mut self.gc_low, file.gc_low);
        set(&mut self.gc_min_age, file.gc_min_age);
        set(&mut self.gc_max_age, file.gc_max_age);
        self.gc_low = self.gc_low.min(self.gc_high);
    }

    /// Pulls at once.
    pub fn pulls_at_once(&self) -> usize {
        if self.serialize { 1 } else { self.parallel as usize }
    }
}

/// What the config file says of images; `None` where it is silent.
#[derive(Debug, Default)]
pub(super) struct FileImages {
    serialize: Option<bool>,
    parallel: Option<u32>,
    strict: Option<bool>,
    registry_dirs: Option<Vec<PathBuf>>,
    credential_files: Option<Vec<PathBuf>>,
    provider_config: Option<PathBuf>,
    provider_dir: Option<PathBuf>,
    signature_policy: Option<PathBuf>,
    gc_high: Option<u32>,
    gc_low: Option<u32>,
    gc_min_age: Option<Duration>,
    gc_max_age: Option<Duration>,
}

impl FileImages {
    /// Takes a field of [`FIELDS`].
    pub(super) fn field(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match name {
            "serializeImagePulls" => self.serialize = Some(boolean(name, value)?),
            "maxParallelImagePulls" => self.parallel = Some(integer(name, value, 1, 100)?),
            "strictPull" => self.strict = Some(boolean(name, value)?),
            "registryConfigDirs" => self.registry_dirs = Some(paths(name, value)?),
            "registryCredentialFiles" => self.credential_files = Some(paths(name, value)?),
            "imageCredentialProviderConfig" => self.provider_config = Some(path(name, value)?),
            "imageCredentialProviderBinDir" => self.provider_dir = Some(path(name, value)?),
            "signaturePolicy" => self.signature_policy = Some(path(name, value)?),
            "imageGCHighThresholdPercent" => self.gc_high = Some(integer(name, value, 0, 100)?),
            "imageGCLowThresholdPercent" => self.gc_low = Some(integer(name, value, 0, 100)?),
            "imageMinimumGCAge" => self.gc_min_age = Some(duration(name, value, 0, 365 * 24 * HOUR)?),
            "imageMaximumGCAge" => self.gc_max_age = Some(duration(name, value, 0, 365 * 24 * HOUR)?),
            _ => {}
        }
        Ok(())
    }
}
