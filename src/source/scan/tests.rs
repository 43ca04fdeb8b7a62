use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::manifest::ReadOptions;
use std::time::Duration;

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
        Self::at(self.home, Seed { pods, dirs })
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
fn a_directory_that_is_moved_away_and_back_changes_nothing() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    let first = b.scan();
    let away = b.home.path().join("pods.x");
    fs::rename(b.dir(), &away).expect("mv");
    let found = b.wait(60_000).scan();
    assert!(Arc::ptr_eq(&found.pods[0], &first.pods[0]));
    let problem = only(&found);
    assert_eq!((problem.reason, &problem.path), ("Frozen", &b.dir()));
    assert_eq!(problem.keeps, [PodKey::new("default", "web")]);
    assert_eq!(
        problem.message,
        format!(
            "{}: does not exist; nothing is read from it; default/web stays as last accepted; to go on, \
             create it, mount it, or move it back",
            b.dir().display()
        )
    );
    assert_eq!(found.next, Some(b.now + POLL));
    fs::rename(&away, b.dir()).expect("mv");
    let found = b.scan();
    assert!(Arc::ptr_eq(&found.pods[0], &first.pods[0]));
    assert!(found.problems.is_empty() && found.next.is_none());
}

#[test]
fn a_directory_that_is_deleted_with_its_files_freezes() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::remove_file(b.path("web.yaml")).expect("rm");
    assert_eq!(running(&b.scan()), ["web=i:1"]);
    fs::remove_dir(b.dir()).expect("rmdir");
    assert_eq!(running(&b.wait(500).scan()), ["web=i:1"]);
}

#[test]
fn an_empty_directory_in_place_of_the_one_with_pods_freezes_until_it_is_meant() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::rename(b.dir(), b.home.path().join("old")).expect("mv");
    fs::create_dir(b.dir()).expect("mkdir");
    b.write(".hidden.yaml", "");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Frozen");
    assert!(only(&found).message.contains("is empty and not the directory in which pods were known"));
    b.write("none.yaml", "# nothing runs here\n");
    let found = b.settled();
    assert!(found.pods.is_empty() && found.problems.is_empty(), "{found:?}");
}

#[test]
fn another_directory_with_manifests_is_followed() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.write("db.yaml", &yaml("db", "i:1"));
    b.scan();
    fs::rename(b.dir(), b.home.path().join("old")).expect("mv");
    fs::create_dir(b.dir()).expect("mkdir");
    b.write("web.yaml", &yaml("web", "i:2"));
    assert_eq!(running(&b.settled()), ["web=i:2"]);
}

#[test]
fn an_emptied_directory_is_empty() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::remove_file(b.path("web.yaml")).expect("rm");
    let found = b.settled();
    assert!(found.pods.is_empty() && found.problems.is_empty());
}

#[test]
fn a_directory_that_never_was_there_is_reported_and_holds_nothing() {
    let mut b = Bench::new();
    fs::remove_dir(b.dir()).expect("rmdir");
    let found = b.scan();
    assert!(found.pods.is_empty());
    assert_eq!(only(&found).reason, "Missing");
    assert!(only(&found).message.ends_with(
        "does not exist; nothing is read from it; to go on, create it, mount it, or move it back"
    ));
}

#[test]
fn something_else_in_place_of_the_directory_freezes() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    fs::rename(b.dir(), b.home.path().join("old")).expect("mv");
    symlink("pods", b.dir()).expect("ln");
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Frozen");
    assert!(only(&found).message.contains("cannot be read (too many levels of symbolic links)"));
    fs::remove_file(b.dir()).expect("rm");
    fs::write(b.dir(), "junk").expect("write");
    assert_eq!(running(&b.settled()), ["web=i:1"]);
}

