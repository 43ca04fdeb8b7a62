use std::os::unix::fs::PermissionsExt;

use super::*;

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

/// A plugin written in shell; its answer to every command is `script`.
fn plugin(dir: &Path, name: &str, script: &str) {
    write(dir, name, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn network(version: &str, types: &[&str]) -> NetworkList {
    let plugins = types.iter().map(|t| json!({"type": t})).collect();
    NetworkList { name: "net".into(), cni_version: version.into(), disable_check: false, plugins, file: None }
}

fn client(dir: &Path) -> Client {
    Client::new(vec![dir.to_owned()])
}

async fn add(dir: &Path, network: &NetworkList) -> Result<Value, CniError> {
    client(dir).add(network, &RuntimeConfig::default(), &Attachment::default()).await
}

#[test]
fn the_first_usable_configuration_by_name_counts() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(load_dir(&dir.path().join("none")).unwrap(), None);
    assert_eq!(load_dir(dir.path()).unwrap(), None);
    write(dir.path(), "00-broken.conflist", "{");
    write(dir.path(), "05-notes.txt", "not a configuration");
    write(dir.path(), "20-later.conf", r#"{"name":"later","type":"ptp"}"#);
    write(
        dir.path(),
        "10-first.conflist",
        r#"{"cniVersion":"0.3.1","name":"first","plugins":[{"type":"bridge"},{"type":"portmap","capabilities":{"portMappings":true}}]}"#,
    );
    let first = load_dir(dir.path()).unwrap().unwrap();
    assert_eq!(
        (first.name.as_str(), first.types().collect::<Vec<_>>()),
        ("first", vec!["bridge", "portmap"])
    );
    assert!(first.has_capability("portMappings") && !first.has_capability("ips"));
}

#[test]
fn a_single_plugin_is_a_list_of_one() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.conf", r#"{"cniVersion":"1.0.0","name":"one","type":"macvlan","mtu":1400}"#);
    let one = load_dir(dir.path()).unwrap().unwrap();
    assert_eq!((one.plugins.len(), &one.plugins[0]["mtu"]), (1, &json!(1400)));
}

#[test]
fn a_directory_with_only_unusable_configurations_says_why() {
    for (text, reason) in [
        ("{", "not JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "not a JSON object"),
        (r#"{"type":"bridge"}"#, "\"name\" is missing"),
        (r#"{"name":"n","plugins":[]}"#, "\"plugins\" is empty"),
        (r#"{"name":"n","plugins":[{"type":"a"},{}]}"#, "plugin 2 has no \"type\""),
        (r#"{"name":"n","type":"../evil"}"#, "plugin type \"../evil\" is a path; only a name is allowed"),
        (
            r#"{"name":"n","type":"a","cniVersion":"9.0"}"#,
            "cniVersion \"9.0\" is none of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "x.conflist", text);
        let error = load_dir(dir.path()).unwrap_err().to_string();
        assert_eq!(error, format!("CNI configuration {}/x.conflist: {reason}", dir.path().display()));
    }
}

#[test]
fn a_missing_plugin_names_the_directories_searched_and_the_package() {
    let client = Client::new(vec!["/opt/cni/none".into(), "/usr/none".into()]);
    assert_eq!(
        client.find("bridge", "podling0").unwrap_err().to_string(),
        "CNI plugin \"bridge\" of network \"podling0\" is in none of /opt/cni/none, /usr/none; install the \
         package containernetworking-plugins"
    );
}

#[tokio::test]
async fn each_plugin_gets_the_result_of_the_one_before_and_the_last_one_counts() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    plugin(
        dir.path(),
        "one",
        &format!(r#"cat > {d}/one.in; env > {d}/env; echo '{{"ips":[{{"address":"10.0.0.2/24"}}]}}'"#),
    );
    plugin(
        dir.path(),
        "two",
        &format!(r#"cat > {d}/two.in; echo '{{"ips":[{{"address":"10.0.0.9/24"}}]}}'"#),
    );
    plugin(dir.path(), "silent", "cat > /dev/null");
    let to = Attachment {
        container_id: "abc".into(),
        netns: "/run/ns".into(),
        args: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
    };
    let mut network = network("1.0.0", &["one", "two", "silent"]);
    network.plugins[1]["capabilities"] = json!({"portMappings": true, "ips": true});
    let mapping = PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: super::super::ports::Protocol::Udp,
        host_ip: Some("127.0.0.1".parse().unwrap()),
    };
    let runtime = RuntimeConfig { port_mappings: vec![mapping], ips: vec!["10.0.0.9/24".into()] };
    let result = client(dir.path()).add(&network, &runtime, &to).await.unwrap();
    assert_eq!(result_ips(&result), ["10.0.0.9".parse::<IpAddr>().unwrap()]);
    let input =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap() };
    assert_eq!(input("one.in"), json!({"type": "one", "name": "net", "cniVersion": "1.0.0"}));
    let two = input("two.in");
    assert_eq!(two["prevResult"]["ips"][0]["address"], "10.0.0.2/24");
    assert_eq!(
        two["runtimeConfig"],
        json!({
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"}],
            "ips": ["10.0.0.9/24"],
        })
    );
    let env = fs::read_to_string(dir.path().join("env")).unwrap();
    for want in
        ["CNI_COMMAND=ADD", "CNI_CONTAINERID=abc", "CNI_NETNS=/run/ns", "CNI_IFNAME=eth0", "CNI_ARGS=A=1;B=2"]
    {
        assert!(env.lines().any(|line| line == want), "{want} in {env}");
    }
}

#[tokio::test]
async fn a_plugins_error_is_one_line_with_its_name_path_and_code() {
    let dir = tempfile::tempdir().unwrap();
    plugin(
        dir.path(),
        "bad",
        r#"printf %s '{"code": 7, "msg": "no such\nbridge", "details": "br9"}'; exit 1"#,
    );
    plugin(dir.path(), "loud", "echo 'panic: oh no' >&2; exit 2");
    plugin(dir.path(), "mute", "exit 3");
    let d = dir.path().display();
    for (name, want) in [
        ("bad", format!("CNI plugin \"bad\" ({d}/bad) failed ADD: no such bridge: br9 (code 7)")),
        ("loud", format!("CNI plugin \"loud\" ({d}/loud) failed ADD: panic: oh no (code 2)")),
        (
            "mute",
            format!("CNI plugin \"mute\" ({d}/mute) failed ADD: exit status: 3 without a word (code 3)"),
        ),
    ] {
        assert_eq!(add(dir.path(), &network("1.0.0", &[name])).await.unwrap_err().to_string(), want);
    }
}

#[tokio::test]
async fn a_file_that_is_no_program_says_what_the_kernel_said() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "data", "");
    let error = add(dir.path(), &network("1.0.0", &["data"])).await.unwrap_err().to_string();
    let want =
        format!("CNI plugin \"data\" ({}/data) cannot be run: Permission denied", dir.path().display());
    assert!(error.starts_with(&want), "{error}");
}

#[tokio::test]
async fn a_plugin_that_never_answers_is_ended_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    plugin(dir.path(), "stuck", &format!("sleep 1000 & echo $! > {d}/pid; wait"));
    let client = Client { bin_dirs: vec![dir.path().to_owned()], limit: Duration::from_secs(1) };
    let network = network("1.0.0", &["stuck"]);
    let error = client.add(&network, &RuntimeConfig::default(), &Attachment::default()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("CNI plugin \"stuck\" ({d}/stuck) did not finish ADD within 1 s"));
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    let dead = || match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    while !dead() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn del_goes_backwards_and_runs_all_even_when_one_fails() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    for name in ["one", "two"] {
        plugin(dir.path(), name, &format!("echo {name} >> {d}/order; cat >> {d}/{name}.in"));
    }
    plugin(dir.path(), "bad", r#"cat > /dev/null; echo '{"code": 11, "msg": "busy"}'; exit 1"#);
    let del = async |version: &str| {
        let network = network(version, &["one", "bad", "two"]);
        let (runtime, to) = (RuntimeConfig::default(), Attachment::default());
        client(dir.path()).del(&network, &runtime, &to, Some(&json!({"ips": []}))).await
    };
    let error = del("0.4.0").await.unwrap_err().to_string();
    assert!(error.ends_with("failed DEL: busy (code 11)"), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("order")).unwrap(), "two\none\n");
    assert!(fs::read_to_string(dir.path().join("one.in")).unwrap().contains("prevResult"));
    fs::remove_file(dir.path().join("one.in")).unwrap();
    del("0.3.1").await.unwrap_err();
    assert!(!fs::read_to_string(dir.path().join("one.in")).unwrap().contains("prevResult"));
}

#[test]
fn addresses_are_read_from_results_of_every_version() {
    let ips = |value: Value| result_ips(&value).iter().map(IpAddr::to_string).collect::<Vec<_>>();
    assert_eq!(
        ips(json!({"ip4": {"ip": "10.1.0.5/16"}, "ip6": {"ip": "fd00::5/64"}})),
        ["10.1.0.5", "fd00::5"]
    );
    assert_eq!(ips(json!({"ips": [{"version": "4", "address": "10.1.0.5/16"}]})), ["10.1.0.5"]);
    let with_host_side = json!({
        "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/run/ns"}],
        "ips": [{"interface": 0, "address": "10.1.0.1/16"}, {"interface": 1, "address": "10.1.0.5/16"}],
    });
    assert_eq!(ips(with_host_side), ["10.1.0.5"]);
    assert_eq!(ips(Value::Null), [""; 0]);
}
