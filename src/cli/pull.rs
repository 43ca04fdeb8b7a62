//! `podling image pull`, `inspect`, `export` and `prune`.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hyper::Method;
use serde_json::Value;

use super::Outcome;
use super::args::Output;
use super::client::Client;
use super::error::{CliError, say};
use super::output;
use crate::server::Body;
use crate::server::query::Query;
use crate::server::wire::{Imported, PullLine};

const PATH: &str = "/podling/v1/images";
/// Width of the bar, in characters.
const BAR: u64 = 30;

pub(super) async fn pull(client: &Client, names: &[String], quiet: bool) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for name in names {
        match pull_one(client, name, quiet).await {
            // The others may be there.
            Err(error @ CliError::Failed(_)) if names.len() > 1 => {
                say(&error.to_string());
                code = ExitCode::FAILURE;
            }
            result => result?,
        }
    }
    Ok(code)
}

async fn pull_one(client: &Client, name: &str, quiet: bool) -> Result<(), CliError> {
    let mut query = Query::default();
    query.add("name", name);
    let mut lines = client.stream_of(Method::POST, &query.on(&format!("{PATH}/pull"))).await?;
    let mut bar = Bar::new(name, quiet);
    let mut done = false;
    while let Some(line) = lines.line().await? {
        let line: PullLine = serde_json::from_slice(&line)
            .map_err(|e| CliError::Failed(format!("podling answered something unexpected ({e})")))?;
        match line {
            PullLine::Progress(reading) => bar.show(&reading),
            PullLine::Error(text) => {
                bar.clear();
                return Err(CliError::Failed(text));
            }
            PullLine::Done { name, digest, unchanged } => {
                bar.clear();
                done = true;
                if quiet {
                    writeln!(std::io::stdout().lock(), "{name}")?;
                    continue;
                }
                let word = if unchanged { "is up to date" } else { "pulled" };
                writeln!(std::io::stdout().lock(), "image/{name} {word} ({digest})")?;
            }
        }
    }
    if !done {
        bar.clear();
        return Err(CliError::Failed(format!(
            "podling ended before {name} was pulled; it goes on when it is back"
        )));
    }
    Ok(())
}

pub(super) async fn inspect(client: &Client, name: &str, format: Output) -> Outcome {
    let mut query = Query::default();
    query.add("name", name);
    let value: Value = client.get(&format!("{PATH}/inspect"), &query).await?;
    let format = if matches!(format, Output::Yaml) { Output::Yaml } else { Output::Json };
    output::object(&mut std::io::stdout().lock(), format, &value)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn export(client: &Client, file: &PathBuf, names: &[String]) -> Outcome {
    let failed = |e| CliError::Failed(format!("cannot export to {}: {e}", file.display()));
    if file == Path::new("-") {
        let dir = tempfile::tempdir().map_err(failed)?;
        let path = dir.path().join("images.tar");
        export_to(client, &path, names).await?;
        std::io::copy(&mut std::fs::File::open(&path).map_err(failed)?, &mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    // The daemon writes the file by itself, so its path must mean the same there.
    export_to(client, &std::path::absolute(file).map_err(failed)?, names).await?;
    writeln!(std::io::stdout().lock(), "{} written", file.display())?;
    Ok(ExitCode::SUCCESS)
}

async fn export_to(client: &Client, path: &Path, names: &[String]) -> Result<(), CliError> {
    let mut query = Query::default();
    query.add("path", path.to_string_lossy());
    query.add("name", names.join(","));
    let target = query.on(&format!("{PATH}/export"));
    let _: Value = client.call(Method::POST, &target, Body::Whole(None)).await?;
    Ok(())
}

pub(super) async fn prune(client: &Client, all: bool, dry_run: bool) -> Outcome {
    let mut query = Query::default();
    for (name, set) in [("all", all), ("dryRun", dry_run)] {
        if set {
            query.add(name, "1");
        }
    }
    let target = query.on(&format!("{PATH}/prune"));
    let Imported { names, .. } = client.call(Method::POST, &target, Body::Whole(None)).await?;
    if names.is_empty() {
        say("Nothing to remove.");
    }
    let word = if dry_run { "would be removed" } else { "removed" };
    for name in names {
        writeln!(std::io::stdout().lock(), "image/{name} {word}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line that is drawn over, on a terminal only.
struct Bar {
    name: String,
    terminal: bool,
}

impl Bar {
    fn new(name: &str, quiet: bool) -> Self {
        Self { name: name.to_owned(), terminal: !quiet && std::io::stderr().is_terminal() }
    }

    fn show(&mut self, reading: &crate::image::pull::Reading) {
        if self.terminal {
            // Nothing is lost with a line that cannot be drawn.
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}: {}", self.name, drawn(reading));
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn drawn(reading: &crate::image::pull::Reading) -> String {
    if reading.total == 0 {
        return reading.to_string();
    }
    let full = (reading.fetched.min(reading.total) * BAR / reading.total) as usize;
    format!("[{}{}] {reading}", "=".repeat(full), " ".repeat(BAR as usize - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pull::Reading;

    #[test]
    fn the_bar_fills_with_what_is_fetched() {
        let reading = Reading { total: 30_000_000, fetched: 10_000_000, layers: 3, unpacked: 1, begun: true };
        assert_eq!(
            drawn(&reading),
            "[==========                    ] 10.0 of 30.0 MB, 1 of 3 layers unpacked"
        );
        assert_eq!(drawn(&Reading { begun: true, ..Reading::default() }), "asks the registry");
    }
}
