use super::*;

fn parsed(text: &str, registry: &str) -> Vec<Endpoint> {
    parse(Path::new("/c/r"), Path::new("/c/r/hosts.toml"), text, registry).unwrap().0
}

fn wrong(text: &str) -> String {
    parse(Path::new("/c/r"), Path::new("/c/r/hosts.toml"), text, "r.io").unwrap_err().to_string()
}

fn origins(endpoints: &[Endpoint]) -> Vec<&str> {
    endpoints.iter().map(|e| e.origin.as_str()).collect()
}

#[test]
fn without_configuration_a_registry_is_asked_itself() {
    let none = HostsConfig::default();
    let at = |registry: &str| none.endpoints(registry).unwrap();
    assert_eq!(origins(&at("docker.io")), ["https://registry-1.docker.io"]);
    assert_eq!(origins(&at("ghcr.io")), ["https://ghcr.io"]);
    assert_eq!(origins(&at("reg.io:5000")), ["https://reg.io:5000"]);
    let hub = &at("docker.io")[0];
    assert_eq!((hub.prefix.as_str(), hub.mirror_of.as_deref(), hub.resolves), ("/v2", None, true));
}

#[test]
fn the_machine_itself_is_asked_by_plain_http_first() {
    for local in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
        let endpoints = HostsConfig::default().endpoints(local).unwrap();
        assert_eq!(origins(&endpoints), [format!("http://{local}")]);
        assert_eq!(endpoints[0].alternative, Some(format!("https://{local}")));
        assert!(endpoints[0].connect.tls.skip_verify);
    }
    assert_eq!(HostsConfig::default().endpoints("localhost.io").unwrap().len(), 1);
}

#[test]
fn mirrors_come_in_the_order_of_the_file_and_then_the_server() {
    let text = r#"
        server = "https://registry-1.docker.io"
        [host."https://z.mirror"]
          capabilities = ["pull", "resolve"]
        [host."http://a.mirror:5000/hub"]
          capabilities = ["pull"]
          skip_verify = true
        [host."https://m.mirror/v2/proxy"]
          override_path = true
    "#;
    let all = parsed(text, "docker.io");
    let expected =
        ["https://z.mirror", "https://a.mirror:5000", "https://m.mirror", "https://registry-1.docker.io"];
    assert_eq!(origins(&all), expected);
    let prefixes: Vec<_> = all.iter().map(|e| e.prefix.as_str()).collect();
    assert_eq!(prefixes, ["/v2", "/hub/v2", "/v2/proxy", "/v2"]);
    assert_eq!(all.iter().map(|e| e.resolves).collect::<Vec<_>>(), [true, false, true, true]);
    // It says how to do TLS, and http: as containerd does, TLS is tried first.
    assert_eq!(all[1].alternative.as_deref(), Some("http://a.mirror:5000"));
    assert_eq!(all[0].mirror_of.as_deref(), Some("docker.io"));
    assert_eq!(all[3].mirror_of, None);
    assert!(all[1].connect.tls.skip_verify && !all[0].connect.tls.skip_verify);
}

#[test]
fn a_file_without_server_ends_with_the_registry_itself() {
    let all = parsed("[host.\"https://m.io\"]\n", "ghcr.io");
    assert_eq!(origins(&all), ["https://m.io", "https://ghcr.io"]);
    assert_eq!(origins(&parsed("", "docker.io")), ["https://registry-1.docker.io"]);
}

