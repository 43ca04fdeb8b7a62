//! Reading a log for a person: the last lines, from a time on, and following it as it grows and rotates.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hyper::body::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::LogError;
use super::files::{LogFile, attempts, is_live, open_all, tail_start};
use super::line::{LogLine, Stream};

/// Bytes read, and at most about as many sent, at a time.
const CHUNK: usize = 64 * 1024;
/// How often a followed log is looked at once its end is reached.
const IDLE: Duration = Duration::from_millis(100);
/// A line that never ends is passed on in parts of this size.
const LONGEST_JOIN: usize = 256 * 1024;

/// From when on lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Since {
    /// Not older than this.
    Ago(Duration),
    /// Not before this.
    Time(Timestamp),
}

/// What of a log is wanted; the default is all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogQuery {
    /// Only the last so many lines.
    pub tail: Option<u64>,
    /// Only lines from then on.
    pub since: Option<Since>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Go on until the container has ended.
    pub follow: bool,
    /// The log of the instance before the given one.
    pub previous: bool,
}

/// Reads the log of instance `attempt` from a container's log directory.
///
/// Pieces of long lines are joined. With `follow` the stream ends when `done` is true (or its sender is gone)
/// and everything written has been sent; without, at the end of the file. Errors come as the last item.
/// Dropping the receiver ends the reading. Must be called inside a tokio runtime.
pub fn stream(
    directory: &Path,
    attempt: u32,
    query: LogQuery,
    done: watch::Receiver<bool>,
) -> mpsc::Receiver<Result<Bytes, LogError>> {
    let (tx, rx) = mpsc::channel(4);
    let directory = directory.to_owned();
    // The file system may be slow or dead: never on the runtime's own threads.
    tokio::task::spawn_blocking(move || {
        if let Err(e) = run(&directory, attempt, query, &done, &tx) {
            let _ = tx.blocking_send(Err(e));
        }
    });
    rx
}

type Sender = mpsc::Sender<Result<Bytes, LogError>>;

fn run(
    directory: &Path,
    attempt: u32,
    query: LogQuery,
    done: &watch::Receiver<bool>,
    tx: &Sender,
) -> Result<(), LogError> {
    let live = directory.join(format!("{}.log", which(directory, attempt, query.previous)?));
    let Some(mut cursor) = open(live, query.follow && !query.previous, done, tx)? else { return Ok(()) };
    let mut printer = Printer::new(&query);
    if let Some(lines) = query.tail {
        printer.skip = cursor.seek_tail(lines).map_err(LogError::io("read", &cursor.live))?;
    }
    let mut ending = false;
    loop {
        let more = cursor.read(&mut printer).map_err(LogError::io("read", &cursor.live))?;
        if (!more || printer.out.len() >= CHUNK) && !send(tx, &mut printer) {
            return Ok(());
        }
        if more {
            continue;
        }
        if !query.follow || query.previous || ending {
            break;
        }
        // The end is believed after one more look: the logger may still have been writing.
        ending = is_done(done);
        thread::sleep(IDLE);
        if tx.is_closed() {
            return Ok(());
        }
    }
    printer.finish();
    send(tx, &mut printer);
    Ok(())
}

fn which(directory: &Path, attempt: u32, previous: bool) -> Result<u32, LogError> {
    if !previous {
        return Ok(attempt);
    }
    let earlier = attempts(directory)?.into_iter().rfind(|a| *a < attempt);
    earlier.ok_or_else(|| LogError::NoPrevious { directory: directory.to_owned() })
}

/// Opens the log; one that is followed may be yet to come.
fn open(
    live: PathBuf,
    wait: bool,
    done: &watch::Receiver<bool>,
    tx: &Sender,
) -> Result<Option<Cursor>, LogError> {
    loop {
        match open_all(&live) {
            Ok(files) => return Ok(Some(Cursor::new(live, files))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if !wait || is_done(done) {
                    return Err(LogError::Missing { path: live });
                }
            }
            Err(e) => return Err(LogError::io("open", &live)(e)),
        }
        thread::sleep(IDLE);
        if tx.is_closed() {
            return Ok(None);
        }
    }
}

fn is_done(done: &watch::Receiver<bool>) -> bool {
    *done.borrow() || done.has_changed().is_err()
}

fn send(tx: &Sender, printer: &mut Printer) -> bool {
    printer.out.is_empty() || tx.blocking_send(Ok(Bytes::from(std::mem::take(&mut printer.out)))).is_ok()
}

/// A position in the sequence of files.
struct Cursor {
    live: PathBuf,
    files: VecDeque<LogFile>,
    offset: u64,
    /// The beginning of a line whose end has not been read yet.
    carry: Vec<u8>,
    buffer: Vec<u8>,
}

impl Cursor {
    fn new(live: PathBuf, files: Vec<LogFile>) -> Self {
        Self { live, files: files.into(), offset: 0, carry: Vec::new(), buffer: vec![0; CHUNK] }
    }

    /// Goes to where the last lines begin, or somewhat before; returns how many lines to leave out.
    fn seek_tail(&mut self, lines: u64) -> io::Result<u64> {
        let (index, offset) = tail_start(self.files.make_contiguous(), lines)?;
        self.files.drain(..index);
        self.offset = offset;
        let mut counter = Counter::default();
        for (index, file) in self.files.iter().enumerate() {
            let from = if index == 0 { offset } else { 0 };
            counter.count(file, from, &mut self.buffer)?;
        }
        Ok(counter.total().saturating_sub(lines))
    }

