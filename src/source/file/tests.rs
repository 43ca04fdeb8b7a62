//! With real inotify and real time: what a person does to a directory, and the updates that come of it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use super::*;
use crate::manifest::PodKey;

fn yaml(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: main\n    \
         image: {image}\n"
    )
}

struct Bench {
    home: TempDir,
    source: FileSource,
    updates: mpsc::Receiver<SourceUpdate>,
    /// Sets received so far, without repetitions.
    sets: Vec<Vec<String>>,
    last: Option<SourceUpdate>,
}

fn options(dir: &Path) -> FileSourceOptions {
    FileSourceOptions {
        object_dirs: Vec::new(),
        dirs: vec![dir.to_owned()],
        read: ReadOptions::default(),
        settle: Duration::from_millis(200),
        // Never, in the life of a test: everything must be found by events.
        relist: Duration::from_secs(3600),
        extensionless: false,
    }
}

impl Bench {
    /// Starts on a directory that `prepare` filled, and waits for the first set.
    async fn start(prepare: impl FnOnce(&Path)) -> Self {
        let home = TempDir::new().expect("temp dir");
        let dir = home.path().join("pods");
        fs::create_dir(&dir).expect("mkdir");
        prepare(&dir);
        let (sender, updates) = mpsc::channel(16);
        let source = FileSource::spawn(options(&dir), Seed::default(), sender);
        let mut bench = Self { home, source, updates, sets: Vec::new(), last: None };
        bench.receive(Duration::from_secs(10)).await;
        assert!(bench.last.is_some(), "no first set");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("pods").join(name)
    }

    /// Writes beside the directory and renames in.
    fn put(&self, name: &str, text: &str) {
        let staged = self.home.path().join("staged");
        fs::write(&staged, text).expect("write");
        fs::rename(staged, self.path(name)).expect("mv");
    }

    async fn receive(&mut self, limit: Duration) -> bool {
        match tokio::time::timeout(limit, self.updates.recv()).await {
            Err(_) => false,
            Ok(update) => {
                let update = update.expect("the source ended");
                let set = running(&update);
                if self.sets.last() != Some(&set) {
                    self.sets.push(set);
                }
                self.last = Some(update);
                true
            }
        }
    }

    fn update(&self) -> &SourceUpdate {
        self.last.as_ref().expect("an update")
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.update().report.problems.iter().map(|p| p.reason).collect()
    }

    /// Receives until the set is this one.
    async fn until(&mut self, pods: &[&str]) {
        self.until_that(|b| running(b.update()) == pods).await;
    }

    async fn until_that(&mut self, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(self.receive(left).await, "waited in vain; sets {:?}, last {:#?}", self.sets, self.last);
        }
    }

    /// Nothing comes.
    async fn quiet(&mut self, millis: u64) {
        let came = self.receive(Duration::from_millis(millis)).await;
        assert!(!came, "came: {:#?}", self.last);
    }
}

/// `name=image` of each pod.
fn running(update: &SourceUpdate) -> Vec<String> {
    let pods = update.pods.as_ref().expect("the file source knows its set");
    let image = |p: &PodManifest| p.pod.spec.as_ref().and_then(|s| s.containers[0].image.clone());
    pods.iter().map(|p| format!("{}={}", p.key.name, image(p).unwrap_or_default())).collect()
}

#[tokio::test]
async fn an_empty_directory_gives_an_empty_set_once() {
    let mut b = Bench::start(|_| {}).await;
    assert!(running(b.update()).is_empty());
    b.quiet(300).await;
    assert!(b.source.dir_identities().contains_key(&b.home.path().join("pods")));
}

#[tokio::test]
async fn a_file_that_is_renamed_in_comes_at_once_and_goes_when_it_is_deleted() {
    let mut b = Bench::start(|_| {}).await;
    // A settle time that nobody could wait for.
    let dir = b.home.path().join("pods");
    b.source.set_options(FileSourceOptions { settle: Duration::from_secs(3600), ..options(&dir) });
    b.put("web.yaml", &yaml("web", "i:1"));
    b.until(&["web=i:1"]).await;
    b.source.set_options(options(&dir));
    fs::remove_file(b.path("web.yaml")).expect("rm");
    b.until(&[]).await;
    assert_eq!(b.sets.len(), 3);
}

