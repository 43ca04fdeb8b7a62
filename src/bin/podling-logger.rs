//! Writes the output of one container to its log file.
//!
//! containerd's shim starts it from a `binary://` URI, with the container's stdout on fd 3, its stderr on
//! fd 4 and a pipe on fd 5 that it closes once it is ready. It lives as long as the container, whether
//! podling and containerd run or not. Arguments come in pairs, in any order: `path FILE`,
//! `max-size BYTES` (0: never rotate), `max-files N` (the live one included), `tty 1` (the container has a
//! terminal: its end is the end of stdout, as the shim never closes stderr then).
//!
//! Lines are CRI lines: `TIME stdout|stderr F|P TEXT`. Three promises rule the code: the container never
//! waits for the disk (what cannot be written is counted and dropped), a line is written whole or not at
//! all, and the files together never take more than `max-size` times `max-files`.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest text in one line; longer ones continue in further lines tagged `P`.
const MAX_TEXT: usize = 16 * 1024;
const READ: usize = 32 * 1024;
/// Must hold at least one line of `MAX_TEXT` and its head.
const BATCH: usize = 64 * 1024;
/// Between looks whether somebody moved or removed the file, and between attempts to report a gap.
const LOOK_AGAIN_MS: u64 = 1000;

const SIG_IGN: usize = 1;
const POLLIN: i16 = 1;

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

unsafe extern "C" {
    fn signal(signal: i32, handler: usize) -> usize;
    fn poll(fds: *mut PollFd, count: usize, timeout_ms: i32) -> i32;
    fn memchr(hay: *const u8, needle: i32, len: usize) -> *const u8;
}

fn main() {
    // A container that is being stopped still writes, and the shim (or systemd, at shutdown) sends
    // SIGTERM to us as well: only the end of the output ends us.
    for number in [1, 2, 15] {
        // SAFETY: ignoring a signal installs no handler code.
        unsafe { signal(number, SIG_IGN) };
    }
    let _ = env::set_current_dir("/");
    let options = Options::parse(env::args_os().skip(1));
    let mut log = Log::new(options.path, options.max_size, options.max_files);
    log.open_early();
    // SAFETY: the shim handed us these three descriptors, and nothing else in here owns them.
    let (out, err, ready) = unsafe { (File::from_raw_fd(3), File::from_raw_fd(4), File::from_raw_fd(5)) };
    drop(ready);
    pump(&mut [Stream::new(out, 3, "stdout"), Stream::new(err, 4, "stderr")], options.tty, &mut log);
}

struct Options {
    path: PathBuf,
    max_size: u64,
    max_files: usize,
    tty: bool,
}

impl Options {
    /// Unknown keys are skipped, so that an older logger serves a newer podling.
    fn parse(mut args: impl Iterator<Item = std::ffi::OsString>) -> Self {
        let mut options =
            Options { path: PathBuf::from("/dev/null"), max_size: 10 << 20, max_files: 5, tty: false };
        while let (Some(key), Some(value)) = (args.next(), args.next()) {
            let number = value.to_str().and_then(|v| v.parse::<u64>().ok());
            match (key.to_str(), number) {
                (Some("path"), _) => options.path = PathBuf::from(value),
                (Some("max-size"), Some(n)) => options.max_size = n,
                (Some("max-files"), Some(n)) => options.max_files = usize::try_from(n.max(1)).unwrap_or(1),
                (Some("tty"), Some(n)) => options.tty = n != 0,
                _ => {}
            }
        }
        options
    }
}

/// One of the container's two outputs.
struct Stream {
    file: File,
    fd: i32,
    name: &'static str,
    open: bool,
    /// Text of a line whose end has not come yet, at most `MAX_TEXT`.
    rest: Vec<u8>,
}

impl Stream {
    fn new(file: File, fd: i32, name: &'static str) -> Self {
        Stream { file, fd, name, open: true, rest: Vec::new() }
    }

    fn read(&mut self, chunk: &mut [u8], log: &mut Log) {
        match self.file.read(chunk) {
            Ok(0) => self.end(log),
            Ok(n) => self.take(&chunk[..n], log),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => self.end(log),
        }
    }

    fn take(&mut self, mut chunk: &[u8], log: &mut Log) {
        let time = Stamp::now();
        while let Some(end) = find_newline(chunk) {
            self.line(&time, &chunk[..end], true, log);
            chunk = &chunk[end + 1..];
        }
        self.line(&time, chunk, false, log);
    }

