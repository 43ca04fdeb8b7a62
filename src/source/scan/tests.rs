use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;
use crate::manifest::ReadOptions;
use std::time::Duration;

mod directories;
mod objects;
mod odd_files;
mod properties;

const SETTLE: Duration = Duration::from_millis(200);

fn yaml(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: main\n    image: {image}\n"
    )
}

/// A manifest directory, and a scanner whose clock is moved by hand.
struct Bench {
    home: TempDir,
    scanner: Scanner,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let home = TempDir::new().expect("temp dir");
        fs::create_dir(home.path().join("pods")).expect("mkdir");
        Self::at(home, Seed::default())
    }

    fn at(home: TempDir, seed: Seed) -> Self {
        let scanner = Scanner::new(options(&home.path().join("pods")), seed);
        Self { home, scanner, now: Instant::now() }
    }

    /// The daemon was stopped and is started again: with what it knew, and with nothing else.
    fn restarted(mut self) -> Self {
        let pods = self.scan().pods;
        let dirs = self.scanner.identities();
        Self::at(self.home, Seed { pods, dirs, ..Seed::default() })
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("pods")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write");
    }

    fn wait(&mut self, millis: u64) -> &mut Self {
        self.now += Duration::from_millis(millis);
        self
    }

    fn scan(&mut self) -> Outcome {
        self.scanner.scan(self.now)
    }

    /// What is found once all that had to wait has waited.
    fn settled(&mut self) -> Outcome {
        self.scan();
        self.wait(2000).scan()
    }

    fn event(&mut self, name: &str, kind: Kind) -> bool {
        let real = self.dir().canonicalize().unwrap_or_else(|_| self.dir());
        self.scanner.event(&real.join(name), kind, self.now)
    }
}

fn options(dir: &Path) -> FileSourceOptions {
    FileSourceOptions {
        object_dirs: Vec::new(),
        dirs: vec![dir.to_owned()],
        read: ReadOptions::default(),
        settle: SETTLE,
        relist: Duration::from_secs(20),
        extensionless: false,
    }
}

/// `name=image` of each pod.
fn running(outcome: &Outcome) -> Vec<String> {
    let image = |p: &PodManifest| p.pod.spec.as_ref().and_then(|s| s.containers[0].image.clone());
    outcome.pods.iter().map(|p| format!("{}={}", p.key.name, image(p).unwrap_or_default())).collect()
}

fn only(outcome: &Outcome) -> &SourceProblem {
    assert_eq!(outcome.problems.len(), 1, "{:#?}", outcome.problems);
    &outcome.problems[0]
}

fn reasons(outcome: &Outcome) -> Vec<&'static str> {
    outcome.problems.iter().map(|p| p.reason).collect()
}

#[test]
fn at_the_start_everything_is_read_at_once() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.write("db.json", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"db\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i:2\"}]}}");
    let found = b.scan();
    assert_eq!(running(&found), ["db=i:2", "web=i:1"]);
    assert!(found.problems.is_empty());
    assert_eq!(found.next, None);
    assert_eq!(found.pods[1].origin.file, b.path("web.yaml"));
}

#[test]
fn a_file_that_is_renamed_in_is_read_at_once() {
    let mut b = Bench::new();
    b.scan();
    b.write("web.yaml", &yaml("web", "i:1"));
    assert!(b.event("web.yaml", Kind::MovedHere));
    assert_eq!(running(&b.scan()), ["web=i:1"]);
}

#[test]
fn a_file_that_is_closed_is_read_at_once() {
    let mut b = Bench::new();
    b.scan();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.event("web.yaml", Kind::Created);
    b.event("web.yaml", Kind::Modified);
    assert!(running(&b.scan()).is_empty());
    b.event("web.yaml", Kind::Closed);
    assert_eq!(running(&b.scan()), ["web=i:1"]);
}

#[test]
fn a_change_that_was_not_seen_happening_waits_for_the_settle_time() {
    let mut b = Bench::new();
    b.scan();
    b.write("web.yaml", &yaml("web", "i:1"));
    let found = b.scan();
    assert!(running(&found).is_empty());
    assert_eq!(found.next, Some(b.now + SETTLE));
    assert!(running(&b.wait(199).scan()).is_empty());
    assert_eq!(running(&b.wait(1).scan()), ["web=i:1"]);
}

