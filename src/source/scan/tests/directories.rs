//! Manifest directories that come, go and are replaced, and what a start finds.

use super::*;

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