    /// Adds text to the current line, and closes it when its newline was there.
    fn line(&mut self, time: &Stamp, mut text: &[u8], complete: bool, log: &mut Log) {
        while self.rest.len() + text.len() > MAX_TEXT {
            let (now, later) = text.split_at(MAX_TEXT - self.rest.len());
            log.add(time, self.name, "P", &self.rest, now);
            self.rest.clear();
            text = later;
        }
        if !complete {
            self.rest.extend_from_slice(text);
            return;
        }
        match text.strip_suffix(b"\r") {
            Some(text) => log.add(time, self.name, "F", &self.rest, text),
            None if text.is_empty() => {
                let rest = self.rest.strip_suffix(b"\r").unwrap_or(&self.rest);
                log.add(time, self.name, "F", rest, b"");
            }
            None => log.add(time, self.name, "F", &self.rest, text),
        }
        self.rest.clear();
    }

    fn end(&mut self, log: &mut Log) {
        self.open = false;
        if !self.rest.is_empty() {
            log.add(&Stamp::now(), self.name, "P", &self.rest, b"");
            self.rest.clear();
        }
    }
}

fn find_newline(text: &[u8]) -> Option<usize> {
    // SAFETY: the pointer and length are those of one live slice.
    let found = unsafe { memchr(text.as_ptr(), i32::from(b'\n'), text.len()) };
    (!found.is_null()).then(|| found as usize - text.as_ptr() as usize)
}

/// Reads both streams until they end; writes whenever nothing more is ready to be read.
fn pump(streams: &mut [Stream; 2], tty: bool, log: &mut Log) {
    let mut chunk = vec![0; READ];
    while streams[0].open || (streams[1].open && !tty) {
        // A negative descriptor is skipped by poll.
        let mut fds = [0, 1].map(|i: usize| PollFd {
            fd: if streams[i].open { streams[i].fd } else { -1 },
            events: POLLIN,
            revents: 0,
        });
        let timeout = if !log.batch.is_empty() {
            0
        } else if log.dropped_lines > 0 {
            LOOK_AGAIN_MS as i32
        } else {
            -1
        };
        // SAFETY: `fds` is a live array of two pollfd.
        let ready = unsafe { poll(fds.as_mut_ptr(), fds.len(), timeout) };
        if ready == 0 {
            log.flush();
        }
        for (stream, fd) in streams.iter_mut().zip(&fds) {
            if ready > 0 && fd.revents != 0 {
                stream.read(&mut chunk, log);
            }
        }
    }
    streams[1].end(log);
    log.flush();
}

/// The log file, and what is about to be written to it.
struct Log {
    path: PathBuf,
    max_size: u64,
    max_files: usize,
    live: Option<Live>,
    /// Whole lines only.
    batch: Vec<u8>,
    dropped_lines: u64,
    dropped_bytes: u64,
    last_error: Option<i32>,
    looked_ms: u64,
}

struct Live {
    file: File,
    inode: (u64, u64),
    size: u64,
}

impl Log {
    fn new(path: PathBuf, max_size: u64, max_files: usize) -> Self {
        let batch = Vec::with_capacity(BATCH);
        let (dropped_lines, dropped_bytes, last_error) = (0, 0, None);
        Log {
            path,
            max_size,
            max_files,
            live: None,
            batch,
            dropped_lines,
            dropped_bytes,
            last_error,
            looked_ms: 0,
        }
    }

    /// The file should be there before the first line, for whoever follows it. Failing is no matter yet.
    fn open_early(&mut self) {
        self.live = open(&self.path).ok();
    }

    fn add(&mut self, time: &Stamp, stream: &str, tag: &str, first: &[u8], second: &[u8]) {
        let parts: [&[u8]; 9] =
            [&time.text, b" ", stream.as_bytes(), b" ", tag.as_bytes(), b" ", first, second, b"\n"];
        let len: usize = parts.iter().map(|p| p.len()).sum();
        if self.batch.len() + len > BATCH {
            self.flush();
        }
        for part in parts {
            self.batch.extend_from_slice(part);
        }
    }

    /// Writes the batch, or counts it as dropped. Never fails, never waits for space.
    fn flush(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut notice_len = 0;
        if self.dropped_lines > 0 {
            let notice = self.notice();
            notice_len = notice.len();
            batch.splice(..0, notice);
        }
        if !batch.is_empty() {
            let result = self.write_lines(&batch);
            self.settle(&batch, notice_len, result);
        }
        batch.clear();
        batch.shrink_to(BATCH);
        self.batch = batch;
    }

