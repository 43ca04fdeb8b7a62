use std::fs;

use super::*;

const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken\nweb:x:1000:1001:Web:/srv/web:/bin/sh\n";
const GROUP: &str = "root:x:0:\naudio:x:29:web, other\nweb:x:1001:\nvideo:x:44:web\nbroken:x:nan:web\n";

fn rootfs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/passwd"), PASSWD).unwrap();
    fs::write(dir.path().join("etc/group"), GROUP).unwrap();
    dir
}

fn image(user: &str) -> UserSpec {
    UserSpec { image_user: user.into(), ..UserSpec::default() }
}

/// uid, gid and all groups.
fn ids(spec: &UserSpec) -> (u32, u32, Vec<u32>) {
    let user = resolve(rootfs().path(), spec).unwrap();
    (user.uid, user.gid, user.additional_gids)
}

fn refused(spec: &UserSpec) -> String {
    let error = resolve(rootfs().path(), spec).unwrap_err();
    assert_eq!(error.reason(), "CreateContainerConfigError");
    error.to_string()
}

#[test]
fn the_images_user_is_looked_up_in_the_image() {
    assert_eq!(ids(&image("")), (0, 0, vec![0]));
    assert_eq!(ids(&image("web")), (1000, 1001, vec![29, 44, 1001]));
    assert_eq!(ids(&image("1000")), (1000, 1001, vec![29, 44, 1001]));
    assert_eq!(ids(&image("web:audio")), (1000, 29, vec![29, 44]));
    assert_eq!(ids(&image("7:8")), (7, 8, vec![8]));
    assert_eq!(ids(&image("7")), (7, 0, vec![0]));
    assert_eq!(ids(&image("7:")), (7, 0, vec![0]));
    let user = resolve(rootfs().path(), &image("web")).unwrap();
    assert_eq!((user.username.as_deref(), user.home.as_deref()), (Some("web"), Some("/srv/web")));
    assert_eq!(resolve(rootfs().path(), &image("7")).unwrap().home, None);
}

#[test]
fn the_manifest_wins_over_the_image() {
    let spec = UserSpec { run_as_user: Some(1000), ..image("7:8") };
    assert_eq!(ids(&spec), (1000, 1001, vec![29, 44, 1001]), "the image's group belongs to its own user");
    let spec = UserSpec { run_as_user: Some(5), run_as_group: Some(6), ..image("web:nogroup") };
    assert_eq!(ids(&spec), (5, 6, vec![6]));
    let spec = UserSpec { run_as_group: Some(6), supplemental_groups: vec![9, 6], ..image("web") };
    assert_eq!(ids(&spec), (1000, 6, vec![6, 9, 29, 44]));
}

#[test]
fn under_the_strict_policy_the_images_groups_stay_away() {
    let strict = UserSpec { only_these_groups: true, supplemental_groups: vec![9], ..image("web") };
    assert_eq!(ids(&strict), (1000, 1001, vec![9, 1001]));
    let pod: PodSpec = serde_json::from_value(serde_json::json!({
        "containers": [], "securityContext": {"supplementalGroupsPolicy": "Strict"}
    }))
    .unwrap();
    assert!(UserSpec::of(&pod, &Container::default(), "").only_these_groups);
}

#[test]
fn a_container_overrides_its_pod() {
    let pod: PodSpec = serde_json::from_value(serde_json::json!({
        "containers": [],
        "securityContext": {"runAsUser": 1, "runAsGroup": 2, "runAsNonRoot": true, "supplementalGroups": [3], "fsGroup": 4}
    }))
    .unwrap();
    let container: Container =
        serde_json::from_value(serde_json::json!({"name": "c", "securityContext": {"runAsUser": 10}}))
            .unwrap();
    let wanted = UserSpec {
        run_as_user: Some(10),
        run_as_group: Some(2),
        image_user: "web".into(),
        run_as_non_root: Some(true),
        supplemental_groups: vec![3, 4],
        only_these_groups: false,
    };
    assert_eq!(UserSpec::of(&pod, &container, "web"), wanted);
    assert_eq!(UserSpec::of(&PodSpec::default(), &Container::default(), ""), UserSpec::default());
}

