//! SELinux labels of containers: only where the host has SELinux and the manifest asks for one.

use k8s_openapi::api::core::v1::SELinuxOptions;

use super::SpecInput;

/// Labels of a container: of its processes, and of the files of its own mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    pub process: String,
    pub mount: String,
}

/// The labels: the container's options, else the pod's. What they leave open is as container tools have it.
pub(super) fn labels(input: &SpecInput<'_>) -> Option<Labels> {
    if !input.node.selinux || input.privileged() {
        return None;
    }
    let own = input.container.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref());
    let spec = input.pod.spec.as_ref();
    let pods = spec.and_then(|s| s.security_context.as_ref()).and_then(|c| c.se_linux_options.as_ref());
    own.or(pods).filter(|options| **options != SELinuxOptions::default()).map(of)
}

fn of(options: &SELinuxOptions) -> Labels {
    let part = |value: &Option<String>, default: &str| {
        value.clone().filter(|v| !v.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    let user = part(&options.user, "system_u");
    let level = part(&options.level, "s0");
    Labels {
        process: format!(
            "{user}:{}:{}:{level}",
            part(&options.role, "system_r"),
            part(&options.type_, "container_t")
        ),
        mount: format!("{user}:object_r:container_file_t:{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_as_for_any_container() {
        let labels = of(&SELinuxOptions { level: Some("s0:c1,c2".into()), ..SELinuxOptions::default() });
        assert_eq!(labels.process, "system_u:system_r:container_t:s0:c1,c2");
        assert_eq!(labels.mount, "system_u:object_r:container_file_t:s0:c1,c2");
    }
}