#[test]
fn certificates_are_files_lists_or_pairs_beside_the_file() {
    let text = r#"
        [host."https://a"]
          ca = "ca.crt"
          client = [["me.cert", "me.key"], ["other.cert", ""]]
        [host."https://b"]
          ca = ["one.pem", "/abs/two.pem"]
          client = "both.pem"
        [host."https://c"]
          client = [["both.pem", ""]]
        [host."https://d"]
          client = ["me.cert", "me.key"]
        [host."https://e"]
          client = ["a.pem", "b.pem", "c.pem"]
    "#;
    let all = parsed(text, "r.io");
    let pair = |a: &str, b: &str| (Path::new("/c/r").join(a), Path::new("/c/r").join(b));
    assert_eq!(all[0].connect.tls.authorities, [Path::new("/c/r/ca.crt")]);
    let identities = |n: usize| all[n].connect.tls.identities.clone();
    assert_eq!(identities(0), [pair("me.cert", "me.key"), pair("other.cert", "other.cert")]);
    assert_eq!(all[1].connect.tls.authorities, [Path::new("/c/r/one.pem"), Path::new("/abs/two.pem")]);
    assert_eq!(identities(1), [pair("both.pem", "both.pem")]);
    assert_eq!(identities(2), [pair("both.pem", "both.pem")]);
    assert_eq!(identities(3), [pair("me.cert", "me.key")]);
    assert_eq!(identities(4), ["a.pem", "b.pem", "c.pem"].map(|f| pair(f, f)));
}

#[test]
fn headers_are_sent_as_often_as_they_are_listed() {
    let all = parsed("[host.\"https://a\".header]\nx-one = \"1\"\nx-two = [\"2\", \"3\"]\n", "r.io");
    let expected = [("x-one", "1"), ("x-two", "2"), ("x-two", "3")];
    assert_eq!(all[0].headers, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    for (text, expected) in [
        ("server = 5", "/c/r/hosts.toml: line 1: invalid type: integer `5`, expected a string"),
        (
            "[host.\"ftp://a\"]",
            "/c/r/hosts.toml: [host.\"ftp://a\"]: ftp:// is not spoken; use https:// or http://",
        ),
        (
            "[host.\"https://a\"]\ncapabilities = [\"fetch\"]",
            "capabilities: \"fetch\" is none; there are pull, resolve and push",
        ),
        (
            "[host.\"https://me:secret@a\"]",
            "[host.\"https://***@a\"]: credentials do not belong here; put them into a docker config.json",
        ),
        ("server = \"https://me:secret@a\"", "server = \"https://***@a\": credentials do not belong here"),
        ("server = \"me:secret@with/slash@a:1\"", "server = \"***@a:1\": "),
        ("[host.\"https://me:secret@a\"]\nca = 1", "[host.\"https://***@a\"]: ca: must be"),
        ("header = \"Authorization: secret\"", "/c/r/hosts.toml: header: must be a table"),
        ("host = \"https://me:secret@a\"", "/c/r/hosts.toml: host: must be a table"),
        ("[host]\n\"https://a\" = \"secret\"", "[host.\"https://a\"]: must be a table"),
        ("[host.\"https://a\"]\nheader = [\"secret\"]", "[host.\"https://a\"]: header: must be a table"),
        ("dial_timeout = \"soon\"", "dial_timeout: \"soon\" is no duration such as \"5s\""),
        (
            "[host.\"https://a\"]\nproxy = \"socks5://me:secret@p\"",
            "proxy: it is not the address of an HTTP proxy",
        ),
        ("[host.\"https://a\"]\nca = 1", "ca: must be the path of a file, or a list of such"),
    ] {
        let e = wrong(text);
        assert!(e.contains(expected), "{e}");
        assert!(!e.contains("secret"), "{e}");
    }
}

#[test]
fn limits_and_proxies_are_those_of_one_server() {
    let text = r#"
        proxy = "http://me:p@one.proxy:3128"
        capabilities = []
        [host."https://a"]
          dial_timeout = "1s"
        [host."https://b"]
          proxy = "two.proxy:8080"
          dial_timeout = "0s"
    "#;
    let all = parsed(text, "r.io");
    let limit = |n: usize| all[n].connect.dial_timeout.map(|d| d.as_secs());
    assert_eq!([limit(0), limit(1), limit(2)], [Some(1), None, None]);
    let proxy = |n: usize| all[n].connect.proxy.as_ref().map(ToString::to_string);
    assert_eq!(
        [proxy(0), proxy(1), proxy(2)],
        [None, Some("two.proxy:8080".to_owned()), Some("one.proxy:3128".to_owned())]
    );
    // An empty list of capabilities is none given.
    assert!(all[2].resolves && all[2].pulls);
}

#[test]
fn directories_are_found_with_and_without_colons_and_by_default() {
    let base = tempfile::tempdir().unwrap();
    let write = |dir: &str, text: &str| {
        std::fs::create_dir_all(base.path().join(dir)).unwrap();
        std::fs::write(base.path().join(dir).join("hosts.toml"), text).unwrap();
    };
    write("reg.io_5000_", "[host.\"https://under\"]");
    write("colon.io:5000", "[host.\"https://colon\"]");
    write("_default", "[host.\"https://any\"]");
    let config = HostsConfig { dirs: vec![base.path().join("none"), base.path().to_owned()] };
    for (registry, first) in
        [("reg.io:5000", "https://under"), ("colon.io:5000", "https://colon"), ("x.io", "https://any")]
    {
        assert_eq!(config.endpoints(registry).unwrap()[0].origin, first);
    }
    assert_eq!(config.endpoints("x.io").unwrap()[1].origin, "https://x.io");
}

#[test]
fn dockers_layout_of_certificates_is_read() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("reg.io");
    std::fs::create_dir(&dir).unwrap();
    for name in ["ca.crt", "client.cert", "client.key"] {
        std::fs::write(dir.join(name), "x").unwrap();
    }
    let at = HostsConfig { dirs: vec![base.path().to_owned()] }.endpoints("reg.io").unwrap();
    assert_eq!(at[0].connect.tls.authorities, [dir.join("ca.crt")]);
    assert_eq!(at[0].connect.tls.identities, [(dir.join("client.cert"), dir.join("client.key"))]);
    // containerd takes an empty file for none.
    std::fs::write(dir.join("hosts.toml"), "").unwrap();
    let again = HostsConfig { dirs: vec![base.path().to_owned()] }.endpoints("reg.io").unwrap();
    assert_eq!(again, at);
}

