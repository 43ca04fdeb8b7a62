//! Turns in the life of a whole pod: its time is over, or all its containers start again.

use super::backoff::BackoffRule;
use super::board::EventType;
use super::worker::Worker;
use crate::store::{RestartAll, Verdict};
use crate::system::clock::{self, Moment};

impl Worker {
    /// Counts the time of a pod with `activeDeadlineSeconds`, and says when it is over. Time counts on this
    /// boot's clock, over restarts of podling; of the time before a boot, what was counted then.
    pub(super) fn count_active(&mut self, active: bool) -> Option<Moment> {
        let current = self.current.as_mut()?;
        let limit = current.manifest.pod.spec.as_ref()?.active_deadline_seconds?;
        current.status.start_time?;
        let now = clock::now();
        let time = &mut current.status.active;
        time.count(now, active);
        let limit = std::time::Duration::from_secs(limit.max(0).unsigned_abs());
        active.then(|| now + limit.saturating_sub(time.spent))
    }

    /// The pod's time is over.
    pub(super) fn expire(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        current.status.verdict =
            Some(Verdict { reason: "DeadlineExceeded".into(), message: message.clone() });
        if let Some(all) = &mut current.status.restart_all {
            all.under_way = false;
        }
        self.save_status_for_good();
        tracing::warn!(pod = %self.key, "activeDeadlineSeconds are over: stopping the pod for good");
        self.ctx.board.event(EventType::Warning, "DeadlineExceeded", Some(&self.key), message);
        true
    }

    /// The restart rules of a container ask for all containers to restart.
    pub(super) fn restart_all(&mut self, by: &str) -> bool {
        let rule = BackoffRule::from(&**self.ctx.settings.borrow());
        let Some(current) = &mut self.current else { return false };
        let status = &mut current.status;
        let exit = status.containers.get(by).and_then(|h| h.exit());
        let ran_for = exit.map(|e| e.ran_for).unwrap_or_default();
        let code = exit.map_or(0, |e| e.code);
        let before = status.restart_all.as_ref().map(|r| r.backoff);
        let backoff = rule.after_exit(before, ran_for, clock::now());
        status.restart_all = Some(RestartAll { by: by.to_owned(), under_way: true, backoff });
        self.save_status_for_good();
        let mut text = format!("container {by} exited with code {code}: restarting all containers");
        if !backoff.delay.is_zero() {
            text.push_str(&format!(" after a back-off of {} s", backoff.delay.as_secs()));
        }
        tracing::info!(pod = %self.key, container = %by, "{text}");
        self.ctx.board.event(EventType::Normal, "RestartingAllContainers", Some(&self.key), text);
        true
    }

    /// Everything of the pod has ended: its containers start as those of a new pod, in the same sandbox.
    pub(super) fn renew(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        if let Some(all) = &mut current.status.restart_all {
            all.under_way = false;
        }
        for history in current.status.containers.values_mut() {
            // The back-off is that of the restart of all.
            history.backoff = None;
            history.completed = false;
            if history.container_id.take().is_some() {
                history.restarts += 1;
            }
            history.started = None;
            history.started_at = None;
        }
        self.held.clear();
        self.save_status_for_good();
        true
    }
}
