//! Single rules, each under its name.

use proptest::prelude::*;

use super::*;

#[test]
fn a_command_drops_the_images_arguments_and_args_alone_keep_its_entry_point() {
    let cases = [
        (json!({}), vec!["/entry", "serve"]),
        (json!({"args": ["x"]}), vec!["/entry", "x"]),
        (json!({"command": ["/c"]}), vec!["/c"]),
        (json!({"command": ["/c"], "args": ["x"]}), vec!["/c", "x"]),
        (json!({"command": [], "args": []}), vec!["/entry", "serve"]),
    ];
    for (fields, wanted) in cases {
        assert_eq!(args(&Given::container(fields.clone()).build()), wanted, "{fields}");
    }
}

#[test]
fn nothing_to_run_says_what_to_set() {
    let mut given = Given::container(json!({}));
    given.image = image(json!({}));
    assert_eq!(
        given.refused(),
        "container app: neither the manifest nor the image web:1 says what to run: set command in the manifest"
    );
    let given = Given::container(json!({"command": [""]}));
    assert_eq!(
        given.refused(),
        "container app: the command is an empty string: set command to the program to run"
    );
    assert_eq!(given.try_build().unwrap_err().reason(), "CreateContainerError");
    let zero = Given::container(json!({"env": [{"name": "A", "value": "a\u{0}b"}]}));
    assert_eq!(zero.refused(), "container app: env holds a zero byte, which no process can be given");
}

#[test]
fn variables_keep_their_order_and_see_only_what_stands_before() {
    let spec = Given::container(json!({"env": [
        {"name": "Z", "value": "$(A)"}, {"name": "A", "value": "x"},
        {"name": "B", "value": "$(A)/$(NOPE)/$$(A)"}, {"name": "A", "value": "$(A)y"}
    ]}))
    .build();
    let wanted =
        ["PATH=/usr/bin:/bin", "HOSTNAME=web", "OPTS=-Xa:name=b,dir=c", "Z=$(A)", "A=xy", "B=x/$(NOPE)/$(A)"];
    assert_eq!(env(&spec), wanted);
}

