//! docker's credential helpers: a program that keeps passwords for the configuration file.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::Credential;

/// How long a program may take; some ask over the network.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Longest text taken over from a program, in characters.
const SAID_MAX: usize = 200;

/// Longest answer of a program, in bytes: one that never ends must not fill the memory.
const ANSWER_MAX: u64 = 1 << 20;

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
        let said = String::from_utf8_lossy(&output);
        let said = said.trim().lines().next().unwrap_or_default();
        if said.contains("not found") {
            return Ok(None);
        }
        // An answer all the same, which holds what nobody may see.
        let said = if said.starts_with('{') { "" } else { said };
        let said: String = said.chars().filter(|c| !c.is_control()).take(SAID_MAX).collect();
        return Err(format!("{program} ended with {code}: {said}").trim_end_matches(": ").to_owned());
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
    // A script starts others; at the end of the patience all of them go.
    command.process_group(0);
    let mut child = command.spawn().map_err(|e| format!("cannot start it: {e}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let run = async {
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read ends all the same, and its answer counts.
            let _ = stdin.write_all(input).await;
        }
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(ANSWER_MAX + 1).read_to_end(&mut output).await.map_err(|e| e.to_string())?;
        }
        if output.len() as u64 > ANSWER_MAX {
            return Err(format!("its answer is longer than {} KiB", ANSWER_MAX >> 10));
        }
        let status = child.wait().await.map_err(|e| e.to_string())?;
        Ok((status.code().unwrap_or(-1), output))
    };
    let answer = timeout(limit, run).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())));
    if let (Err(_), Some(group)) = (&answer, group) {
        // Nothing is left to be done where it has ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"]);
        let e = run(command, b"", PATIENCE).await.unwrap_err();
        assert_eq!(e, "its answer is longer than 1024 KiB");
    }
}
