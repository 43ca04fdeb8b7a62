//! Sandboxes: the namespaces, network, cgroup and shared files of one pod instance, without a pause
//! container.
//!
//! Everything of a sandbox hangs on its id, so a half-made one can be taken down by anyone who knows it:
//! namespace pins and `/dev/shm` under `/run/podling/sandboxes/<id>`, the network result under
//! `/var/lib/podling/network`. The pod's cgroup and its files hang on the uid.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodSpec;

use super::start::StartError;
use super::{Note, Runtime, notes};
use crate::manifest::{PodManifest, annotations};
use crate::network::{
    DnsNote, HostResolv, PodHostname, SetupRequest, host_ports, hosts_file, hosts_file_host_network,
    pod_hostname, resolv_conf,
};
use crate::runtime::spec::{PidNamespace, SandboxPaths, UserNamespace, qos, sysctls};
use crate::store::SandboxRecord;
use crate::system::mounts::{self, Tmpfs};
use crate::system::namespaces::{self, Ns};

impl Runtime {
    /// Makes sandbox `id`, and says what a person should know about it; on failure what was made stays for
    /// [`Runtime::drop_sandbox`].
    pub async fn create_sandbox(
        &self,
        manifest: &PodManifest,
        uid: &str,
        id: &str,
    ) -> Result<(SandboxRecord, Vec<Note>), StartError> {
        self.adopt_sandbox(id, uid);
        let spec = pod_spec(manifest)?;
        let host_network = spec.host_network == Some(true);
        self.oci_runtime_of(spec)?;
        sysctls::check(spec, &self.inner.options.allowed_sysctls)
            .map_err(|e| StartError::new("SysctlForbidden", e.to_string()))?;
        if !host_network {
            // Asked before anything is made: each try would leave a sandbox that, without its plugins,
            // cannot be taken down either.
            let status = tokio::task::block_in_place(|| self.inner.network.status());
            status.map_err(|e| StartError::new("NetworkNotReady", e.to_string()))?;
        }
        tokio::task::block_in_place(|| {
            self.make_cgroup(spec, uid)?;
            self.pin_namespaces(manifest, uid, id)
        })?;
        let ips = if host_network { Vec::new() } else { self.join_network(manifest, uid, id).await? };
        let record = SandboxRecord { id: id.into(), ips, host_network, ready: true };
        let mut notes = notes::of_security(&manifest.pod, &self.inner.features);
        notes.extend(self.write_pod_files(manifest, uid, &record)?.into_iter().map(Note::from));
        Ok((record, notes))
    }