#[test]
fn a_file_that_goes_on_changing_is_not_read() {
    let mut b = Bench::new();
    b.scan();
    for n in 0..5 {
        b.write("web.yaml", &yaml("web", &format!("image{}:1", "x".repeat(n))));
        assert!(running(&b.wait(150).scan()).is_empty());
    }
    assert_eq!(running(&b.wait(200).scan()), ["web=imagexxxx:1"]);
}

#[test]
fn a_writer_that_pauses_with_the_file_open_is_waited_for() {
    let mut b = Bench::new();
    b.scan();
    let text = yaml("web", "i:1");
    b.write("web.yaml", &text[..60]);
    b.event("web.yaml", Kind::Created);
    b.event("web.yaml", Kind::Modified);
    let found = b.wait(250).scan();
    assert!(found.pods.is_empty() && found.problems.is_empty());
    b.write("web.yaml", &text);
    b.event("web.yaml", Kind::Modified);
    b.event("web.yaml", Kind::Closed);
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert!(found.problems.is_empty());
}

#[test]
fn a_writer_that_never_closes_is_not_waited_for_for_ever() {
    let mut b = Bench::new();
    b.scan();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.event("web.yaml", Kind::Modified);
    assert!(running(&b.wait(599).scan()).is_empty());
    assert_eq!(running(&b.wait(1).scan()), ["web=i:1"]);
}

#[test]
fn a_closed_file_with_something_missing_is_given_time_before_it_is_believed() {
    let mut b = Bench::new();
    b.write("web.yaml", &format!("{}---\n{}", yaml("web", "i:1"), yaml("db", "i:1")));
    b.scan();
    for part in
        ["apiVersion: v1\nkind: Pod\nspec: [", &yaml("web", "i:1"), &yaml("web", "i:22").replace("22\n", "2")]
    {
        b.write("web.yaml", part);
        b.event("web.yaml", Kind::Closed);
        let found = b.scan();
        assert_eq!(running(&found), ["db=i:1", "web=i:1"], "{part}");
        assert!(found.problems.is_empty());
        assert_eq!(found.next, Some(b.now + SETTLE * PATIENCE));
    }
    assert_eq!(running(&b.wait(600).scan()), ["web=i:2"]);
}

#[test]
fn an_edit_that_does_not_parse_keeps_the_running_pod_and_says_where() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    let first = b.scan();
    b.write("web.yaml", "spec: [\n");
    let found = b.settled();
    assert!(Arc::ptr_eq(&found.pods[0], &first.pods[0]));
    let problem = only(&found);
    assert_eq!(problem.reason, "ParseError");
    assert_eq!(problem.keeps, [PodKey::new("default", "web")]);
    let place = format!("{}:1:", b.path("web.yaml").display());
    assert!(problem.message.starts_with(&place), "{}", problem.message);
    assert!(problem.message.ends_with("; default/web stays as last accepted"), "{}", problem.message);
    assert!(!problem.message.contains('\n'), "{}", problem.message);

    b.write("web.yaml", &yaml("web", "i:1"));
    let found = b.settled();
    assert!(Arc::ptr_eq(&found.pods[0], &first.pods[0]), "the same content restarts nothing");
    assert!(found.problems.is_empty());
}

#[test]
fn a_document_that_is_refused_keeps_its_pod_while_the_others_follow_the_file() {
    let mut b = Bench::new();
    b.write("all.yaml", &format!("{}---\n{}", yaml("web", "i:1"), yaml("db", "i:1")));
    b.scan();
    let broken = "apiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec: 5\n";
    b.write("all.yaml", &format!("{}---\n{broken}", yaml("web", "i:2")));
    let found = b.settled();
    assert_eq!(running(&found), ["db=i:1", "web=i:2"]);
    assert_eq!(only(&found).reason, "Invalid");
    assert_eq!(only(&found).keeps, [PodKey::new("default", "db")]);
}

#[test]
fn a_pod_that_is_taken_out_of_a_good_file_is_removed() {
    let mut b = Bench::new();
    b.write("all.yaml", &format!("{}---\n{}", yaml("web", "i:1"), yaml("db", "i:1")));
    b.scan();
    b.write("all.yaml", &yaml("web", "i:1"));
    b.event("all.yaml", Kind::MovedHere);
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert!(found.problems.is_empty());
}

#[test]
fn a_file_that_turns_into_another_kind_keeps_its_pod() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    b.write("web.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "NotAPod");
    assert_eq!(only(&found).keeps, [PodKey::new("default", "web")]);
}

