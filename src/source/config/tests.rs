use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::manifest::{Hashes, Origin};

const FILE: &str = "file";
const HTTP: &str = "http";

fn pod(name: &str, version: u32) -> PodManifest {
    PodManifest {
        key: PodKey::new("default", name),
        uid: None,
        pod: Pod::default(),
        hashes: Hashes { manifest: format!("{version}"), pod: format!("{version}"), ..Default::default() },
        origin: Origin { file: format!("/etc/pods/{name}.yaml").into(), line: 1 },
        warnings: Vec::new(),
    }
}

fn set(pods: &[(&str, u32)]) -> Vec<Arc<PodManifest>> {
    pods.iter().map(|(name, version)| Arc::new(pod(name, *version))).collect()
}

fn summary(updates: &[PodUpdate]) -> Vec<(Op, &'static str, Vec<&str>)> {
    updates.iter().map(|u| (u.op, u.source, u.pods.iter().map(|p| p.key.name.as_str()).collect())).collect()
}

#[test]
fn what_was_accepted_before_comes_as_one_set() {
    let mut config = PodConfig::new();
    let update = config.seed(FILE, set(&[("b", 1), ("a", 1)]));
    assert_eq!(summary(&[update]), [(Op::Set, FILE, vec!["a", "b"])]);
    assert!(!config.has_heard(FILE));
    assert!(config.merge(FILE, set(&[("a", 1), ("b", 1)])).is_empty());
    assert!(config.has_heard(FILE));
}

#[test]
fn removals_come_first_then_additions_then_edits() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("edited", 1), ("gone", 1), ("moved", 1), ("deleted", 1)]));
    let mut moved = pod("moved", 1);
    moved.origin.file = "/etc/pods/elsewhere.yaml".into();
    let mut deleted = pod("deleted", 1);
    deleted.pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let next = [pod("edited", 2), moved, deleted, pod("new", 1)].map(Arc::new).to_vec();
    assert_eq!(
        summary(&config.merge(FILE, next)),
        [
            (Op::Remove, FILE, vec!["gone"]),
            (Op::Add, FILE, vec!["new"]),
            (Op::Update, FILE, vec!["edited"]),
            (Op::Delete, FILE, vec!["deleted"]),
            (Op::Reconcile, FILE, vec!["moved"]),
        ]
    );
}

#[test]
fn the_same_set_again_is_no_change() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1)]));
    assert!(config.merge(FILE, set(&[("a", 1)])).is_empty());
}

#[test]
fn another_file_or_line_is_told_but_is_not_an_update() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1)]));
    let mut renamed = pod("a", 1);
    renamed.origin = Origin { file: "/etc/pods/z.yaml".into(), line: 7 };
    let updates = config.merge(FILE, vec![Arc::new(renamed.clone())]);
    assert_eq!(summary(&updates), [(Op::Reconcile, FILE, vec!["a"])]);
    assert_eq!(updates[0].pods[0].origin, renamed.origin);
}

#[test]
fn a_status_is_reconciled_even_where_the_hash_covers_it() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1)]));
    let mut other = pod("a", 1);
    other.pod.status = Some(PodStatus { phase: Some("Running".into()), ..Default::default() });
    other.hashes.manifest = "2".into();
    assert_eq!(summary(&config.merge(FILE, vec![Arc::new(other)])), [(Op::Reconcile, FILE, vec!["a"])]);
}

#[test]
fn a_new_uid_is_an_update() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1)]));
    let mut other = pod("a", 1);
    other.uid = Some("b0b".into());
    assert_eq!(summary(&config.merge(FILE, vec![Arc::new(other)])), [(Op::Update, FILE, vec!["a"])]);
}

#[test]
fn of_two_sources_the_one_that_has_the_pod_keeps_it() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1)]));
    assert!(config.merge(HTTP, set(&[("a", 2)])).is_empty());
    assert!(config.merge(HTTP, set(&[("a", 3)])).is_empty());
    assert_eq!(summary(&config.merge(FILE, set(&[("a", 4)]))), [(Op::Update, FILE, vec!["a"])]);
}

