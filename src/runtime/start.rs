//! Starting one container: image, user, spec, record, snapshot, task.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use super::containerd::{ErrorClass, Mount, NewContainer, OciRuntime, RuntimeError, TaskIo};
use super::sandbox::pod_spec;
use super::spec::{self, ResolvedUser, SpecInput, UserSpec, qos};
use super::{Kind, Labels, Runtime, logs, new_id, profiles, userns};
use crate::image::Image;
use crate::image::pull::{Pulled, Ready};
use crate::manifest::PodManifest;
use crate::manifest::annotations::Ulimit;
use crate::store::SandboxRecord;
use crate::system::clock::Moment;
use crate::system::userns::IdRange;
use crate::system::{devices, process};
use crate::volume;

/// A container or a sandbox could not be started: the kubelet's word for it and a line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct StartError {
    /// `CreateContainerConfigError`, `ErrImagePull`, `RunContainerError` …
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// containerd was not there to ask: not the pod's fault, tried again at once when it is back.
    pub unavailable: bool,
    /// Nothing is wrong: an image is on its way.
    pub pulling: bool,
    /// When it is worth trying again, where that is known.
    pub until: Option<Moment>,
}

impl StartError {
    /// With a reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), unavailable: false, pulling: false, until: None }
    }

    /// The spec asks for something that cannot be.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new("CreateContainerConfigError", message)
    }

    pub(super) fn rpc(reason: &'static str, e: &RuntimeError) -> Self {
        let unavailable = e.class() == ErrorClass::Unavailable;
        Self { unavailable, ..Self::new(reason, e.to_string()) }
    }
}

/// What to start.
pub struct StartOrder<'a> {
    /// The pod.
    pub manifest: &'a PodManifest,
    /// Its uid.
    pub uid: &'a str,
    /// Its sandbox.
    pub sandbox: &'a SandboxRecord,
    /// Container name, or [`PAUSE`](super::PAUSE).
    pub name: &'a str,
    /// What it is.
    pub kind: Kind,
    /// Number of the run; names the log file.
    pub attempt: u32,
    /// Restart count.
    pub restarts: u32,
    /// When this start was first tried.
    pub asked: Moment,
    /// Host pid of the pause container.
    pub pause_pid: Option<u32>,
}

/// A container that was created, ready to be started.
#[derive(Clone, Debug)]
pub struct Started {
    /// containerd id.
    pub id: String,
    /// Image name as written.
    pub image: String,
    /// `name@sha256:…` that runs.
    pub image_id: String,
    /// Host pid.
    pub pid: u32,
    /// The signal that it is asked to end with.
    pub stop_signal: i32,
    /// Why `imagePullPolicy: Always` was met with the copy that was there.
    pub stale: Option<String>,
    /// What was pulled for it.
    pub pulled: Option<Pulled>,
    /// The OCI runtime would not make its process, for example since the command does not exist. That is a
    /// run that failed, as with the kubelet, not a start to be tried again.
    pub refused: Option<StartError>,
}

/// A container that is there but for its task.
struct Prepared {
    /// What is known of it; the pid is yet to come.
    started: Started,
    mounts: Vec<Mount>,
    io: TaskIo,
    oci_runtime: OciRuntime,
    /// Its user and ids, when it has a user namespace: what was bound with its ids mapped is to be unbound.
    mapped: Option<(ResolvedUser, IdRange)>,
    /// What the manifest says of `RLIMIT_NOFILE`.
    open_files: Option<Ulimit>,
}

impl Runtime {
    /// Creates a container up to its task; nothing of the user's runs yet. What a failure leaves behind is a
    /// record without a running task, which the next look at the pod discards.
    pub async fn create(&self, order: &StartOrder<'_>) -> Result<Started, StartError> {
        if order.kind == Kind::Pause {
            return Box::pin(self.create_pause(order)).await;
        }
        // Boxed, since of many that start at once most wait for a place to create their task in, and need not hold the
        // room that preparing it takes.
        let prepared = Box::pin(self.prepare(order)).await?;
        self.create_prepared(order, prepared).await
    }

