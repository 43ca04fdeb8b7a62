use k8s_openapi::api::core::v1::PodDNSConfigOption;

use super::*;

fn host(text: &str) -> HostResolv {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("resolv.conf");
    fs::write(&path, text).unwrap();
    HostResolv::load_with(&path, &dir.path().join("none")).unwrap()
}

fn policy(policy: &str) -> PodSpec {
    PodSpec { dns_policy: Some(policy.into()), ..PodSpec::default() }
}

fn made(spec: &PodSpec, host: &HostResolv, dns: &[&str], domain: Option<&str>) -> (String, Vec<String>) {
    let dns: Vec<String> = dns.iter().map(|s| (*s).to_owned()).collect();
    let (text, notes) = resolv_conf(spec, "shop", host, &dns, domain).unwrap();
    (text, notes.into_iter().map(|n| format!("{}: {}", n.reason, n.message)).collect())
}

const PLAIN: &str = "# made by hand\nsearch old.example\nsearch lan.example. .\nnameserver 192.0.2.1 # first\n\
                     options ndots:2 edns0\noptions ndots:3\n";

#[test]
fn default_gives_the_hosts_values() {
    let (text, notes) = made(&policy("Default"), &host(PLAIN), &["10.96.0.10"], Some("cluster.local"));
    assert_eq!(text, "search lan.example\nnameserver 192.0.2.1\noptions ndots:3 edns0\n");
    assert_eq!(notes, [""; 0]);
}

#[test]
fn cluster_first_without_cluster_dns_is_default() {
    let (text, notes) = made(&PodSpec::default(), &host(PLAIN), &[], None);
    assert_eq!(text, "search lan.example\nnameserver 192.0.2.1\noptions ndots:3 edns0\n");
    assert_eq!(notes, [""; 0]);
    let spec = policy("ClusterFirstWithHostNet");
    assert!(made(&spec, &host(PLAIN), &[], None).1[0].starts_with("MissingClusterDNS: "));
}

#[test]
fn cluster_first_puts_the_cluster_before_the_hosts_searches() {
    let (text, _) = made(&policy("ClusterFirst"), &host(PLAIN), &["10.96.0.10"], Some("cluster.local"));
    assert_eq!(
        text,
        "search shop.svc.cluster.local svc.cluster.local cluster.local lan.example\n\
         nameserver 10.96.0.10\noptions ndots:5\n"
    );
}

#[test]
fn on_the_hosts_network_cluster_first_means_the_host_and_its_stub_works() {
    let mut spec = policy("ClusterFirst");
    spec.host_network = Some(true);
    let stub = host("nameserver 127.0.0.53\n");
    assert_eq!(made(&spec, &stub, &["10.96.0.10"], None).0, "nameserver 127.0.0.53\n");
    spec.dns_policy = Some("ClusterFirstWithHostNet".into());
    assert_eq!(made(&spec, &stub, &["10.96.0.10"], None).0, "nameserver 10.96.0.10\noptions ndots:5\n");
    let (text, notes) = made(&spec, &stub, &[], None);
    assert_eq!(text, "nameserver 127.0.0.53\n");
    assert_eq!(
        notes,
        [
            "MissingClusterDNS: dnsPolicy ClusterFirstWithHostNet: clusterDNS is not set, so the pod gets what Default gives"
        ]
    );
}

#[test]
fn a_stub_on_loopback_is_replaced_by_what_systemd_resolved_asks() {
    let dir = tempfile::tempdir().unwrap();
    let (own, resolved) = (dir.path().join("resolv.conf"), dir.path().join("upstream"));
    fs::write(&own, "nameserver 127.0.0.53\nsearch lan\noptions edns0\n").unwrap();
    fs::write(&resolved, "nameserver 192.0.2.7\nnameserver ::1\n").unwrap();
    let host = HostResolv::load_with(&own, &resolved).unwrap();
    assert_eq!(
        made(&policy("Default"), &host, &[], None),
        ("search lan\nnameserver 192.0.2.7\noptions edns0\n".into(), vec![])
    );
}

#[test]
fn a_loopback_server_beside_real_ones_is_skipped() {
    let host = host("nameserver 127.0.0.1\nnameserver 192.0.2.1\nnameserver ::1\n");
    assert_eq!(made(&PodSpec::default(), &host, &[], None).0, "nameserver 192.0.2.1\n");
}

