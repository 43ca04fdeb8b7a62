use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::*;

fn key() -> PodKey {
    PodKey::new("default", "web")
}

fn finished() -> watch::Receiver<bool> {
    watch::channel(true).1
}

async fn collect(mut rx: mpsc::Receiver<Result<hyper::body::Bytes, LogError>>) -> String {
    let mut all = Vec::new();
    while let Some(part) = rx.recv().await {
        match part {
            Ok(part) => all.extend_from_slice(&part),
            Err(e) => all.extend_from_slice(format!("ERROR {e}").as_bytes()),
        }
    }
    String::from_utf8(all).unwrap()
}

async fn read(dir: &Path, query: LogQuery) -> String {
    collect(stream(dir, 0, query, finished())).await
}

fn line(second: u32, rest: &str) -> String {
    format!("2026-01-02T03:04:{second:02}.000000000Z {rest}\n")
}

fn lines(range: std::ops::Range<u32>) -> String {
    range.map(|n| line(n % 60, &format!("stdout F line {n}"))).collect()
}

#[test]
fn the_uri_survives_a_path_with_any_character_in_it() {
    let uri =
        logger_uri(Path::new("/var/lib/podling/bin/podling-logger"), Path::new("/l/a b&c=é%.log"), 7, 3);
    assert_eq!(
        uri,
        "binary:///var/lib/podling/bin/podling-logger?path=/l/a%20b%26c%3D%C3%A9%25.log&max-size=7&max-files=3"
    );
    assert!(logger_uri_tty(Path::new("/x"), Path::new("/y"), 1, 2).ends_with("&max-files=2&tty=1"));
}

#[test]
fn paths_are_those_of_the_kubelet() {
    let paths = Paths::under("/");
    assert_eq!(
        log_path(&paths, &key(), "u-1", "app", 3),
        Path::new("/var/log/pods/default_web_u-1/app/3.log")
    );
    assert_eq!(
        link_path(&paths, &key(), "app", "abc"),
        Path::new("/var/log/containers/web_default_app-abc.log")
    );
}

#[test]
fn a_link_name_is_never_longer_than_a_file_name_may_be() {
    let long = PodKey::new("n".repeat(63), "p".repeat(253));
    let link = link_path(&Paths::under("/"), &long, "app", &"a".repeat(64));
    let name = link.file_name().unwrap().to_str().unwrap();
    assert_eq!((name.len(), name.ends_with(".log")), (255, true));
}

#[test]
fn removing_a_pods_logs_takes_its_links_and_leaves_those_of_others() {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::under(root.path());
    let other = PodKey::new("default", "other");
    for key in [&key(), &other] {
        let log = log_path(&paths, key, "u", "app", 0);
        create_log_dir(&paths, &log).unwrap();
        fs::write(&log, "x").unwrap();
        create_link(&paths, key, "app", "old", Path::new("/nowhere")).unwrap();
        create_link(&paths, key, "app", "old", &log).unwrap();
        create_link(&paths, key, "app", "new", &log).unwrap();
    }
    remove_links(&paths, &key(), "u");
    remove_links(&paths, &key(), "u");
    assert!(log_path(&paths, &key(), "u", "app", 0).exists());
    assert!(link_path(&paths, &key(), "app", "old").symlink_metadata().is_err());
    assert!(link_path(&paths, &key(), "app", "new").symlink_metadata().is_err());
    assert!(link_path(&paths, &other, "app", "new").exists());
}

#[test]
fn links_to_logs_that_are_gone_go_with_them() {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::under(root.path());
    let log = |container: &str, attempt| log_path(&paths, &key(), "u", container, attempt);
    for (container, attempt) in [("app", 0), ("app", 1), ("side", 0)] {
        create_log_dir(&paths, &log(container, attempt)).unwrap();
        create_link(&paths, &key(), container, &format!("{attempt}"), &log(container, attempt)).unwrap();
    }
    fs::write(log("app", 1), "x").unwrap();
    remove_dead_links(&paths, log("app", 0).parent().unwrap());
    let left = |container, id| link_path(&paths, &key(), container, id).symlink_metadata().is_ok();
    assert_eq!((left("app", "0"), left("app", "1"), left("side", "0")), (false, true, true));
}

