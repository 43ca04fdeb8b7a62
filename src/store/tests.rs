use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::manifest::{PodKey, PodManifest};
use crate::system::clock::Moment;

const UID: &str = "0b6e9f2c-1d2e-4f3a-8b4c-5d6e7f8a9b0c";

fn spec(uid: &str) -> PodSpecRecord {
    let pod = serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "i:1", "resources": {"limits": {"cpu": "1500m"}}}]},
    }))
    .expect("a pod");
    PodSpecRecord {
        version: VERSION,
        uid: uid.into(),
        source: "file".into(),
        seen: "2024-05-06T07:08:09.123456789Z".parse().expect("a time"),
        stopped: false,
        removing: true,
        manifest: std::sync::Arc::new(PodManifest {
            origin: crate::manifest::Origin { file: "/etc/pods/web.yaml".into(), line: 3 },
            ..PodManifest::without_file(PodKey::new("default", "web"), pod)
        }),
    }
}

fn status() -> StatusRecord {
    let exit = Exit {
        container_id: "c1".into(),
        code: 137,
        reason: "OOMKilled".into(),
        message: "line\nline".into(),
        started: Some(Timestamp::UNIX_EPOCH),
        finished: Timestamp::UNIX_EPOCH,
        finished_at: Moment(Duration::from_millis(1500)),
        ran_for: Duration::new(75, 123_456_789),
        cause: StopCause::Other,
    };
    let main = ContainerHistory {
        attempt: 3,
        restarts: 3,
        container_id: Some("c2".into()),
        hash: "h".into(),
        last: Some(exit),
        backoff: Some(Backoff { delay: Duration::from_secs(80), until: Moment(Duration::from_secs(99)) }),
        ..Default::default()
    };
    StatusRecord {
        boot_id: "boot".into(),
        sandbox: Some(SandboxRecord { id: "s1".into(), ips: vec!["10.0.0.2".into()], ..Default::default() }),
        containers: [("main".to_owned(), main.into())].into(),
        conditions: [("Ready".to_owned(), (true, Timestamp::UNIX_EPOCH))].into(),
        ..Default::default()
    }
}

fn open() -> (TempDir, Store) {
    let home = TempDir::new().expect("temp dir");
    let store = Store::open(home.path().join("var/lib/podling")).expect("open");
    (home, store)
}

fn file(store: &Store, name: &str) -> PathBuf {
    store.pod_dir(UID).expect("dir").join(name)
}

#[test]
fn what_is_saved_is_loaded() {
    let (_home, store) = open();
    assert_eq!(store.load(), (vec![], vec![]));
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    assert_eq!(store.load().0[0].status, StatusRecord::default());
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    let again = Store::open(store.dir.clone()).expect("open");
    let (records, problems) = again.load();
    assert_eq!(records, [PodRecord { spec: spec(UID), status: status() }]);
    assert!(problems.is_empty());
}