#[test]
fn usual_mistakes_are_found() {
    let base = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = base.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("hosts.toml", "");
    write("a.io/host.toml", "");
    write("index.docker.io/hosts.toml", "");
    write("b.io/hosts.toml", "[host.\"https://m\"]\ninsecure = true\n");
    write("c.io/hosts.toml", "[host");
    write("d.io/hosts.toml", "server = \"https://d.io\"");
    let findings = lint(base.path()).join("\n");
    for expected in [
        "hosts.toml is not read: it belongs into a directory named after the registry",
        "a.io/host.toml is not read: the file must be named hosts.toml",
        "images of Docker Hub are those of docker.io",
        "b.io/hosts.toml: unknown key \"insecure\" in [host.\"https://m\"] is ignored",
        "c.io/hosts.toml: line 1: ",
    ] {
        assert!(findings.contains(expected), "{expected} in:\n{findings}");
    }
    assert_eq!(findings.lines().count(), 5, "{findings}");
}

#[test]
fn what_containerd_is_told_about_registries_is_said_not_to_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let text = r#"
        version = 2
        [plugins."io.containerd.grpc.v1.cri".registry]
          config_path = "/etc/containerd/certs.d:/srv/certs.d"
        [plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
          endpoint = ["https://m"]
        [plugins."io.containerd.grpc.v1.cri".registry.configs."m".auth]
          password = "secret"
    "#;
    std::fs::write(&file, text).unwrap();
    let findings = lint_containerd(&file, &["/etc/containerd/certs.d".into()]).join("\n");
    for expected in [
        "registry.mirrors is for containerd's CRI and is not read; name mirrors in <registry>/hosts.toml",
        "registry.configs is for containerd's CRI and is not read",
        "registry.config_path names /srv/certs.d, which is not read",
    ] {
        assert!(findings.contains(expected), "{expected} in:\n{findings}");
    }
    assert_eq!(findings.lines().count(), 3);
    assert!(!findings.contains("secret"));
    assert!(lint_containerd(&dir.path().join("none"), &[]).is_empty());
}