#[test]
fn a_world_writable_directory_is_refused() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    fs::set_permissions(b.dir(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    let found = b.scan();
    assert!(found.pods.is_empty());
    assert_eq!(only(&found).reason, "WorldWritable");
    assert!(only(&found).message.ends_with("to go on, chmod o-w it"), "{}", only(&found).message);
    fs::set_permissions(b.dir(), fs::Permissions::from_mode(0o700)).expect("chmod");
    assert_eq!(running(&b.settled()), ["web=i:1"]);
    fs::set_permissions(b.dir(), fs::Permissions::from_mode(0o777)).expect("chmod");
    b.write("web.yaml", &yaml("web", "i:2"));
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "WorldWritable");
    assert_eq!(only(&found).keeps, [PodKey::new("default", "web")]);
}

#[test]
fn what_happened_while_podling_was_down_is_found_at_the_start() {
    let b = Bench::new();
    for name in ["same", "edited", "broken", "removed", "renamed"] {
        b.write(&format!("{name}.yaml"), &yaml(name, "i:1"));
    }
    let mut b = b.restarted();
    b.write("edited.yaml", &yaml("edited", "i:2"));
    b.write("broken.yaml", "spec: [");
    fs::remove_file(b.path("removed.yaml")).expect("rm");
    fs::rename(b.path("renamed.yaml"), b.path("other.yaml")).expect("mv");
    let found = b.settled();
    assert_eq!(running(&found), ["broken=i:1", "edited=i:2", "renamed=i:1", "same=i:1"]);
    assert_eq!(only(&found).reason, "ParseError");
    assert_eq!(found.pods[2].origin.file, b.path("other.yaml"));
}

#[test]
fn a_file_half_written_when_podling_starts_is_given_time() {
    let b = Bench::new();
    let text = yaml("web", "i:1");
    let (head, _) = text.split_at(text.len() / 2);
    b.write("web.yaml", head);
    let mut b = b.restarted();
    let found = b.scan();
    assert!(found.pods.is_empty() && found.problems.is_empty(), "{found:#?}");
    b.write("web.yaml", &text);
    assert_eq!(running(&b.settled()), ["web=i:1"]);
}

#[test]
fn an_unmounted_directory_at_the_start_freezes_what_was_accepted_before() {
    let b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    let mut b = b.restarted();
    fs::rename(b.dir(), b.home.path().join("old")).expect("mv");
    fs::create_dir(b.dir()).expect("mkdir");
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Frozen");
    fs::remove_dir(b.dir()).expect("rmdir");
    let found = b.scan();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(only(&found).reason, "Frozen");
}

