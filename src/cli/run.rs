//! `podling run`: settings and logging, then the daemon.

use std::path::PathBuf;

use super::error::CliError;
use super::{Outcome, args, logging};
use crate::settings::{Flags, LogOptions, Settings};

pub(super) fn run(root: PathBuf, args: args::Run) -> Outcome {
    let log = LogOptions { format: args.log_format.into(), level: args.log_level, verbose: args.verbose };
    let flags = Flags {
        root,
        config: args.config,
        manifest_dirs: args.manifest_dir,
        containerd: args.containerd,
        namespace: args.namespace,
        node_name: args.node_name,
    };
    let settings = Settings::load(&flags)?;
    logging::init(&log).map_err(|e| CliError::Usage(e.to_string()))?;
    Ok(crate::daemon::run(settings))
}
