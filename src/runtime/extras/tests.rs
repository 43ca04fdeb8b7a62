use serde_json::json;

use super::*;

fn pod(annotations: serde_json::Value, spec: serde_json::Value) -> Pod {
    let mut whole = json!({"containers": [{"name": "app", "image": "a"}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}, "spec": whole}))
        .unwrap()
}

fn extras(pod: &Pod, volumes: &[(&str, &str)], cap_sys_resource: bool) -> Result<Extras, StartError> {
    let ready = |path: &&str| PreparedVolume { host_path: path.into(), is_file: true, read_only: false };
    let volumes = volumes.iter().map(|(name, path)| ((*name).to_owned(), ready(path))).collect();
    of(pod, &pod.spec.as_ref().unwrap().containers[0], &volumes, &Machine { cap_sys_resource, hugetlb: true })
}

#[test]
fn without_annotations_and_devices_nothing_is_added() {
    assert_eq!(extras(&pod(json!({}), json!({})), &[], true).unwrap(), Extras::default());
}

#[test]
fn a_limit_above_what_podling_may_set_is_refused_with_both_numbers() {
    let annotations = json!({"podling.dev/ulimits": "nice=1000000:1000000"});
    let said = extras(&pod(annotations.clone(), json!({})), &[], false).unwrap_err().message;
    assert!(
        said.starts_with(
            "container app: annotation podling.dev/ulimits: nice 1000000 is above podling's own hard limit "
        ) && said.contains("CAP_SYS_RESOURCE"),
        "{said}"
    );
    assert!(extras(&pod(annotations, json!({})), &[], true).is_ok());
    let files = json!({"podling.dev/ulimits": "nofile=99999999999"});
    let said = extras(&pod(files, json!({})), &[], true).unwrap_err().message;
    assert!(said.contains("raise sysctl fs.nr_open"), "{said}");
    let all = json!({"podling.dev/ulimits": "nofile=unlimited"});
    let got = extras(&pod(all, json!({})), &[], true).unwrap().ulimits[0];
    assert!(got.hard < u64::MAX && got.hard > 1000, "{got:?}");
}

#[test]
fn a_device_is_granted_by_annotation_and_by_a_typed_host_path() {
    let annotations = json!({"podling.dev/devices": "/dev/null:/dev/nothing:r,/dev/zero"});
    let kind = |kind: &str| {
        json!({
            "volumes": [{"name": "d", "hostPath": {"path": "/dev/full", "type": kind}}],
            "containers": [{"name": "app", "image": "a", "volumeMounts": [{"name": "d", "mountPath": "/dev/mine"}]}]
        })
    };
    let got = extras(&pod(annotations, kind("CharDevice")), &[("d", "/dev/full")], true).unwrap().devices;
    let seen: Vec<_> = got
        .iter()
        .map(|g| (g.device.path.to_str().unwrap(), g.device.minor, g.access.as_str(), g.node))
        .collect();
    assert_eq!(
        seen,
        [("/dev/mine", 7, "rw", false), ("/dev/nothing", 3, "r", true), ("/dev/zero", 5, "rw", true)]
    );
    // In a user namespace no nodes are made: what has another name is the host's node, mounted.
    let annotations = json!({"podling.dev/devices": "/dev/null:/dev/nothing:r,/dev/zero"});
    let own = extras(&pod(annotations, json!({"hostUsers": false})), &[], true).unwrap();
    assert_eq!(own.files, [("/dev/nothing".into(), "/dev/null".into())]);
    assert_eq!(own.devices.iter().map(|g| g.node).collect::<Vec<_>>(), [false, true]);
    // Without a type it is a file like any other, as under a kubelet.
    assert_eq!(extras(&pod(json!({}), kind("")), &[("d", "/dev/full")], true).unwrap().devices, []);
}

#[test]
fn a_device_that_is_not_there_is_waited_for_and_what_is_none_is_refused() {
    let said = |devices: &str| {
        extras(&pod(json!({"podling.dev/devices": devices}), json!({})), &[], true).unwrap_err().message
    };
    assert!(said("/dev/none9").ends_with("waiting for /dev/none9: it does not exist"));
    assert!(said("/etc/passwd").ends_with("/etc/passwd is no device; use a hostPath volume"));
    assert!(said("/etc").ends_with("waiting for devices in /etc: there are none"));
}

#[test]
fn a_block_device_is_what_volume_devices_take() {
    let spec = json!({
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}],
        "containers": [{"name": "app", "image": "a", "volumeDevices": [{"name": "d", "devicePath": "/dev/xvda"}]}]
    });
    let said = extras(&pod(json!({}), spec), &[("d", "/tmp")], true).unwrap_err().message;
    assert_eq!(
        said,
        "container app: volumeDevices d: /tmp is no block device; mount the volume by volumeMounts"
    );
}

#[test]
fn a_time_zone_is_a_file_and_a_variable() {
    let zone = |name: &str| extras(&pod(json!({"podling.dev/timezone": name}), json!({})), &[], true);
    let utc = zone("UTC").unwrap();
    assert_eq!(utc.env, [("TZ".to_owned(), "UTC".to_owned())]);
    let said = zone("Europe/Atlantis").unwrap_err().message;
    assert!(said.contains("/usr/share/zoneinfo/Europe/Atlantis is not on this host"), "{said}");
    assert_eq!(zone("local").unwrap().env[0].0, "TZ");
}

#[test]
fn huge_pages_are_limited_by_size_and_out_of_memory_may_cost_one_process_only() {
    let spec = json!({"containers": [{"name": "app", "image": "a", "resources": {"limits": {
        "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi", "cpu": "1"
    }}}]});
    let got = extras(&pod(json!({"podling.dev/oom-group.app": "false"}), spec), &[], true).unwrap();
    assert_eq!(got.huge_pages, [("1GB".to_owned(), 1 << 30), ("2MB".to_owned(), 4 << 20)]);
    assert!(got.single_process_oom);
}

#[test]
fn a_container_with_stdin_is_started_by_the_helper_from_where_nothing_is_left_behind() {
    for (mounted, place) in [
        ("/srv", "/dev/.podling-stdin"),
        ("/dev/shm", "/dev/.podling-stdin"),
        ("/dev/", "/.podling-stdin"),
        ("/devices", "/dev/.podling-stdin"),
    ] {
        let mounts = json!({"name": "app", "volumeMounts": [{"name": "v", "mountPath": mounted}]});
        let container: Container = serde_json::from_value(mounts).unwrap();
        let mut extras = Extras::default();
        hold_stdin(&container, Path::new("/bin/helper"), &mut extras);
        assert_eq!(extras.files, [(PathBuf::from(place), PathBuf::from("/bin/helper"))]);
        assert_eq!(extras.launcher.as_deref(), Some(Path::new(place)));
    }
}
