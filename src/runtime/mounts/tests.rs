use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.volume()).unwrap();
        fs::set_permissions(place.volume(), fs::Permissions::from_mode(0o777)).unwrap();
        place
    }

    fn volume(&self) -> PathBuf {
        self.dir.path().join("v")
    }

    fn sources(&self, mount: serde_json::Value) -> Result<Vec<VolumeMountSource>, StartError> {
        let mut whole = json!({"name": "v", "mountPath": "/data"});
        whole.as_object_mut().unwrap().extend(mount.as_object().unwrap().clone());
        let container = json!({"name": "app", "image": "a", "volumeMounts": [whole]});
        let ready = PreparedVolume { host_path: self.volume(), is_file: false, read_only: false };
        let input = MountInput {
            container: serde_json::from_value(container).unwrap(),
            volumes: [("v".to_owned(), ready)].into(),
            images: Vec::new(),
            pod_dir: self.dir.path().join("pod"),
            env: vec![
                ("NAME".into(), "one".into()),
                ("UP".into(), "../x".into()),
                ("NIL".into(), String::new()),
            ],
        };
        input.sources()
    }

    fn said(&self, mount: serde_json::Value) -> String {
        self.sources(mount).unwrap_err().message
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        subpath::unstage_under(&self.dir.path().join("pod")).unwrap();
    }
}

#[test]
fn a_part_of_a_volume_is_made_and_mounted_with_the_volumes_mode() {
    let place = Place::new();
    let sources = place.sources(json!({"subPath": "a/./b"})).unwrap();
    assert_eq!(sources[0].host_path, place.dir.path().join("pod/volume-subpaths/v/app/0"));
    fs::write(sources[0].host_path.join("f"), "x").unwrap();
    assert_eq!(fs::read_to_string(place.volume().join("a/b/f")).unwrap(), "x");
    assert_eq!(fs::metadata(place.volume().join("a/b")).unwrap().permissions().mode() & 0o7777, 0o777);
    // Again, as at a restart: one mount, not two on top of each other.
    place.sources(json!({"subPath": "a/./b"})).unwrap();
    assert_eq!(mounts::mounts_under(place.dir.path()).unwrap().len(), 1);
    assert_eq!(place.sources(json!({"subPath": "."})).unwrap()[0].host_path, place.volume());
}

#[test]
fn an_expression_takes_the_containers_variables_and_nothing_else() {
    let place = Place::new();
    place.sources(json!({"subPathExpr": "logs/$(NAME)/$$(NAME)"})).unwrap();
    assert!(place.volume().join("logs/one/$(NAME)").is_dir());
    let said = place.said(json!({"subPathExpr": "$(NOPE)/x"}));
    assert_eq!(
        said,
        "container app: volume \"v\" on /data: subPathExpr \"$(NOPE)/x\": the container has no variable NOPE; \
         define it under env"
    );
    for expression in ["$(NIL)", "logs/$(NIL)", "$(NAME)$(NIL)"] {
        let said = place.said(json!({"subPathExpr": expression}));
        assert!(said.ends_with("the container's variable NIL is empty; give it a value under env"), "{said}");
    }
    assert!(place.said(json!({"subPathExpr": "$(UP)"})).ends_with("must be a relative path without `..`"));
}

#[test]
fn a_mount_that_is_read_only_with_all_below_it_is_so() {
    let place = Place::new();
    let inner = place.volume().join("inner");
    fs::create_dir(&inner).unwrap();
    mounts::mount_tmpfs(&inner, mounts::Tmpfs { size: Some(1 << 20), mode: 0o777, exec: true }).unwrap();
    let mount = json!({"readOnly": true, "recursiveReadOnly": "Enabled"});
    let staged = place.sources(mount).unwrap()[0].host_path.clone();
    for path in [staged.join("f"), staged.join("inner/f")] {
        assert_eq!(
            fs::write(&path, "").unwrap_err().kind(),
            std::io::ErrorKind::ReadOnlyFilesystem,
            "{path:?}"
        );
    }
    fs::write(inner.join("f"), "").unwrap();
    subpath::unstage_under(&place.dir.path().join("pod")).unwrap();
    mounts::unmount(&inner).unwrap();
}

#[test]
fn mounts_that_should_pass_need_a_mount_that_lets_them() {
    let place = Place::new();
    mounts::bind(&place.volume(), &place.volume(), false).unwrap();
    mounts::make_private(&place.volume()).unwrap();
    for kind in ["HostToContainer", "Bidirectional"] {
        let said = place.said(json!({"mountPropagation": kind}));
        assert!(said.contains(&format!("mountPropagation {kind} needs the mount that ")), "{said}");
        assert!(said.contains("run `mount --make-rshared "), "{said}");
    }
    rustix::mount::mount_change(place.volume(), rustix::mount::MountPropagationFlags::SHARED).unwrap();
    let source = &place.sources(json!({"mountPropagation": "Bidirectional"})).unwrap()[0];
    assert_eq!(source.propagation, Propagation::Bidirectional);
    mounts::unmount(&place.volume()).unwrap();
}