#[test]
fn root_is_refused_where_the_manifest_forbids_it() {
    let strict = |spec: UserSpec| UserSpec { run_as_non_root: Some(true), ..spec };
    let as_user = |uid: i64| UserSpec { run_as_user: Some(uid), ..UserSpec::default() };
    assert_eq!(
        refused(&strict(as_user(0))),
        "container's runAsUser breaks non-root policy: runAsNonRoot is true and runAsUser is 0; set runAsUser to another uid"
    );
    let root = "container has runAsNonRoot and image will run as root; set runAsUser to a uid other than 0";
    for user in ["", "0", "00:5", ":5"] {
        assert_eq!(refused(&strict(image(user))), root, "{user}");
    }
    let text = refused(&strict(image("web")));
    assert!(
        text.contains("image has non-numeric user (web), cannot verify user is non-root")
            && text.ends_with("set runAsUser to its uid")
    );
    assert_eq!(ids(&strict(image("1000"))).0, 1000);
    assert_eq!(ids(&strict(as_user(1))).0, 1);
    assert_eq!(ids(&UserSpec { run_as_non_root: Some(false), ..image("") }).0, 0);
}

#[test]
fn names_and_numbers_that_do_not_exist_are_named() {
    assert_eq!(
        refused(&image("nginx")),
        "the image's user \"nginx\" is not in its /etc/passwd: set runAsUser, or correct the image"
    );
    assert_eq!(
        refused(&image("web:nginx")),
        "the image's group \"nginx\" is not in its /etc/group: set runAsGroup, or correct the image"
    );
    assert!(refused(&image("4294967295")).starts_with("the image's user is 4294967295, which is no user"));
    let negative = UserSpec { run_as_user: Some(-1), ..UserSpec::default() };
    assert!(refused(&negative).starts_with("runAsUser is -1, which is no user or group id"));
    let group = UserSpec { supplemental_groups: vec![1 << 40], ..UserSpec::default() };
    assert!(refused(&group).starts_with("supplementalGroups is 1099511627776"));
}

#[test]
fn an_image_without_the_files_runs_numbers_and_root() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(resolve(empty.path(), &image("12:13")).unwrap().gid, 13);
    assert_eq!(resolve(empty.path(), &image("")).unwrap().uid, 0);
    assert!(matches!(resolve(empty.path(), &image("web")), Err(UserError::NoSuchUser { .. })));
}

#[test]
fn a_link_cannot_lead_out_of_the_image() {
    let dir = rootfs();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "web:x:666:666::/:\n").unwrap();
    fs::remove_file(dir.path().join("etc/passwd")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("etc/passwd")).unwrap();
    assert!(matches!(resolve(dir.path(), &image("web")), Err(UserError::NoSuchUser { .. })));

    // A link that stays inside is followed, also an absolute one.
    fs::write(dir.path().join("real"), PASSWD).unwrap();
    fs::remove_file(dir.path().join("etc/passwd")).unwrap();
    std::os::unix::fs::symlink("/../../real", dir.path().join("etc/passwd")).unwrap();
    assert_eq!(resolve(dir.path(), &image("web")).unwrap().uid, 1000);
}

#[test]
fn what_is_not_a_file_or_too_large_is_refused() {
    let dir = rootfs();
    let passwd = dir.path().join("etc/passwd");
    fs::remove_file(&passwd).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(CWD, &passwd, FileType::Fifo, mode, 0).unwrap();
    let text = resolve(dir.path(), &image("")).unwrap_err().to_string();
    assert_eq!(text, "cannot read /etc/passwd of the image: it is not a regular file");

    fs::remove_file(&passwd).unwrap();
    File::create(&passwd).unwrap().set_len(MAX_FILE + 1).unwrap();
    let text = resolve(dir.path(), &image("")).unwrap_err().to_string();
    assert_eq!(text, "cannot read /etc/passwd of the image: it is larger than 10 MiB");

    let text = resolve(Path::new("/nonexistent"), &image("")).unwrap_err().to_string();
    assert!(text.contains("/nonexistent: No such file"), "{text}");
}
