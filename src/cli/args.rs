//! The words of the command line. Help is written here, for people.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::settings::{LogFormat, parse_duration};

const EXAMPLES: &str = "\
Examples:
  podling run                                 start the daemon on /etc/pods
  podling --root /tmp/t run --manifest-dir .  one of its own, with all its state under /tmp/t
  podling check web.yaml                      would this manifest run?
  podling get pods -o wide -w                 what runs, and what changes
  podling logs -f web                         what it says
  podling exec -it web -- sh                  look inside
  podling wait pod/web --for=Ready            for scripts

Exit codes: 0 done; 1 failed, refused, not found or timed out; 64 bad usage or settings.
exec ends with the exit code of its command.";

/// Runs Kubernetes Pods from a directory of manifests, on containerd, with no API server.
#[derive(Debug, Parser)]
#[command(name = "podling", version, propagate_version = false, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(super) struct Cli {
    /// Put every path podling uses under DIR: settings, manifests, state, socket, logs
    #[arg(long, value_name = "DIR", default_value = "/", global = true, hide_default_value = true)]
    pub root: PathBuf,
    #[command(flatten)]
    pub scope: Scope,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Where a pod is looked for.
#[derive(Debug, Default, Args)]
pub(super) struct Scope {
    /// Kubernetes namespace of the pod [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Run the daemon: watch the manifest directory and keep its pods running
    Run(Run),
    /// List pods, images or events
    Get(Get),
    /// Show all that is known about a pod
    Describe(Describe),
    /// Print the log of a container
    Logs(Logs),
    /// Run a command in a container
    Exec(Exec),
    /// Tell what the daemon would say to manifests, without running them
    Check(Check),
    /// Wait until a pod is ready, gone, or runs a manifest
    Wait(Wait),
    /// Stop a pod and keep it stopped until `start`
    Stop(Order),
    /// Start a stopped pod
    Start(Order),
    /// Stop a pod with its grace period, then start it afresh
    Restart(Order),
    /// Stop all pods, since the machine shuts down; the next podling starts them again
    Shutdown(Shutdown),
    /// List, import or remove images
    #[command(visible_alias = "images")]
    Image(Image),
    /// Print the versions of podling and containerd
    Version(Version),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct Shutdown {
    /// Time for all of them; a third of it is kept for critical ones
    #[arg(long, default_value = "60s", value_parser = go_duration, value_name = "DURATION")]
    pub timeout: std::time::Duration,
}

const RUN_HELP: &str = "\
Stopping podling stops no pod; the next start takes them over as they are.
SIGTERM and SIGINT stop it, SIGHUP has it read settings and directories again, SIGUSR1 has it
write its state to the log.";

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct Run {
    /// Settings [default: /etc/podling/config.yaml, which need not exist]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of manifests; may be given several times [default: /etc/pods]
    #[arg(long, value_name = "DIR")]
    pub manifest_dir: Vec<PathBuf>,
    /// `auto`: the system's, else one of our own; `embedded`: always our own; or a socket
    #[arg(long, value_name = "auto|embedded|SOCKET")]
    pub containerd: Option<String>,
    /// containerd namespace for containers and images [default: podling]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// How log lines look; `auto` suits the terminal or the journal
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub log_format: LogFormatArg,
    /// error, warn, info, debug, trace, or by module: info,podling::pod=debug
    #[arg(long, value_name = "LEVEL", env = "PODLING_LOG", hide_env_values = true)]
    pub log_level: Option<String>,
    /// Log more; twice for everything
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormatArg {
    Auto,
    Text,
    Json,
}

impl From<LogFormatArg> for LogFormat {
    fn from(arg: LogFormatArg) -> Self {
        match arg {
            LogFormatArg::Auto => LogFormat::Auto,
            LogFormatArg::Text => LogFormat::Text,
            LogFormatArg::Json => LogFormat::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table
    #[default]
    #[value(skip)]
    Table,
    /// A table with more columns
    Wide,
    /// Kubernetes objects as JSON
    Json,
    /// Kubernetes objects as YAML
    Yaml,
    /// Only kind/name
    Name,
}

const GET_HELP: &str = "\
Examples:
  podling get pods
  podling get pod web -o yaml
  podling get pods -A -l app=web
  podling get events -w
  podling get images

Warnings about broken manifests and about the node follow the table on stderr.";

#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub(super) struct Get {
    /// pods (po, pod), configmaps (cm), secrets, images, events (ev), or pod/NAME
    #[arg(value_name = "pods|images|events")]
    pub resource: String,
    /// Only these
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// How it is printed
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,
    /// Go on printing what changes
    #[arg(short, long)]
    pub watch: bool,
    /// Pods of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only pods with these labels: app=web,tier!=test,canary,!old
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub(super) struct Describe {
    /// pod NAME, or pod/NAME
    #[arg(value_name = "pod NAME", required = true, num_args = 1..)]
    pub target: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
}

const LOGS_HELP: &str = "\
Examples:
  podling logs web                  the log of its only or first container
  podling logs -f web -c sidecar    one container's, as it grows
  podling logs web -p --tail 20     the end of the run before this one
  podling logs web --all-containers --prefix --since 5m";

#[derive(Debug, Args)]
#[command(after_help = LOGS_HELP)]
pub(super) struct Logs {
    /// NAME or pod/NAME
    #[arg(value_name = "POD")]
    pub pod: String,
    /// The container, as with -c
    #[arg(value_name = "CONTAINER", conflicts_with = "container")]
    pub named: Option<String>,
    /// Go on printing as the log grows
    #[arg(short, long)]
    pub follow: bool,
    /// Which container [default: the only or the first one]
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Only this many lines from the end; -1 for all
    #[arg(long, value_name = "LINES", default_value_t = -1, allow_hyphen_values = true, hide_default_value = true)]
    pub tail: i64,
    /// Only what is newer than this: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION", value_parser = go_duration)]
    pub since: Option<std::time::Duration>,
    /// Only what is newer than this RFC 3339 time
    #[arg(long, value_name = "TIME", conflicts_with = "since")]
    pub since_time: Option<jiff::Timestamp>,
    /// The run before the present one
    #[arg(short, long)]
    pub previous: bool,
    /// Begin each line with its time
    #[arg(long)]
    pub timestamps: bool,
    /// The logs of all containers
    #[arg(long, conflicts_with_all = ["container", "named"])]
    pub all_containers: bool,
    /// Begin each line with pod and container
    #[arg(long)]
    pub prefix: bool,
    #[command(flatten)]
    pub scope: Scope,
}

const EXEC_HELP: &str = "\
Examples:
  podling exec web -- ls /                 run a command; its exit code is podling's
  podling exec -it web -- sh               a shell on this terminal
  tar c . | podling exec -i web -- tar x   pipes work both ways";

#[derive(Debug, Args)]
#[command(after_help = EXEC_HELP)]
pub(super) struct Exec {
    /// NAME or pod/NAME
    #[arg(value_name = "POD")]
    pub pod: String,
    /// The command, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Which container [default: the only or the first one]
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    #[command(flatten)]
    pub scope: Scope,
}

const CHECK_HELP: &str = "\
Reads as the daemon reads: of a directory only *.yaml, *.yml and *.json, never backups or hidden files.
Exits with 1 when anything would be refused.";

#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(super) struct Check {
    /// Files or directories; - for standard input
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// `json`: one object a document, one a line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    pub output: CheckOutput,
    /// Refuse unknown fields, as the setting `strict` does
    #[arg(long)]
    pub strict: bool,
    /// The daemon's settings [default: /etc/podling/config.yaml, which need not exist]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CheckOutput {
    Text,
    Json,
}

const WAIT_HELP: &str = "\
Conditions:
  Ready                       the pod is ready; also any other: condition=Initialized, condition=Ready=False
  Deleted                     the pod is gone (also: delete)
  Applied                     the pod runs what its manifest file says now, or what --file says

Examples:
  podling wait pod/web --for=Ready --timeout=60s
  cp web.yaml /etc/pods && podling wait pod/web --for=Applied --file web.yaml";

#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(super) struct Wait {
    /// pod/NAME or NAME
    #[arg(value_name = "pod/NAME", required = true)]
    pub pods: Vec<String>,
    /// What to wait for
    #[arg(long = "for", value_name = "CONDITION")]
    pub condition: String,
    /// How long: 30s, 5m; 0 looks once
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_duration)]
    pub timeout: std::time::Duration,
    /// With Applied: the manifest that must run
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub(super) struct Order {
    /// pod/NAME or NAME
    #[arg(value_name = "pod/NAME", required = true)]
    pub pods: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub(super) struct Image {
    #[command(subcommand)]
    pub verb: ImageVerb,
}

#[derive(Debug, Subcommand)]
pub(super) enum ImageVerb {
    /// List the images that pods can use
    #[command(visible_alias = "list")]
    Ls {
        /// Only these; a short name, a digest or an id will do
        #[arg(value_name = "IMAGE")]
        names: Vec<String>,
        /// How it is printed
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
        /// Only full names, one a line
        #[arg(short, long, conflicts_with = "output")]
        quiet: bool,
        /// Whole digests
        #[arg(long)]
        no_trunc: bool,
    },
    /// Pull images from their registries, whatever is here
    Pull {
        /// Their names
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
        /// Only full names, one a line, and no bar
        #[arg(short, long)]
        quiet: bool,
    },
    /// Show all that is known of an image
    Inspect {
        /// Its name, digest or id
        #[arg(value_name = "IMAGE")]
        name: String,
        /// json or yaml
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Write images into an archive for docker, podman, skopeo, ctr and podling
    Export {
        /// The archive to write; - for standard output
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Names of the images
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
    },
    /// Remove the images that no manifest names, except those that came from archives
    Prune {
        /// Also those that came from archives
        #[arg(short, long)]
        all: bool,
        /// Only tell which
        #[arg(long)]
        dry_run: bool,
        /// Nothing is asked in any case
        #[arg(short, long, hide = true)]
        force: bool,
    },
    /// Import OCI or docker archives (.tar, .tar.gz, .tar.zst); - for standard input
    Import {
        /// Archives, or directories with an OCI layout
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// The name of an image that has none in its archive
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Remove images
    #[command(visible_alias = "remove")]
    Rm {
        /// Their names, digests or ids; an id stands for all its names
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
        /// Also those that pods run; what runs goes on
        #[arg(short, long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct Version {
    /// json, or the default text
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    pub output: CheckOutput,
    /// Do not ask the daemon
    #[arg(long)]
    pub client: bool,
}

fn go_duration(text: &str) -> Result<std::time::Duration, String> {
    // kubectl takes plain seconds here too.
    let seconds = text.parse::<u32>().ok().map(|s| std::time::Duration::from_secs(s.into()));
    seconds.or_else(|| parse_duration(text)).ok_or_else(|| "not a duration such as 30s or 1m30s".to_owned())
}

/// The NAME of `NAME` or `pod/NAME`.
pub(super) fn pod_name(text: &str) -> Result<&str, super::CliError> {
    let name = match text.split_once('/') {
        None => text,
        Some(("pod" | "pods" | "po", name)) => name,
        Some((kind, _)) => return Err(super::CliError::Usage(format!("`{kind}` in {text} is not pod"))),
    };
    if name.is_empty() {
        return Err(super::CliError::Usage(format!("{text:?} names no pod")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
