//! docker's credential helpers: a program that keeps passwords for the configuration file.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::Credential;

/// How long a program may take; some ask over the network.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// Asks `docker-credential-<name>` for `server`. None when it knows nothing of it.
pub(super) async fn get(name: &str, server: &str) -> Result<Option<Credential>, String> {
    let program = format!("docker-credential-{name}");
    let mut command = Command::new(&program);
    command.arg("get");
    let (code, output) =
        run(command, server.as_bytes(), PATIENCE).await.map_err(|e| format!("{program}: {e}"))?;
    // It says so by failing, with one of a few messages.
    if code != 0 {
        let said = String::from_utf8_lossy(&output).trim().to_owned();
        if said.contains("not found") {
            return Ok(None);
        }
        return Err(format!("{program} ended with {code}"));
    }
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| format!("{program}: its answer is not the expected JSON"))?;
    let credential = match answer.username.as_str() {
        "<token>" => Credential { identity_token: answer.secret, ..Credential::default() },
        _ => Credential { username: answer.username, password: answer.secret, ..Credential::default() },
    };
    Ok(Some(credential))
}

/// Runs a program with `input` on its standard input; its exit code and output.
pub(super) async fn run(
    mut command: Command,
    input: &[u8],
    limit: Duration,
) -> Result<(i32, Vec<u8>), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let run = async {
        let mut child = command.spawn().map_err(|e| format!("cannot start it: {e}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read ends all the same, and its answer counts.
            let _ = stdin.write_all(input).await;
        }
        child.wait_with_output().await.map_err(|e| e.to_string())
    };
    match timeout(limit, run).await {
        Ok(output) => output.map(|o| (o.status.code().unwrap_or(-1), o.stdout)),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}
