//! Networks with the real plugins and the real iptables, each test in a network namespace of its own, so that
//! nothing of the host is touched. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use podling::manifest::PodKey;
use podling::network::{
    NetResult, Network, NetworkError, NetworkOptions, PortMapping, Protocol, SetupRequest,
};

const INSIDE: &str = "PODLING_TEST_INSIDE";

/// Runs the test `name` again inside new network and mount namespaces, and there `body`.
fn isolated<F: Future<Output = ()>>(name: &str, body: impl FnOnce() -> F) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(body());
    }
    let prepare = r#"mount -t sysfs sysfs /sys && ip link set lo up && exec "$0" "$@""#;
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "sh", "-ec", prepare])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One podling's network under a root of its own, and pods in it.
struct Podling {
    root: tempfile::TempDir,
    network: Network,
}

impl Podling {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let network = Self::network(root.path());
        Self { root, network }
    }

    fn network(root: &Path) -> Network {
        Network::new(NetworkOptions {
            conf_dir: root.join("etc/cni/net.d"),
            bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            state: root.join("network"),
            system: false,
        })
    }

    fn netns(&self, id: &str) -> PathBuf {
        self.root.path().join(format!("{id}.netns"))
    }

    fn make_netns(&self, id: &str) {
        let file = self.netns(id);
        fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        run("unshare", &[&format!("--net={file}"), "ip", "link", "set", "lo", "up"]);
    }

    fn drop_netns(&self, id: &str) {
        run("umount", &[self.netns(id).to_str().unwrap()]);
    }

    async fn add(&self, id: &str, ports: &[u16]) -> Result<NetResult, NetworkError> {
        self.make_netns(id);
        let key = PodKey::new("default", id);
        let netns = self.netns(id);
        let host_ports = ports.iter().map(|port| mapping(*port)).collect();
        self.network
            .setup(&SetupRequest { sandbox_id: id, key: &key, uid: "u", netns: &netns, host_ports })
            .await
    }

    async fn remove(&self, id: &str) {
        self.network.teardown(id, Some(&self.netns(id))).await.unwrap();
        self.drop_netns(id);
    }

    /// A web server in a pod that answers with the pod's id.
    fn serve(&self, id: &str) -> Server {
        let www = self.root.path().join(format!("{id}.www"));
        fs::create_dir(&www).unwrap();
        fs::write(www.join("index.html"), format!("hello from {id}")).unwrap();
        let netns = format!("--net={}", self.netns(id).display());
        let child = Command::new("nsenter")
            .args([&netns, "busybox", "httpd", "-f", "-p", "80", "-h"])
            .arg(&www)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Server(child)
    }

    /// Addresses that host-local has given out.
    fn leases(&self) -> BTreeSet<String> {
        let networks = fs::read_dir(self.root.path().join("network/leases")).into_iter().flatten().flatten();
        let files = networks.flat_map(|n| fs::read_dir(n.path()).unwrap().flatten());
        let names = files.map(|f| f.file_name().into_string().unwrap());
        names.filter(|name| name.parse::<IpAddr>().is_ok()).collect()
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mapping(host_port: u16) -> PortMapping {
    PortMapping { host_port, container_port: 80, protocol: Protocol::Tcp, host_ip: None }
}

fn get(address: impl Into<SocketAddr>) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect_timeout(&address.into(), Duration::from_millis(500))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

/// Gives a server time to start.
fn get_soon(address: SocketAddr) -> String {
    for _ in 0..100 {
        if let Ok(text) = get(address) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    get(address).unwrap()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Links and rules of the host, without counters and times.
fn host() -> String {
    let saved: String = ["iptables-save", "ip6tables-save"].map(|p| run(p, &["-t", "nat"])).concat();
    let rules: Vec<&str> = saved.lines().filter(|l| l.starts_with("-A") || l.contains(" - ")).collect();
    let links = run("ip", &["-o", "link"]);
    let links: Vec<&str> = links.lines().filter_map(|l| l.split(": ").nth(1)).collect();
    format!("{links:?}\n{}", rules.join("\n"))
}

#[test]
fn a_pod_is_reached_by_its_address_and_its_host_port_and_leaves_nothing_behind() {
    isolated("a_pod_is_reached_by_its_address_and_its_host_port_and_leaves_nothing_behind", async || {
        let podling = Podling::new();
        let before = host();
        podling.network.status().unwrap();
        let result = podling.add("web", &[8080]).await.unwrap();
        assert_eq!(podling.leases(), result.ips.iter().map(IpAddr::to_string).collect());
        let _server = podling.serve("web");
        assert_eq!(get_soon((result.ips[0], 80).into()), "hello from web");
        assert_eq!(get_soon(local(8080)), "hello from web");
        assert!(!podling.network.cleanup_if_unused().await.unwrap());
        podling.remove("web").await;
        assert_eq!((podling.leases().len(), podling.network.pending().len()), (0, 0));
        assert!(podling.network.cleanup_if_unused().await.unwrap());
        assert!(podling.network.cleanup_if_unused().await.unwrap());
        assert_eq!(host(), before);
    });
}

#[test]
fn rules_that_were_flushed_are_put_back_by_the_next_check() {
    isolated("rules_that_were_flushed_are_put_back_by_the_next_check", async || {
        let podling = Podling::new();
        let before = host();
        podling.add("web", &[8080]).await.unwrap();
        podling.add("plain", &[]).await.unwrap();
        let _server = podling.serve("web");
        assert_eq!(get_soon(local(8080)), "hello from web");
        assert_eq!(podling.network.check_all().await.unwrap(), [""; 0]);
        let complete = sorted(&host());
        run("iptables", &["-t", "nat", "-F"]);
        run("iptables", &["-t", "nat", "-X"]);
        assert!(get(local(8080)).is_err());
        assert!(podling.network.check("web").await.unwrap());
        assert_eq!(get_soon(local(8080)), "hello from web");
        assert_eq!(podling.network.check_all().await.unwrap(), ["plain"]);
        assert_eq!(podling.network.check_all().await.unwrap(), [""; 0]);
        assert_eq!(sorted(&host()), complete);
        // Only the rules, not the chains; and only some of them.
        run("iptables", &["-t", "nat", "-F", "CNI-HOSTPORT-DNAT"]);
        assert_eq!(podling.network.check_all().await.unwrap(), ["web"]);
        run("iptables", &["-t", "nat", "-F", "POSTROUTING"]);
        assert_eq!(podling.network.check_all().await.unwrap(), ["plain", "web"]);
        assert_eq!(podling.network.check_all().await.unwrap(), [""; 0]);
        for id in ["web", "plain"] {
            podling.remove(id).await;
        }
        podling.network.cleanup_if_unused().await.unwrap();
        assert_eq!(host(), before);
    });
}

/// A bridge plugin that takes its time for ADD.
fn slow_bridge(root: &Path) -> Network {
    let plugins = ["/opt/cni/bin", "/usr/lib/cni"];
    let bridge = plugins.map(|d| Path::new(d).join("bridge")).into_iter().find(|p| p.exists()).unwrap();
    let bin = root.join("bin");
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\n[ $CNI_COMMAND != ADD ] || sleep 1\nexec {}\n", bridge.display());
    fs::write(bin.join("bridge"), script).unwrap();
    fs::set_permissions(bin.join("bridge"), fs::Permissions::from_mode(0o755)).unwrap();
    Network::new(NetworkOptions {
        conf_dir: root.join("etc/cni/net.d"),
        bin_dirs: [bin].into_iter().chain(plugins.map(PathBuf::from)).collect(),
        state: root.join("network"),
        system: false,
    })
}

#[test]
fn a_check_that_began_while_a_pod_was_attached_adds_no_second_rule() {
    isolated("a_check_that_began_while_a_pod_was_attached_adds_no_second_rule", async || {
        let mut podling = Podling::new();
        podling.network = slow_bridge(podling.root.path());
        let before = host();
        let check = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(podling.network.pending(), ["web"], "the plugin is at work");
            podling.network.check_all().await.unwrap()
        };
        let (added, restored) = tokio::join!(podling.add("web", &[8080]), check);
        added.unwrap();
        assert_eq!(restored, [""; 0]);
        let rules = host();
        let lines: Vec<&str> = rules.lines().filter(|l| l.starts_with("-A")).collect();
        let distinct: BTreeSet<&str> = lines.iter().copied().collect();
        assert_eq!(lines.len(), distinct.len(), "{rules}");
        podling.remove("web").await;
        podling.network.cleanup_if_unused().await.unwrap();
        assert_eq!(host(), before);
    });
}

#[test]
fn a_rule_that_stands_twice_does_not_keep_a_pod_attached() {
    isolated("a_rule_that_stands_twice_does_not_keep_a_pod_attached", async || {
        let podling = Podling::new();
        let before = host();
        podling.add("web", &[]).await.unwrap();
        let saved = run("iptables-save", &["-t", "nat"]);
        let rule = saved.lines().find(|l| l.starts_with("-A POSTROUTING ")).unwrap();
        run("sh", &["-c", &format!("iptables -t nat {rule}")]);
        podling.remove("web").await;
        assert_eq!((podling.leases().len(), podling.network.pending().len()), (0, 0));
        podling.network.cleanup_if_unused().await.unwrap();
        assert_eq!(host(), before);
    });
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_namespace_that_vanished_costs_no_address_and_no_rule() {
    isolated("a_namespace_that_vanished_costs_no_address_and_no_rule", async || {
        let podling = Podling::new();
        let before = host();
        podling.add("web", &[8080]).await.unwrap();
        podling.drop_netns("web");
        // A new podling process that knows only what is on disk.
        let later = Podling::network(podling.root.path());
        assert_eq!(later.pending(), ["web"]);
        assert!(!later.check("web").await.unwrap());
        later.teardown("web", None).await.unwrap();
        assert_eq!((podling.leases().len(), later.pending().len()), (0, 0));
        settle(&later).await;
        assert_eq!(host(), before);
    });
}

/// The kernel takes a dead namespace's links away a moment later.
async fn settle(network: &Network) {
    for _ in 0..200 {
        if network.cleanup_if_unused().await.unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the bridge is never free");
}

#[test]
fn after_a_reboot_the_addresses_of_before_are_freed() {
    isolated("after_a_reboot_the_addresses_of_before_are_freed", async || {
        let podling = Podling::new();
        podling.add("web", &[8080]).await.unwrap();
        let record = podling.root.path().join("network/results/web.json");
        let text = fs::read_to_string(&record).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(text.contains(boot.trim()));
        fs::write(&record, text.replace(boot.trim(), "another-boot")).unwrap();
        podling.drop_netns("web");
        run(
            "ip",
            &[
                "link",
                "del",
                run("ip", &["-br", "link", "show", "type", "bridge"]).split_whitespace().next().unwrap(),
            ],
        );
        run("iptables", &["-t", "nat", "-F"]);
        run("iptables", &["-t", "nat", "-X"]);
        let later = Podling::network(podling.root.path());
        later.teardown("web", None).await.unwrap();
        assert_eq!((podling.leases().len(), later.pending().len()), (0, 0));
        assert!(later.cleanup_if_unused().await.unwrap());
    });
}

#[test]
fn many_pods_at_once_get_an_address_each_and_reach_each_other() {
    isolated("many_pods_at_once_get_an_address_each_and_reach_each_other", async || {
        let podling = Podling::new();
        let before = host();
        let ids: Vec<String> = (0..8).map(|n| format!("pod{n}")).collect();
        let adds: Vec<_> = ids.iter().map(|id| podling.add(id, &[])).collect();
        let results = join_all(adds).await;
        let ips: BTreeSet<IpAddr> = results.into_iter().map(|r| r.unwrap().ips[0]).collect();
        assert_eq!(ips.len(), 8);
        let _server = podling.serve("pod0");
        let url = format!("http://{}/", ip_of(&podling, "pod0"));
        let other = format!("--net={}", podling.netns("pod1").display());
        get_soon((ip_of(&podling, "pod0"), 80).into());
        assert_eq!(run("nsenter", &[&other, "busybox", "wget", "-qO-", &url]), "hello from pod0");
        join_all(ids.iter().map(|id| podling.remove(id)).collect()).await;
        settle(&podling.network).await;
        assert_eq!((podling.leases().len(), host()), (0, before));
    });
}

async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, slot) in all.iter_mut().zip(&mut done).filter(|(_, slot)| slot.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

fn ip_of(podling: &Podling, id: &str) -> IpAddr {
    let record = fs::read(podling.root.path().join(format!("network/results/{id}.json"))).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let address = record["result"]["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn two_podlings_share_a_host_and_the_last_one_takes_the_common_rules_away() {
    isolated("two_podlings_share_a_host_and_the_last_one_takes_the_common_rules_away", async || {
        let (one, two) = (Podling::new(), Podling::new());
        let before = host();
        let first = one.add("a", &[8081]).await.unwrap();
        let second = two.add("b", &[8082]).await.unwrap();
        assert_ne!(first.network, second.network);
        let _servers = (one.serve("a"), two.serve("b"));
        assert_eq!(get_soon(local(8081)), "hello from a");
        assert_eq!(get_soon(local(8082)), "hello from b");
        one.remove("a").await;
        // The chains are still used by the other one.
        assert!(!one.network.cleanup_if_unused().await.unwrap());
        assert_eq!(get_soon(local(8082)), "hello from b");
        two.remove("b").await;
        assert!(two.network.cleanup_if_unused().await.unwrap());
        assert_eq!(host(), before);
        assert!(one.network.cleanup_if_unused().await.unwrap());
    });
}

#[test]
fn without_iptables_pods_run_and_a_host_port_names_the_package() {
    isolated("without_iptables_pods_run_and_a_host_port_names_the_package", async || {
        // The programs are links through this directory.
        run("mount", &["-t", "tmpfs", "tmpfs", "/etc/alternatives"]);
        let podling = Podling::new();
        podling.add("plain", &[]).await.unwrap();
        let error = podling.add("web", &[8080]).await.unwrap_err().to_string();
        assert!(error.starts_with("CNI plugin \"portmap\" (/usr/lib/cni/portmap) failed ADD: "), "{error}");
        assert!(error.ends_with("; iptables is not installed: install the package iptables"), "{error}");
        assert_eq!((podling.leases().len(), podling.network.pending()), (1, vec!["plain".to_owned()]));
        podling.remove("plain").await;
        settle(&podling.network).await;
    });
}

#[test]
fn a_bridge_that_was_there_before_is_left_alone() {
    isolated("a_bridge_that_was_there_before_is_left_alone", async || {
        let podling = Podling::new();
        let first = podling.add("a", &[]).await.unwrap();
        podling.remove("a").await;
        settle(&podling.network).await;
        run("ip", &["link", "add", &first.network, "type", "bridge"]);
        let before = host();
        podling.add("b", &[]).await.unwrap();
        podling.remove("b").await;
        podling.network.cleanup_if_unused().await.unwrap();
        assert_eq!(host(), before);
    });
}

#[test]
fn a_configuration_of_the_hosts_own_is_used_instead() {
    isolated("a_configuration_of_the_hosts_own_is_used_instead", async || {
        let podling = Podling::new();
        let directory = podling.root.path().join("etc/cni/net.d");
        fs::create_dir_all(&directory).unwrap();
        let leases = podling.root.path().join("own-leases");
        let conf = serde_json::json!({
            "cniVersion": "0.3.1", "name": "own", "type": "ptp", "ipMasq": true,
            "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": leases},
        });
        fs::write(directory.join("10-own.conf"), conf.to_string()).unwrap();
        let before = host();
        let result = podling.add("a", &[]).await.unwrap();
        assert_eq!((result.network.as_str(), result.ips[0].to_string().as_str()), ("own", "10.77.0.2"));
        run("iptables", &["-t", "nat", "-F"]);
        assert_eq!(podling.network.check_all().await.unwrap(), ["a"]);
        // The configuration is gone; what ADD was told is on disk.
        fs::remove_file(directory.join("10-own.conf")).unwrap();
        podling.remove("a").await;
        assert!(!leases.join("own/10.77.0.2").exists());
        assert_eq!(host(), before);
    });
}