#[test]
fn old_attempts_are_pruned_with_their_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["0.log", "0.log.20260101-000000", "1.log", "2.log", "3.log", "10.log", "11.log"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    prune_attempts(dir.path(), 10, 2).unwrap();
    assert_eq!(attempts(dir.path()).unwrap(), [2, 3, 10, 11]);
    assert!(!dir.path().join("0.log.20260101-000000").exists());
}

#[test]
fn a_line_is_read_with_its_tags_and_anything_else_is_not_a_line() {
    let parsed = LogLine::parse(b"2026-01-02T03:04:05.1Z stderr P:x a b").unwrap();
    assert_eq!((parsed.stream, parsed.full, parsed.text), (Stream::Stderr, false, &b"a b"[..]));
    assert!(parsed.timestamp().is_some());
    for bad in ["", "a", "t stdin F x", "t stdout X x", "t stdout F"] {
        assert_eq!(LogLine::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[tokio::test]
async fn rotated_files_come_first_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log"), lines(30..40)).unwrap();
    fs::write(dir.path().join("0.log.20260102-030405"), lines(0..10)).unwrap();
    fs::write(dir.path().join("0.log.20260102-030405.00001"), lines(10..30)).unwrap();
    fs::write(dir.path().join("1.log"), "other").unwrap();
    let want: String = (0..40).map(|n| format!("line {n}\n")).collect();
    assert_eq!(read(dir.path(), LogQuery::default()).await, want);
}

#[tokio::test]
async fn the_tail_reaches_back_into_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log.20260102-030405"), lines(0..1000)).unwrap();
    fs::write(dir.path().join("0.log"), lines(1000..1003)).unwrap();
    for tail in [0, 1, 3, 4, 500, 990, 1003, 5000] {
        let got = read(dir.path(), LogQuery { tail: Some(tail), ..LogQuery::default() }).await;
        let want: String =
            (1003_u32.saturating_sub(tail as u32)..1003).map(|n| format!("line {n}\n")).collect();
        assert_eq!(got, want, "tail {tail}");
    }
}

#[tokio::test]
async fn the_tail_of_a_file_of_many_steps_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log"), lines(0..30_000)).unwrap();
    for tail in [1, 2000, 12_345] {
        let got = read(dir.path(), LogQuery { tail: Some(tail), ..LogQuery::default() }).await;
        assert_eq!(got.lines().count() as u64, tail);
        assert_eq!(got.lines().next().unwrap(), format!("line {}", 30_000 - tail));
    }
}

#[tokio::test]
async fn pieces_are_joined_even_when_the_other_stream_wrote_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = line(1, "stdout F before")
        + &line(2, "stdout P one ")
        + &line(3, "stderr F err")
        + &line(4, "stdout F two")
        + &line(5, "stdout P prompt: ");
    fs::write(dir.path().join("0.log"), text).unwrap();
    assert_eq!(read(dir.path(), LogQuery::default()).await, "before\nerr\none two\nprompt: ");
    let tail = |n| LogQuery { tail: Some(n), ..LogQuery::default() };
    assert_eq!(read(dir.path(), tail(2)).await, "one two\nprompt: ");
    let stamped = LogQuery { timestamps: true, ..tail(2) };
    assert_eq!(
        read(dir.path(), stamped).await,
        "2026-01-02T03:04:02.000000000Z one two\n2026-01-02T03:04:05.000000000Z prompt: "
    );
}

#[tokio::test]
async fn a_line_without_end_passes_through_whole() {
    let dir = tempfile::tempdir().unwrap();
    let piece = "x".repeat(16 * 1024);
    let text: String = (0..40).map(|_| line(1, &format!("stdout P {piece}"))).collect();
    fs::write(dir.path().join("0.log"), text + &line(2, "stdout F end")).unwrap();
    let got = read(dir.path(), LogQuery { timestamps: true, ..LogQuery::default() }).await;
    assert_eq!(got.len(), "2026-01-02T03:04:01.000000000Z ".len() + 40 * piece.len() + "end\n".len());
}