    fn notice(&self) -> Vec<u8> {
        let why = match self.last_error {
            Some(code) => io::Error::from_raw_os_error(code).to_string(),
            None => "unknown error".to_owned(),
        };
        let text = format!(
            "podling-logger: {} lines ({} bytes) of this log could not be written and were dropped: {why}",
            self.dropped_lines, self.dropped_bytes
        );
        [&Stamp::now().text[..], b" stderr F ", text.as_bytes(), b"\n"].concat()
    }

    /// Keeps the count of what is missing from the file.
    fn settle(&mut self, batch: &[u8], notice_len: usize, (written, error): (usize, Option<io::Error>)) {
        if written >= notice_len {
            (self.dropped_lines, self.dropped_bytes) = (0, 0);
        }
        let Some(error) = error else { return };
        self.last_error = error.raw_os_error();
        let lost = &batch[written.max(notice_len)..];
        self.dropped_lines += lost.iter().filter(|b| **b == b'\n').count() as u64;
        self.dropped_bytes += lost.len() as u64;
    }

    /// Writes whole lines, rotating between them; returns how many bytes got into the files.
    fn write_lines(&mut self, batch: &[u8]) -> (usize, Option<io::Error>) {
        let mut done = 0;
        while done < batch.len() {
            match self.write_some(&batch[done..]) {
                Ok(n) => done += n,
                Err((n, error)) => {
                    // The next batch tries from the beginning: a new file, a new directory.
                    self.live = None;
                    return (done + n, Some(error));
                }
            }
        }
        (done, None)
    }

    fn write_some(&mut self, lines: &[u8]) -> Result<usize, (usize, io::Error)> {
        self.look_for_moved_file();
        let room = loop {
            let live = match &mut self.live {
                Some(live) => live,
                none => none.insert(open(&self.path).map_err(|e| (0, e))?),
            };
            let room = fitting(lines, self.max_size, live.size);
            if room > 0 {
                break room;
            }
            self.live = None;
            match self.rotate() {
                // Removed by somebody else: opening it again makes what is missing.
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err((0, e)),
                _ => {}
            }
        };
        match &mut self.live {
            Some(live) => live.append(&lines[..room]).map(|()| room),
            None => Ok(0),
        }
    }

    /// Somebody may have moved or deleted the file under us; at most once a second is often enough.
    fn look_for_moved_file(&mut self) {
        let now = now().as_millis() as u64;
        if now.abs_diff(self.looked_ms) < LOOK_AGAIN_MS {
            return;
        }
        self.looked_ms = now;
        let there = fs::metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
        if self.live.as_ref().is_some_and(|live| Some(live.inode) != there) {
            self.live = None;
        }
    }

    /// Moves the live file aside, after making room for it among the kept ones.
    fn rotate(&self) -> io::Result<()> {
        let mut rotated = self.rotated()?;
        while rotated.len() + 2 > self.max_files.max(2) {
            fs::remove_file(self.with_suffix(&rotated.remove(0)))?;
        }
        if self.max_files < 2 {
            return fs::remove_file(&self.path);
        }
        let suffix = next_suffix(&Stamp::now(), rotated.last().map(String::as_str));
        fs::rename(&self.path, self.with_suffix(&suffix))
    }

    /// Suffixes of the rotated files, oldest first.
    fn rotated(&self) -> io::Result<Vec<String>> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let prefix = format!("{}.", self.path.file_name().unwrap_or_default().to_string_lossy());
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            if let Some(suffix) = name.to_str().and_then(|n| n.strip_prefix(&prefix))
                && suffix.starts_with(|c: char| c.is_ascii_digit())
            {
                found.push(suffix.to_owned());
            }
        }
        found.sort();
        Ok(found)
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(suffix);
        PathBuf::from(name)
    }
}

/// How many bytes of whole lines fit under `max`; a line longer than that gets a file of its own.
fn fitting(lines: &[u8], max: u64, size: u64) -> usize {
    let room = usize::try_from(max.saturating_sub(size)).unwrap_or(usize::MAX);
    if max == 0 || lines.len() <= room {
        return lines.len();
    }
    match lines[..room].iter().rposition(|b| *b == b'\n') {
        Some(end) => end + 1,
        None if size == 0 => find_newline(lines).map_or(lines.len(), |end| end + 1),
        None => 0,
    }
}

