use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

fn empty_dir(name: &str, medium: &str, limit: Option<&str>) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: (!medium.is_empty()).then(|| medium.to_owned()),
        size_limit: limit.map(|l| Quantity(l.to_owned())),
        ..EmptyDirVolumeSource::default()
    };
    Volume { name: name.into(), empty_dir: Some(source), ..Volume::default() }
}

fn pod(volumes: Vec<Volume>, memory: Option<&str>) -> Pod {
    let limits = memory.map(|m| [("memory".to_owned(), Quantity(m.to_owned()))].into());
    let resources = Some(ResourceRequirements { limits, ..ResourceRequirements::default() });
    let container = Container { name: "a".into(), resources, ..Container::default() };
    let spec = PodSpec { containers: vec![container], volumes: Some(volumes), ..PodSpec::default() };
    Pod { spec: Some(spec), ..Pod::default() }
}

pub(super) fn input(pod: &Pod, dir: &Path) -> VolumeInput {
    let facts = DownwardFacts { uid: "uid".into(), ..DownwardFacts::default() };
    VolumeInput {
        pod: pod.clone(),
        uid: "uid".into(),
        dir: dir.to_owned(),
        claims: dir.join("claims"),
        objects: Objects::default(),
        facts,
    }
}

async fn make(pod: &Pod, dir: &Path) -> Result<BTreeMap<String, PreparedVolume>, VolumeError> {
    prepare(input(pod, dir)).await
}

fn root() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Size of the file system a path is on.
fn capacity(path: &Path) -> u64 {
    let fs = rustix::fs::statvfs(path).unwrap();
    fs.f_blocks * fs.f_frsize
}

fn is_tmpfs_of_its_own(path: &Path) -> bool {
    fs::metadata(path).unwrap().dev() != fs::metadata(path.parent().unwrap()).unwrap().dev()
}

#[tokio::test]
async fn an_empty_dir_is_writable_by_anyone_and_keeps_its_content_when_prepared_again() {
    let dir = root();
    let pod_dir = dir.path().join("uid");
    let pod =
        pod(vec![empty_dir("cache", "", None), Volume { name: "bare".into(), ..Volume::default() }], None);
    let ready = make(&pod, &pod_dir).await.unwrap();
    let cache = &ready["cache"];
    assert_eq!(cache.host_path, pod_dir.join("volumes/kubernetes.io~empty-dir/cache"));
    assert!(!cache.is_file && ready["bare"].host_path.is_dir());
    assert_eq!(fs::metadata(&cache.host_path).unwrap().permissions().mode() & 0o7777, 0o777);
    fs::write(cache.host_path.join("x"), "kept").unwrap();
    assert_eq!(make(&pod, &pod_dir).await.unwrap(), ready);
    assert!(cache.host_path.join("x").exists());
    teardown(&pod_dir).unwrap();
    teardown(&pod_dir).unwrap();
    assert!(!pod_dir.exists());
}

#[tokio::test]
async fn an_empty_dir_in_memory_has_the_smaller_of_its_limit_and_the_pods() {
    let dir = root();
    for (number, (limit, memory, want)) in [
        (Some("8Mi"), Some("64Mi"), 8 << 20),
        (Some("1Gi"), Some("16Mi"), 16 << 20),
        (None, Some("4Mi"), 4 << 20),
        (Some("2Mi"), None, 2 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        let pod_dir = dir.path().join(number.to_string());
        let pod = pod(vec![empty_dir("m", "Memory", limit)], memory);
        let ready = make(&pod, &pod_dir).await.unwrap();
        // Twice: an already mounted one is kept.
        make(&pod, &pod_dir).await.unwrap();
        let path = ready["m"].host_path.clone();
        let (own, size) = (is_tmpfs_of_its_own(&path), capacity(&path));
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        teardown(&pod_dir).unwrap();
        assert_eq!((own, size, mode), (true, want, 0o777));
        assert!(!pod_dir.exists());
    }
}

#[tokio::test]
async fn an_empty_dir_has_the_mode_of_the_manifest_and_keeps_what_fs_group_adds() {
    let dir = root();
    for (number, medium) in ["", "Memory"].into_iter().enumerate() {
        let pod_dir = dir.path().join(number.to_string());
        let mut volume = empty_dir("v", medium, Some("1Mi"));
        volume.empty_dir.as_mut().unwrap().mode = Some(0o1700);
        let pod = pod(vec![volume], None);
        let path = make(&pod, &pod_dir).await.unwrap()["v"].host_path.clone();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o1700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o3770)).unwrap();
        make(&pod, &pod_dir).await.unwrap();
        assert_eq!(mode(), 0o3770);
        teardown(&pod_dir).unwrap();
    }
}

