//! Specs of security contexts: the part of each that the context decides.

use super::*;

/// What the context decides of a spec.
fn secured(given: &Given) -> Value {
    let spec = canonical(&given.build());
    let at = |pointer: &str| spec.pointer(pointer).cloned().unwrap_or(Value::Null);
    json!({
        "user": at("/process/user"), "noNewPrivileges": at("/process/noNewPrivileges"),
        "apparmorProfile": at("/process/apparmorProfile"), "selinuxLabel": at("/process/selinuxLabel"),
        "mountLabel": at("/linux/mountLabel"), "sysctl": at("/linux/sysctl"),
        "seccomp": at("/linux/seccomp"), "maskedPaths": at("/linux/maskedPaths").is_array(),
        "readonlyPaths": at("/linux/readonlyPaths").is_array(), "namespaces": at("/linux/namespaces"),
        "uidMappings": at("/linux/uidMappings"), "gidMappings": at("/linux/gidMappings"),
    })
}

macro_rules! golden {
    ($name:ident, $given:expr) => {
        #[test]
        fn $name() {
            let given: Given = $given;
            insta::assert_json_snapshot!(stringify!($name), secured(&given));
        }
    };
}

golden!(sysctls_of_the_pod, {
    let sysctls = json!([
        {"name": "net.ipv4.ip_unprivileged_port_start", "value": "1024"},
        {"name": "kernel/shm_rmid_forced", "value": "1"}
    ]);
    Given::pod(json!({"securityContext": {"sysctls": sysctls}}), json!({}))
});

golden!(an_unmasked_proc_in_a_user_namespace, {
    let mut given =
        Given::pod(json!({"hostUsers": false}), json!({"securityContext": {"procMount": "Unmasked"}}));
    let path = PathBuf::from("/run/podling/sandboxes/s1/user");
    given.sandbox.user = Some(UserNamespace { path, first_id: 196_608, count: 65_536 });
    given
});

golden!(a_seccomp_profile_from_a_file, {
    let context = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}});
    let mut given = Given::pod(json!({"securityContext": context}), json!({}));
    given.seccomp_file = Some(SeccompFile {
        path: "/var/lib/podling/seccomp/p.json".into(),
        text: json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]
        })
        .to_string(),
    });
    given
});

golden!(an_apparmor_profile_of_the_host, {
    let context = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "deny-write"}});
    let mut given = Given::container(json!({"securityContext": context}));
    given.node.apparmor = true;
    given.node.apparmor_profile = Some("cri-containerd.apparmor.d".into());
    given
});

golden!(selinux_labels_where_the_host_has_selinux, {
    let context = json!({"seLinuxOptions": {"type": "spc_t", "level": "s0:c1,c2"}});
    let mut given = Given::container(json!({"securityContext": context}));
    given.node.selinux = true;
    given
});

#[test]
fn without_selinux_on_the_host_no_label_is_set() {
    let given = Given::container(json!({"securityContext": {"seLinuxOptions": {"level": "s0"}}}));
    let spec = given.build();
    assert_eq!(spec.process().as_ref().unwrap().selinux_label(), &None);
    assert_eq!(spec.linux().as_ref().unwrap().mount_label(), &None);
}

#[test]
fn a_host_without_apparmor_runs_the_default_and_says_what_a_named_profile_needs() {
    let with = |profile: Value| Given::container(json!({"securityContext": {"appArmorProfile": profile}}));
    let plain = with(json!({"type": "RuntimeDefault"})).build();
    assert_eq!(plain.process().as_ref().unwrap().apparmor_profile(), &None);
    assert_eq!(
        with(json!({"type": "Localhost", "localhostProfile": "x"})).refused(),
        "container app: appArmorProfile \"x\" cannot be enforced: AppArmor is not enabled on this host; enable it \
         and load the profile, or use RuntimeDefault or Unconfined"
    );
}

#[test]
fn a_seccomp_file_that_is_no_profile_is_named() {
    let context = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}});
    let mut given = Given::container(json!({"securityContext": context}));
    given.seccomp_file = Some(SeccompFile { path: "/s/p.json".into(), text: "{}".into() });
    assert_eq!(
        given.refused(),
        "container app: seccomp profile /s/p.json cannot be used: missing field `defaultAction` at line 1 column 2"
    );
}
