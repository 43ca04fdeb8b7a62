//! `podling.dev/ulimits`: limits on resources of processes, such as open files.

use k8s_openapi::api::core::v1::Pod;

/// One limit. `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ulimit {
    /// One of `NAMES`.
    pub name: &'static str,
    /// What holds until the process raises it.
    pub soft: u64,
    /// Up to where it may.
    pub hard: u64,
}

/// Names as `ulimit` programs and other runners of containers write them, those of `getrlimit(2)` in lower case.
pub const NAMES: [&str; 15] = [
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "sigpending",
    "stack",
];

pub(super) fn check(text: &str, _: &Pod) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Vec<Ulimit>, String> {
    let mut all: Vec<Ulimit> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let limit = one(part)?;
        if all.iter().any(|known| known.name == limit.name) {
            return Err(format!("{} stands twice", limit.name));
        }
        all.push(limit);
    }
    if all.is_empty() {
        Err("must be limits such as nofile=65536:65536,memlock=unlimited".to_owned())
    } else {
        Ok(all)
    }
}

fn one(part: &str) -> Result<Ulimit, String> {
    let (name, value) = part
        .split_once('=')
        .ok_or_else(|| format!("{part:?} is no limit such as nofile=65536 or nofile=1024:65536"))?;
    let name = name.trim();
    let known = NAMES.iter().find(|known| **known == name).ok_or_else(|| {
        let hint = super::nearest(name, NAMES.iter().copied());
        let hint = hint.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        format!("{name:?} is not a limit; there are {}{hint}", NAMES.join(", "))
    })?;
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    let (soft, hard) = (amount(part, soft)?, amount(part, hard)?);
    if soft > hard {
        return Err(format!("{part:?} has a soft limit above its hard one; write soft:hard"));
    }
    Ok(Ulimit { name: known, soft, hard })
}

fn amount(part: &str, text: &str) -> Result<u64, String> {
    match text.trim() {
        "unlimited" | "-1" => Ok(u64::MAX),
        text => text
            .parse()
            .map_err(|_| format!("{part:?} must have a number (bytes or a count) or unlimited behind the =")),
    }
}

/// The limits for a container, in the order written.
pub fn ulimits(pod: &Pod, container: &str) -> Vec<Ulimit> {
    super::container_value(pod, "ulimits", container).and_then(|v| parse(v).ok()).unwrap_or_default()
}
