//! One hook, run to its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler};
use tokio::time::Instant;

use super::Verdict;
use crate::probe::http::{HttpGet, get};
use crate::probe::target;
use crate::runtime::{ExecError, ExecPurpose, ExecResult, Runtime};

/// The program and version that hooks show themselves as, as the kubelet's do.
const AGENT: &str = "kube-lifecycle/1.36";
/// Before a containerd that went is asked what became of a command.
const AGAIN: Duration = Duration::from_millis(500);
/// Most of a command's output that is shown.
const SHOWN: usize = 512;

/// A hook and all it needs.
pub(super) struct Job {
    pub runtime: Runtime,
    /// containerd id of the container.
    pub id: String,
    /// Which hook.
    pub purpose: ExecPurpose,
    /// What it does.
    pub handler: LifecycleHandler,
    /// The entry of its container, for names of ports.
    pub container: Container,
    /// Where the pod listens.
    pub hosts: Vec<String>,
    /// Time it has.
    pub limit: Duration,
    /// Begun by an earlier podling, and so long ago.
    pub ran: Option<Duration>,
}

impl Job {
    pub(super) async fn run(self) -> Verdict {
        if let Some(exec) = &self.handler.exec {
            return self.exec(exec.command.as_deref().unwrap_or_default()).await;
        }
        if let Some(sleep) = &self.handler.sleep {
            let wanted = Duration::from_secs(sleep.seconds.max(0).unsigned_abs());
            let left = wanted.saturating_sub(self.ran.unwrap_or_default());
            tokio::time::sleep(left.min(self.limit)).await;
            return if left > self.limit {
                Err(format!("sleep of {} s: its time is over", sleep.seconds))
            } else {
                Ok(None)
            };
        }
        match &self.handler.http_get {
            Some(_) if self.ran.is_some() => {
                Ok(Some("podling was restarted while it asked by HTTP".to_owned()))
            }
            Some(action) => self.http(action).await,
            None => Ok(None),
        }
    }

    async fn exec(&self, command: &[String]) -> Verdict {
        let until = Instant::now() + self.limit;
        let left = || until.saturating_duration_since(Instant::now());
        let mut begun = self.ran.is_some();
        let result = loop {
            if begun
                && let Some(known) =
                    self.runtime.await_exec(&self.id, self.purpose, command, left()).await.transpose()
            {
                break known;
            }
            // Not begun, or no more than written down as begun by a podling that was killed then.
            match self.runtime.exec_sync(&self.id, self.purpose, command, left()).await {
                // It may run on, or have ended well: containerd says so when it is back.
                Err(ExecError::Unheard { .. }) if !left().is_zero() => {
                    begun = true;
                    tokio::time::sleep(AGAIN.min(left())).await;
                }
                result => break result,
            }
        };
        match result {
            Ok(ExecResult { code: 0, .. }) => Ok(None),
            Ok(ExecResult { code, output }) => {
                let text = String::from_utf8_lossy(&output[..output.len().min(SHOWN)]);
                let text = text.trim();
                let said = if text.is_empty() { String::new() } else { format!(": {text}") };
                Err(format!("command {:?} exited with code {code}{said}", command.join(" ")))
            }
            Err(e) => Err(e.to_string()),
        }
    }

    async fn http(&self, action: &HTTPGetAction) -> Verdict {
        let asked = |host: &String| (!host.is_empty()).then(|| vec![host.clone()]);
        let mut request = HttpGet {
            tls: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
            hosts: action.host.as_ref().and_then(asked).unwrap_or_else(|| self.hosts.clone()),
            port: target::port(&action.port, &self.container)?,
            path: action.path.clone().unwrap_or_else(|| "/".into()),
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|h| (h.name.clone(), h.value.clone()))
                .collect(),
            agent: AGENT,
        };
        let answer = match get(&request, self.limit).await {
            Err(e) if request.tls && e.is_plain_http() => {
                // As a kubelet does for hooks: HTTPS was once written for servers of plain HTTP.
                request.tls = false;
                get(&request, self.limit).await
            }
            answer => answer,
        };
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(None),
            // A kubelet does not look at the status, so it fails nothing here.
            Ok(answer) => Ok(Some(format!("the answer to its request is status {}", answer.status))),
            Err(e) => Err(e.to_string()),
        }
    }
}