#[test]
fn another_kind_beside_the_pods_does_not_hold_a_pod_that_was_taken_out() {
    let mut b = Bench::new();
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n";
    b.write("all.yaml", &format!("{}---\n{}{deployment}", yaml("web", "i:1"), yaml("db", "i:1")));
    b.scan();
    b.write("all.yaml", &format!("{}{deployment}", yaml("web", "i:1")));
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(reasons(&found), ["NotAPod"]);
    assert!(only(&found).keeps.is_empty());
}

#[test]
fn a_file_that_becomes_empty_is_not_ready_and_removes_nothing() {
    for nothing in ["", "\n \n", "\0\0\0\0"] {
        let mut b = Bench::new();
        b.write("web.yaml", &yaml("web", "i:1"));
        b.scan();
        b.write("web.yaml", nothing);
        b.event("web.yaml", Kind::Closed);
        assert!(b.scan().problems.is_empty());
        let found = b.settled();
        assert_eq!(running(&found), ["web=i:1"]);
        let message = &only(&found).message;
        assert!(
            message.ends_with(
                "is empty; default/web stays as last accepted; write a manifest into it or delete it"
            ),
            "{message}"
        );
        assert_eq!(found.next, None, "nothing to wait for");
        b.write("web.yaml", &yaml("web", "i:2"));
        b.event("web.yaml", Kind::Closed);
        let found = b.scan();
        assert_eq!(running(&found), ["web=i:2"]);
        assert!(found.problems.is_empty());
    }
}

#[test]
fn a_file_that_is_removed_takes_its_pod_along_after_the_settle_time() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.write("db.yaml", &yaml("db", "i:1"));
    b.scan();
    fs::remove_file(b.path("web.yaml")).expect("rm");
    let found = b.scan();
    assert_eq!(running(&found), ["db=i:1", "web=i:1"]);
    assert_eq!(found.next, Some(b.now + SETTLE));
    assert_eq!(running(&b.wait(200).scan()), ["db=i:1"]);
}

#[test]
fn an_editor_that_moves_the_file_away_and_writes_a_new_one_makes_one_edit() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::rename(b.path("web.yaml"), b.path("web.yaml~")).expect("mv");
    b.event("web.yaml", Kind::Gone);
    assert_eq!(running(&b.wait(20).scan()), ["web=i:1"]);
    b.write("web.yaml", &yaml("web", "i:2"));
    b.event("web.yaml", Kind::Created);
    b.event("web.yaml", Kind::Modified);
    assert_eq!(running(&b.wait(20).scan()), ["web=i:1"]);
    b.event("web.yaml", Kind::Closed);
    fs::remove_file(b.path("web.yaml~")).expect("rm");
    let found = b.wait(20).scan();
    assert_eq!(running(&found), ["web=i:2"]);
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

#[test]
fn renaming_a_file_only_moves_the_pods_origin() {
    let mut b = Bench::new();
    b.write("a.yaml", &yaml("web", "i:1"));
    let first = b.scan();
    fs::rename(b.path("a.yaml"), b.path("b.yaml")).expect("mv");
    for seen in [true, false] {
        if seen {
            b.event("a.yaml", Kind::Gone);
            b.event("b.yaml", Kind::MovedHere);
        }
        let found = b.scan();
        assert_eq!(found.pods[0].hashes, first.pods[0].hashes);
        assert_eq!(found.pods[0].origin.file, b.path("b.yaml"));
        assert!(found.problems.is_empty());
    }
    assert_eq!(b.settled().pods.len(), 1);
}

#[test]
fn a_rename_that_nobody_saw_never_leaves_the_pod_without_a_file() {
    let mut b = Bench::new();
    // No newline at the end: the new name is doubted before it is read.
    b.write("b.yaml", yaml("web", "i:1").trim_end());
    b.scan();
    fs::rename(b.path("b.yaml"), b.path("a.yaml")).expect("mv");
    for _ in 0..40 {
        assert_eq!(running(&b.wait(50).scan()), ["web=i:1"]);
    }
    assert_eq!(b.scan().pods[0].origin.file, b.path("a.yaml"));
}

#[test]
fn touching_or_rewriting_the_same_content_is_nothing() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    let first = b.scan();
    let same = |b: &mut Bench| {
        let found = b.settled();
        assert!(Arc::ptr_eq(&found.pods[0], &first.pods[0]));
        assert!(found.problems.is_empty() && found.next.is_none());
    };
    fs::File::open(b.path("web.yaml"))
        .and_then(|f| f.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .expect("touch");
    same(&mut b);
    fs::set_permissions(b.path("web.yaml"), fs::Permissions::from_mode(0o600)).expect("chmod");
    same(&mut b);
    b.write("web.yaml", &yaml("web", "i:1"));
    same(&mut b);
    b.write("new", &yaml("web", "i:1"));
    fs::rename(b.path("new"), b.path("web.yaml")).expect("mv");
    same(&mut b);
    b.write("web.yaml", &format!("{}# a comment\n", yaml("web", "i:1")));
    same(&mut b);
}

