//! `podling stop`, `start` and `restart`.

use std::io::Write as _;
use std::process::ExitCode;

use hyper::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

use super::Outcome;
use super::args::pod_name;
use super::client::Client;
use crate::server::Body;

/// Gives the order for each pod; the answer means that it is accepted and stored.
pub(super) async fn give(client: Client, namespace: String, order: &str, pods: Vec<String>) -> Outcome {
    let doing = match order {
        "stop" => "stopping",
        "start" => "starting",
        _ => "restarting",
    };
    let mut code = ExitCode::SUCCESS;
    for pod in &pods {
        let name = pod_name(pod)?;
        let path = format!("{}/{order}", Client::pod_path(&namespace, name));
        match client.call::<Status>(Method::POST, &path, Body::Whole(None)).await {
            Ok(_) => writeln!(std::io::stdout().lock(), "pod/{name} {doing}")?,
            Err(error) if error.is_not_found() => {
                super::error::say(&error.to_string());
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(code)
}