    /// Everything up to the task: record, root and what is mounted in it.
    async fn prepare(&self, order: &StartOrder<'_>) -> Result<Prepared, StartError> {
        self.await_objects(order.manifest)?;
        let container = container(order)?;
        let spec_of_pod = pod_spec(order.manifest)?;
        let Ready { image, stale, pulled } = self.image(order.manifest, container, order.asked).await?;
        self.mend(&image, container, order.manifest).await?;
        let user = self.user(order, container, &image).await?;
        let seccomp_file =
            profiles::seccomp_file(&order.manifest.pod, container, &self.inner.options.seccomp_root)?;
        profiles::check_apparmor(&order.manifest.pod, container, &self.inner.features)?;
        let oci_runtime = self.oci_runtime_of(spec_of_pod)?;
        self.mount_images(order).await?;
        let volumes = volume::prepare(self.volume_input(order.manifest, order.uid, order.sandbox))
            .await
            .map_err(|e| StartError::new("FailedMount", e.to_string()))?;
        self.apply_fs_group(spec_of_pod, order.uid, order.sandbox, &volumes).await?;
        self.write_pod_files(order.manifest, order.uid, order.sandbox)?;
        let env = self.environment(order, container, &volumes)?;
        let extras = self.extras(order, container, &volumes)?;
        let mounts = self.mount_sources(order, container, volumes, &env).await?;
        let termination_log = self.termination_log(order)?;
        let image_volumes = self.declared_volumes(order, container, &image).await?;
        let qos = qos::qos_class(spec_of_pod);
        let host_devices =
            if is_privileged(container) { devices::host_devices(Path::new("/dev")) } else { Vec::new() };
        let id = new_id();
        let input = SpecInput {
            pod: &order.manifest.pod,
            uid: order.uid,
            container,
            image: &image.config,
            image_name: &image.name,
            user: &user,
            env: &env,
            sandbox: &self.sandbox_paths(order.manifest, order.uid, order.sandbox, order.pause_pid)?,
            mounts: &mounts,
            termination_log: Some(&termination_log),
            cgroup_path: &self.inner.cgroups.container_path(order.uid, qos, &id),
            oom_score_adj: qos::oom_score_adj(spec_of_pod, container, self.inner.features.memory_bytes),
            host_devices: &host_devices,
            extras: &extras,
            node: &self.inner.features,
            seccomp_default: self.inner.options.seccomp_default,
            seccomp_file: seccomp_file.as_ref(),
            image_volumes: &image_volumes,
            attempt: order.attempt,
        };
        let mut oci = spec::build(&input).map_err(|e| StartError::new(e.reason(), e.to_string()))?;
        let sandbox_dir = self.inner.paths.sandbox(&order.sandbox.id);
        let ids = userns::wanted(spec_of_pod).then(|| self.id_range(order.uid)).transpose()?;
        if ids.is_some() {
            // Again, as a start of podling closes the directories that this opens.
            self.check_user_namespaces()?;
            tokio::task::block_in_place(|| self.map_sources(&mut oci, &sandbox_dir, &id, &user))?;
        }
        let signal = stop_signal(container, &image);
        let name = container.image.clone().unwrap_or_default();
        let new = self.new_container(order, id.clone(), name.clone(), signal, oci, true).await?;
        let mut mounts = self.create_record(new, Some(&image)).await?;
        if let Some(ids) = ids {
            mounts = tokio::task::block_in_place(|| self.map_rootfs(mounts, &sandbox_dir, &id, ids))?;
        }
        let io = self.task_io(order, container)?;
        self.note_shim(order, &id)?;
        let started = Started {
            id,
            image: name,
            image_id: format!("{}@{}", repository(&image.name), image.digest),
            pid: 0,
            stop_signal: signal,
            stale,
            pulled,
            refused: None,
        };
        let open_files = extras.ulimits.iter().find(|u| u.name == "nofile").copied();
        Ok(Prepared { started, mounts, io, oci_runtime, mapped: ids.map(|ids| (user, ids)), open_files })
    }

    /// The task of a container that is prepared.
    async fn create_prepared(
        &self,
        order: &StartOrder<'_>,
        prepared: Prepared,
    ) -> Result<Started, StartError> {
        let Prepared { mut started, mounts, io, oci_runtime, mapped, open_files } = prepared;
        let created = self.inner.ctd.create_task(&started.id, &mounts, &io, &oci_runtime).await;
        if let Some((user, ids)) = mapped {
            let sandbox_dir = self.inner.paths.sandbox(&order.sandbox.id);
            tokio::task::block_in_place(|| self.unmap(&sandbox_dir, &started.id));
            if let Ok(pid) = created {
                self.own_output(pid, &user, ids);
            }
        }
        match created {
            Ok(pid) => started.pid = pid,
            Err(RuntimeError::Call { class: ErrorClass::Other, message, .. }) => {
                started.refused = Some(StartError::new("RunContainerError", message));
            }
            Err(e) => return Err(StartError::rpc("CreateContainerError", &e)),
        }
        if let Some(limit) = open_files {
            limit_open_files(started.pid, &limit);
        }
        self.link_log(order, &started.id);
        Ok(started)
    }