    fn make_cgroup(&self, spec: &PodSpec, uid: &str) -> Result<(), StartError> {
        let groups = &self.inner.cgroups;
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            groups
                .check_limits(&qos::container_resources(container))
                .map_err(|e| StartError::config(format!("container {}: {e}", container.name)))?;
        }
        groups
            .create_pod(uid, qos::qos_class(spec), &qos::pod_resources(&self.with_overhead(spec)))
            .map_err(|e| StartError::new("CreatePodSandboxError", e.to_string()))?;
        self.apply_burstable_weight();
        Ok(())
    }

    fn pin_namespaces(&self, manifest: &PodManifest, uid: &str, id: &str) -> Result<(), StartError> {
        let spec = pod_spec(manifest)?;
        let dir = self.inner.paths.sandbox(id);
        let failed = |e: String| StartError::new("CreatePodSandboxError", e);
        let mut which = Vec::new();
        if spec.host_network != Some(true) {
            which.extend([Ns::Net, Ns::Uts]);
        }
        if spec.host_ipc != Some(true) {
            which.push(Ns::Ipc);
            std::fs::create_dir_all(dir.join("shm"))
                .map_err(|e| failed(format!("cannot create {}: {e}", dir.join("shm").display())))?;
            let size = annotations::shm_size(&manifest.pod).or(Tmpfs::SHM.size);
            mounts::mount_tmpfs(&dir.join("shm"), Tmpfs { size, ..Tmpfs::SHM })
                .map_err(|e| failed(e.to_string()))?;
        }
        let name = self.names(manifest)?.kernel;
        let made = if super::userns::wanted(spec) {
            self.check_user_namespaces()?;
            let range = self.id_range(uid)?;
            crate::system::userns::create_pinned(&dir, &which, Some(&name), range, &self.inner.pause)
        } else {
            namespaces::create_pinned(&dir, &which, Some(&name))
        };
        made.map_err(|e| failed(e.to_string()))?;
        // Without this a privileged container could not write its /sys while another one is there. (In a user
        // namespace it could not anyhow.)
        if which.contains(&Ns::Net) && has_privileged(spec) && !super::userns::wanted(spec) {
            namespaces::hold_sysfs(&dir.join("net"), &dir.join("sys")).map_err(|e| failed(e.to_string()))?;
        }
        Ok(())
    }

    async fn join_network(
        &self,
        manifest: &PodManifest,
        uid: &str,
        id: &str,
    ) -> Result<Vec<String>, StartError> {
        let netns = self.inner.paths.sandbox(id).join("net");
        let request = SetupRequest {
            sandbox_id: id,
            key: &manifest.key,
            uid,
            netns: &netns,
            host_ports: host_ports(&manifest.pod),
        };
        let result = self.inner.network.setup(&request).await;
        let result = result.map_err(|e| StartError::new("NetworkNotReady", e.to_string()))?;
        Ok(result.ips.iter().map(ToString::to_string).collect())
    }

    /// The pod's names; on the host's network they are the host's.
    fn names(&self, manifest: &PodManifest) -> Result<PodHostname, StartError> {
        let spec = pod_spec(manifest)?;
        if spec.host_network == Some(true) {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            return Ok(PodHostname { hostname: host.clone(), domain: None, kernel: host });
        }
        let domain = self.inner.options.cluster_domain.as_deref();
        pod_hostname(spec, &manifest.key.name, &manifest.key.namespace, domain)
            .map_err(|e| StartError::config(e.to_string()))
    }

    /// Writes hosts, resolv.conf and hostname of the pod; also at each container start, so that they follow
    /// the host's. Returns what a person should know about them.
    pub fn write_pod_files(
        &self,
        manifest: &PodManifest,
        uid: &str,
        sandbox: &SandboxRecord,
    ) -> Result<Vec<DnsNote>, StartError> {
        let spec = pod_spec(manifest)?;
        let options = &self.inner.options;
        let dir = self.inner.paths.pod(uid);
        let host = HostResolv::load(&options.resolv_conf).map_err(|e| StartError::config(e.to_string()))?;
        let domain = options.cluster_domain.as_deref();
        let (resolv, notes) = resolv_conf(spec, &manifest.key.namespace, &host, &options.cluster_dns, domain)
            .map_err(|e| StartError::config(e.to_string()))?;
        let names = self.names(manifest)?;
        let aliases = spec.host_aliases.as_deref().unwrap_or_default();
        let hosts = if sandbox.host_network {
            hosts_file_host_network(&std::fs::read("/etc/hosts").unwrap_or_default(), aliases)
        } else {
            let ips: Vec<_> = sandbox.ips.iter().filter_map(|ip| ip.parse().ok()).collect();
            hosts_file(&ips, &names.hostname, names.domain.as_deref(), aliases).into_bytes()
        };
        let hostname = format!("{}\n", names.kernel).into_bytes();
        for (file, bytes) in
            [("etc-hosts", hosts), ("resolv.conf", resolv.into_bytes()), ("hostname", hostname)]
        {
            write_in_place(&dir.join(file), &bytes)
                .map_err(|e| StartError::new("CreatePodSandboxError", e))?;
        }
        Ok(notes)
    }

    /// Paths and namespaces that a container of the sandbox is given.
    pub(super) fn sandbox_paths(
        &self,
        manifest: &PodManifest,
        uid: &str,
        sandbox: &SandboxRecord,
        pause_pid: Option<u32>,
    ) -> Result<SandboxPaths, StartError> {
        let spec = pod_spec(manifest)?;
        let run = self.inner.paths.sandbox(&sandbox.id);
        let dir = self.inner.paths.pod(uid);
        let own = |name: &str, host: bool| (!host).then(|| run.join(name));
        let (net, ipc) = (spec.host_network == Some(true), spec.host_ipc == Some(true));
        let pid = match pause_pid {
            _ if spec.host_pid == Some(true) => PidNamespace::Host,
            Some(pid) => PidNamespace::Path(PathBuf::from(format!("/proc/{pid}/ns/pid"))),
            None => PidNamespace::Own,
        };
        let user = if super::userns::wanted(spec) {
            let range = self.id_range(uid)?;
            Some(UserNamespace { path: run.join("user"), first_id: range.first, count: range.count })
        } else {
            None
        };
        Ok(SandboxPaths {
            id: sandbox.id.clone(),
            net: own("net", net),
            uts: own("uts", net),
            ipc: own("ipc", ipc),
            pid,
            user,
            shm: own("shm", ipc),
            etc_hosts: Some(dir.join("etc-hosts")),
            etc_hostname: Some(dir.join("hostname")),
            etc_resolv_conf: Some(dir.join("resolv.conf")),
            hostname: self.names(manifest)?.kernel,
            log_directory: super::logs::pod_log_dir(&self.inner.paths, &manifest.key, uid),
        })
    }

    /// Whether the sandbox's namespaces are still there: a reboot or a careless `umount` takes them.
    pub fn sandbox_intact(&self, manifest: &PodManifest, sandbox: &SandboxRecord) -> bool {
        let dir = self.inner.paths.sandbox(&sandbox.id);
        let spec = manifest.pod.spec.as_ref();
        let ipc = spec.and_then(|s| s.host_ipc) != Some(true);
        sandbox.ready
            && (sandbox.host_network || namespaces::is_pinned(&dir.join("net")))
            && (!ipc || namespaces::is_pinned(&dir.join("ipc")))
            && (!spec.is_some_and(super::userns::wanted) || namespaces::is_pinned(&dir.join("user")))
    }

    /// Takes a sandbox down: network first (it needs the namespace), then pins and shared memory. Repeating
    /// it, or doing it for one that never was, is fine. A network that cannot be detached (its plugin is
    /// gone, say) does not keep the rest; housekeeping tries it again.
    pub async fn drop_sandbox(&self, id: &str) -> Result<(), String> {
        let dir = self.inner.paths.sandbox(id);
        let netns = dir.join("net");
        let netns = namespaces::is_pinned(&netns).then_some(netns);
        let detached = self.inner.network.teardown(id, netns.as_deref()).await.map_err(|e| e.to_string());
        let removed = tokio::task::block_in_place(|| remove_pins(&dir));
        if removed.is_ok() {
            self.lock_sandboxes().remove(id);
            self.lock_fs_groups().retain(|_, sandbox| sandbox != id);
        }
        removed.and(detached)
    }

    /// Sandboxes of which something is left on this node.
    pub fn sandboxes_on_disk(&self) -> Vec<String> {
        let mut ids = self.inner.network.pending();
        let dirs =
            std::fs::read_dir(self.inner.paths.run().join("sandboxes")).into_iter().flatten().flatten();
        ids.extend(dirs.filter_map(|e| e.file_name().into_string().ok()));
        ids.sort();
        ids.dedup();
        ids
    }
}

fn remove_pins(dir: &Path) -> Result<(), String> {
    mounts::unmount_under(dir).map_err(|e| e.to_string())?;
    namespaces::unpin(dir).map_err(|e| e.to_string())?;
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {e}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Written in place: containers hold the file by bind mount, so a rename would not reach them.
fn write_in_place(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|current| current == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
    }
    std::fs::write(path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn has_privileged(spec: &PodSpec) -> bool {
    spec.init_containers.iter().flatten().chain(&spec.containers).any(super::start::is_privileged)
}

pub(super) fn pod_spec(manifest: &PodManifest) -> Result<&PodSpec, StartError> {
    manifest.pod.spec.as_ref().ok_or_else(|| StartError::config(format!("pod {} has no spec", manifest.key)))
}
