//! What both versions have in common: groups are directories.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::CgroupError;
use crate::system::mounts::unescape;

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    pub path: PathBuf,
    /// Version 2.
    pub unified: bool,
    /// Super block options of version 1: controllers and flags such as `rw` or `name=systemd`.
    pub options: Vec<String>,
}

/// Controllers of version 1 as of today.
const CONTROLLERS: [&str; 14] = [
    "cpuset",
    "cpu",
    "cpuacct",
    "blkio",
    "memory",
    "devices",
    "freezer",
    "net_cls",
    "perf_event",
    "net_prio",
    "hugetlb",
    "pids",
    "rdma",
    "misc",
];

impl CgroupMount {
    /// Controllers in this hierarchy; none for version 2 and for named hierarchies.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        let options: &[String] = if self.unified { &[] } else { &self.options };
        options.iter().map(String::as_str).filter(|o| CONTROLLERS.contains(o))
    }
}

/// The cgroup mounts in a mount table, each hierarchy once.
pub(super) fn cgroup_mounts(mountinfo: &[u8]) -> Vec<CgroupMount> {
    let text = String::from_utf8_lossy(mountinfo);
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let mut front = front.split(' ').skip(2);
        let (Some(device), Some(root), Some(point)) = (front.next(), front.next(), front.next()) else {
            continue;
        };
        let back: Vec<&str> = back.split(' ').collect();
        let [kind @ ("cgroup" | "cgroup2"), _, options] = back[..] else { continue };
        // A mount of a part of a hierarchy (as in a container) is somebody's view, not ours.
        if root == "/" && seen.insert(device.to_owned()) {
            found.push(CgroupMount {
                path: String::from_utf8_lossy(&unescape(point.as_bytes())).into_owned().into(),
                unified: kind == "cgroup2",
                options: options.split(',').map(str::to_owned).collect(),
            });
        }
    }
    found
}

/// The directory of group `path` in the hierarchy mounted on `mount`.
pub(super) fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// Creates `path` below `mount`, calling `each` on every level from the outside in, new or not. Starts over
/// when a level vanishes: the remover of a last pod takes empty parents with it.
pub(super) fn create(
    mount: &Path,
    path: &str,
    each: impl Fn(&Path) -> Result<(), CgroupError>,
) -> Result<(), CgroupError> {
    const ATTEMPTS: usize = 20;
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = create_levels(mount, path, &each);
        match &last {
            Err(CgroupError::Io { source, .. }) if vanished(source) => {}
            _ => return last,
        }
    }
    last
}

fn create_levels(
    mount: &Path,
    path: &str,
    each: &impl Fn(&Path) -> Result<(), CgroupError>,
) -> Result<(), CgroupError> {
    let mut dir = mount.to_owned();
    for name in path.split('/').filter(|n| !n.is_empty()) {
        dir.push(name);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(io("create the cgroup", &dir, e)),
            _ => each(&dir)?,
        }
    }
    Ok(())
}

/// A removed group answers ENOENT by name and ENODEV through an open file.
pub(super) fn vanished(e: &std::io::Error) -> bool {
    e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// How long to wait for groups whose last process just ended: they are busy for a moment. Shared by all
/// hierarchies of a removal, since they wait for the same processes.
pub(super) struct Patience(u32);

impl Patience {
    /// About a third of a second in all.
    pub fn new() -> Self {
        Self(6)
    }

    fn wait(&mut self) -> bool {
        let Some(left) = self.0.checked_sub(1) else { return false };
        std::thread::sleep(Duration::from_millis(160 >> left));
        self.0 = left;
        true
    }
}

/// Removes a group and all below it.
pub(super) fn remove_tree(dir: &Path, patience: &mut Patience) -> Result<(), CgroupError> {
    loop {
        for child in children(dir) {
            remove_tree(&dir.join(child), patience)?;
        }
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(e) if vanished(&e) => return Ok(()),
            Err(e) if busy(&e) => {
                if !patience.wait() {
                    let mut pids = BTreeSet::new();
                    collect_pids(dir, &mut pids);
                    return Err(CgroupError::Busy { path: dir.to_owned(), pids: pids.into_iter().collect() });
                }
            }
            Err(e) => return Err(io("remove the cgroup", dir, e)),
        }
    }
}

fn busy(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty)
}

/// Removes a group unless something is in it; then somebody else needs it, which is fine.
pub(super) fn remove_if_empty(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

/// Names of the groups directly in `dir`; none when it is missing.
pub(super) fn children(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Adds the processes of the group and of all below it.
pub(super) fn collect_pids(dir: &Path, pids: &mut BTreeSet<u32>) {
    let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) else { return };
    // 0 is a process of a pid namespace outside our own.
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
    for child in children(dir) {
        collect_pids(&dir.join(child), pids);
    }
}

/// Writes one value to a file of a group.
pub(super) fn write(file: &Path, value: &str) -> Result<(), CgroupError> {
    OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut f| f.write_all(value.as_bytes()))
        .map_err(|e| io("write to", file, e))
}

/// As [`write()`], but a group that is not there is no error.
pub(super) fn write_if_present(file: &Path, value: &str) -> Result<(), CgroupError> {
    match write(file, value) {
        Err(CgroupError::Io { source, .. }) if vanished(&source) => Ok(()),
        other => other,
    }
}

/// The number that a file holds.
pub(super) fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The number after `key` in a file of `key value` lines.
pub(super) fn keyed_number(file: &Path, key: &str) -> Option<u64> {
    fs::read_to_string(file)
        .ok()?
        .lines()
        .find_map(|line| line.split_once(' ').filter(|(k, _)| *k == key))
        .and_then(|(_, value)| value.trim().parse().ok())
}

pub(super) fn io(action: &'static str, path: &Path, source: std::io::Error) -> CgroupError {
    CgroupError::Io { action, path: path.to_owned(), source }
}
