//! One connection, as `tcpSocket` probes make it.

use std::time::Duration;

use tokio::time::timeout;

use super::target::{authority, connect};

/// Connects and closes; an error is a line for a person.
///
/// # Errors
/// When nobody listens, or the connection takes longer than `limit`.
pub async fn dial(hosts: &[String], port: u16, limit: Duration) -> Result<(), String> {
    match timeout(limit, connect(hosts, port)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => {
            let host = hosts.first().map_or("", String::as_str);
            Err(format!("dial tcp {}: no answer within {} s", authority(host, port), limit.as_secs_f32()))
        }
    }
}
