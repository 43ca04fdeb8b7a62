//! Which AppArmor profile a container runs under.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use super::{SpecError, SpecInput};

/// The annotation that chose the profile of a container before there was a field for it.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// What a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppArmor {
    /// The default profile where the host has it.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// One that the host has loaded under this name.
    Localhost(String),
}

impl AppArmor {
    /// The wish of a container: its own field, else its annotation, else the pod's field, else the default.
    pub fn of(pod: &Pod, container: &Container) -> Self {
        let own = container.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
        let spec = pod.spec.as_ref();
        let pods = spec.and_then(|s| s.security_context.as_ref()).and_then(|c| c.app_armor_profile.as_ref());
        let annotations = pod.metadata.annotations.as_ref();
        let annotated = annotations.and_then(|a| a.get(&format!("{ANNOTATION}{}", container.name)));
        own.map(Self::from_field)
            .or_else(|| annotated.and_then(|value| Self::from_annotation(value)))
            .or_else(|| pods.map(Self::from_field))
            .unwrap_or(Self::RuntimeDefault)
    }

    fn from_field(profile: &AppArmorProfile) -> Self {
        match profile.type_.as_str() {
            "Unconfined" => Self::Unconfined,
            "Localhost" => Self::Localhost(profile.localhost_profile.clone().unwrap_or_default()),
            _ => Self::RuntimeDefault,
        }
    }

    /// `runtime/default`, `unconfined`, `localhost/NAME`; nothing for what is none of these.
    fn from_annotation(value: &str) -> Option<Self> {
        match value {
            "runtime/default" => Some(Self::RuntimeDefault),
            "unconfined" => Some(Self::Unconfined),
            other => other.strip_prefix("localhost/").map(|name| Self::Localhost(name.to_owned())),
        }
    }
}

/// The profile for the runtime. A privileged container has none unless it names one of its own.
pub(super) fn profile(input: &SpecInput<'_>) -> Result<Option<String>, SpecError> {
    match AppArmor::of(input.pod, input.container) {
        AppArmor::Unconfined => Ok(None),
        AppArmor::RuntimeDefault if input.privileged() => Ok(None),
        AppArmor::RuntimeDefault => Ok(input.node.apparmor_profile.clone()),
        AppArmor::Localhost(profile) if !input.node.apparmor => {
            Err(SpecError::NoAppArmor { container: input.name(), profile })
        }
        AppArmor::Localhost(profile) => Ok(Some(profile)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(annotation: Option<&str>, pods: Option<&str>, own: Option<&str>) -> AppArmor {
        let field = |kind: &str| match kind.strip_prefix("Localhost/") {
            Some(name) => json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}}),
            None => json!({"appArmorProfile": {"type": kind}}),
        };
        let annotations = annotation.map(|a| json!({format!("{ANNOTATION}app"): a}));
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations},
            "spec": {"containers": [{"name": "app", "securityContext": own.map(field)}],
                     "securityContext": pods.map(field)}
        }))
        .unwrap();
        AppArmor::of(&pod, &pod.spec.as_ref().unwrap().containers[0])
    }

    #[test]
    fn the_containers_field_wins_over_its_annotation_and_that_over_the_pods_field() {
        let local = |name: &str| AppArmor::Localhost(name.into());
        assert_eq!(wanted(None, None, None), AppArmor::RuntimeDefault);
        assert_eq!(wanted(None, Some("Unconfined"), None), AppArmor::Unconfined);
        assert_eq!(wanted(Some("localhost/a"), Some("Unconfined"), None), local("a"));
        assert_eq!(wanted(Some("unconfined"), None, Some("Localhost/b")), local("b"));
        assert_eq!(wanted(Some("runtime/default"), Some("Unconfined"), None), AppArmor::RuntimeDefault);
        assert_eq!(wanted(Some("nonsense"), Some("Unconfined"), None), AppArmor::Unconfined);
    }
}
