//! The log writer as the shim runs it: with the container's output on fd 3 and 4, and a pipe on fd 5.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// A running logger.
struct Logger {
    child: Child,
    out: Option<PipeWriter>,
    err: Option<PipeWriter>,
    ready: PipeReader,
}

impl Logger {
    fn start(args: &[(&str, &str)]) -> Self {
        let (out_read, out) = pipe().unwrap();
        let (err_read, err) = pipe().unwrap();
        let (ready, ready_write) = pipe().unwrap();
        let child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4<&2 5>&1 0</dev/null 1>/dev/null 2>/dev/null"#])
            .arg(env!("CARGO_BIN_EXE_podling-logger"))
            .args(args.iter().flat_map(|(key, value)| [key, value]))
            .stdin(out_read)
            .stderr(err_read)
            .stdout(ready_write)
            .spawn()
            .unwrap();
        Self { child, out: Some(out), err: Some(err), ready }
    }

    fn to(path: &Path) -> Self {
        Self::start(&[("path", path.to_str().unwrap())])
    }

    fn out(&mut self, text: impl AsRef<[u8]>) {
        self.out.as_mut().unwrap().write_all(text.as_ref()).unwrap();
    }

    fn err(&mut self, text: impl AsRef<[u8]>) {
        self.err.as_mut().unwrap().write_all(text.as_ref()).unwrap();
    }

    /// The container has ended.
    fn end(mut self) {
        (self.out, self.err) = (None, None);
        self.wait();
    }

    fn wait(&mut self) {
        for _ in 0..500 {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().unwrap();
        panic!("the logger does not end");
    }
}

/// What a log says, line by line, without the times.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| {
            let (time, rest) = line.split_once(' ').unwrap();
            time.parse::<jiff::Timestamp>().unwrap();
            assert_eq!((time.len(), time.ends_with('Z')), (30, true), "{time}");
            rest.to_owned()
        })
        .collect()
}

/// All files of a log, oldest first.
fn files(live: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(live.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all.retain(|path| path != live);
    all.push(live.to_owned());
    all
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..500 {
        if check() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never happened: {what}");
}

#[test]
fn it_says_when_it_is_ready_and_makes_the_directory_and_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/app/0.log");
    let mut logger = Logger::to(&log);
    assert_eq!(logger.ready.read(&mut [0]).unwrap(), 0);
    assert!(log.exists());
    logger.end();
}

#[test]
fn both_outputs_come_as_whole_lines_in_the_format_of_the_cri() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let mut logger = Logger::to(&log);
    logger.out("one\nhalf");
    eventually("the first line", || lines(&log) == ["stdout F one"]);
    logger.err("oops\r\n\n");
    eventually("the second stream", || lines(&log).len() == 3);
    logger.out(" and half\r");
    std::thread::sleep(Duration::from_millis(50));
    logger.out("\nlast words");
    logger.end();
    assert_eq!(
        lines(&log),
        ["stdout F one", "stderr F oops", "stderr F ", "stdout F half and half", "stdout P last words"]
    );
}

#[test]
fn a_line_is_cut_at_16_kib_and_one_of_exactly_that_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let mut logger = Logger::to(&log);
    let exact = "e".repeat(16 * 1024);
    logger.out(format!("{exact}\n"));
    logger.out(format!("{}\n", "l".repeat(40_000)));
    logger.end();
    let got: Vec<(String, usize)> = lines(&log).iter().map(|l| (l[..8].to_owned(), l.len() - 9)).collect();
    let want = [("stdout F", 16384), ("stdout P", 16384), ("stdout P", 16384), ("stdout F", 7232)];
    assert_eq!(got, want.map(|(tag, len)| (tag.to_owned(), len)));
}

#[test]
fn rotation_keeps_the_newest_files_and_the_size_bounded_at_every_moment() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let (max, keep) = (100_000, 3);
    let mut logger =
        Logger::start(&[("max-files", "3"), ("path", log.to_str().unwrap()), ("max-size", "100000")]);
    for number in 0..60_000 {
        logger.out(format!("line {number}\n"));
        if number % 5000 == 0 {
            let size: u64 = files(&log).iter().filter_map(|f| fs::metadata(f).ok()).map(|m| m.len()).sum();
            assert!(size <= max * keep, "{size}");
        }
    }
    logger.end();
    let files = files(&log);
    assert_eq!(files.len() as u64, keep);
    for file in &files[..2] {
        let size = fs::metadata(file).unwrap().len();
        assert!(size <= max && size > max - 100, "{size}");
        let suffix = file.file_name().unwrap().to_str().unwrap().strip_prefix("0.log.").unwrap();
        assert_eq!((suffix.as_bytes()[8], suffix.split('.').next().unwrap().len()), (b'-', 15), "{suffix}");
    }
    let kept: Vec<String> = files.iter().flat_map(|f| lines(f)).collect();
    let first = 60_000 - kept.len();
    for (index, line) in kept.iter().enumerate() {
        assert_eq!(*line, format!("stdout F line {}", first + index));
    }
}