#[test]
fn files_are_private_and_can_be_read_by_a_person() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    for path in [file(&store, POD), file(&store, STATUS)] {
        assert_eq!(fs::metadata(path).expect("stat").permissions().mode() & 0o777, 0o600);
    }
    let mode = fs::metadata(store.pod_dir(UID).expect("dir")).expect("stat").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let text = fs::read_to_string(file(&store, STATUS)).expect("read");
    for line in [
        "\"version\": 1",
        "\"bootId\": \"boot\"",
        "\"delay\": \"1m 20s\"",
        "\"ranFor\": \"1m 15s 123ms 456µs 789ns\"",
        "\"restarts\": 3",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn a_status_that_did_not_change_is_not_written_again() {
    let (_home, store) = open();
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    let inode = || fs::metadata(file(&store, STATUS)).expect("stat").ino();
    let first = inode();
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    assert_eq!(inode(), first);
    let mut other = status();
    other.sandboxes += 1;
    store.save_status(UID, &other, Durability::Synced).expect("save");
    assert_ne!(inode(), first);
    assert_eq!(store.load_status(UID).0, other);
}

#[test]
fn after_a_failed_write_the_same_status_is_written_again() {
    let (_home, store) = open();
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    let dir = store.pod_dir(UID).expect("dir");
    fs::remove_file(dir.join(STATUS)).expect("rm");
    fs::create_dir(dir.join(STATUS)).expect("mkdir");
    let error = store
        .save_status(UID, &StatusRecord::default(), Durability::Synced)
        .expect_err("a directory is in the way");
    assert!(
        error.to_string().starts_with(&format!("cannot write {}", dir.join(STATUS).display())),
        "{error}"
    );
    fs::remove_dir(dir.join(STATUS)).expect("rmdir");
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    assert_eq!(store.load_status(UID).0, status());
}

#[test]
fn a_torn_status_is_set_aside_and_the_pod_loads_without_it() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    for n in 1..3 {
        let text =
            fs::read_to_string(file(&store, STATUS)).unwrap_or_else(|_| "{\"version\": 1, \"co".into());
        fs::write(file(&store, STATUS), &text[..text.len() / 2]).expect("write");
        let (records, problems) = store.load();
        assert_eq!(records, [PodRecord { spec: spec(UID), status: StatusRecord::default() }]);
        let aside = file(&store, &format!("{STATUS}.damaged-{n}"));
        assert_eq!(problems[0].set_aside.as_ref(), Some(&aside));
        assert!(aside.exists() && !file(&store, STATUS).exists());
        let message = &problems[0].message;
        assert!(
            message.starts_with(&format!("{} is damaged: EOF", file(&store, STATUS).display())),
            "{message}"
        );
        assert!(message.ends_with(&format!("; it is kept as {}", aside.display())), "{message}");
    }
    assert_eq!(store.load().1, []);
}

#[test]
fn a_damaged_spec_is_reported_and_does_not_keep_the_others_from_loading() {
    let (_home, store) = open();
    let other = "11111111";
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    store.save_spec(&spec(other), Durability::Synced).expect("save");
    fs::write(file(&store, POD), "").expect("write");
    let (records, problems) = store.load();
    assert_eq!(records.iter().map(|r| r.spec.uid.as_str()).collect::<Vec<_>>(), [other]);
    assert_eq!(problems[0].uid.as_deref(), Some(UID));
    assert!(problems[0].message.contains("pod.json is damaged: it is empty"), "{}", problems[0].message);
    assert_eq!(store.orphans(), [UID]);
    assert_eq!(store.load_status(UID), (status(), None));
}

#[test]
fn a_spec_of_another_pod_is_damage() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    let text = fs::read_to_string(file(&store, POD)).expect("read");
    fs::write(file(&store, POD), text.replace(UID, "somebody-else")).expect("write");
    let (records, problems) = store.load();
    assert!(records.is_empty());
    assert!(problems[0].message.contains("it is of pod uid \"somebody-else\""), "{}", problems[0].message);
}

#[test]
fn a_file_of_a_newer_podling_is_left_in_place() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    let text = fs::read_to_string(file(&store, POD)).expect("read");
    fs::write(file(&store, POD), text.replacen("\"version\": 1", "\"version\": 7", 1)).expect("write");
    let (records, problems) = store.load();
    assert!(records.is_empty());
    assert!(
        problems[0]
            .message
            .ends_with("has version 7, and this podling reads up to 1; run the podling that wrote it"),
        "{}",
        problems[0].message
    );
    assert!(file(&store, POD).exists());
}

#[test]
fn fields_that_are_not_known_are_skipped_and_missing_ones_have_defaults() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    fs::write(
        file(&store, STATUS),
        "{\"version\": 1, \"later\": {\"a\": []}, \"containers\": {\"c\": {\"new\": 1}}}",
    )
    .expect("write");
    let (status, problem) = store.load_status(UID);
    assert_eq!(problem, None);
    assert_eq!(*status.containers["c"], ContainerHistory::default());
}

#[test]
fn a_write_that_was_killed_leaves_nothing_behind() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    let leftover = file(&store, ".podling-tmp-pod.json-1-x-0");
    fs::write(&leftover, "{\"vers").expect("write");
    let (records, problems) = store.load();
    assert_eq!((records.len(), problems), (1, vec![]));
    assert!(!leftover.exists());
}

