//! Resizing in place: the limits of what runs follow the manifest without a restart.
//!
//! Level-triggered: the record says which limits are in force, the manifest which should be. The order is the
//! kubelet's: the pod's cgroup grows first, containers that give follow before those that take, and the pod's
//! cgroup shrinks last. What the kernel refuses (memory that is in use) is reported and tried again.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

use super::board::EventType;
use super::capacity::shown;
use super::plan::State;
use super::status::Waiting;
use super::worker::{Seen, Worker};
use crate::manifest::{PodManifest, Quantity};
use crate::runtime::entry_hash;
use crate::runtime::spec::qos::{container_resources, pod_resources, qos_class};
use crate::system::cgroup::PodResources;
use crate::system::clock::{self, Moment};

/// How often a resize that failed is tried again.
const RETRY: Duration = Duration::from_secs(3);

/// A resize that did not succeed yet.
pub(super) struct Resizing {
    /// When it is tried again.
    pub until: Moment,
    /// Why it failed.
    pub why: Waiting,
}

/// One container whose limits differ from what its entry says.
struct Step {
    id: String,
    name: String,
    from: PodResources,
    to: PodResources,
    wanted: ResourceRequirements,
}

impl Worker {
    /// Brings the limits of what runs to what the manifest says, as far as the kernel lets it.
    pub(super) async fn resize(&mut self, seen: &Seen) {
        let Some((steps, from, to)) = self.resize_due(seen) else {
            self.resizing = None;
            return;
        };
        if self.resizing.as_ref().is_some_and(|r| clock::now() < r.until) {
            return;
        }
        match self.resize_in_order(steps, from, to).await {
            Ok(()) => self.resizing = None,
            Err(message) => {
                let why = Waiting { reason: "Error".into(), message };
                if self.resizing.as_ref().is_none_or(|r| r.why != why) {
                    tracing::warn!(pod = %self.key, "cannot resize in place yet: {}", why.message);
                    let board = &self.ctx.board;
                    board.event(EventType::Warning, "ResizeError", Some(&self.key), &why.message);
                }
                self.resizing = Some(Resizing { until: clock::now() + RETRY, why });
            }
        }
        self.save_status_for_good();
    }

    /// The containers to resize, and the pod's limits as they are and as they should be; none when all is well.
    fn resize_due(&self, seen: &Seen) -> Option<(Vec<Step>, PodResources, PodResources)> {
        let current = self.current.as_ref()?;
        let spec = current.manifest.pod.spec.as_ref()?;
        let sandbox = current.status.sandbox.as_ref().filter(|s| s.ready)?;
        let to = pod_resources(spec);
        let from = current.status.pod_limits.unwrap_or(to);
        let mut steps = Vec::new();
        for one in seen.instances.iter().filter(|i| i.state == State::Running && i.sandbox == sandbox.id) {
            let Some(history) = current.status.containers.get(&one.name) else { continue };
            let Some(have) = &history.resources else { continue };
            let wanted = resources(&current.manifest, &one.name);
            let known = history.container_id.as_deref() == Some(&one.id);
            if !known || *have == wanted || one.hash != entry_hash(&current.manifest, &one.name) {
                continue;
            }
            steps.push(Step {
                id: one.id.clone(),
                name: one.name.clone(),
                from: limits(have),
                to: limits(&wanted),
                wanted,
            });
        }
        // Those that give before those that take.
        steps.sort_by_key(|s| memory(&s.to).cmp(&memory(&s.from)));
        (!steps.is_empty() || from != to).then_some((steps, from, to))
    }

    async fn resize_in_order(
        &mut self,
        steps: Vec<Step>,
        from: PodResources,
        to: PodResources,
    ) -> Result<(), String> {
        let Some(current) = &self.current else { return Ok(()) };
        let Some(spec) = &current.manifest.pod.spec else { return Ok(()) };
        let (uid, qos) = (current.spec.uid.clone(), qos_class(spec));
        let runtime = self.ctx.runtime.clone();
        let grown = larger(&from, &to);
        if grown != from {
            runtime.limit_pod(&uid, qos, &grown).await?;
            self.note_pod_limits(grown);
        }
        for step in steps {
            if step.from != step.to {
                let of_container = runtime.limit_container(&uid, qos, &step.id, &step.from, &step.to).await;
                of_container.map_err(|e| format!("container {}: {e}", step.name))?;
                let text =
                    format!("container {}: {} -> {}", step.name, described(&step.from), described(&step.to));
                tracing::info!(pod = %self.key, container = %step.name, "resized in place: {text}");
                self.ctx.board.event(EventType::Normal, "Resized", Some(&self.key), text);
            }
            let current = self.current.as_mut();
            if let Some(history) = current.and_then(|c| c.status.containers.get_mut(&step.name)) {
                history.resources = Some(step.wanted);
            }
        }
        if grown != to {
            runtime.limit_pod(&uid, qos, &to).await?;
        }
        self.note_pod_limits(to);
        Ok(())
    }

    fn note_pod_limits(&mut self, limits: PodResources) {
        if let Some(current) = &mut self.current {
            current.status.pod_limits = Some(limits);
        }
    }
}

/// The resources of a container's entry.
pub(super) fn resources(manifest: &PodManifest, name: &str) -> ResourceRequirements {
    let spec = manifest.pod.spec.as_ref();
    let mut all = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    all.find(|c| c.name == name).and_then(|c| c.resources.clone()).unwrap_or_default()
}

fn limits(resources: &ResourceRequirements) -> PodResources {
    container_resources(&Container { resources: Some(resources.clone()), ..Container::default() })
}

/// A memory limit as a number; none is more than any.
fn memory(limits: &PodResources) -> i64 {
    limits.memory_limit.unwrap_or(i64::MAX)
}

/// Of each limit the larger one.
fn larger(a: &PodResources, b: &PodResources) -> PodResources {
    let most = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.max(b));
    PodResources {
        cpu_shares: a.cpu_shares.max(b.cpu_shares),
        cpu_quota: most(a.cpu_quota, b.cpu_quota),
        memory_limit: most(a.memory_limit, b.memory_limit),
        ..*b
    }
}

fn described(limits: &PodResources) -> String {
    let cpu = limits.cpu_quota.map_or("none".into(), |quota| {
        format!("{}m", quota * 1000 / i64::try_from(limits.cpu_period.max(1)).unwrap_or(i64::MAX))
    });
    let memory = limits
        .memory_limit
        .map_or("none".into(), |bytes| shown("memory", Quantity::whole(bytes.unsigned_abs())));
    format!("cpu shares {}, cpu limit {cpu}, memory limit {memory}", limits.cpu_shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpu_quota: Option<i64>, memory_limit: Option<i64>) -> PodResources {
        PodResources { cpu_shares: 2, cpu_quota, cpu_period: 100_000, memory_limit }
    }

    #[test]
    fn on_the_way_the_pod_has_the_larger_of_each_limit() {
        for (a, b, expected) in [
            (of(Some(1), Some(9)), of(Some(2), Some(8)), of(Some(2), Some(9))),
            (of(None, Some(9)), of(Some(2), None), of(None, None)),
        ] {
            assert_eq!(larger(&a, &b), expected);
        }
    }

    #[test]
    fn a_container_without_a_limit_takes_more_than_any_other() {
        assert!(memory(&of(None, None)) > memory(&of(None, Some(1 << 60))));
    }
}