/// A name that sorts after all others, even when two rotations fall into one second or the clock went back:
/// readers put the files in order by name.
fn next_suffix(now: &Stamp, newest: Option<&str>) -> String {
    let stamp = now.for_file_name();
    match newest {
        Some(newest) if newest >= stamp.as_str() => {
            let (second, count) = newest.split_once('.').unwrap_or((newest, "0"));
            format!("{second}.{:05}", count.parse::<u32>().unwrap_or(0) + 1)
        }
        _ => stamp,
    }
}

fn open(path: &Path) -> io::Result<Live> {
    let append = || OpenOptions::new().create(true).append(true).mode(0o640).open(path);
    let file = match (append(), path.parent()) {
        (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            append()?
        }
        (result, _) => result?,
    };
    let meta = file.metadata()?;
    Ok(Live { file, inode: (meta.dev(), meta.ino()), size: meta.len() })
}

impl Live {
    /// Appends whole lines. When the disk fills up in the middle, the half line is cut off again; the
    /// error carries how many bytes of whole lines stayed.
    fn append(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        while done < lines.len() {
            match self.file.write(&lines[done..]) {
                Ok(0) => return Err(self.cut(lines, done, io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.cut(lines, done, e)),
            }
        }
        self.size += lines.len() as u64;
        Ok(())
    }

    fn cut(&mut self, lines: &[u8], done: usize, error: io::Error) -> (usize, io::Error) {
        let whole = lines[..done].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let _ = self.file.set_len(self.size + whole as u64);
        self.size += whole as u64;
        (whole, error)
    }
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A time as `2006-01-02T15:04:05.000000000Z`: always nine digits, so that lines sort as text.
struct Stamp {
    text: [u8; 30],
}

impl Stamp {
    fn now() -> Self {
        let now = now();
        Self::at(now.as_secs(), now.subsec_nanos())
    }

    fn at(seconds: u64, nanos: u32) -> Self {
        let (year, month, day) = civil(seconds / 86_400);
        let second_of_day = seconds % 86_400;
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], second_of_day / 3600);
        digits(&mut text[14..16], second_of_day / 60 % 60);
        digits(&mut text[17..19], second_of_day % 60);
        digits(&mut text[20..29], u64::from(nanos));
        Stamp { text }
    }

    /// `20060102-150405`, as the kubelet names rotated files (but in UTC).
    fn for_file_name(&self) -> String {
        let digits: String =
            self.text[..19].iter().map(|b| char::from(*b)).filter(char::is_ascii_digit).collect();
        format!("{}-{}", &digits[..8], &digits[8..])
    }
}

fn digits(field: &mut [u8], mut value: u64) {
    for place in field.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March inside, so that the leap day
/// is the last of its year, and 400 years (146 097 days) repeat exactly.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468; // from 0000-03-01
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, nanos: u32) -> String {
        String::from_utf8(Stamp::at(seconds, nanos).text.to_vec()).unwrap()
    }

    #[test]
    fn times_are_right_on_leap_days_and_at_the_ends_of_years() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(at(seconds, 0), want);
        }
        assert_eq!(at(1, 42), "1970-01-01T00:00:01.000000042Z");
        assert_eq!(Stamp::at(951_782_461, 0).for_file_name(), "20000229-000101");
    }

    #[test]
    fn rotated_names_sort_by_age_whatever_the_clock_does() {
        let now = Stamp::at(951_782_461, 0);
        assert_eq!(next_suffix(&now, None), "20000229-000101");
        assert_eq!(next_suffix(&now, Some("20000229-000100.00007")), "20000229-000101");
        assert_eq!(next_suffix(&now, Some("20000229-000101")), "20000229-000101.00001");
        assert_eq!(next_suffix(&now, Some("20000229-000101.00009")), "20000229-000101.00010");
        // The clock went back by years.
        assert_eq!(next_suffix(&now, Some("20260101-000000")), "20260101-000000.00001");
    }

    #[test]
    fn a_file_takes_whole_lines_only_and_a_line_too_long_for_any_gets_its_own() {
        assert_eq!(fitting(b"one\ntwo\n", 100, 0), 8);
        assert_eq!(fitting(b"one\ntwo\n", 0, 1 << 40), 8);
        assert_eq!(fitting(b"one\ntwo\n", 10, 4), 4);
        assert_eq!(fitting(b"one\ntwo\n", 10, 9), 0);
        assert_eq!(fitting(b"a long line\ntwo\n", 5, 0), 12);
    }
}