    /// Runs what was created.
    pub async fn start(&self, id: &str) -> Result<(), StartError> {
        match self.inner.ctd.start_task(id).await {
            Ok(_) => Ok(()),
            Err(e) => Err(StartError::rpc("RunContainerError", &e)),
        }
    }

    pub(super) async fn new_container(
        &self,
        order: &StartOrder<'_>,
        id: String,
        image: String,
        stop_signal: i32,
        oci: oci_spec::runtime::Spec,
        snapshot: bool,
    ) -> Result<NewContainer, StartError> {
        let grace = order.manifest.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
        let labels = Labels {
            key: order.manifest.key.clone(),
            uid: order.uid.into(),
            name: order.name.into(),
            kind: order.kind,
            sandbox: order.sandbox.id.clone(),
            attempt: order.attempt,
            restarts: order.restarts,
            container_hash: entry_hash(order.manifest, order.name).to_owned(),
            pod_hash: order.manifest.hashes.pod.clone(),
            stop_signal,
            grace_seconds: grace.unwrap_or(30).max(1).unsigned_abs(),
            host_network: order.sandbox.host_network,
            ips: order.sandbox.ips.clone(),
        };
        let snapshotter = self.inner.ctd.snapshotter().await;
        Ok(NewContainer {
            snapshotter: snapshotter.map_err(|e| StartError::rpc("CreateContainerError", &e))?,
            snapshot_key: snapshot.then(|| id.clone()),
            id,
            image,
            labels: labels.to_map(&self.inner.root_label),
            runtime: self.oci_runtime_of(pod_spec(order.manifest)?)?,
            spec: oci,
        })
    }

