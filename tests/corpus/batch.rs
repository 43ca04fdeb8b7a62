//! Files that can run beside each other: no two with one pod, one host port, or more than the machine has.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use podling::manifest::Quantity;
use rustix::process::Signal;
use serde_json::Value;

use crate::Entry;
use crate::support::{Instance, PodView, host};

/// Most files at once: more only makes each of them slower.
const MOST: usize = 24;
/// Cores and bytes that the pods of a batch may ask for.
const CPU: f64 = 1.8;
const MEMORY: f64 = 6e9;
/// How long a batch may take to start. Only those that fail need it.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Batch<'a> {
    pub entries: Vec<&'a Entry>,
    taken: BTreeSet<String>,
    cpu: f64,
    memory: f64,
}

/// What became of a file's pods.
pub enum Outcome {
    Started,
    Waits(String),
    /// There is nothing to wait for.
    Never(String),
}

/// First fit.
pub fn split(entries: &[Entry]) -> Vec<Batch<'_>> {
    let mut batches: Vec<Batch<'_>> = Vec::new();
    for entry in entries {
        let (names, cpu, memory) = demands(entry);
        let fits = |b: &Batch<'_>| {
            b.entries.len() < MOST
                && b.taken.is_disjoint(&names)
                && b.cpu + cpu <= CPU
                && b.memory + memory <= MEMORY
        };
        let at = batches.iter().position(fits).unwrap_or(batches.len());
        if at == batches.len() {
            batches.push(Batch::default());
        }
        let batch = &mut batches[at];
        batch.entries.push(entry);
        batch.taken.extend(names);
        batch.cpu += cpu;
        batch.memory += memory;
    }
    batches
}

/// Pod names and host ports, cores, bytes.
fn demands(entry: &Entry) -> (BTreeSet<String>, f64, f64) {
    let (mut names, mut cpu, mut memory) = (BTreeSet::new(), 0.0, 0.0);
    for manifest in &entry.pods {
        names.insert(manifest.key.to_string());
        let Some(spec) = &manifest.pod.spec else { continue };
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let ports = container.ports.iter().flatten().filter_map(|p| p.host_port).filter(|p| *p != 0);
            names.extend(ports.map(|p| format!("port {p}")));
            let requests = container.resources.iter().flat_map(|r| r.requests.iter().flatten());
            for (resource, quantity) in requests {
                let amount = Quantity::parse(&quantity.0).map_or(0.0, |q| q.approximate());
                match resource.as_str() {
                    "cpu" => cpu += amount,
                    "memory" => memory += amount,
                    _ => {}
                }
            }
        }
    }
    (names, cpu, memory)
}

impl Batch<'_> {
    /// Waits until every pod has started, or for as long as it may take.
    pub fn wait(&self, instance: &Instance) -> Vec<(&Entry, Outcome)> {
        let tries = PATIENCE.as_millis() / POLL.as_millis();
        for n in 0.. {
            let pods = instance.pods();
            let judged: Vec<_> = self.entries.iter().map(|e| (*e, judge(e, &pods))).collect();
            let done = !judged.iter().any(|(_, o)| matches!(o, Outcome::Waits(_)));
            if done || n == tries {
                return judged;
            }
            sleep(POLL);
        }
        Vec::new()
    }
}

fn judge(entry: &Entry, pods: &[PodView]) -> Outcome {
    if entry.pods.is_empty() {
        return Outcome::Never(format!("no pod is read from it: {}", entry.refused));
    }
    for manifest in &entry.pods {
        let namespace = |p: &PodView| p.0["metadata"]["namespace"] == manifest.key.namespace.as_str();
        let Some(pod) = pods.iter().find(|p| p.name() == manifest.key.name && namespace(p)) else {
            return Outcome::Waits(format!("there is no pod {}", manifest.key));
        };
        if let Some(why) = waits(pod) {
            return Outcome::Waits(format!("{}: {why}", manifest.key));
        }
    }
    Outcome::Started
}

/// Why not every container has run yet; an init container that ran and failed is as far as a stand-in gets.
fn waits(pod: &PodView) -> Option<String> {
    let list = |name: &str| pod.0["status"][name].as_array().cloned().unwrap_or_default();
    if list("initContainerStatuses").iter().any(|c| has_run(c) && c["state"]["terminated"]["exitCode"] != 0) {
        return None;
    }
    let idle: Vec<String> = list("containerStatuses").iter().filter(|c| !has_run(c)).map(state_of).collect();
    match (list("containerStatuses").is_empty(), idle.is_empty()) {
        (true, _) => Some(format!("{} {}", pod.0["status"]["reason"], pod.0["status"]["message"])),
        (false, true) => None,
        (false, false) => Some(format!("{} {}", idle.join("; "), pod.0["status"]["message"])),
    }
}

fn has_run(status: &Value) -> bool {
    let ran = |ended: &Value| ended.is_object() && ended["reason"] != "StartError";
    let (state, last) = (&status["state"], &status["lastState"]);
    state["running"].is_object() || ran(&state["terminated"]) || ran(&last["terminated"])
}

fn state_of(status: &Value) -> String {
    format!("{}: {} {}", status["name"], status["state"], status["lastState"])
}

/// Takes all manifests away, and all processes, which would only use up their grace.
pub fn clear(instance: &Instance) {
    for entry in fs::read_dir(instance.manifests()).expect("the directory is ours").flatten() {
        fs::remove_file(entry.path()).expect("the directory is ours");
    }
    instance.within(Duration::from_secs(120), "all pods are gone", |i| {
        for pid in host::processes_in_cgroup(i.cgroup_root()) {
            host::signal(pid, Signal::KILL);
        }
        i.pods().is_empty().then_some(())
    });
}
