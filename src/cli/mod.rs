//! The command line: one file a verb, kubectl's words and columns, and exit codes to script by.
//!
//! `run` hands over to the daemon; `check` and `completions` work offline; every other verb asks the
//! daemon over its socket (`client`) and prints what it gets. Nothing imports this folder.

mod age;
mod args;
mod check;
mod client;
mod describe;
mod error;
mod exec;
mod get;
mod image;
pub mod logging;
mod logs;
mod objects;
mod orders;
mod output;
mod printer;
mod probes;
mod pull;
mod run;
mod selector;
mod shutdown;
mod table;
mod version;
mod wait;

use std::future::Future;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Verb};
use client::Client;
use error::CliError;

/// Exit code for bad usage or settings (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

/// Reads the command line, does what it says, and answers the exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // When not even this can be written there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    dispatch(cli).unwrap_or_else(|error| error.report())
}

type Outcome = Result<ExitCode, CliError>;

fn dispatch(cli: Cli) -> Outcome {
    let Cli { root, scope: before, verb } = cli;
    let namespace = |scope: args::Scope| {
        scope.namespace.or(before.namespace.clone()).unwrap_or_else(|| "default".to_owned())
    };
    let client = || Client::new(&root);
    match verb {
        Verb::Run(run) => run::run(root, run),
        Verb::Check(check) => check::check(root, check, &mut io::stdout().lock()),
        Verb::Completions { shell } => completions(shell),
        Verb::Get(mut get) => {
            let namespace = namespace(std::mem::take(&mut get.scope));
            block_on(get::get(client()?, namespace, get))
        }
        Verb::Describe(mut describe) => {
            let namespace = namespace(std::mem::take(&mut describe.scope));
            block_on(describe::describe(client()?, namespace, describe))
        }
        Verb::Logs(mut logs) => {
            let namespace = namespace(std::mem::take(&mut logs.scope));
            block_on(logs::logs(client()?, namespace, logs))
        }
        Verb::Exec(mut exec) => {
            let namespace = namespace(std::mem::take(&mut exec.scope));
            block_on(exec::exec(client()?, namespace, exec))
        }
        Verb::Wait(mut wait) => {
            let namespace = namespace(std::mem::take(&mut wait.scope));
            block_on(wait::wait(client()?, namespace, wait))
        }
        Verb::Stop(order) => block_on(orders::give(client()?, namespace(order.scope), "stop", order.pods)),
        Verb::Start(order) => block_on(orders::give(client()?, namespace(order.scope), "start", order.pods)),
        Verb::Restart(order) => {
            block_on(orders::give(client()?, namespace(order.scope), "restart", order.pods))
        }
        Verb::Shutdown(args) => block_on(shutdown::shut_down(client()?, args.timeout)),
        Verb::Image(image) => block_on(image::image(client()?, image)),
        Verb::Version(version) => block_on(version::version(client()?, version)),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "podling", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// One thread is enough for a client. Threads that still read a terminal are not waited for.
fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
