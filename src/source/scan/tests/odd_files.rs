//! Files that are no manifests, links, and single files in place of a directory.

use super::*;

#[test]
fn backups_directories_and_strange_files_are_left_alone_and_noted() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:3"));
    b.write("web.yaml.bak", &yaml("web", "i:2"));
    b.write(".web.yaml.swp", "x");
    b.write("README.md", "apiVersion kind");
    b.write("bare", &yaml("bare", "i:1"));
    b.write("Makefile", "all:\n");
    fs::create_dir(b.path("sub")).expect("mkdir");
    fs::create_dir(b.path("old.yaml")).expect("mkdir");
    rustix::fs::mknodat(rustix::fs::CWD, b.path("pipe.yaml"), FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("mkfifo");
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:3"]);
    let text: Vec<String> = found
        .problems
        .iter()
        .map(|p| {
            assert_eq!(p.reason, "Ignored");
            p.message.replace(&format!("{}/", b.dir().display()), "")
        })
        .collect();
    assert_eq!(
        text,
        [
            "bare: looks like a manifest but has no extension; name it *.yaml or turn on `extensionless`",
            "old.yaml: is a directory, not a file; put a regular file in its place",
            "pipe.yaml: is a fifo, not a file; put a regular file in its place",
            "sub: is a directory; sub-directories are not entered",
            "web.yaml.bak: is ignored by its name, as a backup; to run it, name it *.yaml, *.yml or *.json",
        ]
    );
}

#[test]
fn a_backup_is_noted_only_when_it_stays() {
    let mut b = Bench::new();
    b.scan();
    b.write("web.yaml~", "x");
    let found = b.scan();
    assert!(found.problems.is_empty());
    assert_eq!(found.next, Some(b.now + Duration::from_secs(1)));
    assert_eq!(reasons(&b.wait(1000).scan()), ["Ignored"]);
    fs::remove_file(b.path("web.yaml~")).expect("rm");
    assert!(b.scan().problems.is_empty());
}

#[test]
fn names_without_extension_run_when_the_setting_says_so() {
    let mut b = Bench::new();
    b.write("bare", &yaml("bare", "i:1"));
    b.scanner.set_options(FileSourceOptions { extensionless: true, ..options(&b.dir()) }, b.now);
    assert_eq!(running(&b.scan()), ["bare=i:1"]);
    b.scanner.set_options(options(&b.dir()), b.now);
    assert!(b.settled().pods.is_empty());
}

#[test]
fn a_file_that_turns_into_a_fifo_keeps_its_pod_and_is_never_opened() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::remove_file(b.path("web.yaml")).expect("rm");
    rustix::fs::mknodat(rustix::fs::CWD, b.path("web.yaml"), FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("mkfifo");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Unreadable");
}

#[test]
fn a_file_over_a_mebibyte_is_refused_unread() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    let file = fs::File::create(b.path("web.yaml")).expect("create");
    file.set_len(1 << 40).expect("truncate");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "TooLarge");
    assert!(
        only(&found)
            .message
            .contains("is 1099511627776 bytes, more than the 10485760 that a manifest may have")
    );
    assert_eq!(found.next, None);
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_pod_and_is_tried_again() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::remove_file(b.path("web.yaml")).expect("rm");
    // Write-only by nature: reading it fails even for root.
    symlink("/sys/bus/cpu/uevent", b.path("web.yaml")).expect("ln");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Unreadable");
    assert!(only(&found).message.contains("cannot be read ("), "{}", only(&found).message);
    assert_eq!(found.next, None);
    b.scanner.retry();
    assert_eq!(b.scan().next, Some(b.now + SETTLE));
}

#[test]
fn a_link_to_nothing_is_reported_and_read_when_its_target_appears() {
    let mut b = Bench::new();
    let target = b.home.path().join("target.yaml");
    symlink(&target, b.path("web.yaml")).expect("ln");
    let found = b.scan();
    assert!(found.pods.is_empty());
    assert!(only(&found).message.contains("is a link to "), "{}", only(&found).message);
    assert_eq!(found.next, Some(b.now + POLL));
    fs::write(&target, yaml("web", "i:1")).expect("write");
    assert_eq!(running(&b.settled()), ["web=i:1"]);
    // The link is still there: its target going is not a removal.
    fs::remove_file(&target).expect("rm");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).keeps, [PodKey::new("default", "web")]);
}

#[test]
fn events_at_a_links_target_concern_the_manifest() {
    let mut b = Bench::new();
    let home = b.home.path().canonicalize().expect("real path");
    fs::create_dir(home.join("v1")).expect("mkdir");
    fs::write(home.join("v1/web.yaml"), yaml("web", "i:1")).expect("write");
    symlink("v1", home.join("current")).expect("ln");
    symlink("../current/web.yaml", b.path("web.yaml")).expect("ln");
    b.scan();
    let watched: Vec<&Path> = b.scanner.interest().dirs().collect();
    assert!(watched.contains(&home.as_path()) && watched.contains(&home.join("v1").as_path()), "{watched:?}");

    fs::write(home.join("v1/web.yaml"), yaml("web", "i:2")).expect("write");
    assert!(!b.scanner.event(&home.join("v1/unrelated"), Kind::Closed, b.now));
    assert!(b.scanner.event(&home.join("v1/web.yaml"), Kind::Closed, b.now));
    assert_eq!(running(&b.scan()), ["web=i:2"]);

    fs::create_dir(home.join("v2")).expect("mkdir");
    fs::write(home.join("v2/web.yaml"), yaml("web", "i:3")).expect("write");
    symlink("v2", home.join("next")).expect("ln");
    fs::rename(home.join("next"), home.join("current")).expect("mv");
    assert!(b.scanner.event(&home.join("current"), Kind::MovedHere, b.now));
    assert_eq!(running(&b.scan()), ["web=i:3"]);
}

#[test]
fn a_single_file_may_stand_in_place_of_a_directory() {
    let mut b = Bench::new();
    b.write("web", &yaml("web", "i:1"));
    b.write("other.yaml", &yaml("other", "i:1"));
    let file = b.path("web");
    b.scanner = Scanner::new(options(&file), Seed::default());
    assert_eq!(running(&b.scan()), ["web=i:1"]);
    b.write("web", &yaml("web", "i:2"));
    assert!(b.event("web", Kind::Closed));
    assert_eq!(running(&b.scan()), ["web=i:2"]);
    fs::remove_file(&file).expect("rm");
    assert_eq!(running(&b.scan()), ["web=i:2"]);
    let found = b.wait(200).scan();
    assert!(found.pods.is_empty());
    assert_eq!(only(&found).reason, "Missing");
    b.write("web", &yaml("web", "i:3"));
    assert_eq!(running(&b.settled()), ["web=i:3"]);
    // Its directory going away is not a removal.
    fs::rename(b.dir(), b.home.path().join("away")).expect("mv");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:3"]);
    assert_eq!(only(&found).reason, "Frozen");
}

#[test]
fn a_file_may_be_named_beside_its_directory() {
    let mut b = Bench::new();
    b.write("web", &yaml("web", "i:1"));
    b.write("db.yaml", &yaml("db", "i:1"));
    let dirs = vec![b.dir(), b.path("web"), b.path("db.yaml")];
    b.scanner = Scanner::new(FileSourceOptions { dirs, ..options(&b.dir()) }, Seed::default());
    let first = b.scan();
    assert_eq!(running(&first), ["db=i:1", "web=i:1"]);
    let second = b.settled();
    assert!(first.pods.iter().zip(&second.pods).all(|(a, b)| Arc::ptr_eq(a, b)));
    assert_eq!(second.next, None);
}