    /// Reads a chunk into the printer; false at the end of all there is now.
    fn read(&mut self, printer: &mut Printer) -> io::Result<bool> {
        let Some(file) = self.files.front() else { return Ok(false) };
        let n = file.read_at(&mut self.buffer, self.offset)?;
        if n > 0 {
            self.offset += n as u64;
            split_lines(&self.buffer[..n], &mut self.carry, |line| printer.add(line));
            return Ok(true);
        }
        if self.files.len() == 1 {
            return self.at_end();
        }
        self.next_file(printer);
        Ok(true)
    }

    fn next_file(&mut self, printer: &mut Printer) {
        if !self.carry.is_empty() {
            printer.add(&self.carry);
            self.carry.clear();
        }
        self.files.pop_front();
        self.offset = 0;
    }

    /// At the end of the newest file known: has it been rotated, or cut by hand?
    fn at_end(&mut self) -> io::Result<bool> {
        let Some(file) = self.files.front() else { return Ok(false) };
        if is_live(&self.live, file.inode) {
            if file.len()? < self.offset {
                self.offset = 0;
                return Ok(true);
            }
            return Ok(false);
        }
        let inode = file.inode;
        let found = match open_all(&self.live) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        // When ours is not among them it was the oldest and is deleted: all of them are newer.
        let newer = found.iter().position(|f| f.inode == inode).map_or(0, |at| at + 1);
        self.files.extend(found.into_iter().skip(newer));
        // What was written between our last read and the rotation is read first: the offset stays.
        Ok(self.files.len() > 1)
    }
}

/// Calls `each` for every line that ends in `chunk`, keeping an unfinished one in `carry`.
fn split_lines(mut chunk: &[u8], carry: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    while let Some(end) = chunk.iter().position(|b| *b == b'\n') {
        if carry.is_empty() {
            each(&chunk[..end]);
        } else {
            carry.extend_from_slice(&chunk[..end]);
            each(carry);
            carry.clear();
        }
        chunk = &chunk[end + 1..];
    }
    carry.extend_from_slice(chunk);
}

/// Counts lines of text, as the printer will number them.
#[derive(Default)]
struct Counter {
    whole: u64,
    open: [bool; 2],
}

impl Counter {
    fn count(&mut self, file: &LogFile, mut offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut carry = Vec::new();
        loop {
            let n = file.read_at(buffer, offset)?;
            if n == 0 {
                return Ok(());
            }
            offset += n as u64;
            split_lines(&buffer[..n], &mut carry, |line| self.add(line));
        }
    }

    fn add(&mut self, line: &[u8]) {
        let parsed = LogLine::parse(line);
        self.whole += u64::from(parsed.is_none_or(|l| l.full));
        if let Some(line) = parsed {
            self.open[slot(line.stream)] = !line.full;
        }
    }

    fn total(&self) -> u64 {
        self.whole + self.open.iter().filter(|open| **open).count() as u64
    }
}

fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Joins pieces, leaves out what is not wanted, and formats the rest.
struct Printer {
    timestamps: bool,
    since: Option<Timestamp>,
    /// Lines still to be left out.
    skip: u64,
    pending: [Pending; 2],
    out: Vec<u8>,
}

/// The pieces so far of one stream's current line.
#[derive(Default)]
struct Pending {
    open: bool,
    time: Vec<u8>,
    text: Vec<u8>,
    /// Set when a first part of a very long line has been decided upon.
    shown: Option<bool>,
}

impl Printer {
    fn new(query: &LogQuery) -> Self {
        let since = query.since.map(|since| match since {
            Since::Time(time) => time,
            Since::Ago(ago) => Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::MIN),
        });
        let (pending, out) = Default::default();
        Self { timestamps: query.timestamps, since, skip: 0, pending, out }
    }

    fn add(&mut self, raw: &[u8]) {
        let Some(line) = LogLine::parse(raw) else {
            // Written by somebody else; shown as it is rather than hidden.
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.out.extend_from_slice(raw);
                self.out.push(b'\n');
            }
            return;
        };
        let index = slot(line.stream);
        let pending = &mut self.pending[index];
        if line.full && !pending.open {
            if self.wanted(&line) {
                self.print(line.time, line.text, true);
            }
            return;
        }
        if !pending.open {
            pending.open = true;
            pending.time = line.time.to_vec();
        }
        pending.text.extend_from_slice(line.text);
        if line.full || pending.text.len() >= LONGEST_JOIN {
            self.emit(index, line.full);
        }
    }

    /// Prints what has been joined so far. `ends` with the end of the line.
    fn emit(&mut self, index: usize, ends: bool) {
        let pending = std::mem::take(&mut self.pending[index]);
        let first = pending.shown.is_none();
        let line = LogLine { time: &pending.time, stream: Stream::Stdout, full: true, text: &pending.text };
        let show = match pending.shown {
            Some(shown) => shown,
            None => self.wanted(&line),
        };
        if show {
            self.print(if first { &pending.time } else { b"" }, &pending.text, ends);
        }
        if !ends {
            self.pending[index] = Pending { open: true, shown: Some(show), ..Pending::default() };
        }
    }

    fn wanted(&mut self, line: &LogLine<'_>) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        match (self.since, line.timestamp()) {
            (Some(since), Some(time)) => time >= since,
            _ => true,
        }
    }

    fn print(&mut self, time: &[u8], text: &[u8], newline: bool) {
        if self.timestamps && !time.is_empty() {
            self.out.extend_from_slice(time);
            self.out.push(b' ');
        }
        self.out.extend_from_slice(text);
        if newline {
            self.out.push(b'\n');
        }
    }

    /// The log has ended: a last line without its end is shown without one.
    fn finish(&mut self) {
        for index in 0..2 {
            if self.pending[index].open && !self.pending[index].text.is_empty() {
                self.emit(index, false);
            }
        }
    }
}
