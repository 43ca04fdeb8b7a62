//! `podling version`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

use super::args::{CheckOutput, Output, Version};
use super::client::Client;
use super::{Outcome, output};
use crate::server::query::Query;
use crate::server::wire::NodeStatus;

const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// Prints the client's version, then the daemon's; without a daemon the client's alone, and fails.
pub(super) async fn version(client: Client, args: Version) -> Outcome {
    let server = match args.client {
        true => None,
        false => Some(client.get::<NodeStatus>("/podling/v1/status", &Query::default()).await),
    };
    let mut out = std::io::stdout().lock();
    if args.output == CheckOutput::Json {
        let mut versions = json!({ "client": CLIENT });
        if let Some(Ok(status)) = &server {
            versions["server"] = json!(status.version);
            versions["containerd"] = json!(status.containerd);
        }
        output::object(&mut out, Output::Json, &versions)?;
    } else {
        writeln!(out, "Client: {CLIENT}")?;
        if let Some(Ok(status)) = &server {
            writeln!(out, "Server: {}\ncontainerd: {}", status.version, status.containerd)?;
        }
    }
    server.transpose()?;
    Ok(ExitCode::SUCCESS)
}