#[tokio::test]
async fn a_reset_empties_both_kinds_at_once() {
    let dir = root();
    let pod_dir = dir.path().join("uid");
    let pod = pod(vec![empty_dir("disk", "", None), empty_dir("mem", "Memory", Some("1Mi"))], None);
    for _ in 0..3 {
        let ready = make(&pod, &pod_dir).await.unwrap();
        for volume in ready.values() {
            assert!(!volume.host_path.join("f").exists());
            fs::write(volume.host_path.join("f"), "x").unwrap();
        }
        reset(&pod_dir).unwrap();
    }
    reset(&dir.path().join("none")).unwrap();
    for _ in 0..100 {
        let left = fs::read_dir(&pod_dir).unwrap().flatten();
        if left.filter(|e| e.file_name().to_string_lossy().starts_with(".old-")).count() == 0 {
            return teardown(&pod_dir).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("what was moved aside is still there");
}

#[test]
fn removing_never_follows_a_link_out() {
    let dir = root();
    let (pod_dir, outside) = (dir.path().join("uid"), dir.path().join("outside"));
    fs::create_dir_all(pod_dir.join("volumes/x")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "").unwrap();
    symlink(&outside, pod_dir.join("volumes/x/link")).unwrap();
    symlink(&outside, pod_dir.join("volumes/y")).unwrap();
    teardown(&pod_dir).unwrap();
    assert!(outside.join("precious").exists() && !pod_dir.exists());
}

#[test]
fn a_tree_deeper_than_there_are_descriptors_is_removed() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let dir = root();
    let pod_dir = dir.path().join("uid");
    fs::create_dir(&pod_dir).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&pod_dir, flags, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    drop(at);
    teardown(&pod_dir).unwrap();
    assert!(!pod_dir.exists());
}

#[tokio::test]
async fn what_is_in_use_is_detached_and_goes_all_the_same() {
    let dir = root();
    let pod_dir = dir.path().join("uid");
    let ready = make(&pod(vec![empty_dir("m", "Memory", Some("1Mi"))], None), &pod_dir).await.unwrap();
    let held = fs::File::create(ready["m"].host_path.join("held")).unwrap();
    teardown(&pod_dir).unwrap();
    assert!(!pod_dir.exists());
    drop(held);
}

#[test]
fn what_cannot_be_removed_is_named_and_the_rest_goes() {
    let dir = root();
    let pod_dir = dir.path().join("uid");
    // A cgroup file system would do as well; /proc/self/fd entries cannot be unlinked, but need a mount. A bind
    // mount made behind the table's back stands for any foreign file system.
    fs::create_dir_all(pod_dir.join("a/foreign")).unwrap();
    fs::write(pod_dir.join("a/file"), "").unwrap();
    fs::write(pod_dir.join("b"), "").unwrap();
    let foreign = pod_dir.join("a/foreign");
    rustix::mount::mount("tmpfs", &foreign, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    fs::write(foreign.join("precious"), "").unwrap();
    let errors = remove::remove_tree(&pod_dir);
    let kept = foreign.join("precious").exists();
    teardown(&pod_dir).unwrap();
    assert!(kept && !pod_dir.exists());
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [format!("cannot remove {}: Invalid cross-device link (os error 18)", foreign.display())]
    );
}

#[tokio::test]
async fn other_kinds_media_and_sizes_are_refused_by_name() {
    let dir = root();
    let refused =
        async |volume: Volume| make(&pod(vec![volume], None), dir.path()).await.unwrap_err().to_string();
    let iscsi = serde_json::json!({"name": "n", "iscsi": {"targetPortal": "s", "iqn": "i", "lun": 0}});
    assert_eq!(refused(serde_json::from_value(iscsi).unwrap()).await, "volume \"n\": iscsi is not supported");
    assert_eq!(
        refused(empty_dir("h", "HugePages-3Mi", None)).await,
        "volume \"h\": this host's kernel has no huge pages of 3Mi; see /sys/kernel/mm/hugepages for what it has"
    );
    assert_eq!(
        refused(empty_dir("s", "Memory", Some("lots"))).await,
        "volume \"s\": sizeLimit \"lots\" is not a quantity such as 64Mi"
    );
}

#[tokio::test]
async fn a_host_path_is_never_touched_by_teardown() {
    let dir = root();
    let (pod_dir, data) = (dir.path().join("uid"), dir.path().join("data"));
    let volume =
        serde_json::from_value(serde_json::json!({"name": "d", "hostPath": {"path": data}})).unwrap();
    let ready = make(&pod(vec![volume], None), &pod_dir).await.unwrap();
    assert_eq!(ready["d"].host_path, data);
    fs::write(data.join("f"), "").unwrap();
    teardown(&pod_dir).unwrap();
    assert!(data.join("f").exists());
}
