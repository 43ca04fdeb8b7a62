//! What the daemon says of all pods at once: to the service manager, at its end, and into the log when asked.

use super::{Daemon, node};
use crate::pod::closing::has_process;

impl Daemon {
    /// For the service manager: one line.
    pub(super) fn summary(&self) -> String {
        let board = self.board.subscribe();
        let state = board.borrow();
        let ready = state.pods.values().filter(|p| node::is_ready(&p.status)).count();
        let problems = state.sources.values().flat_map(|r| &r.problems).filter(|p| !p.is_remark()).count();
        match problems {
            0 => format!("{} pods, {ready} ready", state.pods.len()),
            n => format!(
                "{} pods, {ready} ready; {n} problems in manifests, see podling get pods",
                state.pods.len()
            ),
        }
    }

    /// What a podling that ends leaves running.
    pub(super) fn farewell(&self) -> String {
        let board = self.board.subscribe();
        // By processes: at a shutdown of the machine pods have none left, whatever their phase.
        let running = board.borrow().pods.values().filter(|p| has_process(&p.status)).count();
        match running {
            0 => "no pod runs".into(),
            1 => "1 pod keeps running; podling run takes it up again".into(),
            n => format!("{n} pods keep running; podling run takes them up again"),
        }
    }

    /// Everything a person may want to see, into the log.
    pub(super) fn dump(&self) {
        let board = self.board.subscribe();
        let state = board.borrow();
        tracing::info!("state: {}", self.summary());
        for (name, text) in &state.node {
            tracing::info!("state: node: {name}: {text}");
        }
        for (key, pod) in &state.pods {
            let status = serde_json::to_value(&pod.status).unwrap_or_default();
            tracing::info!(pod = %key, uid = %pod.uid, hash = %pod.manifest.hashes.manifest, "state: {status}");
        }
        for (source, report) in &state.sources {
            tracing::info!(
                source,
                overflows = report.overflows,
                problems = report.problems.len(),
                "state: source"
            );
            for problem in &report.problems {
                tracing::info!(source, "state: {}: {}", problem.reason, problem.message);
            }
        }
    }
}
