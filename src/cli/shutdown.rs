//! `podling shutdown`: what the machine's own shutdown calls.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use hyper::Method;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::client::Client;
use crate::pod::closing::runs;
use crate::server::Body;
use crate::server::query::Query;

/// How often it is looked whether pods still run.
const LOOK: Duration = Duration::from_millis(200);

/// Has all pods stop, and waits until none runs or the time is over.
pub(super) async fn shut_down(client: Client, time: Duration) -> Outcome {
    let mut query = Query::default();
    query.add("timeoutSeconds", time.as_secs().max(1));
    let order = query.on("/podling/v1/shutdown");
    client.call::<Status>(Method::POST, &order, Body::Whole(None)).await?;
    let end = Instant::now() + time;
    loop {
        let pods: List<Pod> = client.get("/api/v1/pods", &Query::default()).await?;
        let left: Vec<String> =
            pods.items.iter().filter(|p| p.status.as_ref().is_some_and(runs)).map(name).collect();
        if left.is_empty() {
            writeln!(std::io::stdout().lock(), "no pod runs")?;
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= end {
            super::error::say(&format!("still running after {} s: {}", time.as_secs(), left.join(", ")));
            return Ok(ExitCode::FAILURE);
        }
        sleep(LOOK).await;
    }
}

fn name(pod: &Pod) -> String {
    let of = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", of(&pod.metadata.namespace), of(&pod.metadata.name))
}
