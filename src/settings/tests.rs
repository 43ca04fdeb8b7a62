use super::*;

fn load(text: &str) -> Result<Settings, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let mut flags = Flags::under(dir.path());
    flags.config = Some(file.clone());
    let shown = format!("{}:", file.display());
    Settings::load(&flags).map_err(|e| e.to_string().replace(&shown, ""))
}

fn refusal(text: &str) -> String {
    load(text).expect_err("settings were accepted")
}

#[test]
fn defaults_are_the_documented_ones() {
    let s = Settings::defaults(Paths::under("/"));
    assert_eq!(s.manifest_dirs, [Path::new("/etc/pods")]);
    assert_eq!(s.cgroup_root, "/podling");
    assert_eq!(s.cni_conf_dir, Path::new("/etc/cni/net.d"));
    assert_eq!((s.settle, s.file_check), (Duration::from_millis(200), Duration::from_secs(20)));
    assert_eq!((s.log_max_size, s.log_max_files), (10 << 20, 5));
    assert!(s.seccomp_default && !s.strict && !s.append_node_name);
}

#[test]
fn a_root_of_its_own_takes_every_path_with_it_and_its_own_cgroup() {
    let s = Settings::defaults(Paths::under("/tmp/a"));
    assert_eq!(s.manifest_dirs, [Path::new("/tmp/a/etc/pods")]);
    assert_eq!(s.cni_conf_dir, Path::new("/tmp/a/etc/cni/net.d"));
    assert!(s.cgroup_root.starts_with("/podling-") && s.cgroup_root.len() == "/podling-".len() + 8);
    assert_ne!(s.cgroup_root, Settings::defaults(Paths::under("/tmp/b")).cgroup_root);
}

#[test]
fn a_kubelet_configuration_is_read_by_its_own_names() {
    let s = load(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         staticPodPath: /srv/pods\nfileCheckFrequency: 1m30s\nseccompDefault: false\n\
         cgroupRoot: /machine/pods/\ncontainerLogMaxSize: 5Mi\ncontainerLogMaxFiles: 3\n\
         resolvConf: /run/resolv.conf\nclusterDNS: [10.0.0.10, 'fd00::a']\nclusterDomain: cluster.local\n\
         crashLoopBackOff:\n  maxContainerRestartPeriod: 30s\n",
    )
    .unwrap();
    assert_eq!(s.manifest_dirs, [Path::new("/srv/pods")]);
    assert_eq!(s.file_check, Duration::from_secs(90));
    assert!(!s.seccomp_default);
    assert_eq!(s.cgroup_root, "/machine/pods");
    assert_eq!((s.log_max_size, s.log_max_files), (5 << 20, 3));
    assert_eq!(s.cluster_dns, ["10.0.0.10", "fd00::a"]);
    assert_eq!(s.cluster_domain.as_deref(), Some("cluster.local"));
    assert_eq!(s.backoff_max, Duration::from_secs(30));
}

#[test]
fn own_names_are_read_too() {
    let s = load(
        "manifestDirs: [/a, /b]\ncontainerd: unix:///run/c.sock\ncontainerdNamespace: edge\nnodeName: Box-1\n\
         appendNodeName: true\nstrict: true\nextensionless: true\nsettleTime: 50ms\nrelistPeriod: 30s\n\
         cniConfDir: /cni\ncniBinDirs: [/bin/cni]\nociRuntime: crun\n\
         crashLoopBackOff:\n  initialContainerRestartPeriod: 1s\n  resetAfter: 1m\n",
    )
    .unwrap();
    assert_eq!(s.manifest_dirs, [Path::new("/a"), Path::new("/b")]);
    assert_eq!(s.containerd, ContainerdChoice::Socket("/run/c.sock".into()));
    assert_eq!((s.namespace.as_str(), s.node_name.as_str()), ("edge", "box-1"));
    assert!(s.append_node_name && s.strict && s.extensionless);
    assert_eq!((s.settle, s.relist), (Duration::from_millis(50), Duration::from_secs(30)));
    assert_eq!(s.runtime.as_deref(), Some("crun"));
    assert_eq!((s.backoff_initial, s.backoff_reset), (Duration::from_secs(1), Duration::from_secs(60)));
}

#[test]
fn an_empty_file_and_a_file_of_comments_change_nothing() {
    assert_eq!(load("").unwrap().file_check, Duration::from_secs(20));
    assert_eq!(load("# nothing\n---\n").unwrap().file_check, Duration::from_secs(20));
}

#[test]
fn an_unknown_setting_is_an_error_with_its_place_and_the_likely_word() {
    assert_eq!(
        refusal("strict: true\nfileCheckFrequencey: 20s\n"),
        "2:1: unknown setting `fileCheckFrequencey`; did you mean `fileCheckFrequency`?"
    );
    assert!(
        refusal("authentication: {}\n")
            .starts_with("1:1: unknown setting `authentication`; podling knows apiVersion,")
    );
    assert_eq!(
        refusal("crashLoopBackOff:\n  maxContainerRestartPerod: 3s\n"),
        "2:3: unknown setting `maxContainerRestartPerod`; did you mean `maxContainerRestartPeriod`?"
    );
}

