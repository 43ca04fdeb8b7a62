//! How a pod shows before containerd could be asked about it: as its record says, which is how it was when
//! podling last looked.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::board::PodView;
use super::plan::{Goal, Instance, Kind, SandboxState, State, View, plan};
use super::status::{Facts, status};
use crate::manifest::PodManifest;
use crate::runtime::spec::qos::qos_class;
use crate::store::{PodSpecRecord, StatusRecord};
use crate::system::clock;

/// What to show of a pod that is on disk.
pub fn recorded(spec: &PodSpecRecord, manifest: &Arc<PodManifest>, record: &StatusRecord) -> PodView {
    let empty = Default::default();
    let pod = manifest.pod.spec.as_ref().unwrap_or(&empty);
    let instances = believed(record, manifest);
    let sandbox = match &record.sandbox {
        Some(s) if s.ready => SandboxState::Ready,
        Some(_) => SandboxState::Broken,
        None => SandboxState::Absent,
    };
    let goal = if spec.removing || spec.stopped { Goal::Stop } else { Goal::Run };
    let plan = plan(&View {
        spec: pod,
        hashes: &manifest.hashes,
        goal,
        record,
        sandbox,
        instances: &instances,
        stopping: &BTreeMap::new(),
        held: &BTreeMap::new(),
        now: clock::now(),
    });
    let facts = Facts {
        spec: pod,
        record,
        instances: &instances,
        sandbox,
        plan: &plan,
        waiting: &BTreeMap::new(),
        pending_update: None,
        stopped: spec.stopped && plan.quiet,
        terminating: goal == Goal::Stop,
        host_ip: None,
        qos_class: &qos_class(pod).to_string(),
        now: Timestamp::now(),
    };
    PodView {
        manifest: manifest.clone(),
        uid: spec.uid.clone(),
        seen: spec.seen,
        source: super::manager::source_name(&spec.source),
        deleting: spec.removing.then(Timestamp::now),
        status: status(&facts, &mut record.conditions.clone()),
    }
}

/// The containers that a record says run.
fn believed(record: &StatusRecord, manifest: &PodManifest) -> Vec<Instance> {
    let init = || manifest.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    let kind = |name: &str| if init().any(|c| c.name == name) { Kind::Init } else { Kind::Regular };
    let sandbox = record.sandbox.as_ref().map(|s| s.id.clone()).unwrap_or_default();
    let running = record.containers.iter().filter(|(_, h)| h.believed_running());
    running
        .map(|(name, h)| Instance {
            id: h.container_id.clone().unwrap_or_default(),
            name: name.clone(),
            kind: kind(name),
            hash: h.hash.clone(),
            sandbox: sandbox.clone(),
            state: State::Running,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Hashes, PodKey};
    use crate::store::{ContainerHistory, SandboxRecord, VERSION};
    use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

    fn record() -> (PodSpecRecord, StatusRecord) {
        let main = Container { name: "main".into(), ..Container::default() };
        let spec = PodSpec { containers: vec![main], ..PodSpec::default() };
        let manifest = PodManifest {
            key: PodKey::new("default", "web"),
            uid: None,
            pod: Pod { spec: Some(spec), ..Pod::default() },
            hashes: Hashes::default(),
            origin: Default::default(),
            warnings: Vec::new(),
        };
        let history = ContainerHistory {
            container_id: Some("c".into()),
            started: Some(Timestamp::now()),
            restarts: 4,
            ..ContainerHistory::default()
        };
        let status = StatusRecord {
            sandbox: Some(SandboxRecord { id: "s".into(), ready: true, ..SandboxRecord::default() }),
            containers: [("main".to_owned(), history)].into(),
            ..StatusRecord::default()
        };
        let spec = PodSpecRecord {
            version: VERSION,
            uid: "u".into(),
            source: "file".into(),
            seen: Timestamp::now(),
            stopped: false,
            removing: false,
            manifest,
        };
        (spec, status)
    }

    #[test]
    fn a_pod_that_ran_when_podling_ended_shows_as_running_before_containerd_is_asked() {
        let (spec, status) = record();
        let view = recorded(&spec, &Arc::new(spec.manifest.clone()), &status);
        assert_eq!(view.status.phase.as_deref(), Some("Running"));
        let container = &view.status.container_statuses.expect("one container")[0];
        assert_eq!((container.ready, container.restart_count), (true, 4));
        assert!(view.deleting.is_none());
    }

    #[test]
    fn a_pod_whose_removal_had_begun_shows_as_terminating() {
        let (mut spec, status) = record();
        spec.removing = true;
        assert!(recorded(&spec, &Arc::new(spec.manifest.clone()), &status).deleting.is_some());
    }
}
