//! Logs of a container.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::access::LogRequest;
use super::pods::{find, pick_container};
use super::query::Query;
use super::reply::{Answer, Body, Refusal, typed};
use super::routes::Routes;
use crate::manifest::PodKey;

/// `GET …/pods/{name}/log` with Kubernetes' parameters.
pub(super) async fn read(routes: &Routes, key: &PodKey, query: &Query) -> Answer {
    let view = find(routes, key)?;
    let container = pick_container(&view, query)?;
    let previous = query.flag("previous");
    if !previous {
        refuse_unstarted(&view.to_pod(), &container)?;
    }
    let request = LogRequest {
        pod: key.clone(),
        uid: view.uid.clone(),
        container,
        follow: query.flag("follow"),
        previous,
        tail: number(query, "tailLines")?,
        since: since(query)?,
        timestamps: query.flag("timestamps"),
    };
    let chunks = routes.backend.runtime.logs(request).await?;
    Ok(typed("text/plain; charset=utf-8", Body::Stream(chunks)))
}

pub(super) fn number(query: &Query, name: &str) -> Result<Option<u64>, Refusal> {
    let wrong = |text| Refusal::bad_request(format!("{name}: `{text}` is not a whole number of 0 or more"));
    query.get(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}

fn since(query: &Query) -> Result<Option<Timestamp>, Refusal> {
    if let Some(text) = query.get("sinceTime") {
        let time = text.parse::<Timestamp>();
        return time
            .map(Some)
            .map_err(|_| Refusal::bad_request(format!("sinceTime: `{text}` is not an RFC 3339 time")));
    }
    let Some(seconds) = number(query, "sinceSeconds")? else { return Ok(None) };
    let back = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    // Further back than times go means all of it.
    Ok(Timestamp::now().checked_sub(back).ok())
}

/// A container that never ran has no log; say what it waits for, as Kubernetes does.
fn refuse_unstarted(pod: &Pod, container: &str) -> Result<(), Refusal> {
    let Some(status) = pod.status.as_ref() else { return Ok(()) };
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let Some(found) = all.into_iter().find(|c| c.name == container) else { return Ok(()) };
    let ran = |c: &ContainerStatus| {
        c.last_state.as_ref().is_some_and(|s| s.terminated.is_some()) || c.restart_count > 0
    };
    let waiting = found.state.as_ref().and_then(|s| s.waiting.as_ref());
    let (Some(waiting), false) = (waiting, ran(found)) else { return Ok(()) };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let reason = waiting.reason.as_deref().unwrap_or("unknown");
    Err(Refusal::bad_request(format!(
        "container {container:?} in pod {name:?} is waiting to start: {reason}"
    )))
}
