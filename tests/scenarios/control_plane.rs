//! What `kubeadm` writes into a node's manifest directory: four pods that need no API server, since they are it.
//! etcd is real; the others stand in, complain about what a real one would miss, and answer probes over TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Image, Instance, Options, seconds};

/// Checks that every file a flag names is there, then serves the probes' paths over TLS.
const STAND_IN: &str = r#"#!/bin/sh
for flag in "$@"; do
    name=${flag%%=*} value=${flag#*=}
    case $name in
    *-file | --kubeconfig | *kubeconfig | --etcd-certfile | --etcd-keyfile | --etcd-cafile)
        [ -s "$value" ] || { echo "$name: no file $value"; exit 1; } ;;
    --secure-port) port=$value ;;
    esac
done
[ -d /etc/ssl/certs ] || { echo "no CA certificates"; exit 1; }
mkdir -p /www && cd /www && for path in livez readyz healthz; do echo ok > $path; done
echo "serving on $port"
exec /usr/bin/openssl s_server -accept "127.0.0.1:$port" -cert "$TLS/server.crt" -key "$TLS/server.key" -WWW -quiet
"#;

/// The members' own parts: name, cpu, flags, probes' port and liveness path.
const MEMBERS: [(&str, &str, &[&str], u16, &str); 3] = [
    (
        "kube-apiserver",
        "250m",
        &[
            "--advertise-address=127.0.0.1",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--etcd-cafile=/etc/kubernetes/pki/ca.crt",
            "--etcd-certfile=/etc/kubernetes/pki/server.crt",
            "--etcd-keyfile=/etc/kubernetes/pki/server.key",
            "--etcd-servers=https://127.0.0.1:2379",
            "--secure-port=6443",
            "--service-cluster-ip-range=10.96.0.0/12",
            "--tls-cert-file=/etc/kubernetes/pki/server.crt",
            "--tls-private-key-file=/etc/kubernetes/pki/server.key",
        ],
        6443,
        "/livez",
    ),
    (
        "kube-controller-manager",
        "200m",
        &[
            "--bind-address=127.0.0.1",
            "--kubeconfig=/etc/kubernetes/member.conf",
            "--leader-elect=true",
            "--root-ca-file=/etc/kubernetes/pki/ca.crt",
            "--secure-port=10257",
            "--use-service-account-credentials=true",
        ],
        10257,
        "/healthz",
    ),
    (
        "kube-scheduler",
        "100m",
        &[
            "--authentication-kubeconfig=/etc/kubernetes/member.conf",
            "--bind-address=127.0.0.1",
            "--kubeconfig=/etc/kubernetes/member.conf",
            "--secure-port=10259",
        ],
        10259,
        "/livez",
    ),
];

#[test]
fn the_four_pods_of_a_kubeadm_control_plane_come_up_with_a_real_etcd() {
    let openssl = which("openssl");
    let member = |name: &str| {
        Image::shell(&format!("test/{name}:1"))
            .program(&format!("bin/{name}"), STAND_IN)
            .host_program(&openssl)
    };
    let mut images: Vec<Image> = MEMBERS.iter().map(|m| member(m.0)).collect();
    images.push(Image::shell("test/etcd:1").host_program(&which("etcd")));
    let instance = Instance::with(Options { images, ..Options::default() });
    let kubernetes = instance.root().join("etc/kubernetes");
    certificates(&kubernetes.join("pki"));
    fs::write(kubernetes.join("member.conf"), "apiVersion: v1\nkind: Config\n").expect("writable");

    instance.write("etcd.yaml", &etcd(&kubernetes, &instance.root().join("var/lib/etcd")));
    for (name, cpu, flags, port, live) in MEMBERS {
        instance.write(&format!("{name}.yaml"), &manifest(&kubernetes, name, cpu, flags, port, live));
    }
    for name in MEMBERS.iter().map(|m| m.0).chain(["etcd"]) {
        let what = format!("{name} is ready");
        instance
            .within(seconds(90), &what, |i| i.pods().into_iter().find(|p| p.name() == name && p.is_ready()));
    }
    for pod in instance.pods() {
        let name = pod.name();
        assert_eq!(pod.restarts(&name), 0, "{name}: {}", instance.ok(&["logs", "-n", "kube-system", &name]));
        assert_eq!(pod.0["metadata"]["namespace"], "kube-system");
        assert_eq!(pod.0["spec"]["priority"], 2_000_001_000);
        assert_eq!(pod.0["status"]["hostIP"], pod.0["status"]["podIP"], "{name} is on the host's network");
    }
    assert!(instance.root().join("var/lib/etcd/member").is_dir(), "etcd keeps its data on the host");

    // The restart of the runner touches none of them.
    let before: Vec<u32> = instance.pods().iter().map(|p| instance.pid(p, &p.name())).collect();
    let mut instance = instance;
    instance.restart_podling();
    let after: Vec<u32> = instance.pods().iter().map(|p| instance.pid(p, &p.name())).collect();
    assert_eq!(before, after);
    assert!(instance.pods().iter().all(|p| p.is_ready()), "a restart of podling makes nothing unready");
}