#[test]
fn a_wrong_value_names_field_place_value_and_what_is_allowed() {
    for (text, expected) in [
        (
            "fileCheckFrequency: soon",
            "1:21: fileCheckFrequency: `soon` is not a duration such as 20s or 1m30s",
        ),
        ("fileCheckFrequency: 20", "1:21: fileCheckFrequency: `20` is not a duration such as 20s or 1m30s"),
        ("fileCheckFrequency: 1ms", "1:21: fileCheckFrequency: `1ms` is not between 100ms and 3600s"),
        ("strict: maybe", "1:9: strict: `maybe` is not true or false"),
        ("containerLogMaxFiles: 1", "1:23: containerLogMaxFiles: `1` is not a whole number from 2 to 1000"),
        (
            "containerLogMaxSize: 10MB",
            "1:22: containerLogMaxSize: `10MB` is not a size such as 10Mi or 1048576",
        ),
        ("containerLogMaxSize: 10", "1:22: containerLogMaxSize: `10` is less than 1024 bytes"),
        ("staticPodPath: pods", "1:16: staticPodPath: `pods` is not an absolute path"),
        ("staticPodPath: [/a]", "1:16: staticPodPath: a list is not a string"),
        ("manifestDirs: []", "1:15: manifestDirs: the list is empty; leave it out for the default"),
        ("clusterDNS: [dns.local]", "1:13: clusterDNS[0]: `dns.local` is not an IP address"),
        (
            "containerd: docker",
            "1:13: containerd: `docker` is not auto, embedded or the absolute path of a socket",
        ),
        ("kind: Pod", "1:7: kind: `Pod` is not KubeletConfiguration or PodlingConfiguration"),
        (
            "cgroupRoot: /",
            "1:13: cgroupRoot: `/` is not an absolute cgroup path below the root, such as /podling",
        ),
        (
            "cgroupRoot: /kubepods",
            "1:13: cgroupRoot: `/kubepods` belongs to a kubelet, which kills what it does not know there; \
             take another, such as /podling",
        ),
        ("- a", "1:1: the file must hold a mapping, not a list"),
        (
            "staticPodPath: /a\nmanifestDirs: [/b]",
            "2:1: manifestDirs and staticPodPath say the same; keep one of them",
        ),
    ] {
        assert_eq!(refusal(text), expected, "for {text}");
    }
}

#[test]
fn all_findings_of_a_file_are_told_at_once() {
    assert_eq!(refusal("strict: 1\nsettleTime: x\n").lines().count(), 2);
}

#[test]
fn a_file_that_is_not_yaml_says_where() {
    let text = refusal("strict: true\n  bad: [\n");
    assert!(text.starts_with("2:") || text.starts_with("3:"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn a_config_file_named_by_flag_must_exist_and_the_default_one_need_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut flags = Flags::under(dir.path());
    assert!(Settings::load(&flags).is_ok());
    flags.config = Some("/nonexistent/config.yaml".into());
    assert_eq!(
        Settings::load(&flags).unwrap_err().to_string(),
        "cannot read the config file /nonexistent/config.yaml: No such file or directory (os error 2)"
    );
}

#[test]
fn flags_win_over_the_file_and_name_themselves_when_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(dir.path());
    std::fs::create_dir_all(paths.config().parent().unwrap()).unwrap();
    std::fs::write(paths.config(), "containerdNamespace: file\nnodeName: file\n").unwrap();
    let mut flags = Flags::under(dir.path());
    flags.namespace = Some("flag".into());
    flags.manifest_dirs = vec!["/x/".into(), "/y".into()];
    let s = Settings::load(&flags).unwrap();
    assert_eq!((s.namespace.as_str(), s.node_name.as_str()), ("flag", "file"));
    assert_eq!(s.manifest_dirs, [Path::new("/x"), Path::new("/y")]);

    flags.namespace = Some("a b".into());
    assert!(
        Settings::load(&flags)
            .unwrap_err()
            .to_string()
            .starts_with("--namespace: `a b` is not a containerd namespace")
    );
    flags.namespace = None;
    flags.containerd = Some("dockr".into());
    assert_eq!(
        Settings::load(&flags).unwrap_err().to_string(),
        "--containerd: `dockr` is not auto, embedded or the absolute path of a socket"
    );
    flags.containerd = None;
    flags.node_name = Some("-x-".into());
    assert!(
        Settings::load(&flags).unwrap_err().to_string().starts_with("--node-name: `-x-` is not a node name")
    );
}

#[test]
fn a_reload_reads_the_file_again_under_the_same_flags() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    std::fs::write(&file, "settleTime: 1s\n").unwrap();
    let mut flags = Flags::under(dir.path());
    (flags.config, flags.node_name) = (Some(file.clone()), Some("n".into()));
    let first = Settings::load(&flags).unwrap();
    std::fs::write(&file, "settleTime: 2s\nnodeName: other\n").unwrap();
    let second = first.reload().unwrap();
    assert_eq!((second.settle, second.node_name.as_str()), (Duration::from_secs(2), "n"));
}

#[test]
fn every_field_is_documented() {
    let page = include_str!("../../docs/configuration.md");
    for field in file::FIELDS.iter().chain(file::BACKOFF_FIELDS) {
        assert!(page.contains(&format!("`{field}`")), "docs/configuration.md does not name {field}");
    }
}

#[test]
fn settings_that_only_a_restart_takes_up_are_named() {
    let old = Settings::defaults(Paths::under("/tmp/t"));
    let mut new = old.clone();
    new.settle = Duration::from_secs(1);
    assert!(old.waiting_for_restart(&new).is_empty(), "this one is taken up at once");
    new.namespace = "other".to_owned();
    new.cluster_dns = vec!["10.0.0.1".to_owned()];
    assert_eq!(old.waiting_for_restart(&new), ["containerdNamespace", "clusterDNS"]);
}