#[test]
fn generated_files_without_a_record_are_rests_of_a_removal_and_go() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    fs::write(file(&store, "etc-hosts"), "127.0.0.1 localhost").expect("write");
    store.remove(UID).expect("remove");
    assert_eq!(store.orphans(), [UID]);
    assert_eq!(store.load(), (vec![], vec![]));
    assert!(store.orphans().is_empty());
}

#[test]
fn removing_a_pod_leaves_what_others_put_in_its_directory() {
    let (_home, store) = open();
    store.save_spec(&spec(UID), Durability::Synced).expect("save");
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    fs::create_dir(file(&store, "volumes")).expect("mkdir");
    store.remove(UID).expect("remove");
    assert_eq!(store.load().0, []);
    assert_eq!(store.orphans(), [UID]);
    fs::remove_dir(file(&store, "volumes")).expect("rmdir");
    store.remove(UID).expect("remove");
    assert!(store.orphans().is_empty());
    store.remove(UID).expect("removing what is gone is no error");
    // The same uid again is written in full.
    store.save_status(UID, &status(), Durability::Synced).expect("save");
    assert!(file(&store, STATUS).exists());
}

#[test]
fn a_uid_cannot_lead_out_of_the_store() {
    let (_home, store) = open();
    let long = "x".repeat(129);
    for uid in ["", ".", "..", "../x", "a/b", "a\0b", "é", long.as_str()] {
        let error = store.save_spec(&spec(uid), Durability::Synced).expect_err(uid).to_string();
        assert!(error.contains("cannot name a directory: use letters"), "{error}");
        store.save_status(uid, &status(), Durability::Synced).expect_err(uid);
        store.remove(uid).expect_err(uid);
    }
}

#[test]
fn which_directories_the_manifests_are_in_is_remembered() {
    let (_home, store) = open();
    assert_eq!(store.load_source(), (BTreeMap::new(), None));
    let dirs = BTreeMap::from([(
        PathBuf::from("/etc/pods"),
        DirIdentity { device: 1, inode: u64::MAX, filesystem: 3 },
    )]);
    store.save_source(&dirs).expect("save");
    assert_eq!(store.load_source(), (dirs, None));
    fs::write(store.dir.join(SOURCE), "[]").expect("write");
    let (dirs, problem) = store.load_source();
    assert!(dirs.is_empty() && problem.is_some_and(|p| p.set_aside.is_some()));
}

#[test]
fn a_path_that_is_not_utf8_is_an_error_and_not_a_wrong_record() {
    let (_home, store) = open();
    let path = PathBuf::from(std::ffi::OsString::from_vec(vec![b'/', 0xff]));
    let dirs = BTreeMap::from([(path, DirIdentity { device: 1, inode: 2, filesystem: 3 })]);
    let error = store.save_source(&dirs).expect_err("not UTF-8").to_string();
    assert!(error.contains("source.json as JSON: path contains invalid UTF-8"), "{error}");
}

#[test]
fn a_store_that_cannot_be_made_says_where() {
    let home = TempDir::new().expect("temp dir");
    fs::write(home.path().join("var"), "").expect("write");
    let error = Store::open(home.path().join("var/lib")).expect_err("a file is in the way").to_string();
    assert!(error.starts_with("cannot make directory ") && error.contains("var/lib/pods"), "{error}");
}

#[test]
fn an_empty_directory_of_a_pod_goes_when_the_store_is_read_and_one_with_files_stays() {
    let home = tempfile::tempdir().expect("temp dir");
    let store = Store::open(home.path().to_owned()).expect("open");
    let (empty, full) = (home.path().join("pods/empty"), home.path().join("pods/full"));
    std::fs::create_dir(&empty).expect("make");
    std::fs::create_dir(&full).expect("make");
    std::fs::write(full.join("pod.json.damaged-1"), "{").expect("write");
    assert!(store.load().0.is_empty());
    assert!(!empty.exists() && full.exists());
}
