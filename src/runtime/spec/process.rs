//! What is run: arguments, environment, working directory, user and rights.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use oci_spec::image::Config;
use oci_spec::runtime::{Capability, Process, Spec, User};

use super::{
    ResolvedUser, SpecError, SpecInput, apparmor, capabilities, expansion, extras, mounts, security,
};

/// `PATH` where the image sets none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn of(
    input: &SpecInput<'_>,
    rights: &HashSet<Capability>,
    selinux_label: Option<String>,
) -> Result<Process, SpecError> {
    let config = input.image.config().as_ref();
    let mut args = args(input, config, input.env)?;
    if let Some(launcher) = &input.extras.launcher {
        args.insert(0, launcher.to_string_lossy().into_owned());
    }
    let env = merge_env(input, config, input.env);
    for (field, texts) in [("command", &args), ("env", &env)] {
        if texts.iter().any(|text| text.contains('\0')) {
            return Err(SpecError::ZeroByte { container: input.name(), field: field.to_owned() });
        }
    }
    let mut process = bare();
    process
        .set_terminal(Some(input.container.tty.unwrap_or(false)))
        .set_user(user(input.user))
        .set_args(Some(args))
        .set_env(Some(env))
        .set_cwd(working_dir(input, config)?)
        .set_capabilities(Some(capabilities::sets(rights)))
        .set_rlimits(extras::rlimits(&input.extras.ulimits))
        .set_no_new_privileges(Some(security::no_new_privileges(input)))
        .set_oom_score_adj(Some(input.node.clamp_oom_score_adj(input.oom_score_adj)));
    process.set_apparmor_profile(apparmor::profile(input)?).set_selinux_label(selinux_label);
    Ok(process)
}

/// A process with nothing in it; limits on resources stay those of the shim, as the CRI plugin leaves them.
pub(super) fn bare() -> Process {
    let mut process = Process::default();
    process.set_terminal(None).set_args(None).set_env(None).set_capabilities(None).set_rlimits(None);
    process
}

fn user(resolved: &ResolvedUser) -> User {
    let mut user = User::default();
    user.set_uid(resolved.uid)
        .set_gid(resolved.gid)
        .set_additional_gids(Some(resolved.additional_gids.clone()).filter(|g| !g.is_empty()));
    user
}

/// `command` stands for the image's entry point and drops the image's arguments; `args` only replaces those.
fn args(
    input: &SpecInput<'_>,
    config: Option<&Config>,
    env: &[(String, String)],
) -> Result<Vec<String>, SpecError> {
    let known: HashMap<&str, &str> =
        env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
        texts.iter().flatten().map(|t| expansion::expand(t, |name| known.get(name).copied())).collect()
    };
    let from_image = |texts: Option<&Option<Vec<String>>>| texts.cloned().flatten().unwrap_or_default();
    let mut command = expanded(&input.container.command);
    let mut args = expanded(&input.container.args);
    if command.is_empty() {
        command = from_image(config.map(Config::entrypoint));
        if args.is_empty() {
            args = from_image(config.map(Config::cmd));
        }
    }
    command.append(&mut args);
    match command.first().map(String::as_str) {
        None => Err(SpecError::NoCommand { container: input.name(), image: input.image_name.to_owned() }),
        Some("") => Err(SpecError::EmptyCommand { container: input.name() }),
        Some(_) => Ok(command),
    }
}

/// Defaults, then the image's variables, then the manifest's. A later one of the same name takes the place of
/// the earlier one. Names end at the first `=`; the rest is the value, whatever it holds.
fn merge_env(input: &SpecInput<'_>, config: Option<&Config>, own: &[(String, String)]) -> Vec<String> {
    let mut all: Vec<(String, String)> = vec![("PATH".into(), DEFAULT_PATH.into())];
    if !input.sandbox.hostname.is_empty() {
        all.push(("HOSTNAME".into(), input.sandbox.hostname.clone()));
    }
    if input.container.tty == Some(true) {
        all.push(("TERM".into(), "xterm".into()));
    }
    for entry in config.and_then(|c| c.env().as_ref()).into_iter().flatten() {
        match entry.split_once('=') {
            Some((name, value)) => set(&mut all, name, value),
            // An image entry without a value takes a default away.
            None => all.retain(|(name, _)| name != entry),
        }
    }
    for (name, value) in input.extras.env.iter().chain(own) {
        set(&mut all, name, value);
    }
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn set(all: &mut Vec<(String, String)>, name: &str, value: &str) {
    match all.iter_mut().find(|(n, _)| n == name) {
        Some((_, old)) => value.clone_into(old),
        None => all.push((name.to_owned(), value.to_owned())),
    }
}

fn working_dir(input: &SpecInput<'_>, config: Option<&Config>) -> Result<PathBuf, SpecError> {
    let own = input.container.working_dir.as_deref().filter(|d| !d.is_empty());
    let images = config.and_then(|c| c.working_dir().as_deref()).filter(|d| !d.is_empty());
    match own.or(images) {
        Some(dir) => mounts::clean(input, "workingDir", dir),
        None => Ok("/".into()),
    }
}

/// The process of an exec in a running container: as the container's own, but for what it runs and whether
/// it has a terminal. None when `spec` has no process.
pub fn exec_process(spec: &Spec, args: Vec<String>, terminal: bool) -> Option<Process> {
    let mut process = spec.process().clone()?;
    process.set_args(Some(args)).set_terminal(Some(terminal)).set_console_size(None);
    if terminal {
        let env = process.env_mut().get_or_insert_default();
        if !env.iter().any(|e| e.starts_with("TERM=")) {
            env.push("TERM=xterm".to_owned());
        }
    }
    Some(process)
}