    /// Record first, then snapshot: the collector spares a snapshot that a record names.
    pub(super) async fn create_record(
        &self,
        new: NewContainer,
        image: Option<&Image>,
    ) -> Result<Vec<Mount>, StartError> {
        let failed = |e: RuntimeError| StartError::rpc("CreateContainerError", &e);
        let id = new.id.clone();
        self.inner.ctd.create_container(new).await.map_err(failed)?;
        match image {
            Some(image) => self.inner.ctd.prepare_rootfs(&id, &image.chain_id).await.map_err(failed),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn note_shim(&self, order: &StartOrder<'_>, id: &str) -> Result<(), StartError> {
        self.inner
            .notes
            .add(&order.sandbox.id, id)
            .map_err(|e| StartError::new("CreateContainerError", format!("cannot note the container: {e}")))
    }

    async fn user(
        &self,
        order: &StartOrder<'_>,
        container: &Container,
        image: &Image,
    ) -> Result<ResolvedUser, StartError> {
        let image_user = image.config.config().as_ref().and_then(|c| c.user().clone()).unwrap_or_default();
        let asked = UserSpec::of(pod_spec(order.manifest)?, container, &image_user);
        let key = (image.chain_id.clone(), format!("{asked:?}"));
        let cached =
            self.inner.users.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key).cloned();
        if let Some(user) = cached {
            return Ok(user);
        }
        let user = self.look_up_user(&asked, image).await?;
        self.inner.users.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(key, user.clone());
        Ok(user)
    }

    async fn look_up_user(&self, asked: &UserSpec, image: &Image) -> Result<ResolvedUser, StartError> {
        let asked = asked.clone();
        let user = self.look_into(image, move |root| spec::user::resolve(root, &asked)).await?;
        user.map_err(|e| StartError::new(e.reason(), e.to_string()))
    }

    /// Where the container of a run says why it ended; made empty for each run, writable by any user.
    fn termination_log(&self, order: &StartOrder<'_>) -> Result<PathBuf, StartError> {
        let path = self.termination_log_path(order.uid, order.name, order.attempt);
        let failed = |e: std::io::Error| {
            StartError::new("CreateContainerError", format!("cannot create {}: {e}", path.display()))
        };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        std::fs::write(&path, "").map_err(failed)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
        Ok(path)
    }

    /// `pods/<uid>/containers/<name>/<attempt>`.
    pub fn termination_log_path(&self, uid: &str, name: &str, attempt: u32) -> PathBuf {
        self.inner.paths.pod(uid).join("containers").join(name).join(attempt.to_string())
    }

    /// Output through the logger; input, where asked for, from a FIFO beside the pod's files.
    fn task_io(&self, order: &StartOrder<'_>, container: &Container) -> Result<TaskIo, StartError> {
        let failed = |e: String| StartError::new("CreateContainerError", e);
        let (inner, key) = (&self.inner, &order.manifest.key);
        let log = logs::log_path(&inner.paths, key, order.uid, order.name, order.attempt);
        logs::create_log_dir(&inner.paths, &log).map_err(|e| failed(e.to_string()))?;
        let dir = logs::container_log_dir(&inner.paths, key, order.uid, order.name);
        if let Err(e) = logs::prune_attempts(&dir, order.attempt, inner.options.logs_kept) {
            tracing::warn!(pod = %key, container = order.name, "{e}");
        }
        logs::remove_dead_links(&inner.paths, &dir);
        let terminal = container.tty == Some(true);
        let uri = if terminal { logs::logger_uri_tty } else { logs::logger_uri };
        let uri = uri(&inner.logger, &log, inner.options.log_max_size, inner.options.log_max_files);
        // Without a terminal the shim passes no input on; see `extras`.
        let stdin =
            (terminal && container.stdin == Some(true)).then(|| self.stdin_fifo(order)).transpose()?;
        Ok(TaskIo::Logger { uri, terminal, stdin })
    }

    fn stdin_fifo(&self, order: &StartOrder<'_>) -> Result<PathBuf, StartError> {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let path = self.termination_log_path(order.uid, order.name, order.attempt).with_extension("stdin");
        let made = mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
        match made {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(path),
            Err(e) => {
                Err(StartError::new("CreateContainerError", format!("cannot create {}: {e}", path.display())))
            }
        }
    }

    /// The link by which log collectors find the file; a container runs without it too.
    fn link_log(&self, order: &StartOrder<'_>, id: &str) {
        let (paths, key) = (&self.inner.paths, &order.manifest.key);
        let log = logs::log_path(paths, key, order.uid, order.name, order.attempt);
        if let Err(e) = logs::create_link(paths, key, order.name, id, &log) {
            tracing::warn!(pod = %key, container = order.name, "{e}");
        }
    }
}

fn container<'a>(order: &StartOrder<'a>) -> Result<&'a Container, StartError> {
    let spec = pod_spec(order.manifest)?;
    let found = match order.kind {
        Kind::Init => spec.init_containers.iter().flatten().find(|c| c.name == order.name),
        _ => spec.containers.iter().find(|c| c.name == order.name),
    };
    found.ok_or_else(|| {
        StartError::config(format!("pod {} has no container {}", order.manifest.key, order.name))
    })
}

/// Hash of the entry a container is made from. The pause container has none of its own: a change of it
/// re-creates the pod.
pub fn entry_hash<'a>(manifest: &'a PodManifest, name: &str) -> &'a str {
    let hashes = &manifest.hashes;
    hashes.containers.get(name).or(hashes.init_containers.get(name)).unwrap_or(&hashes.pod)
}

/// A name without its tag or digest; a port in the host part is no tag.
fn repository(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    match name.rfind(':') {
        Some(at) if !name[at..].contains('/') => &name[..at],
        _ => name,
    }
}

pub(super) fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|c| c.privileged) == Some(true)
}

/// The signal that the manifest, else the image, asks to be stopped with: a name with or without SIG, or a
/// number.
fn stop_signal(container: &Container, image: &Image) -> i32 {
    let of_image = || image.config.config().as_ref().and_then(|c| c.stop_signal().clone());
    let wanted = container.lifecycle.as_ref().and_then(|l| l.stop_signal.clone()).or_else(of_image);
    wanted.and_then(|w| crate::system::signal_names::number(&w)).unwrap_or(libc::SIGTERM)
}

/// Sets the limit on open files once more. The runtime sets it from outside while its own program begins in the
/// container, and Go's start-up code, when it comes second, raises it again. By now it has begun and waits.
fn limit_open_files(pid: u32, limit: &Ulimit) {
    if pid > 0
        && let Err(e) = process::limit_open_files(pid, limit.soft, limit.hard)
    {
        tracing::debug!("{e}");
    }
}