#[test]
fn a_pod_passes_to_the_other_source_without_being_removed() {
    let mut config = PodConfig::new();
    config.merge(FILE, set(&[("a", 1), ("b", 1)]));
    config.merge(HTTP, set(&[("a", 2), ("b", 1)]));
    assert_eq!(
        summary(&config.merge(FILE, vec![])),
        [(Op::Update, HTTP, vec!["a"]), (Op::Reconcile, HTTP, vec!["b"])]
    );
    assert_eq!(summary(&config.merge(HTTP, vec![])), [(Op::Remove, HTTP, vec!["a", "b"])]);
}

/// The receiving side: what a pod manager would believe.
fn apply(state: &mut BTreeMap<PodKey, (&'static str, Arc<PodManifest>)>, updates: &[PodUpdate]) {
    for update in updates {
        if update.op == Op::Set {
            state.retain(|_, (source, _)| *source != update.source);
        }
        for pod in &update.pods {
            if update.op == Op::Remove {
                let (source, _) = state.remove(&pod.key).expect("removed what was there");
                assert_eq!(source, update.source);
            } else {
                let old = state.insert(pod.key.clone(), (update.source, Arc::clone(pod)));
                assert_eq!(old.is_none(), matches!(update.op, Op::Add | Op::Set), "{:?}", update.op);
            }
        }
    }
}

fn any_set() -> impl Strategy<Value = Vec<Arc<PodManifest>>> {
    let one = (0..6u8, 0..3u32, 0..2u8, any::<bool>()).prop_map(|(name, version, file, deleted)| {
        let mut pod = pod(&format!("p{name}"), version);
        pod.origin.file = format!("/etc/pods/{file}.yaml").into();
        pod.pod.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
        Arc::new(pod)
    });
    proptest::collection::vec(one, 0..8)
}

fn any_history() -> impl Strategy<Value = Vec<(&'static str, Vec<Arc<PodManifest>>)>> {
    proptest::collection::vec((prop_oneof![Just(FILE), Just(HTTP)], any_set()), 1..8)
}

proptest! {
    #[test]
    fn applying_the_updates_to_the_old_state_gives_the_new_state(seed in any_set(), history in any_history()) {
        let mut config = PodConfig::new();
        let mut state = BTreeMap::new();
        apply(&mut state, &[config.seed(FILE, seed)]);
        for (source, set) in history {
            let wanted = index(set.clone());
            apply(&mut state, &config.merge(source, set));
            prop_assert_eq!(&state, &config.held);
            // Every pod that the source wants is in force, from it or from who had it.
            for (key, pod) in &wanted {
                let (holder, held) = &state[key];
                prop_assert!(*holder != source || held == pod);
            }
            // Nothing is in force that nobody wants.
            for (key, (holder, _)) in &state {
                prop_assert!(config.wanted[holder].contains_key(key));
            }
        }
    }

    #[test]
    fn the_order_of_a_set_does_not_matter(first in any_set(), second in any_set()) {
        let distinct: Vec<_> = index(second).into_values().collect();
        let mut reversed = distinct.clone();
        reversed.reverse();
        let (mut a, mut b) = (PodConfig::new(), PodConfig::new());
        a.merge(FILE, first.clone());
        b.merge(FILE, first);
        prop_assert_eq!(a.merge(FILE, distinct), b.merge(FILE, reversed));
    }

    #[test]
    fn merging_a_set_twice_changes_nothing_the_second_time(history in any_history(), last in any_set()) {
        let mut config = PodConfig::new();
        for (source, set) in history {
            config.merge(source, set);
        }
        config.merge(FILE, last.clone());
        prop_assert_eq!(config.merge(FILE, last), vec![]);
    }

    #[test]
    fn updates_come_in_the_order_that_frees_before_it_takes(history in any_history()) {
        let mut config = PodConfig::new();
        for (source, set) in history {
            let ranks: Vec<_> = config
                .merge(source, set)
                .iter()
                .map(|u| ORDER.iter().position(|o| *o == u.op))
                .collect();
            prop_assert!(ranks.is_sorted());
        }
    }
}
