//! What a person should know about a pod that starts: wishes that have no effect on this node.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SELinuxOptions};

use super::spec::AppArmor;
use crate::network::DnsNote;
use crate::system::node::NodeFeatures;

/// One of them, for an event of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A word such as `DNSConfigForming`.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl From<DnsNote> for Note {
    fn from(note: DnsNote) -> Self {
        Self { reason: note.reason, message: note.message }
    }
}

/// Security contexts that this machine cannot give and that a pod may run without.
pub(super) fn of_security(pod: &Pod, node: &NodeFeatures) -> Vec<Note> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut notes = Vec::new();
    if !node.selinux && wants_selinux(spec) {
        let message = "seLinuxOptions have no effect: SELinux is not enabled on this host";
        notes.push(Note { reason: "NoSELinux", message: message.to_owned() });
    }
    if node.apparmor_profile.is_none() && containers(spec).any(|c| names_apparmor_default(pod, c)) {
        let message = "appArmorProfile RuntimeDefault has no effect: this host has no AppArmor, or no default profile \
            for containers could be loaded (the log of podling's start says why)";
        notes.push(Note { reason: "NoAppArmor", message: message.to_owned() });
    }
    notes
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn wants_selinux(spec: &PodSpec) -> bool {
    let set = |options: Option<&SELinuxOptions>| options.is_some_and(|o| *o != SELinuxOptions::default());
    set(spec.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref()))
        || containers(spec)
            .any(|c| set(c.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref())))
}

/// Whether a container asks for the default profile in so many words.
fn names_apparmor_default(pod: &Pod, container: &Container) -> bool {
    let own = container.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    let pods = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let named = own.is_some() || pods.is_some_and(|c| c.app_armor_profile.is_some());
    named && AppArmor::of(pod, container) == AppArmor::RuntimeDefault
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::system::node::node_features;

    #[test]
    fn wishes_without_effect_are_said_and_only_wishes() {
        let mut node = node_features();
        (node.selinux, node.apparmor_profile) = (false, None);
        let notes = |spec: serde_json::Value| -> Vec<&'static str> {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
            of_security(&serde_json::from_value(pod).unwrap(), &node).into_iter().map(|n| n.reason).collect()
        };
        assert_eq!(notes(json!({"containers": [{"name": "a"}]})), [""; 0]);
        let context =
            json!({"seLinuxOptions": {"level": "s0"}, "appArmorProfile": {"type": "RuntimeDefault"}});
        let both = notes(json!({"containers": [{"name": "a", "securityContext": context}]}));
        assert_eq!(both, ["NoSELinux", "NoAppArmor"]);
        let empty = json!({"seLinuxOptions": {}, "appArmorProfile": {"type": "Unconfined"}});
        assert_eq!(notes(json!({"securityContext": empty, "containers": [{"name": "a"}]})), [""; 0]);
    }
}
