//! What a container mounts: its `volumeMounts`, with what is behind each on the host.
//!
//! A part of a volume (`subPath`) and a mount that is read-only with all below it are made ready on the host first,
//! below `<pod>/volume-subpaths/<volume>/<container>/<index>`, and the container mounts that. The volume's own
//! teardown takes them away.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::sandbox::pod_spec;
use super::spec::{Propagation, VolumeMountSource, expand_strictly};
use super::{Runtime, StartError, StartOrder};
use crate::system::mounts;
use crate::system::subpath::{self, Sharing};
use crate::volume::{self, PreparedVolume};

/// How long parts of volumes may take to be mounted.
const MOUNTS_LIMIT: Duration = Duration::from_secs(30);

impl Runtime {
    /// Where the container's mounts come from. A file system behind one that does not answer is given up in time.
    pub(super) async fn mount_sources(
        &self,
        order: &StartOrder<'_>,
        container: &Container,
        volumes: BTreeMap<String, PreparedVolume>,
        env: &[(String, String)],
    ) -> Result<Vec<VolumeMountSource>, StartError> {
        let input = MountInput {
            container: container.clone(),
            volumes,
            images: MountInput::images(pod_spec(order.manifest)?),
            pod_dir: self.inner.paths.pod(order.uid),
            env: env.to_vec(),
        };
        let job = tokio::task::spawn_blocking(move || input.sources());
        match tokio::time::timeout(MOUNTS_LIMIT, job).await {
            Ok(Ok(sources)) => sources,
            Ok(Err(e)) => Err(StartError::config(e.to_string())),
            Err(_) => Err(StartError::new(
                "FailedMount",
                format!(
                    "the mounts of container {} are not ready: a file system does not answer",
                    container.name
                ),
            )),
        }
    }
}

/// What the mounts of a container are made from. Owned: a file system that hangs may hold it for ever.
pub(super) struct MountInput {
    /// The container.
    pub container: Container,
    /// The pod's volumes, ready.
    pub volumes: BTreeMap<String, PreparedVolume>,
    /// Names of those that are images.
    pub images: Vec<String>,
    /// `<pods>/<uid>`.
    pub pod_dir: PathBuf,
    /// The container's variables, for `subPathExpr`.
    pub env: Vec<(String, String)>,
}

impl MountInput {
    /// Names of the volumes of a pod that are images.
    pub fn images(spec: &PodSpec) -> Vec<String> {
        let volumes = spec.volumes.iter().flatten();
        volumes.filter(|v| v.image.is_some()).map(|v| v.name.clone()).collect()
    }

    /// The mounts in the manifest's order. Blocks.
    pub fn sources(&self) -> Result<Vec<VolumeMountSource>, StartError> {
        let mounts = self.container.volume_mounts.iter().flatten().enumerate();
        mounts.map(|(index, mount)| self.source(index, mount)).collect()
    }

    fn source(&self, index: usize, mount: &VolumeMount) -> Result<VolumeMountSource, StartError> {
        let volume = self
            .volumes
            .get(&mount.name)
            .ok_or_else(|| StartError::config(format!("volumeMounts: no volume is named {}", mount.name)))?;
        let mut restrictions = mount.bind_mount_options.clone().unwrap_or_default();
        if self.images.contains(&mount.name) && !restrictions.iter().any(|o| o == "noexec") {
            restrictions.push("noexec".to_owned());
        }
        let read_only = mount.read_only == Some(true) || volume.read_only;
        let propagation = propagation(mount);
        let sub = self.sub_path(mount)?;
        // IfPossible is always possible here, since it takes no help of the OCI runtime.
        let recursive = read_only
            && matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"))
            && propagation == Propagation::Private;
        self.check_propagation(mount, &volume.host_path, propagation)?;
        let host_path = match sub {
            None if !recursive => volume.host_path.clone(),
            sub => self.stage(index, mount, volume, sub.as_deref(), propagation, recursive)?,
        };
        Ok(VolumeMountSource {
            mount_path: mount.mount_path.clone(),
            read_only,
            propagation,
            restrictions,
            host_path,
        })
    }

