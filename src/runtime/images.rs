//! Images for containers: what a pod may pull with, and whether it may run what is here.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::sandbox::pod_spec;
use super::{Runtime, StartError};
use crate::http::proxy::Proxies;
use crate::image::pull::{NotReady, Puller, PullerOptions, Ready, Setup, Want};
use crate::image::{ImageError, PullPolicy};
use crate::manifest::PodManifest;
use crate::objects::ObjectKind;
use crate::registry::secrets::{Keys, of_secret};
use crate::registry::{ClientSource, HostsConfig};
use crate::runtime::containerd::{Containerd, ErrorClass};
use crate::settings::Settings;
use crate::system::clock::Moment;

/// First and longest wait after a failed pull (the kubelet's).
const BACKOFF: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_secs(10), std::time::Duration::from_secs(300));

/// The node's pulls, as the settings have them.
pub(super) fn puller(ctd: &Containerd, settings: &Settings) -> Puller {
    let images = &settings.images;
    let hosts = HostsConfig { dirs: images.registry_dirs.clone() };
    let source = std::sync::Arc::new(ClientSource::new(hosts, Proxies::from_env()));
    let options = PullerOptions {
        credential_files: images.credential_files.clone(),
        credential_providers: images.provider_config.clone().map(|c| (c, images.provider_dir.clone())),
        parallel: images.pulls_at_once(),
        strict: images.strict,
        backoff: BACKOFF,
    };
    Puller::new(Setup::new(ctd.clone(), source, Some(images.signature_policy.clone())), options)
}

impl Runtime {
    /// The node's pulls.
    pub fn images(&self) -> &Puller {
        &self.inner.puller
    }

    /// The container's image, unpacked, or why not. Never waits for a pull, only begins it; `asked` is
    /// when this start was first tried.
    pub(super) async fn image(
        &self,
        manifest: &PodManifest,
        container: &Container,
        asked: Moment,
    ) -> Result<Ready, StartError> {
        let name = container.image.as_deref().unwrap_or_default();
        self.image_by(manifest, name, container.image_pull_policy.as_deref(), asked).await
    }

    /// As [`Runtime::image`], by name and policy.
    pub(super) async fn image_by(
        &self,
        manifest: &PodManifest,
        image: &str,
        policy: Option<&str>,
        asked: Moment,
    ) -> Result<Ready, StartError> {
        let policy = policy.and_then(PullPolicy::from_name);
        let (keys, unusable) = self.keys(manifest, pod_spec(manifest)?);
        let want = Want {
            image,
            policy: policy.unwrap_or(PullPolicy::IfNotPresent),
            keys: &keys,
            asked,
            by: &manifest.hashes.manifest,
        };
        self.images().image(&want).await.map_err(|e| {
            let mut e = not_ready(e, want.image);
            if !e.pulling {
                e.message.extend(unusable.iter().map(|text| format!("; {text}")));
            }
            e
        })
    }

    /// Whether the images of all of a manifest's containers and volumes are here, so that an update is held before the old
    /// pod is touched. Begins to pull what is missing.
    pub async fn check_images(&self, manifest: &PodManifest, asked: Moment) -> Result<(), StartError> {
        let spec = pod_spec(manifest)?;
        let mut first = Ok(());
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let of_containers = containers.map(|c| (c.image.as_deref(), c.image_pull_policy.as_deref()));
        let of_volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref());
        let of_volumes = of_volumes.map(|i| (i.reference.as_deref(), i.pull_policy.as_deref()));
        for (image, policy) in of_containers.chain(of_volumes) {
            let found = self.image_by(manifest, image.unwrap_or_default(), policy, asked).await;
            match (&first, found) {
                (Ok(()), Err(e)) => first = Err(e),
                // One that failed says more than one that is on its way.
                (Err(before), Err(e)) if before.pulling && !e.pulling => first = Err(e),
                _ => {}
            }
        }
        first
    }

    /// The credentials of a pod.
    pub(super) fn pull_keys(&self, manifest: &PodManifest) -> Result<Vec<Keys>, StartError> {
        Ok(self.keys(manifest, pod_spec(manifest)?).0)
    }

    /// The credentials that the pod names. A Secret that is missing or no credential counts as none, as with
    /// the kubelet; what is said of them when the pull fails is the second.
    fn keys(&self, manifest: &PodManifest, spec: &PodSpec) -> (Vec<Keys>, Vec<String>) {
        let (mut keys, mut unusable) = (Vec::new(), Vec::new());
        for reference in spec.image_pull_secrets.iter().flatten() {
            let (namespace, name) = (&manifest.key.namespace, &reference.name);
            let Some(secret) = self.objects().get(ObjectKind::Secret, namespace, name) else {
                unusable.push(format!("imagePullSecrets: secret {name:?} does not exist"));
                continue;
            };
            match of_secret(&secret.data) {
                Ok(found) => keys.push(found),
                Err(e) => unusable.push(format!("imagePullSecrets: secret {name:?}: {e}")),
            }
        }
        (keys, unusable)
    }
}

fn not_ready(e: NotReady, image: &str) -> StartError {
    match e {
        NotReady::Pulling(_) => {
            let mut e = StartError::new("ContainerCreating", format!("pulling image {image}"));
            e.pulling = true;
            e
        }
        NotReady::Failed { error, until } => {
            let mut e = failed(&error);
            e.until = until;
            e
        }
    }
}

fn failed(e: &ImageError) -> StartError {
    let mut error = StartError::new(e.reason(), e.to_string());
    error.unavailable = e.class() == ErrorClass::Unavailable;
    error
}
