//! The machine shuts down: pods stop in the reverse of the order in which they start, those of the lowest priority
//! first, each with its own grace. Nothing of it is kept: the next podling starts them again.
//!
//! Those that are critical for the node or the cluster are last, and a part of the time is kept for them. When the
//! time of a group is over the next one begins beside it: what is slow takes nothing from what comes after it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::board::{Board, EventType};
use super::capacity::{CLUSTER_CRITICAL, Capacity};
use super::order::Order;
use crate::manifest::{PodKey, PodManifest};
use crate::system::clock;

/// Which part of the time is kept for critical pods, where there are any.
const KEPT_FOR_CRITICAL: u32 = 3;

/// Pods that stop at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their priority.
    pub priority: i32,
    /// Their names.
    pub pods: Vec<PodKey>,
}

/// The groups in which pods stop.
pub fn groups<'a>(
    pods: impl Iterator<Item = &'a Arc<PodManifest>>,
    order: &Order,
    node: &Capacity,
) -> Vec<Group> {
    let mut groups: BTreeMap<(i32, Reverse<usize>), Vec<PodKey>> = BTreeMap::new();
    for manifest in pods {
        let rank = order.rank(manifest, node);
        groups.entry((rank.priority.0, Reverse(rank.depth))).or_default().push(rank.key);
    }
    groups.into_iter().map(|((priority, _), pods)| Group { priority, pods }).collect()
}

/// Has one group stop after the other, within the time in all.
pub async fn close(board: Board, groups: Vec<Group>, leave: mpsc::Sender<Vec<PodKey>>, time: Duration) {
    let critical = |group: &Group| group.priority >= CLUSTER_CRITICAL;
    let kept = if groups.iter().any(critical) { time / KEPT_FOR_CRITICAL } else { Duration::ZERO };
    let (end, end_of_others) = (clock::now() + time, clock::now() + (time - kept));
    for group in groups {
        let names: Vec<String> = group.pods.iter().map(PodKey::to_string).collect();
        let text = format!("the machine shuts down: stopping {}", names.join(", "));
        tracing::info!(priority = group.priority, "{text}");
        board.event(EventType::Normal, "NodeShutdown", None, text);
        let end = if critical(&group) { end } else { end_of_others };
        if leave.send(group.pods.clone()).await.is_err() {
            return;
        }
        let mut state = board.subscribe();
        let ended = state.wait_for(|s| {
            group.pods.iter().all(|key| s.pods.get(key).is_none_or(|view| !runs(&view.status)))
        });
        if timeout(end.since(clock::now()), ended).await.is_err() {
            tracing::warn!("{} did not stop in the time for them; going on", names.join(", "));
        }
    }
    tracing::info!("all pods were told to stop");
}

/// Whether a process of the pod runs, or may: while it has a sandbox a container may be about to start.
pub fn runs(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == "PodReadyToStartContainers" && c.status == "True") || has_process(status)
}

/// Whether a container of the pod runs.
pub fn has_process(status: &PodStatus) -> bool {
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Paths, Settings};
    use crate::system::machine::Machine;

    fn pod(name: &str, class: &str, after: &str) -> Arc<PodManifest> {
        let pod = serde_json::json!({"metadata": {"annotations": {"podling.dev/start-after": after}},
            "spec": {"containers": [], "priorityClassName": class}});
        let key = PodKey::new("default", name);
        Arc::new(PodManifest::without_file(key, serde_json::from_value(pod).expect("a pod")))
    }

    #[test]
    fn the_less_important_stop_first_and_what_others_started_after_stops_after_them() {
        let pods = [
            pod("db", "", ""),
            pod("app", "", "db"),
            pod("node", "system-node-critical", ""),
            pod("dns", "system-cluster-critical", ""),
            pod("web", "", ""),
        ];
        let order = Order::default();
        pods.iter().for_each(|pod| order.wanted(&pod.key, Some(pod)));
        let node = Capacity::on(&Settings::defaults(Paths::under("/x")), &Machine::default());
        let groups = groups(pods.iter(), &order, &node);
        let names: Vec<Vec<&str>> =
            groups.iter().map(|g| g.pods.iter().map(|k| k.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["app"], vec!["db", "web"], vec!["dns"], vec!["node"]]);
    }

    #[test]
    fn a_pod_between_two_runs_of_its_container_is_not_over() {
        let with = |sandbox: &str, state: serde_json::Value| {
            let status: PodStatus = serde_json::from_value(serde_json::json!({
                "conditions": [{"type": "PodReadyToStartContainers", "status": sandbox}],
                "containerStatuses": [{"name": "a", "image": "i", "imageID": "i", "ready": false, "restartCount": 1,
                    "state": state}]}))
            .expect("a status");
            runs(&status)
        };
        let waits = serde_json::json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert!(with("True", waits.clone()));
        assert!(!with("False", waits));
        assert!(with("False", serde_json::json!({"running": {}})));
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_does_not_stop_takes_nothing_from_the_critical_ones() {
        let board = Board::default();
        let state: PodStatus = serde_json::from_value(serde_json::json!({"containerStatuses": [
            {"name": "a", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": {"running": {}}}]}))
        .expect("a status");
        for manifest in [pod("stuck", "", ""), pod("node", "system-node-critical", "")] {
            board.publish(crate::pod::board::PodView {
                uid: "u".into(),
                seen: jiff::Timestamp::now(),
                source: "file",
                deleting: None,
                status: state.clone(),
                manifest,
            });
        }
        let group = |priority, name: &str| Group { priority, pods: vec![PodKey::new("default", name)] };
        let (leave, mut left) = mpsc::channel(8);
        let job =
            close(board, vec![group(0, "stuck"), group(i32::MAX, "node")], leave, Duration::from_secs(9));
        let before = tokio::time::Instant::now();
        let (_, times) = tokio::join!(job, async {
            let mut times = Vec::new();
            while let Some(keys) = left.recv().await {
                times.push((keys[0].name.clone(), before.elapsed().as_secs()));
            }
            times
        });
        assert_eq!(times, [("stuck".to_owned(), 0), ("node".to_owned(), 6)]);
    }
}
