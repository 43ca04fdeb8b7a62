use std::sync::Arc;

use super::*;
use crate::manifest::Hashes;
use crate::runtime::Labels;

fn container(name: &str, kind: Kind, attempt: u32, task: TaskState) -> Observed {
    let labels = Labels {
        key: PodKey::new("default", "web"),
        uid: "u1".into(),
        name: name.into(),
        kind,
        sandbox: format!("s{attempt}"),
        attempt,
        restarts: attempt,
        container_hash: "c".into(),
        pod_hash: "p".into(),
        stop_signal: 15,
        grace_seconds: 7,
        host_network: false,
        ips: vec!["10.0.0.2".into()],
    };
    Observed { id: format!("{name}{attempt}"), labels, image: "i:1".into(), task }
}

fn running() -> TaskState {
    TaskState::Running { pid: 1, alive: true }
}

fn manifest(pod_hash: &str) -> PodManifest {
    let named = |n: &str| Container { name: n.into(), ..Container::default() };
    let spec = PodSpec {
        containers: vec![named("main")],
        init_containers: Some(vec![named("first")]),
        ..PodSpec::default()
    };
    PodManifest {
        key: PodKey::new("default", "web"),
        uid: None,
        pod: Pod { spec: Some(spec), ..Pod::default() },
        hashes: Hashes { pod: pod_hash.into(), ..Hashes::default() },
        origin: Default::default(),
        warnings: Vec::new(),
    }
}

fn orphans() -> Orphans {
    let stopped = TaskState::Stopped { code: 0, at: None };
    let seen =
        vec![container("main", Kind::Regular, 2, running()), container("main", Kind::Regular, 1, stopped)];
    Orphans::find(seen, &["u2"])
}

#[test]
fn a_manifest_that_describes_it_takes_an_orphan_back_as_its_newest_container_stands() {
    let manifest = manifest("p");
    let orphan = orphans().take(&manifest).expect("it fits");
    let desired = Desired {
        manifest: Arc::new(manifest),
        uid: orphan.uid.clone(),
        seen: jiff::Timestamp::now(),
        source: "file",
        stopped: false,
        leaving: false,
        restarts: 0,
        trouble: None,
    };
    let (spec, status) = orphan.into_record(&desired);
    assert_eq!((spec.uid.as_str(), spec.removing), ("u1", false));
    let sandbox = status.sandbox.expect("labels name it");
    assert_eq!((sandbox.id.as_str(), sandbox.ips.as_slice()), ("s2", &["10.0.0.2".to_owned()][..]));
    assert_eq!(status.containers["main"].restarts, 2);
    assert!(status.containers["first"].completed, "init containers are behind a pod that runs");
}

#[test]
fn an_orphan_that_the_manifest_of_its_name_does_not_describe_goes_first_with_its_own_grace() {
    let mut orphans = orphans();
    assert!(orphans.take(&manifest("other")).is_none());
    let mut others = orphans.take_others(&PodKey::new("default", "web"));
    assert!(orphans.drain().is_empty());
    let (spec, status) = others.remove(0).into_removal();
    assert!(spec.removing);
    let pod = spec.manifest.pod.spec.clone().expect("made from labels");
    assert_eq!(pod.termination_grace_period_seconds, Some(7));
    assert_eq!(pod.containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["main"]);
    assert_eq!(status.sandbox.expect("labels name it").id, "s2");
}

#[test]
fn a_lost_status_is_filled_in_from_the_newest_of_the_containers() {
    let spec = PodSpecRecord {
        version: VERSION,
        uid: "u1".into(),
        source: "file".into(),
        seen: jiff::Timestamp::now(),
        stopped: false,
        removing: false,
        manifest: Arc::new(manifest("p")),
    };
    let mut orphans = orphans();
    let status = orphans.status_of(&spec).expect("its containers are there");
    assert_eq!(status.sandbox.expect("labels name it").id, "s2");
    assert!(orphans.status_of(&spec).is_none(), "what was taken is no orphan any more");
}
