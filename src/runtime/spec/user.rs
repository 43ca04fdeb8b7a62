//! Who a container runs as: the manifest's and the image's wishes, looked up in the image's own
//! `/etc/passwd` and `/etc/group`.
//!
//! Those files come from strangers: they are opened without following anything out of the root file system,
//! only when they are regular files, and read up to a limit.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Who to run as, before names are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserSpec {
    /// `runAsUser`.
    pub run_as_user: Option<i64>,
    /// `runAsGroup`.
    pub run_as_group: Option<i64>,
    /// `USER` of the image: empty, `user` or `user:group`, each a name or a number.
    pub image_user: String,
    /// `runAsNonRoot`.
    pub run_as_non_root: Option<bool>,
    /// Groups besides those the image gives the user.
    pub supplemental_groups: Vec<i64>,
    /// `supplementalGroupsPolicy: Strict`: what the image's `/etc/group` says is left aside.
    pub only_these_groups: bool,
}

impl UserSpec {
    /// The wishes of a container: its own where it has some, else the pod's.
    pub fn of(pod: &PodSpec, container: &Container, image_user: &str) -> Self {
        let own = container.security_context.as_ref();
        let pods = pod.security_context.as_ref();
        let mut supplemental_groups = pods.and_then(|p| p.supplemental_groups.clone()).unwrap_or_default();
        supplemental_groups.extend(pods.and_then(|p| p.fs_group));
        Self {
            run_as_user: own.and_then(|c| c.run_as_user).or(pods.and_then(|p| p.run_as_user)),
            run_as_group: own.and_then(|c| c.run_as_group).or(pods.and_then(|p| p.run_as_group)),
            image_user: image_user.to_owned(),
            run_as_non_root: own.and_then(|c| c.run_as_non_root).or(pods.and_then(|p| p.run_as_non_root)),
            supplemental_groups,
            only_these_groups: pods.and_then(|p| p.supplemental_groups_policy.as_deref()) == Some("Strict"),
        }
    }
}

/// Who to run as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// All groups, the primary one among them, sorted.
    pub additional_gids: Vec<u32>,
    /// Name in the image, where it has one.
    pub username: Option<String>,
    /// Home directory in the image, where it names one.
    pub home: Option<String>,
}

/// A user that cannot be determined or is not allowed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// `runAsUser: 0` with `runAsNonRoot`.
    #[error(
        "container's runAsUser breaks non-root policy: runAsNonRoot is true and runAsUser is 0; set runAsUser to another uid"
    )]
    RunAsUserIsRoot,
    /// The image runs as root, with `runAsNonRoot`.
    #[error("container has runAsNonRoot and image will run as root; set runAsUser to a uid other than 0")]
    ImageIsRoot,
    /// A name cannot be shown to be another user than root.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root; set runAsUser to its uid"
    )]
    NameIsNotVerifiable {
        /// The name.
        name: String,
    },
    /// No such user.
    #[error("the image's user {name:?} is not in its /etc/passwd: set runAsUser, or correct the image")]
    NoSuchUser {
        /// The name.
        name: String,
    },
    /// No such group.
    #[error("the image's group {name:?} is not in its /etc/group: set runAsGroup, or correct the image")]
    NoSuchGroup {
        /// The name.
        name: String,
    },
    /// An id outside what Linux has.
    #[error("{field} is {value}, which is no user or group id: use a number from 0 to 4294967294")]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A file of the image that is unreadable or absurd.
    #[error("cannot read {} of the image: {reason}", path.display())]
    Unreadable {
        /// Path in the image.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl UserError {
    /// The reason a container waits with, in the kubelet's words.
    pub fn reason(&self) -> &'static str {
        "CreateContainerConfigError"
    }
}

/// Files with more bytes than this are refused: no real one is near it.
const MAX_FILE: u64 = 10 << 20;