    /// The part of the volume that is wanted; none for all of it.
    fn sub_path(&self, mount: &VolumeMount) -> Result<Option<PathBuf>, StartError> {
        let set = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let (field, text) = match (set(&mount.sub_path_expr), set(&mount.sub_path)) {
            (Some(expression), _) => {
                let known = |name: &str| {
                    let found = self.env.iter().rev().find(|(known, _)| known == name);
                    found.map(|(_, value)| value.as_str())
                };
                let text = expand_strictly(&expression, known).map_err(|missing| {
                    // An empty one would give the container all of the volume, or another's part of it.
                    let wrong = match known(&missing) {
                        Some(_) => {
                            format!("the container's variable {missing} is empty; give it a value under env")
                        }
                        None => format!("the container has no variable {missing}; define it under env"),
                    };
                    self.config(mount, &format!("subPathExpr {expression:?}: {wrong}"))
                })?;
                ("subPathExpr", text)
            }
            (None, Some(text)) => ("subPath", text),
            (None, None) => return Ok(None),
        };
        let path = Path::new(&text);
        let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if text.contains('\0') || !path.components().all(inside) {
            let text = format!("{field} {text:?} must be a relative path without `..`");
            return Err(self.config(mount, &text));
        }
        let clean: PathBuf = path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        Ok((!clean.as_os_str().is_empty()).then_some(clean))
    }

    fn stage(
        &self,
        index: usize,
        mount: &VolumeMount,
        volume: &PreparedVolume,
        sub: Option<&Path>,
        propagation: Propagation,
        recursive: bool,
    ) -> Result<PathBuf, StartError> {
        let target =
            volume::subpath_dir(&self.pod_dir, &mount.name, &self.container.name).join(index.to_string());
        let sharing = match propagation {
            Propagation::Private => Sharing::Private,
            Propagation::HostToContainer => Sharing::Slave,
            Propagation::Bidirectional => Sharing::Shared,
        };
        let staged = match sub {
            Some(sub) => subpath::open_in_root(&volume.host_path, sub),
            None => subpath::open_path(&volume.host_path),
        };
        staged
            .and_then(|source| subpath::stage(&source, &target, sharing))
            .and_then(|()| if recursive { mounts::make_read_only_below(&target) } else { Ok(()) })
            .map_err(|e| StartError::new("CreateContainerConfigError", self.said(mount, &e.to_string())))?;
        Ok(target)
    }

    /// What the OCI runtime would only say in riddles.
    fn check_propagation(
        &self,
        mount: &VolumeMount,
        path: &Path,
        propagation: Propagation,
    ) -> Result<(), StartError> {
        if propagation == Propagation::Private {
            return Ok(());
        }
        let passing = mounts::passing(path).map_err(|e| self.config(mount, &e.to_string()))?;
        let (fine, wanted) = match propagation {
            Propagation::Bidirectional => (passing.shared, "shared"),
            _ => (passing.shared || passing.slave, "shared or slave"),
        };
        if fine {
            return Ok(());
        }
        let text = format!(
            "mountPropagation {} needs the mount that {} is on, {}, to be {wanted}: run `mount --make-rshared {}` on \
             the host",
            mount.mount_propagation.as_deref().unwrap_or_default(),
            path.display(),
            passing.point.display(),
            passing.point.display(),
        );
        Err(self.config(mount, &text))
    }

    fn config(&self, mount: &VolumeMount, text: &str) -> StartError {
        StartError::config(self.said(mount, text))
    }

    fn said(&self, mount: &VolumeMount, text: &str) -> String {
        format!("container {}: volume {:?} on {}: {text}", self.container.name, mount.name, mount.mount_path)
    }
}

fn propagation(mount: &VolumeMount) -> Propagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => Propagation::HostToContainer,
        Some("Bidirectional") => Propagation::Bidirectional,
        _ => Propagation::Private,
    }
}

#[cfg(test)]
mod tests;