#[test]
fn arguments_see_the_manifests_variables_but_not_the_images() {
    let spec = Given::container(json!({
        "args": ["$(B)", "$(OPTS)", "$(HOSTNAME)"],
        "env": [{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)/$(NOPE)/$$(A)"}]
    }))
    .build();
    assert_eq!(args(&spec), ["/entry", "x/$(NOPE)/$(A)", "$(OPTS)", "$(HOSTNAME)"]);
}

#[test]
fn values_of_the_image_are_split_at_the_first_equals_sign() {
    let mut given = Given::container(json!({"env": [{"name": "OPTS", "value": "a=b=c"}]}));
    given.image = image(json!({"Cmd": ["x"], "Env": ["OPTS=-Xa:name=b,dir=c", "HOSTNAME", "EQ==", "E="]}));
    let path = format!("PATH={}", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    assert_eq!(env(&given.build()), [path.as_str(), "OPTS=a=b=c", "EQ==", "E="]);
}

#[test]
fn a_terminal_brings_a_terminal_type_that_the_manifest_may_change() {
    assert!(env(&Given::container(json!({"tty": true})).build()).contains(&"TERM=xterm"));
    let own = Given::container(json!({"tty": true, "env": [{"name": "TERM", "value": "vt100"}]})).build();
    assert!(env(&own).contains(&"TERM=vt100") && !env(&own).contains(&"TERM=xterm"));
    assert!(!env(&Given::container(json!({})).build()).iter().any(|e| e.starts_with("TERM")));
}

#[test]
fn an_exec_runs_as_the_container_does() {
    let spec = Given::container(json!({"securityContext": {"allowPrivilegeEscalation": false}})).build();
    let exec = exec_process(&spec, vec!["sh".into()], true).unwrap();
    assert_eq!(exec.args().as_deref(), Some(&["sh".to_owned()][..]));
    assert_eq!((exec.terminal(), exec.no_new_privileges()), (Some(true), Some(true)));
    let env = exec.env().clone().unwrap();
    assert!(env.contains(&"HOSTNAME=web".to_owned()) && env.contains(&"TERM=xterm".to_owned()));
    assert_eq!(exec_process(&bare_spec(), vec![], false), None);
}

#[test]
fn capabilities_are_read_with_and_without_prefix_and_all_comes_first() {
    let spec = |add: &[&str], drop: &[&str]| {
        Given::container(json!({"securityContext": {"capabilities": {"add": add, "drop": drop}}})).build()
    };
    let added = spec(&["net_admin"], &["CAP_CHOWN"]);
    assert!(has_capability(&added, Capability::NetAdmin) && has_capability(&added, Capability::Kill));
    assert!(!has_capability(&added, Capability::Chown));
    let all_but = spec(&["ALL"], &["SYS_ADMIN"]);
    assert!(has_capability(&all_but, Capability::Bpf) && !has_capability(&all_but, Capability::SysAdmin));
    let only = spec(&["NET_BIND_SERVICE"], &["all"]);
    let set = only.process().as_ref().unwrap().capabilities().clone().unwrap();
    assert_eq!(set.effective().as_ref().unwrap().len(), 1);
    assert!(set.inheritable().is_none() && set.ambient().is_none());
}

#[test]
fn capabilities_that_do_not_exist_or_cannot_be_had_are_named() {
    let adding = |name: &str| Given::container(json!({"securityContext": {"capabilities": {"add": [name]}}}));
    assert!(adding("NET_ADMINS").refused().starts_with("container app: \"NET_ADMINS\" is not a capability"));
    let mut given = adding("SYS_RESOURCE");
    given.node.capabilities.remove(&24);
    assert_eq!(
        given.refused(),
        "container app: capability SYS_RESOURCE cannot be added, since podling does not have it on this machine"
    );
    let mut given = Given::container(json!({"securityContext": {"privileged": true}}));
    given.node.capabilities.remove(&24);
    assert!(!has_capability(&given.build(), Capability::SysResource), "privileged is what the machine has");
}

#[test]
fn a_volume_replaces_the_pods_own_file_and_all_of_dev() {
    let volume = |path: &str| VolumeMountSource {
        restrictions: Vec::new(),
        mount_path: path.into(),
        read_only: false,
        propagation: Propagation::Private,
        host_path: "/v".into(),
    };
    let mut given = Given::container(json!({}));
    given.mounts =
        vec![volume("/etc/hosts"), volume("/dev/termination-log"), volume("/dev/shm"), volume("/sys/")];
    let spec = given.build();
    for path in ["/etc/hosts", "/dev/termination-log", "/dev/shm", "/sys"] {
        assert_eq!(mounted(&spec, path).0, "/v", "{path}");
    }
    assert!(mounted(&spec, "/etc/resolv.conf").0.ends_with("resolv.conf"));

    given.mounts = vec![volume("/dev")];
    let spec = given.build();
    let below: Vec<&str> = destinations(&spec).into_iter().filter(|d| d.starts_with("/dev")).collect();
    assert_eq!(below, ["/dev", "/dev/shm", "/dev/termination-log"], "no devpts over the host's devices");
}

#[test]
fn the_termination_message_is_where_the_manifest_wants_it() {
    let spec = Given::container(json!({"terminationMessagePath": "/tmp/last/words"})).build();
    assert_eq!(mounted(&spec, "/tmp/last/words").0, "/var/lib/podling/pods/u/termination/app");
    assert!(!destinations(&spec).contains(&"/dev/termination-log"));
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in ["/a/../b", ""] {
        let mut given = Given::container(json!({}));
        given.mounts = vec![VolumeMountSource {
            restrictions: Vec::new(),
            mount_path: path.into(),
            read_only: false,
            propagation: Propagation::Private,
            host_path: "/v".into(),
        }];
        let wanted = format!(
            "container app: mountPath {path:?} is not a path a container can have: it must be absolute and without `..`"
        );
        assert_eq!(given.refused(), wanted);
    }
    let given = Given::container(json!({"workingDir": "../x"}));
    assert!(given.refused().starts_with("container app: workingDir \"../x\" is not a path"));
}

#[test]
fn shared_memory_is_the_pods_or_the_hosts_or_the_containers_own() {
    let mut given = Given::container(json!({}));
    assert_eq!(mounted(&given.build(), "/dev/shm").0, "/run/podling/sandboxes/s1/shm");
    given.sandbox.shm = None;
    assert_eq!(mounted(&given.build(), "/dev/shm").0, "shm");
    given.sandbox.ipc = None;
    assert_eq!(mounted(&given.build(), "/dev/shm").0, "/dev/shm");
}

#[test]
fn propagation_of_a_volume_reaches_the_root() {
    let volume = |propagation| VolumeMountSource {
        restrictions: Vec::new(),
        mount_path: "/m".into(),
        read_only: true,
        propagation,
        host_path: "/v".into(),
    };
    let mut given = Given::container(json!({}));
    given.mounts = vec![volume(Propagation::HostToContainer)];
    let spec = given.build();
    assert_eq!(mounted(&spec, "/m").1, ["rbind", "rslave", "ro"]);
    assert_eq!(spec.linux().as_ref().unwrap().rootfs_propagation().as_deref(), Some("rslave"));
    given.mounts.push(volume(Propagation::Bidirectional));
    assert_eq!(given.build().linux().as_ref().unwrap().rootfs_propagation().as_deref(), Some("rshared"));
}

#[test]
fn the_nearest_seccomp_profile_decides() {
    let filtered = |pod: Value, container: Value, default: bool| {
        let mut given = Given::pod(json!({"securityContext": pod}), json!({"securityContext": container}));
        given.seccomp_default = default;
        given.build().linux().as_ref().unwrap().seccomp().is_some()
    };
    let profile = |kind: &str| json!({"seccompProfile": {"type": kind}});
    assert!(!filtered(json!({}), json!({}), false));
    assert!(filtered(json!({}), json!({}), true));
    assert!(filtered(profile("RuntimeDefault"), json!({}), false));
    assert!(!filtered(profile("RuntimeDefault"), profile("Unconfined"), true));
    assert!(!filtered(profile("RuntimeDefault"), json!({"privileged": true}), true));
}

#[test]
fn a_profile_that_cannot_be_had_is_refused_and_the_default_is_left_out_without_seccomp() {
    let mut given =
        Given::container(json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}));
    given.node.seccomp = false;
    assert_eq!(
        given.refused(),
        "container app: seccomp profile RuntimeDefault cannot be used: the kernel has no seccomp"
    );
    let local =
        json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}});
    assert!(
        Given::container(local).refused().contains("profile Localhost cannot be used: its file was not read")
    );
    let mut given = Given::container(json!({}));
    (given.node.seccomp, given.seccomp_default) = (false, true);
    assert!(given.build().linux().as_ref().unwrap().seccomp().is_none());
}