/// Determines the user, groups and home directory.
///
/// `runAsUser` wins over the image's user, `runAsGroup` over the image's group; without either the group is
/// that of the user's line in `/etc/passwd`, else 0. A number needs no line in the files.
///
/// # Errors
/// See [`UserError`].
pub fn resolve(rootfs: &Path, spec: &UserSpec) -> Result<ResolvedUser, UserError> {
    let (image_user, image_group) = match spec.image_user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|g| !g.is_empty())),
        None => (spec.image_user.as_str(), None),
    };
    refuse_root(spec, image_user)?;
    let passwd = read_table(rootfs, "etc/passwd")?;
    let (uid, line) = match (spec.run_as_user, image_user) {
        (Some(uid), _) => by_uid(&passwd, id("runAsUser", uid)?),
        (None, "") => by_uid(&passwd, 0),
        (None, user) => match number("the image's user", user)? {
            Some(uid) => by_uid(&passwd, uid),
            None => by_name(&passwd, user)?,
        },
    };
    let groups = read_table(rootfs, "etc/group")?;
    let gid = match (spec.run_as_group, image_group) {
        (Some(gid), _) => id("runAsGroup", gid)?,
        // The image's group goes with the image's user, not with another one.
        (None, Some(group)) if spec.run_as_user.is_none() => match number("the image's group", group)? {
            Some(gid) => gid,
            None => group_id(&groups, group)?,
        },
        _ => line.as_ref().map_or(0, |l| l.gid),
    };
    let mut all: BTreeSet<u32> = BTreeSet::from([gid]);
    if let Some(line) = line.as_ref().filter(|_| !spec.only_these_groups) {
        all.extend(groups_of(&groups, &line.name));
    }
    for extra in &spec.supplemental_groups {
        all.insert(id("supplementalGroups", *extra)?);
    }
    Ok(ResolvedUser {
        uid,
        gid,
        additional_gids: all.into_iter().collect(),
        username: line.as_ref().map(|l| l.name.clone()),
        home: line.map(|l| l.home).filter(|h| !h.is_empty()),
    })
}

fn refuse_root(spec: &UserSpec, image_user: &str) -> Result<(), UserError> {
    if spec.run_as_non_root != Some(true) {
        return Ok(());
    }
    match spec.run_as_user {
        Some(0) => Err(UserError::RunAsUserIsRoot),
        Some(_) => Ok(()),
        None if image_user.is_empty() => Err(UserError::ImageIsRoot),
        None => match number("the image's user", image_user)? {
            Some(0) => Err(UserError::ImageIsRoot),
            Some(_) => Ok(()),
            None => Err(UserError::NameIsNotVerifiable { name: image_user.to_owned() }),
        },
    }
}

/// An id from the manifest. 2^32 - 1 means "unchanged" to the kernel and is nobody's.
fn id(field: &'static str, value: i64) -> Result<u32, UserError> {
    u32::try_from(value)
        .ok()
        .filter(|id| *id != u32::MAX)
        .ok_or_else(|| UserError::OutOfRange { field, value: value.to_string() })
}

/// The number that `text` is, if it consists of digits.
fn number(field: &'static str, text: &str) -> Result<Option<u32>, UserError> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    let parsed = text.parse().ok().filter(|id| *id != u32::MAX);
    parsed.map(Some).ok_or_else(|| UserError::OutOfRange { field, value: text.to_owned() })
}

/// A line of `/etc/passwd`.
#[derive(Clone, Debug)]
struct Passwd {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

fn passwd_lines(table: &str) -> impl Iterator<Item = Passwd> + '_ {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
        Some(Passwd {
            name: name.to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            home: home.to_owned(),
        })
    })
}

fn by_uid(passwd: &str, uid: u32) -> (u32, Option<Passwd>) {
    (uid, passwd_lines(passwd).find(|l| l.uid == uid))
}

fn by_name(passwd: &str, name: &str) -> Result<(u32, Option<Passwd>), UserError> {
    let line = passwd_lines(passwd).find(|l| l.name == name);
    line.map(|l| (l.uid, Some(l))).ok_or_else(|| UserError::NoSuchUser { name: name.to_owned() })
}

/// Name, id and members of each group.
fn group_lines(table: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    table.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((name, id.parse().ok()?, fields.next().unwrap_or_default()))
    })
}

fn group_id(groups: &str, name: &str) -> Result<u32, UserError> {
    let found = group_lines(groups).find(|(n, ..)| *n == name).map(|(_, id, _)| id);
    found.ok_or_else(|| UserError::NoSuchGroup { name: name.to_owned() })
}

fn groups_of(groups: &str, user: &str) -> Vec<u32> {
    group_lines(groups)
        .filter(|(.., members)| members.split(',').any(|m| m.trim() == user))
        .map(|(_, id, _)| id)
        .collect()
}

/// The text of a file in the root file system; empty when there is none.
fn read_table(rootfs: &Path, name: &str) -> Result<String, UserError> {
    let unreadable = |reason: String| UserError::Unreadable { path: Path::new("/").join(name), reason };
    let root =
        rustix::fs::openat(CWD, rootfs, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| unreadable(format!("{}: {e}", rootfs.display())))?;
    // Not blocking: a FIFO in place of the file must not stop us.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let fd = match rustix::fs::openat2(&root, name, flags, Mode::empty(), resolve) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(String::new()),
        Err(e) => return Err(unreadable(e.to_string())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|e| unreadable(e.to_string()))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::from(fd).take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| unreadable(e.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(unreadable(format!("it is larger than {} MiB", MAX_FILE >> 20)));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