#[tokio::test]
async fn since_leaves_out_what_is_older() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log"), lines(0..10)).unwrap();
    let time = "2026-01-02T03:04:08Z".parse().unwrap();
    let query = LogQuery { since: Some(Since::Time(time)), ..LogQuery::default() };
    assert_eq!(read(dir.path(), query).await, "line 8\nline 9\n");
    let query = LogQuery { since: Some(Since::Ago(Duration::from_secs(5))), ..LogQuery::default() };
    let now = jiff::Timestamp::now();
    let mut file = fs::OpenOptions::new().append(true).open(dir.path().join("0.log")).unwrap();
    writeln!(file, "{now} stdout F fresh").unwrap();
    assert_eq!(read(dir.path(), query).await, "fresh\n");
}

#[tokio::test]
async fn what_is_no_log_line_is_shown_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log"), "garbage\n".to_owned() + &line(1, "stdout F ok")).unwrap();
    assert_eq!(read(dir.path(), LogQuery::default()).await, "garbage\nok\n");
}

#[tokio::test]
async fn previous_is_the_latest_earlier_attempt() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("2.log"), line(1, "stdout F two")).unwrap();
    fs::write(dir.path().join("5.log"), line(1, "stdout F five")).unwrap();
    let previous = || LogQuery { previous: true, ..LogQuery::default() };
    assert_eq!(collect(stream(dir.path(), 5, previous(), finished())).await, "two\n");
    let first = collect(stream(dir.path(), 2, previous(), finished())).await;
    assert!(first.starts_with("ERROR no log of a previous instance in /"), "{first}");
}

#[tokio::test]
async fn a_missing_log_says_which_file_and_why_it_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let got = read(dir.path(), LogQuery::default()).await;
    let want = format!(
        "ERROR no log at {}/0.log: the container has not started yet, or its log was removed",
        dir.path().display()
    );
    assert_eq!(got, want);
}

#[tokio::test]
async fn following_waits_for_the_file_survives_rotation_and_ends_with_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("0.log");
    let (done, watching) = watch::channel(false);
    let query = LogQuery { follow: true, ..LogQuery::default() };
    let following = tokio::spawn(collect(stream(dir.path(), 0, query, watching)));
    let pause = || tokio::time::sleep(Duration::from_millis(250));
    pause().await;
    fs::write(&live, lines(0..2)).unwrap();
    pause().await;
    // Two rotations between two looks.
    let mut file = fs::OpenOptions::new().append(true).open(&live).unwrap();
    file.write_all(lines(2..3).as_bytes()).unwrap();
    fs::rename(&live, dir.path().join("0.log.20260102-030405")).unwrap();
    fs::write(&live, lines(3..5)).unwrap();
    fs::rename(&live, dir.path().join("0.log.20260102-030405.00001")).unwrap();
    fs::write(&live, lines(5..6)).unwrap();
    pause().await;
    let mut file = fs::OpenOptions::new().append(true).open(&live).unwrap();
    file.write_all(lines(6..7).as_bytes()).unwrap();
    done.send(true).unwrap();
    file.write_all(lines(7..8).as_bytes()).unwrap();
    let want: String = (0..8).map(|n| format!("line {n}\n")).collect();
    assert_eq!(following.await.unwrap(), want);
}

#[tokio::test]
async fn dropping_the_receiver_ends_a_follow() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.log"), lines(0..2)).unwrap();
    let (done, watching) = watch::channel(false);
    let mut rx = stream(dir.path(), 0, LogQuery { follow: true, ..LogQuery::default() }, watching.clone());
    drop(watching);
    assert!(rx.recv().await.unwrap().is_ok());
    drop(rx);
    tokio::time::timeout(Duration::from_secs(5), done.closed()).await.unwrap();
}