#[test]
fn a_quantity_that_cannot_be_read_does_not_pass_as_no_limit() {
    let given = Given::container(json!({"resources": {"limits": {"memory": "64mb"}}}));
    let text = given.refused();
    assert!(text.starts_with("container app: resources limits.memory: \"64mb\" is not a quantity"), "{text}");
}

#[test]
fn a_machine_without_cap_sys_resource_gets_the_oom_score_it_can_set() {
    let mut given = Given::container(json!({}));
    (given.node.cap_sys_resource, given.oom_score_adj) = (false, -997);
    assert_eq!(given.build().process().as_ref().unwrap().oom_score_adj(), Some(0));
}

#[test]
fn apparmor_and_thermal_files_of_the_machine_are_taken_in() {
    let mut given = Given::container(json!({}));
    given.node.apparmor_profile = Some("p".into());
    given.node.thermal_throttle = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".into()];
    let spec = given.build();
    assert_eq!(spec.process().as_ref().unwrap().apparmor_profile().as_deref(), Some("p"));
    let masked = spec.linux().as_ref().unwrap().masked_paths().clone().unwrap();
    assert!(masked.last().unwrap().ends_with("thermal_throttle"));
}

proptest! {
    #[test]
    fn mounts_come_after_what_they_lie_in(paths in proptest::collection::vec("(/[ab]){1,4}", 0..8)) {
        let mut given = Given::container(json!({}));
        let mut seen = std::collections::BTreeSet::new();
        given.mounts = paths
            .into_iter()
            .filter(|p| seen.insert(p.clone()))
            .map(|mount_path| VolumeMountSource {
                restrictions: Vec::new(),
                mount_path,
                read_only: false,
                propagation: Propagation::Private,
                host_path: "/v".into(),
            })
            .collect();
        let spec = given.build();
        let order = destinations(&spec);
        for (index, inner) in order.iter().enumerate() {
            for later in &order[index + 1..] {
                prop_assert!(!Path::new(inner).starts_with(later), "{inner} before {later}");
            }
        }
    }
}
