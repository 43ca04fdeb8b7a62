use super::*;

fn payload(files: &[(&str, &str)]) -> Payload {
    let mut payload = Payload::default();
    for (path, data) in files {
        let entry = Entry { data: data.as_bytes().to_vec(), mode: 0o644, user: 0 };
        payload.insert(path, entry).unwrap();
    }
    payload
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// All names in the top directory, content directories as `..dir`, with what links lead to.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let kind = entry.file_type().unwrap();
            match (kind.is_symlink(), name.starts_with("..2")) {
                (true, _) if name == DATA => DATA.to_owned(),
                (true, _) => format!("{name} -> {}", fs::read_link(entry.path()).unwrap().display()),
                (false, true) => "..dir".to_owned(),
                (false, false) => format!("{name} (not a link)"),
            }
        })
        .collect();
    names.sort();
    names
}

fn read(dir: &Path, path: &str) -> String {
    fs::read_to_string(dir.join(path)).unwrap()
}

#[test]
fn a_volume_is_laid_out_as_the_kubelet_does_and_changes_as_a_whole() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    assert!(!is_written(dir));
    assert!(write(dir, &payload(&[("a", "1"), ("sub/b", "1"), ("sub/deep/c", "1")])).unwrap());
    assert_eq!(listing(dir), ["..data", "..dir", "a -> ..data/a", "sub -> ..data/sub"]);
    assert_eq!((read(dir, "a"), read(dir, "sub/deep/c")), ("1".into(), "1".into()));
    let before = fs::read_link(dir.join(DATA)).unwrap();
    assert!(write(dir, &payload(&[("new", "2"), ("sub/b", "2")])).unwrap());
    assert_ne!(fs::read_link(dir.join(DATA)).unwrap(), before);
    assert_eq!(listing(dir), ["..data", "..dir", "new -> ..data/new", "sub -> ..data/sub"]);
    assert_eq!((read(dir, "new"), read(dir, "sub/b")), ("2".into(), "2".into()));
    assert!(!dir.join("sub/deep").exists());
}

#[test]
fn what_did_not_change_is_not_written_again() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let one = payload(&[("a", "1"), ("d/b", "2")]);
    assert!(write(dir, &one).unwrap());
    let inode = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    let before = (inode("a"), inode("d/b"), fs::read_link(dir.join(DATA)).unwrap());
    assert!(!write(dir, &one).unwrap());
    assert_eq!((inode("a"), inode("d/b"), fs::read_link(dir.join(DATA)).unwrap()), before);
    for other in [payload(&[("a", "1"), ("d/b", "3")]), payload(&[("a", "1")]), payload(&[])] {
        assert!(write(dir, &other).unwrap());
        assert!(!write(dir, &other).unwrap());
    }
    assert!(is_written(dir));
    assert_eq!(listing(dir), ["..data", "..dir"]);
}

#[test]
fn a_changed_mode_group_or_owner_is_a_change() {
    if !root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let mut files = Payload::default();
    for (path, mode, user) in [("secret", 0o400, 0), ("d/script", 0o755, 7)] {
        files.insert(path, Entry { data: b"x".to_vec(), mode, user }).unwrap();
    }
    let look = |path: &str| {
        let meta = fs::metadata(dir.join(path)).unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    };
    assert!(write(dir, &files).unwrap());
    assert_eq!((look("secret"), look("d/script")), ((0o400, 0, 0), (0o755, 7, 0)));
    files.group = Some(2000);
    assert!(write(dir, &files).unwrap());
    assert_eq!((look("secret"), look("d/script")), ((0o440, 0, 2000), (0o755, 7, 2000)));
    assert_eq!((look("d"), look(DATA)), ((0o2755, 0, 2000), (0o2755, 0, 2000)));
    assert!(!write(dir, &files).unwrap());
    files.insert("secret", Entry { data: b"x".to_vec(), mode: 0o600, user: 0 }).unwrap();
    assert!(write(dir, &files).unwrap());
    assert_eq!(look("secret").0, 0o640);
}

