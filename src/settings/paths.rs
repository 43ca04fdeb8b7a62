//! Every path podling uses, derived from one root so that several can run side by side.

use std::path::{Path, PathBuf};

/// Where things are. With root `/` these are the documented paths; with `--root DIR` all of them
/// lie under DIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The root itself.
    pub root: PathBuf,
}

impl Paths {
    /// Paths under `root`.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn join(&self, tail: &str) -> PathBuf {
        self.root.join(tail)
    }

    /// True for the host's own root.
    pub fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// `/etc/pods`: the default manifest directory.
    pub fn manifests(&self) -> PathBuf {
        self.join("etc/pods")
    }

    /// `/etc/podling/config.yaml`: settings.
    pub fn config(&self) -> PathBuf {
        self.join("etc/podling/config.yaml")
    }

    /// `/var/lib/podling`: state that survives a reboot.
    pub fn state(&self) -> PathBuf {
        self.join("var/lib/podling")
    }

    /// `/var/lib/podling/pods`: one directory a pod uid.
    pub fn pods(&self) -> PathBuf {
        self.state().join("pods")
    }

    /// `/var/lib/podling/pods/<uid>`.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// `/var/lib/podling/claims`: the directories behind persistentVolumeClaims, by namespace and name.
    pub fn claims(&self) -> PathBuf {
        self.state().join("claims")
    }

    /// `/var/lib/podling/network`: address leases, CNI results, host ports.
    pub fn network(&self) -> PathBuf {
        self.state().join("network")
    }

    /// `/var/lib/podling/images`: archives imported at start and when dropped in.
    pub fn images(&self) -> PathBuf {
        self.state().join("images")
    }

    /// `/var/lib/podling/bin`: the helpers podling carries (logger, pause).
    pub fn helpers(&self) -> PathBuf {
        self.state().join("bin")
    }

    /// `/var/lib/podling/containerd`: root of the private containerd.
    pub fn containerd_root(&self) -> PathBuf {
        self.state().join("containerd")
    }

    /// `/run/podling`: state that a reboot clears.
    pub fn run(&self) -> PathBuf {
        self.join("run/podling")
    }

    /// `/run/podling/podling.sock`: the daemon's API.
    pub fn socket(&self) -> PathBuf {
        self.run().join("podling.sock")
    }

    /// `/run/podling/containerd`: state of the private containerd.
    pub fn containerd_state(&self) -> PathBuf {
        self.run().join("containerd")
    }

    /// `/run/podling/sandboxes/<id>`: namespace pins and `/dev/shm` of one sandbox.
    pub fn sandbox(&self, id: &str) -> PathBuf {
        self.run().join("sandboxes").join(id)
    }

    /// `/run/podling/objects`: accepted ConfigMaps and Secrets, in memory.
    pub fn kept_objects(&self) -> PathBuf {
        self.run().join("objects")
    }

    /// `/var/log/pods`.
    pub fn pod_logs(&self) -> PathBuf {
        self.join("var/log/pods")
    }

    /// `/var/log/containers`: links by container.
    pub fn container_logs(&self) -> PathBuf {
        self.join("var/log/containers")
    }
}
