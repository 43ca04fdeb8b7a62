//! A v1 Pod as a row of kubectl's table.
//!
//! The STATUS word follows kubectl's rule: the phase, overruled by the pod's reason, by the first init
//! container that is not done, by what the containers say, and by a deletion under way.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod, PodStatus};

use super::age;

/// The columns of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub namespace: String,
    pub name: String,
    pub ready: String,
    pub status: String,
    pub restarts: String,
    pub age: String,
    pub ip: String,
    pub node: String,
    pub nominated: String,
    pub gates: String,
}

impl Row {
    /// The cells under [`header`].
    pub(super) fn cells(self, with_namespace: bool, wide: bool) -> Vec<String> {
        let mut cells = Vec::with_capacity(8);
        if with_namespace {
            cells.push(self.namespace);
        }
        cells.extend([self.name, self.ready, self.status, self.restarts, self.age]);
        if wide {
            cells.extend([self.ip, self.node, self.nominated, self.gates]);
        }
        cells
    }
}

/// The names of the columns.
pub(super) fn header(with_namespace: bool, wide: bool) -> Vec<String> {
    let mut names = Vec::with_capacity(8);
    if with_namespace {
        names.push("NAMESPACE");
    }
    names.extend(["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    if wide {
        // The last two are always empty here; scripts count kubectl's columns.
        names.extend(["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]);
    }
    names.into_iter().map(str::to_owned).collect()
}

/// The row of a pod, with ages as of `now`.
pub(super) fn row(pod: &Pod, now: Timestamp) -> Row {
    let none = || "<none>".to_owned();
    let sums = sums(pod);
    let restarts = match sums.last_restart {
        Some(at) if sums.restarts > 0 => format!("{} ({} ago)", sums.restarts, age::since(Some(at), now)),
        _ => sums.restarts.to_string(),
    };
    Row {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        ready: format!("{}/{}", sums.ready, sums.total),
        status: sums.status,
        restarts,
        age: age::since(pod.metadata.creation_timestamp.as_ref().map(|t| t.0), now),
        ip: pod.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_else(none),
        node: pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_else(none),
        nominated: none(),
        gates: none(),
    }
}

/// The STATUS word of a pod.
pub(super) fn status_word(pod: &Pod) -> String {
    sums(pod).status
}

#[derive(Default)]
struct Sums {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    status: String,
}

impl Sums {
    fn restarted(&mut self, container: &ContainerStatus) {
        self.restarts += i64::from(container.restart_count);
        let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        let finished = last.and_then(|t| t.finished_at.as_ref()).map(|t| t.0);
        self.last_restart = self.last_restart.max(finished);
    }
}

fn sums(pod: &Pod) -> Sums {
    let empty = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&empty);
    let containers = pod.spec.as_ref().map_or(&[][..], |s| &s.containers);
    let init = pod.spec.as_ref().and_then(|s| s.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|c| is_sidecar(c)).count();
    let mut sums = Sums { total: containers.len() + sidecars, ..Sums::default() };
    let word = status.reason.clone().filter(|r| !r.is_empty()).or_else(|| status.phase.clone());
    sums.status = word.unwrap_or_else(|| "Unknown".to_owned());
    let mut sidecar_sums = Sums::default();
    let initializing = walk_init(status, init, &mut sums, &mut sidecar_sums);
    if !initializing || condition(status, "Initialized") {
        sums.restarts = sidecar_sums.restarts;
        sums.last_restart = sidecar_sums.last_restart;
        walk_containers(status, &mut sums);
    }
    // How its containers ended is not what a person needs to know of a pod that was stopped by order.
    if let Some(reason @ ("Stopped" | "Stopping" | "Restarting")) = status.reason.as_deref() {
        sums.status = reason.to_owned();
    }
    let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if pod.metadata.deletion_timestamp.is_some() && !ended {
        sums.status = "Terminating".to_owned();
    }
    sums
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Looks for the first init container that is not done; true when there is one.
fn walk_init(status: &PodStatus, spec: &[Container], sums: &mut Sums, sidecar_sums: &mut Sums) -> bool {
    for (i, found) in status.init_container_statuses.iter().flatten().enumerate() {
        sums.restarted(found);
        let sidecar = spec.iter().any(|c| c.name == found.name && is_sidecar(c));
        if sidecar {
            sidecar_sums.restarted(found);
        }
        let state = found.state.clone().unwrap_or_default();
        if state.terminated.as_ref().is_some_and(|t| t.exit_code == 0) {
            continue;
        }
        if sidecar && found.started == Some(true) {
            sums.ready += usize::from(found.ready);
            continue;
        }
        let waiting = state.waiting.as_ref().and_then(|w| w.reason.as_deref()).unwrap_or_default();
        sums.status = match (end_word(&state), waiting) {
            (Some(word), _) => format!("Init:{word}"),
            (None, "" | "PodInitializing") => format!("Init:{i}/{}", spec.len()),
            (None, reason) => format!("Init:{reason}"),
        };
        return true;
    }
    false
}

fn walk_containers(status: &PodStatus, sums: &mut Sums) {
    let mut running = false;
    // From the last to the first, so that the first container with something to say has the word.
    for found in status.container_statuses.iter().flatten().rev() {
        sums.restarted(found);
        let state = found.state.clone().unwrap_or_default();
        let waiting = state.waiting.as_ref().and_then(|w| w.reason.clone()).filter(|r| !r.is_empty());
        if let Some(word) = waiting.or_else(|| end_word(&state)) {
            sums.status = word;
        } else if found.ready && state.running.is_some() {
            running = true;
            sums.ready += 1;
        }
    }
    // One done beside one that runs is no completed pod.
    if sums.status == "Completed" && running {
        sums.status = if condition(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
    }
}

/// How a container ended: its reason, else its signal, else its exit code.
fn end_word(state: &ContainerState) -> Option<String> {
    let end = state.terminated.as_ref()?;
    Some(match (end.reason.as_deref().unwrap_or_default(), end.signal.unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", end.exit_code),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    })
}

/// Whether a condition of the pod is True.
pub(super) fn condition(status: &PodStatus, name: &str) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == name && c.status == "True")
}

#[cfg(test)]
mod tests;