fn which(program: &str) -> String {
    let found = ["/usr/bin", "/usr/local/bin", "/usr/sbin"].map(|d| format!("{d}/{program}"));
    let found = found.into_iter().find(|p| Path::new(p).exists());
    found.unwrap_or_else(|| panic!("{program} is installed (make deps)"))
}

/// A certificate authority and one certificate for everybody.
fn certificates(dir: &Path) {
    fs::create_dir_all(dir).expect("writable");
    let script = "
        key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30'
        openssl req -x509 $key -keyout ca.key -out ca.crt -subj /CN=test-ca
        openssl req $key -keyout server.key -out server.csr -subj /O=system:masters/CN=member
        printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\\nextendedKeyUsage=serverAuth,clientAuth\\n' > ext
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out server.crt
    ";
    let made = Command::new("sh").args(["-ec", script]).current_dir(dir).output().expect("openssl runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn etcd(kubernetes: &Path, data: &Path) -> String {
    let command = [
        "/usr/bin/etcd",
        "--advertise-client-urls=https://127.0.0.1:2379",
        "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
        "--client-cert-auth=true",
        "--data-dir=/var/lib/etcd",
        "--initial-advertise-peer-urls=https://127.0.0.1:2380",
        "--initial-cluster=node=https://127.0.0.1:2380",
        "--key-file=/etc/kubernetes/pki/etcd/server.key",
        "--listen-client-urls=https://127.0.0.1:2379",
        "--listen-metrics-urls=http://127.0.0.1:2381",
        "--listen-peer-urls=https://127.0.0.1:2380",
        "--name=node",
        "--peer-cert-file=/etc/kubernetes/pki/etcd/server.crt",
        "--peer-client-cert-auth=true",
        "--peer-key-file=/etc/kubernetes/pki/etcd/server.key",
        "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
        "--snapshot-count=10000",
        "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
    ];
    let probe = |more: &str| {
        format!(
            "{{failureThreshold: 24, httpGet: {{host: 127.0.0.1, path: /health, port: probe-port, scheme: HTTP}}, initialDelaySeconds: 1, periodSeconds: 3, timeoutSeconds: 15{more}}}"
        )
    };
    let volumes = [
        ("etcd-data", data.to_owned(), "/var/lib/etcd", false),
        ("etcd-certs", kubernetes.join("pki"), "/etc/kubernetes/pki/etcd", false),
    ];
    pod("etcd", "100m", &command, (&probe(""), &probe(", successThreshold: 1")), &volumes, &named(2381))
}

fn manifest(kubernetes: &Path, name: &str, cpu: &str, flags: &[&str], port: u16, live: &str) -> String {
    let command: Vec<&str> = std::iter::once(name).chain(flags.iter().copied()).collect();
    let probe = format!(
        "{{failureThreshold: 24, httpGet: {{host: 127.0.0.1, path: {live}, port: probe-port, scheme: HTTPS}}, initialDelaySeconds: 1, periodSeconds: 3, timeoutSeconds: 15}}"
    );
    let volumes = [
        ("ca-certs", PathBuf::from("/etc/ssl/certs"), "/etc/ssl/certs", true),
        ("k8s-certs", kubernetes.join("pki"), "/etc/kubernetes/pki", true),
        ("kubeconfig", kubernetes.join("member.conf"), "/etc/kubernetes/member.conf", true),
    ];
    let more = format!("\n    env: [{{name: TLS, value: /etc/kubernetes/pki}}]{}", named(port));
    pod(name, cpu, &command, (&probe, &probe), &volumes, &more)
}

/// The port by which probes call it.
fn named(port: u16) -> String {
    format!("\n    ports:\n    - containerPort: {port}\n      name: probe-port\n      protocol: TCP")
}

/// The frame that all four share.
fn pod(
    name: &str,
    cpu: &str,
    command: &[&str],
    (live, start): (&str, &str),
    volumes: &[(&str, PathBuf, &str, bool)],
    more: &str,
) -> String {
    let command: String = command.iter().map(|word| format!("    - {word}\n")).collect();
    let mounts = volumes.iter().map(|(volume, _, path, read_only)| {
        format!("    - mountPath: {path}\n      name: {volume}\n      readOnly: {read_only}\n")
    });
    let kind = |path: &Path| if path.is_file() { "FileOrCreate" } else { "DirectoryOrCreate" };
    let sources = volumes.iter().map(|(volume, path, _, _)| {
        format!(
            "  - hostPath:\n      path: {}\n      type: {}\n    name: {volume}\n",
            path.display(),
            kind(path)
        )
    });
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/{name}.endpoint: https://127.0.0.1
  creationTimestamp: null
  labels: {{component: {name}, tier: control-plane}}
  name: {name}
  namespace: kube-system
spec:
  containers:
  - command:
{command}    image: test/{name}:1
    imagePullPolicy: IfNotPresent
    livenessProbe: {live}
    readinessProbe: {live}
    name: {name}
    resources:
      requests: {{cpu: {cpu}}}
    startupProbe: {start}{more}
    volumeMounts:
{}  hostNetwork: true
  priority: 2000001000
  priorityClassName: system-node-critical
  securityContext:
    seccompProfile:
      type: RuntimeDefault
  volumes:
{}status: {{}}
",
        mounts.collect::<String>(),
        sources.collect::<String>(),
    )
}
