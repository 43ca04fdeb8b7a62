//! The status of a pod that no worker has looked at yet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;

use super::Facts;
use crate::manifest::PodManifest;
use crate::pod::board::PodView;
use crate::pod::plan::{Goal, Instance, SandboxState, State, View, plan};
use crate::runtime::Kind;
use crate::runtime::spec::qos::qos_class;
use crate::store::{ContainerHistory, PodRecord};
use crate::system::clock;

/// A pod as its record remembers it, shown until its worker has looked: containers that were running are
/// shown running, unless the machine was booted since.
pub fn from_record(record: &PodRecord) -> PodView {
    let manifest = record.spec.manifest.clone();
    let here = record.status.boot_id == clock::boot_id();
    let status = record.status.clone().of_this_boot();
    let containers = status.containers.iter().filter(|_| here);
    let instances: Vec<_> = containers.filter_map(|(name, h)| remembered(&manifest, name, h)).collect();
    let sandbox = match &status.sandbox {
        Some(sandbox) if sandbox.ready => SandboxState::Ready,
        _ => SandboxState::Absent,
    };
    let empty = PodSpec::default();
    let spec = manifest.pod.spec.as_ref().unwrap_or(&empty);
    // For how the pod ended, if it did; nothing of the plan is carried out.
    let health = crate::pod::probing::remembered(spec, &status);
    let plan = plan(&View {
        spec,
        hashes: &manifest.hashes,
        goal: if record.spec.stopped || record.spec.removing { Goal::Stop } else { Goal::Run },
        record: &status,
        sandbox,
        instances: &instances,
        stopping: &BTreeMap::new(),
        held: &BTreeMap::new(),
        health: &health,
        deadline: None,
        now: clock::now(),
    });
    let facts = Facts {
        spec,
        record: &status,
        instances: &instances,
        sandbox,
        plan: &plan,
        waiting: &BTreeMap::new(),
        health: &health,
        hashes: &manifest.hashes,
        pending_update: None,
        trouble: None,
        resize: Vec::new(),
        stopped: record.spec.stopped,
        terminating: record.spec.removing,
        ending: None,
        host_ips: &[],
        qos_class: &qos_class(spec).to_string(),
        now: Timestamp::now(),
    };
    let status = super::status(&facts, &mut record.status.conditions.clone());
    PodView {
        uid: record.spec.uid.clone(),
        seen: record.spec.seen,
        source: crate::pod::manager::source_name(&record.spec.source),
        deleting: record.spec.removing.then(Timestamp::now),
        status,
        manifest,
    }
}

fn remembered(manifest: &PodManifest, name: &str, history: &ContainerHistory) -> Option<Instance> {
    let init =
        manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten()).any(|c| c.name == name);
    history.believed_running().then(|| Instance {
        id: history.container_id.clone().unwrap_or_default(),
        name: name.to_owned(),
        kind: if init { Kind::Init } else { Kind::Regular },
        hash: history.hash.clone(),
        sandbox: String::new(),
        state: State::Running,
    })
}
