//! Looking at the file system: directories, entries, links, bytes. Nothing here remembers anything.
//!
//! Entries are looked at through the descriptor of the directory that was listed, so that "it is not
//! there" is a fact about that directory and not about whatever stands at its path a moment later.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Largest manifest that is read, in bytes; the manifest reader's own limit.
pub const MAX_FILE: u64 = crate::manifest::MAX_BYTES as u64;

/// Symbolic links followed for one path, as the kernel allows.
const MAX_LINKS: usize = 40;

/// Which directory stands at a path: tells an unmounted or replaced one from the one that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirIdentity {
    /// Device number; may change with the order in which disks are found at boot.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// The file system's own id (`f_fsid`), which most keep over a reboot; 0 when it has none.
    pub filesystem: u64,
}

impl DirIdentity {
    /// True when both are the same directory, also over a reboot that renumbered the devices.
    pub fn is_same(&self, other: &Self) -> bool {
        let filesystem = self.filesystem != 0 && self.filesystem == other.filesystem;
        self.inode == other.inode && (filesystem || self.device == other.device)
    }
}

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    /// Bytes.
    pub size: u64,
    mode: u32,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    // The widths of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size.unsigned_abs(),
            mode: stat.st_mode as u32,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }
}

impl Stamp {
    /// Whether everybody on the machine may read the file.
    pub fn is_exposed(&self) -> bool {
        Mode::from_raw_mode(self.mode as _).contains(Mode::ROTH)
    }
}

/// What stands at a path that the settings name.
#[derive(Debug)]
pub enum Place {
    /// A directory that could be listed to its end.
    Directory(Listing),
    /// A file given in place of a directory, and the directory that holds it.
    Single(OwnedFd),
    /// Nothing. The descriptor is that of the parent directory, when there is one.
    Missing(Option<OwnedFd>),
    /// Something that must not be used.
    Refused(Refusal),
}

/// Why a place is not used.
#[derive(Debug)]
pub struct Refusal {
    /// `Unreadable` or `WorldWritable`.
    pub reason: &'static str,
    /// What is wrong, to stand after the path.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// A directory and its entries, sorted bytewise.
#[derive(Debug)]
pub struct Listing {
    /// The directory itself.
    pub fd: OwnedFd,
    /// Which one it is.
    pub identity: DirIdentity,
    /// Names with the type the directory gives them.
    pub entries: Vec<(OsString, FileType)>,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file, maybe through links.
    File(Stamp),
    /// A link to nothing.
    Dangling(PathBuf),
    /// A directory.
    Directory,
    /// A fifo, a socket or a device.
    Special(&'static str),
    /// It is there but cannot be looked at.
    Unreadable(String),
    /// The directory holds no such entry.
    Gone,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is, links followed.
    pub node: Node,
    /// Whether the entry itself is a link.
    pub link: bool,
}

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// It changed while it was read: somebody is writing.
    Changed,
    /// It is larger than [`MAX_FILE`]; its size in bytes.
    TooLarge(u64),
    /// The kernel's words.
    Io(String),
}

/// Looks at a path that the settings name.
pub fn place(path: &Path) -> Place {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Place::Missing(parent(path)),
        Err(Errno::NOTDIR) => return single(path),
        Err(e) => return unreadable(e),
    };
    match listing(fd) {
        Ok(Some(place)) => place,
        // Removed between open and list.
        Ok(None) => Place::Missing(parent(path)),
        Err(e) => unreadable(e),
    }
}

/// Lists a directory; `None` when it was removed meanwhile.
#[allow(clippy::unnecessary_cast)]
fn listing(fd: OwnedFd) -> Result<Option<Place>, Errno> {
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_nlink == 0 {
        return Ok(None);
    }
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH) {
        return Ok(Some(Place::Refused(Refusal {
            reason: "WorldWritable",
            what: "is writable by everybody, and who writes here is root on this machine".into(),
            remedy: "chmod o-w it".into(),
        })));
    }
    let filesystem = rustix::fs::fstatvfs(&fd).map(|f| f.f_fsid).unwrap_or(0);
    let identity = DirIdentity { device: stat.st_dev as u64, inode: stat.st_ino as u64, filesystem };
    let mut entries = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            entries.push((name.to_owned(), entry.file_type()));
        }
    }
    if rustix::fs::fstat(&fd)?.st_nlink == 0 {
        return Ok(None);
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Some(Place::Directory(Listing { fd, identity, entries })))
}

/// A path that names a file: usable when nobody else can replace it.
fn single(path: &Path) -> Place {
    let Some(fd) = parent(path) else {
        return Place::Missing(None);
    };
    let writable = |mode| Mode::from_raw_mode(mode).contains(Mode::WOTH);
    let file = match rustix::fs::stat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Place::Missing(Some(fd)),
        Err(e) => return unreadable(e),
    };
    let replaceable = rustix::fs::fstat(&fd)
        .is_ok_and(|d| writable(d.st_mode) && !Mode::from_raw_mode(d.st_mode).contains(Mode::SVTX));
    if writable(file.st_mode) || replaceable {
        return Place::Refused(Refusal {
            reason: "WorldWritable",
            what: "can be written or replaced by everybody, and who does is root on this machine".into(),
            remedy: "chmod o-w it and its directory".into(),
        });
    }
    Place::Single(fd)
}