#[test]
fn paths_that_lead_out_or_collide_are_refused() {
    let entry = Entry { data: Vec::new(), mode: 0o644, user: 0 };
    let long = "x".repeat(256);
    for path in ["", "/etc/passwd", "../x", "a/../../x", "..data", "..data/x", "./..x", "a\0b", "/", &long] {
        assert!(Payload::default().insert(path, entry.clone()).is_err(), "{path:?}");
    }
    let mut payload = payload(&[("a/b", "1"), ("c", "1"), ("a-z", "1")]);
    for path in ["a", "a/b/c", "c/d", "./a//b/x"] {
        assert!(payload.insert(path, entry.clone()).is_err(), "{path:?}");
    }
    for path in ["a/b", "./c", "a/...", "a//d", "...x/..y"] {
        let fine = path != "...x/..y";
        assert_eq!(payload.insert(path, entry.clone()).is_ok(), fine, "{path:?}");
    }
}

/// Each of the states in which a process can be killed between two calls, made by hand.
#[test]
fn a_write_that_was_cut_short_leaves_the_old_content_and_the_next_one_clears_up() {
    let old = payload(&[("a", "old"), ("gone", "old")]);
    let new = payload(&[("a", "new"), ("b", "new")]);
    let steps: [fn(&Path, &Payload); 5] = [
        |dir, _| {
            let (_, content) = fresh(dir).unwrap();
            fs::write(content.join("a"), "ne").unwrap();
        },
        |dir, new| fill(&fresh(dir).unwrap().1, new).unwrap(),
        |dir, new| {
            fill(&fresh(dir).unwrap().1, new).unwrap();
            link(dir, new).unwrap();
        },
        |dir, new| {
            let (name, content) = fresh(dir).unwrap();
            fill(&content, new).unwrap();
            link(dir, new).unwrap();
            symlink(name, dir.join(DATA_NEW)).unwrap();
        },
        |dir, new| {
            let (name, content) = fresh(dir).unwrap();
            fill(&content, new).unwrap();
            link(dir, new).unwrap();
            put_in_force(dir, &name).unwrap();
        },
    ];
    for (number, step) in steps.iter().enumerate() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        write(dir, &old).unwrap();
        step(dir, &new);
        let swapped = number == 4;
        assert_eq!(read(dir, "a"), if swapped { "new" } else { "old" }, "step {number}");
        assert_eq!(write(dir, &new).unwrap(), !swapped, "step {number}");
        assert_eq!(listing(dir), ["..data", "..dir", "a -> ..data/a", "b -> ..data/b"], "step {number}");
        assert_eq!((read(dir, "a"), read(dir, "b")), ("new".into(), "new".into()));
    }
    // The same with the change taken back meanwhile.
    for (number, step) in steps.iter().enumerate() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        write(dir, &old).unwrap();
        step(dir, &new);
        write(dir, &old).unwrap();
        assert_eq!(listing(dir), ["..data", "..dir", "a -> ..data/a", "gone -> ..data/gone"], "{number}");
    }
}

#[test]
fn what_was_damaged_or_planted_in_a_volume_is_put_right_and_links_out_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let (dir, outside) = (home.path().join("v"), home.path().join("outside"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "1").unwrap();
    let one = payload(&[("a", "1")]);
    symlink(&outside, dir.join(DATA)).unwrap();
    fs::write(dir.join("a"), "planted").unwrap();
    symlink(&outside, dir.join("..data_tmp")).unwrap();
    fs::create_dir(dir.join("stray")).unwrap();
    assert!(write(&dir, &one).unwrap());
    assert_eq!(listing(&dir), ["..data", "..dir", "a -> ..data/a"]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    fs::write(dir.join("..data/a"), "2").unwrap();
    assert!(write(&dir, &one).unwrap());
    assert_eq!(read(&dir, "a"), "1");
}

#[test]
fn a_reader_never_sees_parts_of_two_contents() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().to_owned();
    let of = |n: u32| payload(&[("a", &n.to_string()), ("d/b", &n.to_string())]);
    write(&dir, &of(0)).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut whole = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let content = dir.join(fs::read_link(dir.join(DATA)).unwrap());
                let get = |path: &str| fs::read_to_string(content.join(path)).ok();
                // Content may have been removed after it was replaced, but is never half there.
                if let (Some(a), Some(b)) = (get("a"), get("d/b")) {
                    assert_eq!(a, b);
                    assert!(!a.is_empty());
                    whole += 1;
                }
            }
            whole
        });
        for n in 1..300 {
            write(&dir, &of(n)).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}