#[test]
fn pods_of_directories_that_the_settings_no_longer_name_are_dropped() {
    let mut b = Bench::new();
    b.write("web.yaml", &yaml("web", "i:1"));
    b.scan();
    let other = b.home.path().join("other");
    fs::create_dir(&other).expect("mkdir");
    b.scanner.set_options(options(&other), b.now);
    assert!(b.scan().pods.is_empty());
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
            .contains("is 1099511627776 bytes, more than the 1048576 that a manifest may have")
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever order files are written in, and however they share pods, the same set comes out.
    #[test]
    fn the_order_in_which_files_appear_does_not_matter(
        files in proptest::collection::vec((0..4u8, 0..3u8), 1..6),
        order in any::<u64>(),
    ) {
        let text = |(name, image): (u8, u8)| yaml(&format!("p{name}"), &format!("i:{image}"));
        let mut indices: Vec<usize> = (0..files.len()).collect();
        indices.sort_by_key(|i| (order >> (i * 8)) & 0xff);
        let mut outcomes = Vec::new();
        for order in [(0..files.len()).collect::<Vec<_>>(), indices] {
            let mut b = Bench::new();
            for i in order {
                b.write(&format!("{i}.yaml"), &text(files[i]));
            }
            let found = b.scan();
            let duplicates: Vec<_> = found.problems.iter().map(|p| p.path.file_name().map(OsStr::to_owned)).collect();
            outcomes.push((running(&found), duplicates));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Write(u8, u8, u8),
    Break(u8),
    Truncate(u8),
    Rename(u8, u8),
    Remove(u8),
    MoveAway,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let file = 0..4u8;
    prop_oneof![
        4 => (0..4u8, 0..3u8, 0..3u8).prop_map(|(f, p, i)| Deed::Write(f, p, i)),
        1 => file.clone().prop_map(Deed::Break),
        1 => file.clone().prop_map(Deed::Truncate),
        2 => (0..4u8, 0..4u8).prop_map(|(a, b)| Deed::Rename(a, b)),
        2 => file.prop_map(Deed::Remove),
        1 => Just(Deed::MoveAway),
    ]
}

impl Bench {
    /// Does it, and to the model: which pod each file stands for, by its last good content.
    fn perform(&mut self, deed: &Deed, model: &mut BTreeMap<u8, Option<u8>>, seen: bool) {
        let name = |f: &u8| format!("{f}.yaml");
        let mut events = Vec::new();
        match deed {
            Deed::Write(f, pod, image) => {
                self.write(&name(f), &yaml(&format!("p{pod}"), &format!("i:{image}")));
                model.insert(*f, Some(*pod));
                events.push((name(f), Kind::Closed));
            }
            Deed::Break(f) | Deed::Truncate(f) => {
                self.write(&name(f), if matches!(deed, Deed::Break(_)) { "spec: [" } else { "" });
                model.entry(*f).or_insert(None);
                events.push((name(f), Kind::Closed));
            }
            Deed::Rename(from, to) if from != to && self.path(&name(from)).exists() => {
                let good = fs::read_to_string(self.path(&name(from))).is_ok_and(|t| t.starts_with("api"));
                fs::rename(self.path(&name(from)), self.path(&name(to))).expect("mv");
                let pod = model.remove(from).flatten();
                // A broken file carries nothing along to its new name.
                let kept = model.get(to).copied().flatten();
                model.insert(*to, if good { pod } else { kept });
                events.extend([(name(from), Kind::Gone), (name(to), Kind::MovedHere)]);
            }
            Deed::Remove(f) if self.path(&name(f)).exists() => {
                fs::remove_file(self.path(&name(f))).expect("rm");
                model.remove(f);
                events.push((name(f), Kind::Gone));
            }
            Deed::MoveAway => {
                let away = self.home.path().join("away");
                fs::rename(self.dir(), &away).expect("mv");
                self.settled();
                fs::rename(&away, self.dir()).expect("mv");
            }
            _ => {}
        }
        for (name, kind) in events.into_iter().filter(|_| seen) {
            self.event(&name, kind);
        }
    }
}

proptest! {

    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The set follows the files' last good contents, and a pod that some file stands for all the time
    /// is never missing for a moment, whether events are seen or not.
    #[test]
    fn whatever_happens_to_files_no_pod_blinks(
        deeds in proptest::collection::vec((any_deed(), any::<bool>(), 0..300u64), 1..12),
    ) {
        let mut b = Bench::new();
        b.scan();
        let mut model = BTreeMap::new();
        for (deed, seen, pause) in deeds {
            let keys = |model: &BTreeMap<u8, Option<u8>>| -> BTreeSet<String> {
                model.values().flatten().map(|p| format!("p{p}")).collect()
            };
            let before = keys(&model);
            b.perform(&deed, &mut model, seen);
            let after = keys(&model);
            for _ in 0..3 {
                let found: BTreeSet<String> = b.wait(pause).scan().pods.iter().map(|p| p.key.name.clone()).collect();
                let throughout: BTreeSet<String> = before.intersection(&after).cloned().collect();
                prop_assert!(found.is_superset(&throughout), "{deed:?}: {found:?} lacks some of {throughout:?}");
            }
            let found: BTreeSet<String> = b.settled().pods.iter().map(|p| p.key.name.clone()).collect();
            prop_assert_eq!(found, after, "{:?}", deed);
        }
    }
}
