use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

/// A directory with a state, a configuration and plugins written in shell.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new(plugin: &str) -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(world.path("bin")).unwrap();
        fs::create_dir(world.path("conf")).unwrap();
        world.plugin(plugin);
        let conf = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fake"}]});
        fs::write(world.path("conf/net.conflist"), conf.to_string()).unwrap();
        world
    }

    fn path(&self, tail: &str) -> PathBuf {
        self.dir.path().join(tail)
    }

    fn plugin(&self, script: &str) {
        let log = self.path("log");
        let text = format!(
            "#!/bin/sh\necho $CNI_COMMAND $CNI_CONTAINERID ns=$CNI_NETNS >> {}\n{script}\n",
            log.display()
        );
        fs::write(self.path("bin/fake"), text).unwrap();
        fs::set_permissions(self.path("bin/fake"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn network(&self) -> Network {
        Network::new(NetworkOptions {
            conf_dir: self.path("conf"),
            bin_dirs: vec![self.path("bin")],
            state: self.path("state"),
            system: false,
        })
    }

    async fn setup(&self, network: &Network, ports: Vec<PortMapping>) -> Result<NetResult, NetworkError> {
        let key = PodKey::new("default", "web");
        let netns = self.path("ns");
        network
            .setup(&SetupRequest { sandbox_id: "s1", key: &key, uid: "u", netns: &netns, host_ports: ports })
            .await
    }
}

const GIVES: &str =
    r#"cat > /dev/null; test $CNI_COMMAND = DEL || echo '{"ips":[{"address":"10.0.0.2/24"}]}'"#;

fn port() -> PortMapping {
    PortMapping { host_port: 8080, container_port: 80, protocol: Protocol::Tcp, host_ip: None }
}

#[tokio::test]
async fn the_record_is_there_before_add_and_goes_after_del() {
    let world = World::new("");
    let record = world.path("state/results/s1.json");
    world.plugin(&format!("test -s {} || exit 9\n{GIVES}", record.display()));
    let network = world.network();
    let result = world.setup(&network, vec![]).await.unwrap();
    assert_eq!(result, NetResult { ips: vec!["10.0.0.2".parse().unwrap()], network: "net".into() });
    assert_eq!(network.pending(), ["s1"]);
    // Another podling process, after a crash.
    let later = world.network();
    later.teardown("s1", None).await.unwrap();
    later.teardown("s1", None).await.unwrap();
    assert_eq!(later.pending(), [""; 0]);
    assert_eq!(world.log(), [format!("ADD s1 ns={}", world.path("ns").display()), "DEL s1 ns=".into()]);
}

#[tokio::test]
async fn a_failed_add_is_undone_at_once() {
    let world = World::new(r#"test $CNI_COMMAND = DEL && exit 0; echo '{"code":5,"msg":"no"}'; exit 1"#);
    let network = world.network();
    let error = world.setup(&network, vec![]).await.unwrap_err().to_string();
    assert!(error.contains("failed ADD: no (code 5)"), "{error}");
    assert_eq!((network.pending().len(), world.log().len()), (0, 2));
}

#[tokio::test]
async fn a_failed_del_is_repeated_until_done() {
    let world = World::new(GIVES);
    let network = world.network();
    world.setup(&network, vec![]).await.unwrap();
    world.plugin("exit 1");
    assert!(network.teardown("s1", None).await.is_err());
    assert_eq!(network.pending(), ["s1"]);
    world.plugin(GIVES);
    network.teardown("s1", None).await.unwrap();
    assert_eq!(network.pending(), [""; 0]);
}

#[tokio::test]
async fn an_add_that_gives_no_address_fails_by_name_and_is_undone() {
    let world = World::new("cat > /dev/null; echo '{}'");
    let network = world.network();
    let error = world.setup(&network, vec![]).await.unwrap_err().to_string();
    let want =
        "network \"net\" gave no address to pod default/web; its IPAM plugin may be missing or misconfigured";
    assert_eq!(error, want);
    assert_eq!(network.pending(), [""; 0]);
}

#[tokio::test]
async fn a_second_setup_of_a_sandbox_starts_over() {
    let world = World::new(GIVES);
    let network = world.network();
    world.setup(&network, vec![]).await.unwrap();
    world.setup(&network, vec![]).await.unwrap();
    let commands: Vec<String> = world.log().iter().map(|l| l[..3].to_owned()).collect();
    assert_eq!(commands, ["ADD", "DEL", "ADD"]);
}

#[tokio::test]
async fn a_host_port_on_a_network_without_portmap_is_refused_by_name() {
    let world = World::new(GIVES);
    let error = world.setup(&world.network(), vec![port()]).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "host port 8080/tcp cannot be served: network \"net\" ({}) has no plugin with the capability \
             portMappings; add the plugin portmap to it",
            world.path("conf/net.conflist").display()
        )
    );
    assert_eq!(world.log(), [""; 0]);
}

#[tokio::test]
async fn a_damaged_record_is_still_detached() {
    let world = World::new(GIVES);
    let network = world.network();
    world.setup(&network, vec![]).await.unwrap();
    fs::write(world.path("state/results/s1.json"), "{").unwrap();
    network.teardown("s1", None).await.unwrap();
    assert_eq!(world.log().last().unwrap(), "DEL s1 ns=");
    assert_eq!(network.pending(), [""; 0]);
}

#[tokio::test]
async fn a_dead_predecessor_with_the_same_host_port_is_detached_first() {
    let world = World::new(GIVES);
    let conf =
        json!({"name": "net", "cniVersion": "1.0.0", "type": "fake", "capabilities": {"portMappings": true}});
    fs::write(world.path("conf/net.conflist"), conf.to_string()).unwrap();
    let network = world.network();
    world.setup(&network, vec![port()]).await.unwrap();
    let (same, other) = (PodKey::new("default", "web"), PodKey::new("default", "other"));
    let netns = world.path("ns");
    for (id, key) in [("s2", &other), ("s3", &same)] {
        let host_ports = vec![port()];
        network
            .setup(&SetupRequest { sandbox_id: id, key, uid: "u", netns: &netns, host_ports })
            .await
            .unwrap();
    }
    assert_eq!(network.pending(), ["s2", "s3"]);
    let did: Vec<String> = world.log().iter().map(|l| l[..6].to_owned()).collect();
    assert_eq!(did, ["ADD s1", "ADD s2", "DEL s1", "ADD s3"]);
}

#[test]
fn status_names_what_is_missing() {
    let world = World::new(GIVES);
    world.network().status().unwrap();
    fs::remove_file(world.path("bin/fake")).unwrap();
    let error = world.network().status().unwrap_err().to_string();
    assert!(error.starts_with("CNI plugin \"fake\" of network \"net\" is in none of "), "{error}");
    fs::remove_file(world.path("conf/net.conflist")).unwrap();
    let error = world.network().status().unwrap_err().to_string();
    assert!(error.starts_with("CNI plugin \"bridge\" of network \"built-in\" is in none of "), "{error}");
}

#[test]
fn a_plain_file_is_no_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pin");
    fs::write(&file, "").unwrap();
    assert!(!is_namespace(&file) && !is_namespace(&dir.path().join("none")));
    assert!(is_namespace(Path::new("/proc/self/ns/net")));
}
