//! Files of variables in a pod's volumes (`fileKeyRef`): reading them safely, and their format.
//!
//! The pod writes the volume, so it may put a link anywhere into it: the file is looked up inside the volume
//! only, and no link is followed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Most bytes of a file: as much as a manifest may have.
const MAX: u64 = 1 << 20;

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum EnvFileError {
    /// The pod has no such volume.
    #[error("the pod has no such volume")]
    NoVolume,
    /// The file is not there, is a link, or cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// It is too large, or not a file.
    #[error("is not a regular file of at most 1 MiB")]
    Odd,
    /// It is not text.
    #[error("is not UTF-8 text")]
    NotText,
    /// A line that is none of the format.
    #[error("line {line}: {why}")]
    Line {
        /// 1-based.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The key does not stand in it.
    #[error("key {0} not found")]
    NoKey(String),
}

/// The text of a file below `dir`.
///
/// # Errors
/// When it is not a regular text file inside the volume.
pub fn read(dir: &Path, path: &str) -> Result<String, EnvFileError> {
    let failed = |e: rustix::io::Errno| EnvFileError::Io(e.into());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, dir, flags, Mode::empty()).map_err(failed)?;
    // NONBLOCK, so that a fifo in the file's place cannot hold anything up.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(&dir, path, flags, Mode::empty(), inside).map_err(failed)?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(EnvFileError::Io)?;
    if !metadata.is_file() || metadata.len() > MAX {
        return Err(EnvFileError::Odd);
    }
    let mut bytes = Vec::new();
    file.take(MAX).read_to_end(&mut bytes).map_err(EnvFileError::Io)?;
    String::from_utf8(bytes).map_err(|_| EnvFileError::NotText)
}

/// The value of a key; the last one counts. Lines are `KEY=value` or `KEY='value'`; a value in quotes may go
/// over several lines and is taken as it is; one without ends with its line, or goes on, after a blank, on
/// the next where the line ends with a backslash. Blank lines and those that begin with `#` are left out.
///
/// # Errors
/// [`EnvFileError::Line`] for what is none of these.
pub fn value(text: &str, key: &str) -> Result<Option<String>, EnvFileError> {
    let mut found = None;
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let bad = |why| EnvFileError::Line { line: n + 1, why };
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once('=').ok_or_else(|| bad("has no =; write KEY='value'"))?;
        let (name, rest) = (name.trim_end(), rest.trim_start());
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(bad("has no name before the ="));
        }
        let mut next = || lines.next().map(|(_, line)| line);
        let value = match rest.strip_prefix('\'') {
            Some(rest) => quoted(rest, &mut next).map_err(bad)?,
            None if rest.starts_with('"') => return Err(bad("has double quotes; write KEY='value'")),
            None => continued(rest, &mut next),
        };
        if name == key {
            found = Some(value);
        }
    }
    Ok(found)
}

/// Up to the closing quote, behind which only a comment may follow.
fn quoted<'a>(first: &'a str, next: &mut impl FnMut() -> Option<&'a str>) -> Result<String, &'static str> {
    let mut value = String::new();
    let mut line = first;
    loop {
        if let Some((end, rest)) = line.split_once('\'') {
            value.push_str(end);
            let rest = rest.trim();
            let fine = rest.is_empty() || rest.starts_with('#');
            return fine.then_some(value).ok_or("has something behind the closing quote");
        }
        value.push_str(line);
        value.push('\n');
        line = next().ok_or("has a quote that is not closed")?;
    }
}

fn continued<'a>(first: &'a str, next: &mut impl FnMut() -> Option<&'a str>) -> String {
    let mut value = first.trim_end().to_owned();
    while let Some(kept) = value.strip_suffix('\\') {
        let kept = kept.trim_end().len();
        value.truncate(kept);
        let Some(line) = next() else { break };
        value.push(' ');
        value.push_str(line.trim());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_knows_comments_quotes_and_lines_that_go_on() {
        let text = "# a comment\n\n  A=1  \nB = two words \nC='  $X # kept  ' # comment\nD='one\n two'\nE=a \\\n  b\nA=last\nEMPTY=\n";
        let cases = [
            ("A", Some("last")),
            ("B", Some("two words")),
            ("C", Some("  $X # kept  ")),
            ("D", Some("one\n two")),
            ("E", Some("a b")),
            ("EMPTY", Some("")),
            ("NONE", None),
        ];
        for (key, wanted) in cases {
            assert_eq!(value(text, key).expect("a file").as_deref(), wanted, "{key}");
        }
    }

    #[test]
    fn what_is_no_line_of_variables_is_named_by_its_number() {
        for (text, line) in [("A=1\nnonsense\n", 2), ("=x", 1), ("A='x", 1), ("A='x' y", 1), ("\nA=\"x\"", 2)]
        {
            match value(text, "A") {
                Err(EnvFileError::Line { line: at, .. }) => assert_eq!(at, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn links_and_paths_out_of_the_volume_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("sub")).expect("a directory");
        std::fs::write(dir.path().join("sub/env"), "A=1\n").expect("a file");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).expect("a link");
        std::os::unix::fs::symlink("sub", dir.path().join("inner")).expect("a link");
        assert_eq!(read(dir.path(), "sub/env").expect("a file"), "A=1\n");
        for path in ["link", "inner/env", "../etc/passwd", "/etc/passwd", "sub"] {
            assert!(read(dir.path(), path).is_err(), "{path}");
        }
    }
}