#[test]
fn a_stop_signal_does_not_end_it_before_the_output_does() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let mut logger = Logger::to(&log);
    logger.ready.read_exact(&mut [0]).unwrap_err();
    for signal in ["TERM", "INT", "HUP"] {
        let pid = logger.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
    std::thread::sleep(Duration::from_millis(50));
    logger.out("still here\n");
    logger.end();
    assert_eq!(lines(&log), ["stdout F still here"]);
}

#[test]
fn it_ends_when_both_outputs_have_ended_and_with_a_terminal_when_stdout_has() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let mut logger = Logger::to(&log);
    logger.out = None;
    std::thread::sleep(Duration::from_millis(50));
    logger.err("after stdout\n");
    logger.end();
    assert_eq!(lines(&log), ["stderr F after stdout"]);
    let mut logger = Logger::start(&[("path", log.to_str().unwrap()), ("tty", "1")]);
    logger.out("$ ");
    logger.out = None;
    logger.wait();
    assert_eq!(lines(&log)[1..], ["stdout P $ "]);
}

#[test]
fn a_log_moved_or_removed_by_somebody_else_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("pod/app/0.log");
    let mut logger = Logger::to(&log);
    logger.out("one\n");
    eventually("the first line", || log.exists() && lines(&log).len() == 1);
    fs::remove_dir_all(dir.path().join("pod")).unwrap();
    eventually("the file is back", || {
        logger.out("more\n");
        std::thread::sleep(Duration::from_millis(20));
        log.exists()
    });
    logger.end();
}

#[test]
fn what_a_full_disk_did_not_take_is_counted_and_the_container_never_waits() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(dir.path(), "1m");
    let log = disk.0.join("0.log");
    fs::write(disk.0.join("ballast"), vec![0; 768 * 1024]).unwrap();
    let mut logger = Logger::to(&log);
    // Far more than the disk and all pipes hold: returns only if somebody reads.
    for number in 0..100_000 {
        logger.out(format!("line {number}\n"));
    }
    eventually("the disk is full", || {
        logger.out("more\n");
        fs::File::create(disk.0.join("x")).and_then(|mut f| f.write_all(&[0; 8192])).is_err()
    });
    fs::remove_file(disk.0.join("x")).unwrap();
    fs::remove_file(disk.0.join("ballast")).unwrap();
    // Without any further output: it tries by itself.
    let notice =
        |line: &String| line.contains(" could not be written and were dropped: No space left on device");
    eventually("the gap is reported", || lines(&log).iter().any(notice));
    logger.out("after\n");
    logger.end();
    let all = lines(&log);
    assert_eq!(all.last().unwrap(), "stdout F after");
    let told: u64 =
        all.iter().filter(|l| notice(l)).map(|l| l.split(' ').nth(3).unwrap().parse::<u64>().unwrap()).sum();
    let written = all.iter().filter(|l| l.starts_with("stdout F line ")).count() as u64;
    let extra = all.iter().filter(|l| *l == "stdout F more").count() as u64;
    assert!(told + written + extra >= 100_001, "{told} {written} {extra}");
    assert!(told + written <= 100_600, "{told} {written}");
}

#[test]
fn a_log_that_can_never_be_written_does_not_stop_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("0.log");
    fs::create_dir(&blocked).unwrap();
    let mut logger = Logger::to(&blocked);
    logger.out(vec![b'x'; 1 << 20]);
    logger.end();
}

#[test]
fn a_flood_is_taken_at_the_speed_of_the_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let mut logger =
        Logger::start(&[("path", log.to_str().unwrap()), ("max-size", "1000000"), ("max-files", "2")]);
    let chunk = [&[b'x'; 99][..], b"\n"].concat().repeat(600);
    for _ in 0..300 {
        logger.out(&chunk);
    }
    logger.end();
    assert_eq!(files(&log).len(), 2);
}

/// A small file system, unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    fn new(dir: &Path, size: &str) -> Self {
        let point = dir.join("disk");
        fs::create_dir(&point).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &point, "tmpfs", flags, options.as_c_str()).unwrap();
        Self(point)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