#[test]
fn of_two_files_with_one_pod_the_first_runs_and_the_other_takes_over_when_it_goes() {
    let mut b = Bench::new();
    b.write("10-web.yaml", &yaml("web", "i:1"));
    b.write("20-web.yaml", &yaml("web", "i:2"));
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!((only(&found).reason, &only(&found).path), ("Duplicate", &b.path("20-web.yaml")));
    assert!(
        only(&found).message.contains("pod default/web is already defined by"),
        "{}",
        only(&found).message
    );
    fs::remove_file(b.path("10-web.yaml")).expect("rm");
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:2"]);
    assert!(found.problems.is_empty());
    // Its return changes nothing: the one that runs keeps it.
    b.write("10-web.yaml", &yaml("web", "i:1"));
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:2"]);
    assert_eq!(only(&found).path, b.path("10-web.yaml"));
    // Also after a restart.
    let mut b = b.restarted();
    assert_eq!(running(&b.scan()), ["web=i:2"]);
    // And while it is broken.
    b.write("20-web.yaml", "spec: [");
    assert_eq!(running(&b.settled()), ["web=i:2"]);
    fs::remove_file(b.path("20-web.yaml")).expect("rm");
    assert_eq!(running(&b.scan()), ["web=i:1"]);
}

#[test]
fn of_two_documents_with_one_pod_the_one_that_runs_keeps_it_also_when_they_swap() {
    let mut b = Bench::new();
    b.write("web.yaml", &format!("{}---\n{}", yaml("web", "i:1"), yaml("web", "i:2")));
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Duplicate");
    b.write("web.yaml", &format!("{}---\n{}", yaml("web", "i:2"), yaml("web", "i:1")));
    assert_eq!(running(&b.settled()), ["web=i:1"]);
}

#[test]
fn a_write_that_was_seen_is_read_though_the_stamp_is_the_same() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    b.write("web.yaml", &yaml("web", "i:2"));
    // As if both writes fell into one tick of the file system's clock.
    let stamp = match look::entry(fs::File::open(b.dir()).expect("open"), OsStr::new("web.yaml")).node {
        Node::File(stamp) => stamp,
        node => panic!("{node:?}"),
    };
    let path = b.path("web.yaml");
    b.scanner.entries.get_mut(&path).expect("entry").stamp = Some(stamp);
    assert_eq!(running(&b.settled()), ["web=i:1"]);
    b.event("web.yaml", Kind::Closed);
    assert_eq!(running(&b.scan()), ["web=i:2"]);
}

#[test]
fn a_single_file_that_everybody_can_write_is_refused() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    fs::set_permissions(b.path("web.yaml"), fs::Permissions::from_mode(0o666)).expect("chmod");
    b.scanner = Scanner::new(options(&b.path("web.yaml")), Seed::default());
    let found = b.scan();
    assert!(found.pods.is_empty());
    assert!(only(&found).message.contains("can be written or replaced by everybody"));
}

#[test]
fn changed_reading_settings_apply_to_files_that_did_not_change() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    let read = ReadOptions { name_suffix: Some("node1".into()), ..Default::default() };
    b.scanner.set_options(FileSourceOptions { read, ..options(&b.dir()) }, b.now);
    assert_eq!(running(&b.scan()), ["web-node1=i:1"]);
}

#[test]
fn a_second_look_finds_the_same() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.write("dup.yaml", &yaml("web", "i:2"));
    b.write("bad.yaml", "[");
    let (first, second) = (b.scan(), b.scan());
    assert_eq!(first.pods, second.pods);
    assert_eq!(first.problems, second.problems);
}

#[test]
fn directories_are_known_again_over_a_reboot_that_renumbers_disks() {
    let known = DirIdentity { device: 1, inode: 7, filesystem: 99 };
    assert!(known.is_same(&DirIdentity { device: 2, ..known }));
    assert!(known.is_same(&DirIdentity { filesystem: 5, ..known }));
    assert!(!known.is_same(&DirIdentity { inode: 8, ..known }));
    let nameless = DirIdentity { filesystem: 0, ..known };
    assert!(!nameless.is_same(&DirIdentity { device: 2, ..nameless }));
}
