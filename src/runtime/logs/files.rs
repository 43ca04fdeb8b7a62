//! The files of one container's log on disk: attempts, rotated files, and where the last lines begin.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::line::LogLine;
use super::{LogError, gone_is_fine};

/// Step of the search backwards from the end, in bytes.
const STEP: usize = 64 * 1024;
/// Whole lines kept before the ones asked for, so that the pieces of a long line stay together when the
/// other stream wrote between them.
const SLACK: u64 = 16;

/// Attempts that have a log in a container's directory, oldest first. A directory that is not there has none.
pub fn attempts(directory: &Path) -> Result<Vec<u32>, LogError> {
    let names = names(directory).map_err(LogError::io("read", directory))?;
    let mut found: Vec<u32> =
        names.iter().filter_map(|name| name.split_once(".log")?.0.parse().ok()).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Removes the logs of all attempts before `current` except the latest `keep` of them.
pub fn prune_attempts(directory: &Path, current: u32, keep: usize) -> Result<(), LogError> {
    let old: Vec<u32> = attempts(directory)?.into_iter().filter(|a| *a < current).collect();
    for attempt in &old[..old.len().saturating_sub(keep)] {
        let live = directory.join(format!("{attempt}.log"));
        for path in rotated(&live).map_err(LogError::io("read", directory))?.into_iter().chain([live]) {
            gone_is_fine(fs::remove_file(&path)).map_err(LogError::io("remove", &path))?;
        }
    }
    Ok(())
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Rotated files of a live file, oldest first: the logger gives names that sort by age.
fn rotated(live: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = live.parent().unwrap_or(Path::new("/"));
    let prefix = format!("{}.", live.file_name().unwrap_or_default().to_string_lossy());
    let mut found: Vec<String> = names(directory)?
        .into_iter()
        .filter(|name| {
            name.strip_prefix(&prefix)
                .is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()) && !s.ends_with(".gz"))
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|name| directory.join(name)).collect())
}

/// An open log file; it stays readable when it is rotated or removed.
#[derive(Debug)]
pub(super) struct LogFile {
    pub file: File,
    pub inode: (u64, u64),
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        Ok(Self { file, inode: (meta.dev(), meta.ino()) })
    }

    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// True while `path` is still the file with this inode.
pub(super) fn is_live(path: &Path, inode: (u64, u64)) -> bool {
    fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == inode)
}

/// Opens all files of a log, oldest first. Looks again when a rotation came in between.
pub(super) fn open_all(live: &Path) -> io::Result<Vec<LogFile>> {
    for _ in 0..10 {
        let mut files: Vec<LogFile> = Vec::new();
        let paths = rotated(live)?.into_iter().chain([live.to_owned()]);
        for path in paths {
            match LogFile::open(&path) {
                Ok(file) if files.iter().all(|f| f.inode != file.inode) => files.push(file),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        match files.last() {
            Some(last) if is_live(live, last.inode) => return Ok(files),
            // Between the rename of a rotation and the new file, or after a deletion by hand.
            Some(_) if !live.exists() => return Ok(files),
            Some(_) => {}
            None => break,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Where reading begins so that at least the last `lines` whole lines follow: index into `files` and offset.
pub(super) fn tail_start(files: &[LogFile], lines: u64) -> io::Result<(usize, u64)> {
    let mut wanted = lines.saturating_add(SLACK);
    for (index, file) in files.iter().enumerate().rev() {
        if let Some(offset) = nth_end_from_back(file, &mut wanted)? {
            return Ok((index, offset));
        }
    }
    Ok((0, 0))
}

/// Finds the offset after which exactly `wanted` whole lines follow; `wanted` is lowered by the lines passed.
/// `None` when the file has no more than that.
fn nth_end_from_back(file: &LogFile, wanted: &mut u64) -> io::Result<Option<u64>> {
    let mut upper = file.len()?;
    let mut line_end = upper;
    // The first bytes, as far as known, of the line that ends at `line_end`.
    let mut head: Vec<u8> = Vec::new();
    let mut buffer = vec![0; STEP];
    while upper > 0 {
        let lower = upper.saturating_sub(STEP as u64);
        let step = &mut buffer[..(upper - lower) as usize];
        if !fill(file, step, lower)? {
            return Ok(Some(0)); // truncated by hand meanwhile
        }
        let mut end = step.len();
        while let Some(newline) = step[..end].iter().rposition(|b| *b == b'\n') {
            prepend(&mut head, &step[newline + 1..end]);
            if is_whole(&head) {
                if *wanted == 0 {
                    return Ok(Some(line_end + 1));
                }
                *wanted -= 1;
            }
            head.clear();
            end = newline;
            line_end = lower + newline as u64;
        }
        prepend(&mut head, &step[..end]);
        upper = lower;
    }
    if is_whole(&head) {
        if *wanted == 0 {
            return Ok(Some(line_end + 1));
        }
        *wanted -= 1;
    }
    Ok(None)
}

fn fill(file: &LogFile, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => return Ok(false),
            n => filled += n,
        }
    }
    Ok(true)
}

/// Time, stream and tags of a line are far shorter than this.
const HEAD: usize = 128;

fn prepend(head: &mut Vec<u8>, before: &[u8]) {
    head.splice(..0, before[..before.len().min(HEAD)].iter().copied());
    head.truncate(HEAD);
}

/// Whether a raw line, of which this is the beginning, ends a line of text. What follows the last newline is
/// nothing; what is no CRI line is a line of its own.
fn is_whole(head: &[u8]) -> bool {
    !head.is_empty() && LogLine::parse(head).is_none_or(|line| line.full)
}