fn parent(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()
}

fn unreadable(e: Errno) -> Place {
    let remedy = match e {
        Errno::ACCESS => "give the user podling runs as read and search permission",
        Errno::LOOP => "correct its symbolic links",
        _ => "check the file system below it",
    };
    Place::Refused(Refusal {
        reason: "Unreadable",
        what: format!("cannot be read ({})", describe(e)),
        remedy: remedy.into(),
    })
}

/// Looks at an entry of an open directory.
pub fn entry(dir: impl AsFd, name: &OsStr) -> Seen {
    let dir = dir.as_fd();
    let own = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Seen { node: Node::Gone, link: false },
        Err(e) => return Seen { node: Node::Unreadable(describe(e)), link: false },
    };
    if FileType::from_raw_mode(own.st_mode) != FileType::Symlink {
        return Seen { node: node(&own), link: false };
    }
    let node = match rustix::fs::statat(dir, name, AtFlags::empty()) {
        Ok(stat) => node(&stat),
        Err(Errno::NOENT | Errno::NOTDIR) => Node::Dangling(target(dir, name)),
        Err(e) => Node::Unreadable(describe(e)),
    };
    Seen { node, link: true }
}

fn target(dir: impl AsFd, name: &OsStr) -> PathBuf {
    match rustix::fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => PathBuf::from(OsStr::from_bytes(target.to_bytes())),
        Err(_) => PathBuf::new(),
    }
}

fn node(stat: &Stat) -> Node {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Node::File(Stamp::of(stat)),
        FileType::Directory => Node::Directory,
        FileType::Fifo => Node::Special("fifo"),
        FileType::Socket => Node::Special("socket"),
        _ => Node::Special("device"),
    }
}

/// Reads a whole entry that was seen as a regular file with this stamp.
///
/// # Errors
/// [`ReadFailure::Changed`] when the file is not, before, during and after, the one that was seen.
pub fn read(dir: impl AsFd, name: &OsStr, stamp: &Stamp) -> Result<Vec<u8>, ReadFailure> {
    if stamp.size > MAX_FILE {
        return Err(ReadFailure::TooLarge(stamp.size));
    }
    let dir = dir.as_fd();
    // Without NONBLOCK, a fifo put in the file's place since it was looked at would hang us here.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT => ReadFailure::Changed,
        e => ReadFailure::Io(describe(e)),
    })?;
    let same = |stat: Result<Stat, Errno>| stat.is_ok_and(|s| node(&s) == Node::File(*stamp));
    if !same(rustix::fs::fstat(&fd)) {
        return Err(ReadFailure::Changed);
    }
    let file = File::from(fd);
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
    (&file).take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| ReadFailure::Io(e.to_string()))?;
    let whole = bytes.len() as u64 == stamp.size;
    if !whole || !same(rustix::fs::fstat(&file)) || !same(rustix::fs::statat(dir, name, AtFlags::empty())) {
        return Err(ReadFailure::Changed);
    }
    Ok(bytes)
}

/// The directories through which a path is found, each with the name looked up in it. A change of one
/// of these names can change what the path leads to.
pub fn trace(path: &Path) -> Vec<(PathBuf, OsString)> {
    let mut hops = Vec::new();
    let mut links = 0;
    let mut here = PathBuf::from("/");
    let mut todo: Vec<OsString> = names(path);
    while let Some(name) = todo.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        match rustix::fs::statat(CWD, &next, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                hops.push((here.clone(), name));
                links += 1;
                let Ok(to) = rustix::fs::readlink(&next, Vec::new()) else { break };
                if links > MAX_LINKS {
                    break;
                }
                let to = PathBuf::from(OsStr::from_bytes(to.to_bytes()));
                if to.is_absolute() {
                    here = PathBuf::from("/");
                }
                todo.extend(names(&to));
            }
            Ok(_) => {
                if todo.is_empty() {
                    hops.push((here.clone(), name));
                }
                here = next;
            }
            Err(_) => {
                // What is missing may appear here.
                hops.push((here, name));
                break;
            }
        }
    }
    hops
}

/// The components of a path, last first.
fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = path
        .components()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect();
    names.reverse();
    names
}

/// Device and inode of a directory, for telling whether a watch still sits on it.
#[allow(clippy::unnecessary_cast)]
pub fn inode(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(path).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        .then_some((stat.st_dev as u64, stat.st_ino as u64))
}

fn describe(e: Errno) -> String {
    let text = std::io::Error::from(e).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}
