//! Termination messages: what a container left in its termination log or, where its policy says so, the end of
//! its log. That end comes a moment late: a last line without its newline is written when the shim lets go of the
//! dead container, so it is read again then.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

use super::plan::entries;
use super::worker::Worker;
use crate::store::Exit;
use crate::system::clock::{self, Moment};

/// Longest termination message kept, as the kubelet's.
const MESSAGE_BYTES: u64 = 4096;
/// When a log is read again, counted from the exit. The last is for a node that has no time.
const AGAIN: [Duration; 4] =
    [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];

/// A run that ended, and whose log may not be whole yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    name: String,
    /// containerd id.
    id: String,
    attempt: u32,
    ended: Moment,
    /// How many of `AGAIN` are over.
    tries: usize,
}

impl Unfinished {
    fn due(&self) -> Moment {
        self.ended + AGAIN[self.tries.min(AGAIN.len() - 1)]
    }
}

impl Worker {
    /// What is to be told of a run that has just ended.
    pub(super) fn last_words(&mut self, name: &str, id: &str, attempt: u32, code: i32) -> String {
        let Some(current) = &self.current else { return String::new() };
        let uid = current.spec.uid.clone();
        let path = self.ctx.runtime.termination_log_path(&uid, name, attempt);
        let message = crate::system::files::tail(&path, MESSAGE_BYTES);
        if !message.is_empty() || code == 0 || !self.falls_back_to_logs(name) {
            return message;
        }
        let (name, id, ended) = (name.to_owned(), id.to_owned(), clock::now());
        let text = self.ctx.runtime.log_tail(&self.key, &uid, &name, attempt);
        self.unfinished.push(Unfinished { name, id, attempt, ended, tries: 0 });
        text
    }

    /// Reads the logs again that are due; true when there was more in one.
    pub(super) fn hear_the_rest(&mut self) -> bool {
        let now = clock::now();
        let mut more = false;
        for mut run in std::mem::take(&mut self.unfinished) {
            if run.due() <= now {
                more |= self.read_again(&run);
                while run.tries < AGAIN.len() && run.due() <= now {
                    run.tries += 1;
                }
            }
            if run.tries < AGAIN.len() {
                self.unfinished.push(run);
            }
        }
        more
    }

    fn read_again(&mut self, run: &Unfinished) -> bool {
        let Some(uid) = self.current.as_ref().map(|c| c.spec.uid.clone()) else { return false };
        let text = self.ctx.runtime.log_tail(&self.key, &uid, &run.name, run.attempt);
        let Some(history) = self.current.as_mut().and_then(|c| c.status.containers.get_mut(&run.name)) else {
            return false;
        };
        let exits = [&mut history.last, &mut history.previous].into_iter().flatten();
        let Some(exit) = exits.into_iter().find(|e| e.container_id == run.id) else { return false };
        let more = !text.is_empty() && exit.message != text;
        if more {
            exit.message = text;
        }
        more
    }

    /// When a log is to be read again.
    pub(super) fn rest_due(&self) -> Option<Moment> {
        self.unfinished.iter().map(Unfinished::due).min()
    }

    /// A podling that was killed shortly after an exit may have missed the rest.
    pub(super) fn resume_last_words(&mut self) {
        let Some(current) = &self.current else { return };
        let now = clock::now();
        let recent = |e: &&Exit| e.code != 0 && now.since(e.finished_at) < AGAIN[AGAIN.len() - 1];
        let runs: Vec<_> = current
            .status
            .containers
            .iter()
            .filter_map(|(name, h)| Some((name.clone(), h.attempt, h.exit().filter(recent)?)))
            .filter(|(name, attempt, _)| {
                let path = self.ctx.runtime.termination_log_path(&current.spec.uid, name, *attempt);
                self.falls_back_to_logs(name) && crate::system::files::tail(&path, 1).is_empty()
            })
            .map(|(name, attempt, e)| Unfinished {
                name,
                id: e.container_id.clone(),
                attempt,
                ended: e.finished_at,
                tries: 0,
            })
            .collect();
        self.unfinished = runs;
    }

    fn falls_back_to_logs(&self, name: &str) -> bool {
        let spec = self.current.as_ref().and_then(|c| c.manifest.pod.spec.as_ref());
        let policy = |c: &Container| c.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        spec.is_some_and(|s| entries(s).any(|(_, c)| c.name == name && policy(c)))
    }
}