#[tokio::test]
async fn a_file_that_is_written_in_pieces_gives_one_set_and_no_problem() {
    let mut b = Bench::start(|_| {}).await;
    let text = yaml("web", "i:1");
    let mut file = fs::File::create(b.path("web.yaml")).expect("create");
    for piece in text.as_bytes().chunks(text.len() / 2 + 1) {
        file.write_all(piece).expect("write");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(file);
    b.until(&["web=i:1"]).await;
    assert_eq!(b.sets, [vec![], vec!["web=i:1".to_owned()]]);
    b.quiet(700).await;
}

#[tokio::test]
async fn a_file_that_is_appended_to_in_pieces_gives_one_set_and_no_problem() {
    let mut b = Bench::start(|_| {}).await;
    let text = yaml("web", "i:1");
    for piece in text.as_bytes().chunks(text.len() / 2 + 1) {
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(b.path("web.yaml")).expect("open");
        file.write_all(piece).expect("write");
        drop(file);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    b.until(&["web=i:1"]).await;
    assert_eq!(b.sets.len(), 2);
    b.quiet(700).await;
}

#[tokio::test]
async fn an_edit_to_nonsense_and_back_leaves_the_pod_alone() {
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    fs::write(b.path("web.yaml"), "spec: [").expect("write");
    b.until_that(|b| b.reasons() == ["ParseError"]).await;
    fs::write(b.path("web.yaml"), yaml("web", "i:1")).expect("write");
    b.until_that(|b| b.reasons().is_empty()).await;
    assert_eq!(b.sets, [vec!["web=i:1".to_owned()]]);
}

#[tokio::test]
async fn rewriting_touching_and_backups_send_nothing_but_the_note() {
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    fs::write(b.path("web.yaml"), yaml("web", "i:1")).expect("write");
    b.put("web.yaml", &yaml("web", "i:1"));
    fs::write(b.path(".web.yaml.swp"), "x").expect("write");
    fs::write(b.path("4913"), "").expect("write");
    fs::remove_file(b.path("4913")).expect("rm");
    b.quiet(800).await;
    fs::write(b.path("web.yaml.bak"), yaml("web", "i:0")).expect("write");
    b.until_that(|b| b.reasons() == ["Ignored"]).await;
    assert_eq!(b.sets.len(), 1);
}

#[tokio::test]
async fn a_directory_that_is_moved_away_and_back_is_watched_again() {
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    for round in 2..4 {
        let (dir, away) = (b.home.path().join("pods"), b.home.path().join("pods.x"));
        fs::rename(&dir, &away).expect("mv");
        b.until_that(|b| b.reasons() == ["Frozen"]).await;
        fs::rename(&away, &dir).expect("mv");
        b.until_that(|b| b.reasons().is_empty()).await;
        assert_eq!(b.sets.len(), round - 1);
        b.put("web.yaml", &yaml("web", &format!("i:{round}")));
        b.until(&[&format!("web=i:{round}")]).await;
    }
    assert_eq!(b.sets.len(), 3);
}

#[tokio::test]
async fn a_directory_that_is_swapped_for_another_is_followed_there() {
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    let (dir, next) = (b.home.path().join("pods"), b.home.path().join("next"));
    fs::create_dir(&next).expect("mkdir");
    fs::write(next.join("web.yaml"), yaml("web", "i:2")).expect("write");
    fs::rename(&dir, b.home.path().join("old")).expect("mv");
    fs::rename(&next, &dir).expect("mv");
    b.until(&["web=i:2"]).await;
    b.put("web.yaml", &yaml("web", "i:3"));
    b.until(&["web=i:3"]).await;
}

#[tokio::test]
async fn a_missing_directory_is_followed_when_it_appears() {
    let home = TempDir::new().expect("temp dir");
    let dir = home.path().join("etc/pods");
    let (sender, mut updates) = mpsc::channel(16);
    let _source = FileSource::spawn(options(&dir), Seed::default(), sender);
    let first = updates.recv().await.expect("a first set");
    assert!(running(&first).is_empty());
    assert_eq!(first.report.problems[0].reason, "Missing");
    fs::create_dir_all(&dir).expect("mkdir");
    fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write");
    let until = async { while running(&updates.recv().await.expect("an update")) != ["web=i:1"] {} };
    tokio::time::timeout(Duration::from_secs(10), until).await.expect("found");
}

#[tokio::test]
async fn a_links_target_is_followed_in_place_and_by_rename() {
    let mut b = Bench::start(|dir| {
        let targets = dir.parent().expect("home").join("targets");
        fs::create_dir(&targets).expect("mkdir");
        fs::write(targets.join("t.yaml"), yaml("web", "i:1")).expect("write");
        symlink(targets.join("t.yaml"), dir.join("web.yaml")).expect("ln");
    })
    .await;
    let target = b.home.path().join("targets/t.yaml");
    fs::write(&target, yaml("web", "i:2")).expect("write");
    b.until(&["web=i:2"]).await;
    let staged = b.home.path().join("targets/staged");
    fs::write(&staged, yaml("web", "i:3")).expect("write");
    fs::rename(&staged, &target).expect("mv");
    b.until(&["web=i:3"]).await;
    // The link itself, swapped for another.
    fs::write(b.home.path().join("other.yaml"), yaml("web", "i:4")).expect("write");
    symlink("../other.yaml", b.path("new")).expect("ln");
    fs::rename(b.path("new"), b.path("web.yaml")).expect("mv");
    b.until(&["web=i:4"]).await;
    fs::write(b.home.path().join("other.yaml"), yaml("web", "i:5")).expect("write");
    b.until(&["web=i:5"]).await;
    assert_eq!(b.sets.len(), 5);
}

#[tokio::test]
async fn a_swap_of_the_data_link_gives_one_set() {
    let mut b = Bench::start(|dir| {
        fs::create_dir(dir.join("..v1")).expect("mkdir");
        for name in ["db", "web"] {
            fs::write(dir.join("..v1").join(format!("{name}.yaml")), yaml(name, "i:1")).expect("write");
            symlink(format!("..data/{name}.yaml"), dir.join(format!("{name}.yaml"))).expect("ln");
        }
        symlink("..v1", dir.join("..data")).expect("ln");
    })
    .await;
    for round in 2..4 {
        let next = b.path(&format!("..v{round}"));
        fs::create_dir(&next).expect("mkdir");
        for name in ["db", "web"] {
            fs::write(next.join(format!("{name}.yaml")), yaml(name, &format!("i:{round}"))).expect("write");
        }
        symlink(format!("..v{round}"), b.path("..data_tmp")).expect("ln");
        fs::rename(b.path("..data_tmp"), b.path("..data")).expect("mv");
        fs::remove_dir_all(b.path(&format!("..v{}", round - 1))).expect("rm");
        b.until(&[&format!("db=i:{round}"), &format!("web=i:{round}")]).await;
        b.quiet(500).await;
        assert_eq!(b.sets.len(), round);
    }
}

/// A tmpfs that is unmounted when this is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn on(path: &Path) -> Self {
        rustix::mount::mount("podling-test", path, "tmpfs", MountFlags::empty(), c"mode=0755")
            .expect("mount");
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn may_mount() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn a_link_to_a_mount_that_comes_later_is_read_within_two_seconds() {
    if !may_mount() {
        return;
    }
    let mut b = Bench::start(|dir| {
        let mnt = dir.parent().expect("home").join("mnt");
        fs::create_dir(&mnt).expect("mkdir");
        symlink(mnt.join("a.yaml"), dir.join("a.yaml")).expect("ln");
    })
    .await;
    assert_eq!(b.reasons(), ["Unreadable"]);
    // Filled elsewhere first, so that nothing but the mount brings the file.
    let (aside, mnt) = (b.home.path().join("aside"), b.home.path().join("mnt"));
    fs::create_dir(&aside).expect("mkdir");
    let filled = Tmpfs::on(&aside);
    fs::write(aside.join("a.yaml"), yaml("web", "i:1")).expect("write");
    let start = Instant::now();
    rustix::mount::mount_bind(&aside, &mnt).expect("bind");
    let bound = Tmpfs(mnt.clone());
    b.until(&["web=i:1"]).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    fs::write(mnt.join("new"), yaml("web", "i:2")).expect("write");
    fs::rename(mnt.join("new"), mnt.join("a.yaml")).expect("mv");
    b.until(&["web=i:2"]).await;
    // Unmounted again, the pod stays.
    drop(bound);
    drop(filled);
    b.until_that(|b| b.reasons() == ["Unreadable"]).await;
    assert_eq!(running(b.update()), ["web=i:2"]);
    assert_eq!(b.sets.len(), 3);
}

#[tokio::test]
async fn an_empty_mount_over_the_directory_freezes_it_until_it_is_gone() {
    if !may_mount() {
        return;
    }
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    let mount = Tmpfs::on(&b.home.path().join("pods"));
    b.until_that(|b| b.reasons() == ["Frozen"]).await;
    drop(mount);
    b.until_that(|b| b.reasons().is_empty()).await;
    assert_eq!(b.sets.len(), 1);
    b.put("web.yaml", &yaml("web", "i:2"));
    b.until(&["web=i:2"]).await;
}

#[tokio::test]
async fn a_burst_of_files_arrives_whole() {
    let mut b = Bench::start(|_| {}).await;
    let mut all = Vec::new();
    for n in 0..100 {
        b.put(&format!("p{n:03}.yaml"), &yaml(&format!("p{n:03}"), "i:1"));
        all.push(format!("p{n:03}=i:1"));
    }
    b.until_that(|b| running(b.update()) == all).await;
}

#[tokio::test]
async fn a_request_to_look_again_and_new_settings_take_effect() {
    let mut b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    b.source.relist().await;
    b.quiet(300).await;
    let read = ReadOptions { name_suffix: Some("node1".into()), ..Default::default() };
    b.source.set_options(FileSourceOptions { read, ..options(&b.home.path().join("pods")) });
    b.until(&["web-node1=i:1"]).await;
}

#[tokio::test]
async fn what_was_known_before_comes_with_the_first_set_when_the_directory_is_gone() {
    let b = Bench::start(|dir| fs::write(dir.join("web.yaml"), yaml("web", "i:1")).expect("write")).await;
    let seed = Seed {
        pods: b.update().pods.clone().expect("pods"),
        dirs: b.source.dir_identities(),
        ..Seed::default()
    };
    fs::rename(b.home.path().join("pods"), b.home.path().join("away")).expect("mv");
    let (sender, mut updates) = mpsc::channel(16);
    let _source = FileSource::spawn(options(&b.home.path().join("pods")), seed, sender);
    let first = updates.recv().await.expect("a first set");
    assert_eq!(running(&first), ["web=i:1"]);
    assert_eq!(first.report.problems[0].reason, "Frozen");
    assert_eq!(first.report.problems[0].keeps, [PodKey::new("default", "web")]);
}

#[tokio::test]
async fn the_source_ends_with_its_handle() {
    let mut b = Bench::start(|_| {}).await;
    drop(b.source);
    let ended = tokio::time::timeout(Duration::from_secs(5), b.updates.recv()).await;
    assert!(matches!(ended, Ok(None)));
}

#[test]
fn an_overflow_is_counted_and_all_is_listed() {
    let home = TempDir::new().expect("temp dir");
    let (sender, _notices) = mpsc::unbounded_channel();
    let scanner = Scanner::new(options(home.path()), Seed::default());
    let mut looker = Looker { scanner, watch: None, sender, renew: false, overflows: 0, sent: None };
    let now = Instant::now();
    assert!(looker.look(now).0.is_some());
    assert!(looker.look(now).0.is_none());
    assert!(looker.notice(Notice::Overflow, now));
    assert!(looker.renew);
    let update = looker.look(now).0.expect("an update");
    assert_eq!(update.report.overflows, 1);
}
