//! Orders to the sync loop: stop, start, restart, and the end of all pods when the machine shuts down.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::pods;
use super::query::Query;
use super::reply::{Answer, Refusal, success};
use super::routes::Routes;
use crate::manifest::PodKey;
use crate::pod::board::Control;

/// The sync loop accepts an order within milliseconds; past this something is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for a shutdown that names none.
const SHUTDOWN_SECONDS: u64 = 60;

/// Gives one order and waits until it is accepted, not until it is carried out.
pub(super) async fn give(routes: &Routes, key: PodKey, order: &str) -> Answer {
    pods::find(routes, &key)?;
    let (sender, answer) = oneshot::channel();
    let control = match order {
        "stop" => Control::Stop(key, sender),
        "start" => Control::Start(key, sender),
        _ => Control::Restart(key, sender),
    };
    let ask = async {
        routes.backend.control.send(control).await.ok()?;
        answer.await.ok()
    };
    accepted(order, ask).await
}

/// Has all pods stop, since the machine shuts down; `timeoutSeconds` is the time for all of them.
pub(super) async fn shut_down(routes: &Routes, query: &Query) -> Answer {
    let seconds = super::logs::number(query, "timeoutSeconds")?.unwrap_or(SHUTDOWN_SECONDS);
    let (sender, answer) = oneshot::channel();
    let ask = async {
        let control = Control::Shutdown(Duration::from_secs(seconds), sender);
        routes.backend.control.send(control).await.ok()?;
        answer.await.ok()
    };
    accepted("shutdown", ask).await
}

async fn accepted(order: &str, ask: impl Future<Output = Option<Result<(), String>>>) -> Answer {
    match timeout(PATIENCE, ask).await {
        Ok(Some(Ok(()))) => Ok(success()),
        Ok(Some(Err(why))) => Err(Refusal::bad_request(why)),
        Ok(None) => Err(Refusal::unavailable(format!("podling is stopping; the {order} was not accepted"))),
        Err(_) => Err(Refusal::unavailable(format!(
            "the sync loop did not take the {order} within {} s; see podling's log",
            PATIENCE.as_secs()
        ))),
    }
}