#[test]
fn only_loopback_servers_and_no_others_known_is_said() {
    let (text, notes) = made(&policy("Default"), &host("nameserver 127.0.0.1\n"), &[], None);
    assert_eq!(text, "");
    assert!(notes[0].contains("only servers on the host's loopback (127.0.0.1)"), "{notes:?}");
    assert!(notes[0].ends_with("set resolvConf to a file with real servers"), "{notes:?}");
}

#[test]
fn a_missing_host_file_is_a_note_and_an_unreadable_one_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostResolv::load(&dir.path().join("gone")).unwrap();
    let (text, notes) = made(&policy("Default"), &host, &[], None);
    assert_eq!(text, "");
    assert!(notes[0].ends_with("does not exist: pods get no DNS servers from the host"), "{notes:?}");
    let error = HostResolv::load(dir.path()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /") && error.contains("(setting resolvConf): "), "{error}");
}

#[test]
fn dns_config_is_added_and_its_options_override() {
    let mut spec = policy("Default");
    spec.dns_config = Some(PodDNSConfig {
        nameservers: Some(vec!["192.0.2.1".into(), "192.0.2.9".into()]),
        searches: Some(vec!["lan.example".into(), "extra.example".into()]),
        options: Some(vec![
            PodDNSConfigOption { name: Some("ndots".into()), value: Some("1".into()) },
            PodDNSConfigOption { name: Some("rotate".into()), value: None },
        ]),
    });
    assert_eq!(
        made(&spec, &host(PLAIN), &[], None).0,
        "search lan.example extra.example\nnameserver 192.0.2.1\nnameserver 192.0.2.9\n\
         options ndots:1 edns0 rotate\n"
    );
}

#[test]
fn policy_none_takes_dns_config_alone_and_needs_a_server() {
    let mut spec = policy("None");
    let error = resolv_conf(&spec, "shop", &host(PLAIN), &[], None).unwrap_err();
    assert_eq!(error.to_string(), "dnsPolicy None needs at least one server in spec.dnsConfig.nameservers");
    spec.dns_config =
        Some(PodDNSConfig { nameservers: Some(vec!["192.0.2.5".into()]), ..PodDNSConfig::default() });
    assert_eq!(made(&spec, &host(PLAIN), &[], None).0, "nameserver 192.0.2.5\n");
}

#[test]
fn an_unknown_policy_names_the_known_ones() {
    let error = resolv_conf(&policy("Cluster"), "shop", &host(PLAIN), &[], None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dnsPolicy \"Cluster\" is none of ClusterFirst, ClusterFirstWithHostNet, Default, None"
    );
}

#[test]
fn what_resolvers_ignore_is_cut_and_named() {
    let mut spec = policy("None");
    spec.dns_config = Some(PodDNSConfig {
        nameservers: Some((1..=5).map(|n| format!("192.0.2.{n}")).collect()),
        searches: Some((0..40).map(|n| format!("s{n}.example")).chain(["x".repeat(254)]).collect()),
        options: None,
    });
    let (text, notes) = made(&spec, &host(PLAIN), &[], None);
    assert_eq!(text.lines().filter(|l| l.starts_with("nameserver")).count(), 3);
    assert_eq!(text.lines().next().unwrap().split(' ').count(), 33);
    assert_eq!(
        notes[0],
        "DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3; left out: 192.0.2.4 192.0.2.5"
    );
    assert!(notes[1].contains("left out: s32.example "), "{notes:?}");
}

#[test]
fn a_search_line_never_passes_its_length() {
    let mut spec = policy("None");
    spec.dns_config = Some(PodDNSConfig {
        nameservers: Some(vec!["192.0.2.1".into()]),
        searches: Some((0..20).map(|n| format!("{n:02}{}", "y".repeat(198))).collect()),
        options: None,
    });
    let (text, notes) = made(&spec, &host(PLAIN), &[], None);
    assert!(text.lines().next().unwrap().len() <= "search ".len() + 2048);
    assert_eq!(notes.len(), 1);
}

#[test]
fn an_empty_resolv_conf_setting_leaves_nothing_to_inherit() {
    let none = HostResolv::load(Path::new("")).unwrap();
    assert_eq!(made(&policy("Default"), &none, &[], None).0, "search .\nnameserver 127.0.0.1\n");
    let cluster = made(&policy("ClusterFirst"), &none, &["10.96.0.10"], Some("cluster.local")).0;
    assert_eq!(
        cluster,
        "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
    );
}
