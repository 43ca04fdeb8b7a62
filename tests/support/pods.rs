//! A pod as `podling get pods -o json` shows it.

use serde_json::Value;

/// One item of the list.
#[derive(Clone, Debug)]
pub struct PodView(pub Value);

impl PodView {
    fn text(&self, pointer: &str) -> String {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub fn name(&self) -> String {
        self.text("/metadata/name")
    }

    pub fn uid(&self) -> String {
        self.text("/metadata/uid")
    }

    /// The annotation `kubernetes.io/config.hash`.
    pub fn hash(&self) -> String {
        self.text("/metadata/annotations/kubernetes.io~1config.hash")
    }

    pub fn phase(&self) -> String {
        self.text("/status/phase")
    }

    pub fn ip(&self) -> String {
        self.text("/status/podIP")
    }

    /// Status of a condition such as `Ready`: `True`, `False` or nothing.
    pub fn condition(&self, kind: &str) -> String {
        let conditions = self.0.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions.into_iter().flatten().find(|c| c["type"] == kind);
        found.and_then(|c| c["status"].as_str()).unwrap_or_default().to_owned()
    }

    pub fn is_ready(&self) -> bool {
        self.condition("Ready") == "True"
    }

    /// The entry of `containerStatuses` or `initContainerStatuses`.
    pub fn container(&self, name: &str) -> &Value {
        let lists = ["/status/containerStatuses", "/status/initContainerStatuses"];
        let all = lists.iter().filter_map(|l| self.0.pointer(l)).filter_map(Value::as_array).flatten();
        all.into_iter().find(|c| c["name"] == name).unwrap_or(&Value::Null)
    }

    pub fn restarts(&self, container: &str) -> u64 {
        self.container(container)["restartCount"].as_u64().unwrap_or(0)
    }

    /// The container's id without `containerd://`.
    pub fn id(&self, container: &str) -> String {
        let id = self.container(container)["containerID"].as_str().unwrap_or_default();
        id.trim_start_matches("containerd://").to_owned()
    }

    pub fn is_running(&self, container: &str) -> bool {
        self.container(container)["state"]["running"].is_object()
    }

    /// `state.waiting.reason`, empty when it does not wait.
    pub fn waiting(&self, container: &str) -> String {
        self.container(container)["state"]["waiting"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// `state.waiting.message`, empty when it does not wait.
    pub fn waiting_message(&self, container: &str) -> String {
        self.container(container)["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Exit code and reason of the present state, when it is terminated.
    pub fn exit(&self, container: &str) -> Option<(i64, String)> {
        ending(&self.container(container)["state"])
    }

    /// Exit code and reason of the run before.
    pub fn last_exit(&self, container: &str) -> Option<(i64, String)> {
        ending(&self.container(container)["lastState"])
    }
}

fn ending(state: &Value) -> Option<(i64, String)> {
    let ended = &state["terminated"];
    Some((ended["exitCode"].as_i64()?, ended["reason"].as_str().unwrap_or_default().to_owned()))
}
