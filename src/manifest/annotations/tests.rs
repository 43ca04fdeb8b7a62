use super::*;
use crate::manifest::{Document, ReadOptions, read};

fn document(annotations: &str) -> Document {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    {}\nspec:\n  containers:\n  \
         - {{name: app, image: a}}\n  - {{name: other, image: a}}\n",
        annotations.replace('\n', "\n    ")
    );
    read(text.as_bytes(), &ReadOptions::default()).remove(0)
}

/// What is said about annotations, one line each.
fn said(annotations: &str) -> Vec<String> {
    document(annotations).diagnostics.iter().map(|d| format!("{}:{}: {}", d.line, d.column, d.text)).collect()
}

#[test]
fn an_unknown_annotation_is_warned_about_with_what_was_meant() {
    assert_eq!(
        said("podling.dev/shm_size: 1Gi"),
        [
            "6:5: podling knows no annotation podling.dev/shm_size; did you mean podling.dev/shm-size? It has no effect"
        ]
    );
    let strange = said("podling.dev/color: red");
    assert!(
        strange[0].starts_with("6:5: podling knows no annotation podling.dev/color, so it has no effect")
    );
    assert!(document("podling.dev/color: red").pod.is_some(), "it is no reason to refuse the pod");
    assert_eq!(said("example.com/shm_size: 1Gi"), [""; 0]);
}

#[test]
fn a_size_of_shared_memory_must_be_one() {
    assert_eq!(said("podling.dev/shm-size: 256Mi"), [""; 0]);
    for bad in ["lots", "0", "\"-1Mi\"", "\"\""] {
        let said = said(&format!("podling.dev/shm-size: {}", if bad == "0" { "\"0\"" } else { bad }));
        assert!(said[0].ends_with("must be a size above 0 such as 256Mi"), "{said:?}");
        assert!(said[0].starts_with("6:27: Invalid value: "), "{said:?}");
    }
    let pod = document("podling.dev/shm-size: 256Mi").pod.unwrap().pod;
    assert_eq!(shm_size(&pod), Some(256 << 20));
}

#[test]
fn limits_are_names_and_amounts() {
    let pod = document(
        "podling.dev/ulimits: nofile=1024:65536, memlock=unlimited\npodling.dev/ulimits.other: core=0",
    )
    .pod
    .unwrap()
    .pod;
    let limit = |name, soft, hard| Ulimit { name, soft, hard };
    assert_eq!(ulimits(&pod, "app"), [limit("nofile", 1024, 65536), limit("memlock", u64::MAX, u64::MAX)]);
    assert_eq!(ulimits(&pod, "other"), [limit("core", 0, 0)], "its own stand in place of the pod's");
    for (bad, why) in [
        ("nofiles=1", "did you mean nofile?"),
        ("nofile", "is no limit such as nofile=65536"),
        ("nofile=2:1", "has a soft limit above its hard one"),
        ("nofile=1k", "must have a number"),
        ("nofile=1,nofile=2", "nofile stands twice"),
    ] {
        let said = said(&format!("podling.dev/ulimits: {bad}"));
        assert!(said[0].starts_with("6:26: Invalid value") && said[0].contains(why), "{said:?}");
    }
}

#[test]
fn devices_are_paths_on_the_host_with_place_and_access() {
    let pod = document("podling.dev/devices: '/dev/ttyUSB0:rw, /dev/dri, /dev/a:/dev/b, /dev/c:/dev/d:rwm'")
        .pod
        .unwrap()
        .pod;
    let got: Vec<_> = devices(&pod, "app")
        .into_iter()
        .map(|d| format!("{} {} {}", d.host, d.container, d.access))
        .collect();
    assert_eq!(
        got,
        ["/dev/ttyUSB0 /dev/ttyUSB0 rw", "/dev/dri /dev/dri rw", "/dev/a /dev/b rw", "/dev/c /dev/d rwm"]
    );
    for bad in ["ttyUSB0", "/dev/a:x", "/dev/a:rr", "/dev/../etc", "/dev/a:/dev/b:/dev/c", "''"] {
        assert!(said(&format!("podling.dev/devices: {bad}"))[0].contains("Invalid value"), "{bad}");
    }
}

#[test]
fn mount_points_are_host_path_volumes_or_paths() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    podling.dev/require-mountpoint: \"data, /srv/x\"\nspec:\n  volumes: [{name: data, hostPath: {path: /mnt/data}}, {name: e, emptyDir: {}}]\n  containers: [{name: app, image: a}]\n";
    let pod = read(text.as_bytes(), &ReadOptions::default()).remove(0).pod.unwrap().pod;
    assert_eq!(required_mount_points(&pod), ["/mnt/data", "/srv/x"].map(std::path::PathBuf::from));
    for (bad, why) in [("dat", "the pod has no volume \"dat\""), ("e", "volume \"e\" is no hostPath")] {
        let text = text.replace("data, /srv/x", bad);
        let document = read(text.as_bytes(), &ReadOptions::default()).remove(0);
        assert!(document.diagnostics[0].text.contains(why), "{:?}", document.diagnostics);
    }
}

#[test]
fn time_zones_and_switches_have_their_forms_and_name_containers_of_the_pod() {
    let pod = document("podling.dev/timezone: Europe/Berlin\npodling.dev/timezone.other: local\npodling.dev/oom-group.app: \"false\"").pod.unwrap().pod;
    assert_eq!(time_zone(&pod, "app"), Some(TimeZone::Named("Europe/Berlin".into())));
    assert_eq!(time_zone(&pod, "other"), Some(TimeZone::Local));
    assert_eq!((oom_group(&pod, "app"), oom_group(&pod, "other")), (false, true));
    assert!(said("podling.dev/timezone: ../etc/passwd")[0].contains("must be a name of the tz database"));
    assert!(said("podling.dev/oom-group: \"no\"")[0].contains("must be \"true\" or \"false\""));
    assert!(said("podling.dev/timezone.nobody: UTC")[0].contains("the pod has no container \"nobody\""));
}

#[test]
fn a_value_that_reaches_the_pod_is_part_of_its_hash_and_no_other_is() {
    let hashes = |annotations: &str| document(annotations).pod.unwrap().hashes;
    let (small, large) = (hashes("podling.dev/shm-size: 1Mi"), hashes("podling.dev/shm-size: 2Mi"));
    assert_ne!(small.pod, large.pod);
    assert_eq!(small.containers, large.containers);
    let (one, other) = (hashes("podling.dev/color: red"), hashes("podling.dev/color: blue"));
    assert_eq!(one.pod, other.pod);
}
