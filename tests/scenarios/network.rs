//! Addresses, host ports, names.

use std::fs;

use crate::support::{Instance, Options, PodView, host, pod, seconds};

/// A web server on port 80 that serves its pod's name.
fn web(name: &str, host_port: Option<u16>) -> String {
    let ports = host_port.map_or(String::new(), |p| format!("ports: [{{containerPort: 80, hostPort: {p}}}]"));
    pod(
        name,
        &format!(
            "
            terminationGracePeriodSeconds: 2
            containers:
            - name: main
              image: test/shell:1
              command: [sh, -c, 'mkdir /w; echo {name} > /w/index.html; trap \"exit 0\" TERM; httpd -f -p 80 -h /w & wait']
              {ports}
            "
        ),
    )
}

#[test]
fn pods_have_addresses_and_reach_each_other() {
    let instance = Instance::start();
    instance.write("one.yaml", &web("one", None));
    instance.write("two.yaml", &web("two", None));
    let (one, two) = (instance.ready("one"), instance.ready("two"));
    assert!(!one.ip().is_empty() && one.ip() != two.ip(), "{} {}", one.ip(), two.ip());
    instance.until("the host reaches one", |i| i.http(&format!("http://{}/", one.ip())).ok());
    let page = instance.exec("one", &format!("timeout 5 wget -q -O - http://{}/", two.ip()));
    assert_eq!(page, "two");
    let hosts = instance.exec("one", "cat /etc/hosts");
    assert!(hosts.contains(&one.ip()) && hosts.contains("localhost"), "{hosts}");
    assert_eq!(instance.exec("one", "hostname"), "one");
    assert!(instance.exec("one", "ip -o link show lo").contains("LOWER_UP"));
}

#[test]
fn a_host_port_leads_into_the_pod() {
    let instance = Instance::start();
    instance.write("web.yaml", &web("web", Some(8080)));
    instance.ready("web");
    let page = instance.until("the port answers", |i| i.http("http://127.0.0.1:8080/").ok());
    assert_eq!(page.trim(), "web");
    instance.remove("web.yaml");
    instance.gone("web");
    assert!(instance.http("http://127.0.0.1:8080/").is_err());
}

#[test]
fn a_host_port_in_use_waits_for_the_pod_that_has_it() {
    let instance = Instance::start();
    instance.write("first.yaml", &web("first", Some(8080)));
    let first = instance.ready("first");
    instance.write("second.yaml", &web("second", Some(8080)));
    let told = instance.until("the second pod says who has the port", |i| {
        i.describes("second", "first").then(|| i.ok(&["describe", "pod", "second"]))
    });
    assert!(told.contains("8080"), "{told}");
    assert!(instance.pod("second").is_some_and(|p| !p.is_running("main")));
    assert_eq!(instance.ready("first").id("main"), first.id("main"));
    instance.remove("first.yaml");
    instance.ready("second");
    let page = instance.until("the second answers", |i| i.http("http://127.0.0.1:8080/").ok());
    assert_eq!(page.trim(), "second");
}

#[test]
fn an_edit_keeps_its_own_host_port() {
    let instance = Instance::start();
    instance.write("web.yaml", &web("web", Some(8080)));
    let before = instance.ready("web");
    instance.write("web.yaml", &web("web", Some(8080)).replace("echo web", "echo changed"));
    instance.until_pod("web", "was replaced", |p| p.is_ready() && p.id("main") != before.id("main"));
    instance.until("it answers", |i| i.http("http://127.0.0.1:8080/").ok().filter(|p| p.trim() == "changed"));
}

#[test]
fn a_restarted_container_keeps_its_pods_address() {
    let instance = Instance::with(Options {
        settings: "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\n".into(),
        ..Options::default()
    });
    instance.write("web.yaml", &web("web", None));
    let before = instance.ready("web");
    host::signal(instance.pid(&before, "main"), rustix::process::Signal::KILL);
    let after =
        instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(after.ip(), before.ip());
    instance.until("it answers", |i| i.http(&format!("http://{}/", after.ip())).ok());
}

#[test]
fn addresses_do_not_leak_when_podling_is_killed_and_pods_go_meanwhile() {
    let mut instance = Instance::start();
    for n in 0..3 {
        instance.write(&format!("p{n}.yaml"), &web(&format!("p{n}"), None));
    }
    for n in 0..3 {
        instance.ready(&format!("p{n}"));
    }
    instance.kill_podling();
    for n in 0..3 {
        instance.remove(&format!("p{n}.yaml"));
    }
    instance.start_podling();
    instance.until("all are gone", |i| i.pods().is_empty().then_some(()));
    // What is left is looked for when the instance is dropped: links, leases, rules.
}

#[test]
fn a_pod_gets_the_hosts_real_resolver_and_no_loopback_stub() {
    let instance = Instance::start();
    instance.write("plain.yaml", &web("plain", None));
    instance.ready("plain");
    assert!(instance.exec("plain", "cat /etc/resolv.conf").contains("nameserver 192.0.2.53"));
}

#[test]
fn a_loopback_stub_is_not_handed_to_pods() {
    let mut instance = Instance::start();
    instance.stop_podling();
    let path = instance.root().join("etc/resolv.conf");
    fs::write(path, "nameserver 127.0.0.53\nnameserver 192.0.2.54\nsearch example.org\n").expect("writable");
    instance.start_podling();
    instance.write("plain.yaml", &web("plain", None));
    instance.ready("plain");
    let resolver = instance.exec("plain", "cat /etc/resolv.conf");
    assert!(!resolver.contains("127.0.0.53") && resolver.contains("192.0.2.54"), "{resolver}");
    assert!(resolver.contains("search example.org"), "{resolver}");
}

#[test]
fn without_plugins_a_pod_says_so_and_host_network_pods_run() {
    let settings = "cniBinDirs: [/nowhere]\n";
    let instance = Instance::with(Options { settings: settings.into(), ..Options::default() });
    instance.write("bridged.yaml", &web("bridged", None));
    instance.write("direct.yaml", &crate::support::sleeper("direct"));
    instance.ready("direct");
    instance.until("the plugins are named as missing", |i| i.describes("bridged", "plugin").then_some(()));
    assert!(instance.pod("bridged").is_some_and(|p| !p.is_running("main")));
}

#[test]
fn a_pod_whose_network_fails_does_not_hold_up_others() {
    let instance = Instance::start();
    let conf = instance.root().join("etc/cni/net.d");
    fs::create_dir_all(&conf).expect("writable");
    let list =
        r#"{"cniVersion":"0.4.0","name":"broken","plugins":[{"type":"bridge","ipam":{"type":"nobody"}}]}"#;
    fs::write(conf.join("10-broken.conflist"), list).expect("writable");
    instance.write("bridged.yaml", &web("bridged", None));
    instance.write("direct.yaml", &crate::support::sleeper("direct"));
    instance.within(seconds(20), "the other pod runs", |i| i.pod("direct").filter(PodView::is_ready));
    instance.until("the failure is told", |i| i.describes("bridged", "nobody").then_some(()));
    fs::remove_file(conf.join("10-broken.conflist")).expect("there");
    instance.ready("bridged");
}
