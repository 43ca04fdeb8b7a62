//! What a worker does about probes: says which containers are to be watched, and takes the verdicts down.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::board::EventType;
use super::plan::{FatalProbe, Goal, Health, Instance, ProbeFailed, State};
use super::worker::{Seen, Worker};
use crate::probe::{Listener, Outcome, ProbeKind, ProbeSet, Restored, Target, Verdict, Watch, has_probes};
use crate::runtime::Kind;
use crate::store::{ContainerHistory, HookPhase, ProbedRecord, StatusRecord};
use crate::system::clock;

/// Where probes of pods on the host's network go first: what such a pod listens on, whatever the node's
/// address is. The node's address comes after it, for what listens there alone.
const LOOPBACK: &str = "127.0.0.1";

impl Worker {
    /// Has the running containers watched that have probes, and takes down what is known of them.
    pub(super) fn watch_probes(&mut self, goal: Goal, seen: &Seen) {
        self.health.clear();
        let Some(current) = &self.current else { return self.watch_nothing() };
        let Some(spec) = &current.manifest.pod.spec else { return self.watch_nothing() };
        // As long as its postStart hook runs, a container is still being made.
        let made = |i: &Instance| {
            let hook = current.status.containers.get(&i.name).and_then(|h| h.post_start.as_ref());
            !matches!(hook, Some(HookPhase::Due | HookPhase::Begun(_)))
        };
        let watched = |i: &&Instance| {
            i.state == State::Running && made(i) && container(spec, i).is_some_and(has_probes)
        };
        let stopping = |i: &Instance| goal == Goal::Stop || self.stopping.contains_key(&i.id);
        let targets: Vec<Target> = seen
            .instances
            .iter()
            .filter(watched)
            .map(|i| {
                let known = self.probes.as_ref().is_some_and(|p| p.verdict(&i.id).is_some());
                let target =
                    target(i, current.status.containers.get(&i.name).map(AsRef::as_ref), stopping(i));
                Target { restored: target.restored.filter(|_| !known), ..target }
            })
            .collect();
        if targets.is_empty() {
            return self.watch_nothing();
        }
        let addresses = self.probe_addresses();
        let watch = Watch { manifest: current.manifest.clone(), addresses, targets };
        match &self.probes {
            Some(probes) => probes.watch(watch),
            None => {
                let (runtime, news) = (self.ctx.runtime.clone(), self.news.clone());
                let probes = ProbeSet::new(runtime, watch, news, self.listener());
                self.ctx.board.probes(&self.key, Some(probes.results()));
                self.probes = Some(probes);
            }
        }
        self.take_down_verdicts(seen);
    }

    fn watch_nothing(&mut self) {
        if self.probes.take().is_some() {
            self.ctx.board.probes(&self.key, None);
        }
    }

    fn probe_addresses(&self) -> Vec<String> {
        let Some(sandbox) = self.current.as_ref().and_then(|c| c.status.sandbox.as_ref()) else {
            return Vec::new();
        };
        if !sandbox.host_network {
            return sandbox.ips.iter().take(1).cloned().collect();
        }
        let node = self.ctx.host_ips.borrow().first().cloned();
        [LOOPBACK.to_owned()].into_iter().chain(node).collect()
    }

    fn take_down_verdicts(&mut self, seen: &Seen) {
        let (Some(probes), Some(current)) = (&self.probes, &mut self.current) else { return };
        for instance in &seen.instances {
            let Some(verdict) = probes.verdict(&instance.id) else { continue };
            let spec = current.manifest.pod.spec.as_ref();
            let container = spec.and_then(|s| container(s, instance));
            if let Some(history) = current.status.containers.get_mut(&instance.name) {
                history.probed = Some(ProbedRecord {
                    container_id: instance.id.clone(),
                    started: verdict.started,
                    ready: verdict.ready,
                });
            }
            self.health.insert(instance.id.clone(), health(verdict, container));
        }
    }

    /// Tells of results as the kubelet does; of successes nothing.
    fn listener(&self) -> Listener {
        let (board, key) = (self.ctx.board.clone(), self.key.clone());
        let several = self.current.as_ref().and_then(|c| c.manifest.pod.spec.as_ref()).is_some_and(|spec| {
            spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len) > 1
        });
        Box::new(move |container, kind, outcome| {
            let (reason, what) = match outcome {
                Outcome::Success => return,
                Outcome::Warning(_) => ("ProbeWarning", "warning"),
                Outcome::Failure(_) => ("Unhealthy", "failed"),
                Outcome::Broken(_) | Outcome::Unknown(_) => ("Unhealthy", "errored"),
            };
            // A pod's events stand together here, so they say which container.
            let whose = if several { format!("container {container}: ") } else { String::new() };
            let text = format!("{whose}{} probe {what}: {}", kind.word(), outcome.text());
            tracing::debug!(pod = %key, container, "{text}");
            board.event(EventType::Warning, reason, Some(&key), text);
        })
    }
}

/// The entry a running container was made from, if it is one that runs on.
fn container<'a>(spec: &'a PodSpec, instance: &Instance) -> Option<&'a Container> {
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.find(|c| c.name == instance.name).filter(|_| instance.kind != Kind::Pause)
}

fn target(instance: &Instance, history: Option<&ContainerHistory>, stopping: bool) -> Target {
    let own = history.filter(|h| h.container_id.as_ref() == Some(&instance.id));
    let restored = own.and_then(|h| h.probed.as_ref()).filter(|p| p.container_id == instance.id);
    Target {
        id: instance.id.clone(),
        name: instance.name.clone(),
        since: own.and_then(|h| h.started_at).unwrap_or_else(clock::now),
        stopping,
        restored: restored.map(|p| Restored { started: p.started, ready: p.ready }),
    }
}

fn health(verdict: Verdict, container: Option<&Container>) -> Health {
    let failed = verdict.failed.map(|(kind, message)| ProbeFailed {
        probe: if kind == ProbeKind::Startup { FatalProbe::Startup } else { FatalProbe::Liveness },
        message,
        grace: container
            .and_then(|c| kind.of(c))
            .and_then(|p| p.termination_grace_period_seconds)
            .map(|s| std::time::Duration::from_secs(s.max(1).unsigned_abs())),
    });
    Health { started: verdict.started, ready: verdict.ready, failed }
}

/// What a record remembers of the probes of its containers, for as long as nobody has asked anew.
pub(super) fn remembered(spec: &PodSpec, record: &StatusRecord) -> BTreeMap<String, Health> {
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let of = |c: &Container| {
        let history = record.containers.get(&c.name)?;
        let id = history.container_id.clone()?;
        let known = history.probed.as_ref().filter(|p| p.container_id == id);
        let (started, ready) = known.map_or((false, false), |p| (p.started, p.ready));
        Some((id, Health { started, ready, failed: None }))
    };
    all.filter(|c| has_probes(c)).filter_map(of).collect()
}
