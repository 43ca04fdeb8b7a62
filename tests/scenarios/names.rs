//! Host names, `/etc/hosts` and resolvers, as containers see them.

use std::fs;

use crate::support::{Instance, Options, host};

/// A pod that sleeps, with these lines in its spec.
fn sleeping(name: &str, spec: &str) -> String {
    let lines: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n{lines}  \
         containers:\n  - {{name: main, image: test/shell:1, command: [sleep, '1000']}}\n"
    )
}

fn with_cluster() -> Instance {
    let settings = "clusterDNS: [192.0.2.10]\nclusterDomain: cluster.local\ncrashLoopBackOff: \
        {initialContainerRestartPeriod: 1s}\n";
    let instance = Instance::with(Options { settings: settings.into(), ..Options::default() });
    let resolver = "search lan.example\nnameserver 192.0.2.53\noptions edns0\n";
    fs::write(instance.root().join("etc/resolv.conf"), resolver).expect("writable");
    instance
}

#[test]
fn the_hosts_file_is_the_kubelets_with_aliases_and_the_full_name() {
    let instance = with_cluster();
    let spec = "subdomain: db\nhostAliases: [{ip: 192.0.2.1, hostnames: [a, b.example]}, {ip: '::5', hostnames: [c]}]";
    instance.write("web.yaml", &sleeping("web", spec));
    let ip = instance.ready("web").ip();
    let want = format!(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
         {ip}\tweb.db.default.svc.cluster.local\tweb\n\n# Entries added by HostAliases.\n192.0.2.1\ta\tb.example\n\
         ::5\tc\n"
    );
    assert_eq!(instance.ok(&["exec", "web", "--", "cat", "/etc/hosts"]), want);
    assert_eq!(instance.exec("web", "stat -c %a /etc/hosts"), "644");
    instance.write(
        "node.yaml",
        &sleeping("node", "hostNetwork: true\nhostAliases: [{ip: 192.0.2.1, hostnames: [a]}]"),
    );
    instance.ready("node");
    let hosts = instance.ok(&["exec", "node", "--", "cat", "/etc/hosts"]);
    let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let want = format!(
        "# Kubernetes-managed hosts file (host network).\n{own}\n# Entries added by HostAliases.\n192.0.2.1\ta\n"
    );
    assert_eq!(hosts, want);
}

#[test]
fn each_dns_policy_gives_its_resolver_and_dns_config_is_added() {
    let instance = with_cluster();
    let host = "search lan.example\nnameserver 192.0.2.53\noptions edns0\n";
    let cluster = "search default.svc.cluster.local svc.cluster.local cluster.local lan.example\nnameserver \
                   192.0.2.10\noptions ndots:5\n";
    let cases = [
        ("inherits", "dnsPolicy: Default", host.to_owned()),
        ("cluster", "dnsPolicy: ClusterFirst", cluster.to_owned()),
        ("nodes", "hostNetwork: true\ndnsPolicy: ClusterFirst", host.to_owned()),
        ("both", "hostNetwork: true\ndnsPolicy: ClusterFirstWithHostNet", cluster.to_owned()),
        (
            "none",
            "dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.7], searches: [my.example], options: [{name: \
             ndots, value: '2'}, {name: use-vc}]}",
            "search my.example\nnameserver 192.0.2.7\noptions ndots:2 use-vc\n".to_owned(),
        ),
        (
            "more",
            "dnsConfig: {nameservers: [192.0.2.10, 192.0.2.7], options: [{name: ndots, value: '1'}]}",
            cluster
                .replace("192.0.2.10\n", "192.0.2.10\nnameserver 192.0.2.7\n")
                .replace("ndots:5", "ndots:1"),
        ),
    ];
    for (name, spec, _) in &cases {
        instance.write(&format!("{name}.yaml"), &sleeping(name, spec));
    }
    for (name, _, want) in &cases {
        instance.ready(name);
        assert_eq!(instance.ok(&["exec", name, "--", "cat", "/etc/resolv.conf"]), *want, "{name}");
    }
}

#[test]
fn more_servers_than_resolvers_take_are_cut_with_an_event() {
    let instance = with_cluster();
    let spec = "dnsConfig: {nameservers: [192.0.2.1, 192.0.2.2, 192.0.2.3]}";
    instance.write("many.yaml", &sleeping("many", spec));
    instance.ready("many");
    let resolver = instance.exec("many", "cat /etc/resolv.conf");
    assert_eq!(resolver.matches("nameserver").count(), 3, "{resolver}");
    assert!(instance.describes("many", "DNSConfigForming"));
    assert!(instance.describes("many", "the applied nameserver line is: 192.0.2.10 192.0.2.1 192.0.2.2"));
}

#[test]
fn a_change_of_the_hosts_resolver_reaches_containers_that_start_later() {
    let instance = with_cluster();
    instance.write("old.yaml", &sleeping("old", "dnsPolicy: Default"));
    let before = instance.ready("old");
    fs::write(instance.root().join("etc/resolv.conf"), "nameserver 192.0.2.54\n").expect("writable");
    instance.write("new.yaml", &sleeping("new", "dnsPolicy: Default"));
    instance.ready("new");
    assert_eq!(instance.exec("new", "cat /etc/resolv.conf"), "nameserver 192.0.2.54");
    host::signal(instance.pid(&before, "main"), rustix::process::Signal::KILL);
    instance.until_pod("old", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(instance.exec("old", "cat /etc/resolv.conf"), "nameserver 192.0.2.54");
}

#[test]
fn the_kernels_name_is_short_full_or_overridden_and_never_too_long() {
    let instance = with_cluster();
    let long = "w".repeat(70);
    let cases = [
        ("short", "hostname: front\nsubdomain: db", "front"),
        ("full", "subdomain: db\nsetHostnameAsFQDN: true", "full.db.default.svc.cluster.local"),
        ("other", "hostnameOverride: edge.example.org", "edge.example.org"),
        (long.as_str(), "{}", &long[..63]),
    ];
    for (name, spec, _) in &cases {
        let spec = if *spec == "{}" { "" } else { spec };
        instance.write(&format!("{name}.yaml"), &sleeping(name, spec));
    }
    for (name, _, want) in &cases {
        instance.ready(name);
        assert_eq!(instance.exec(name, "hostname; cat /etc/hostname"), format!("{want}\n{want}"));
    }
    let spec = format!("subdomain: {}\nsetHostnameAsFQDN: true", "s".repeat(60));
    instance.write("huge.yaml", &sleeping("huge", &spec));
    instance.until("the length is told", |i| {
        i.describes("huge", "is too long (64 characters is the max, ").then_some(())
    });
}
