use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::system::clock;

/// A pod with `spec` below its `spec:` and one container.
fn pod(spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n{spec}  containers:\n  - name: app\n    image: busybox:1\n"
    )
}

fn read_with(text: &str, strict: bool) -> Vec<Document> {
    read(text.as_bytes(), &ReadOptions { strict, node_name: "node1".into(), ..ReadOptions::default() })
}

fn one(text: &str) -> Document {
    let mut documents = read_with(text, false);
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

/// `severity code line:column path: text`, one line for each finding.
fn says(text: &str) -> Vec<String> {
    lines(&read_with(text, false))
}

fn lines(documents: &[Document]) -> Vec<String> {
    let all = documents.iter().flat_map(|document| &document.diagnostics);
    all.map(|d| {
        let word = |v: serde_json::Value| v.as_str().unwrap_or_default().to_owned();
        let severity = word(serde_json::to_value(d.severity).expect("json"));
        let code = word(serde_json::to_value(d.code).expect("json"));
        format!("{severity} {code} {}:{} {}: {}", d.line, d.column, d.path, d.text)
    })
    .collect()
}

#[test]
fn a_plain_pod_is_accepted_with_its_defaults() {
    let document = one(&pod(""));
    assert_eq!(document.verdict(), Verdict::Ok);
    assert_eq!((document.line, document.kind.as_str(), document.name.as_str()), (1, "Pod", "web"));
    let manifest = document.pod.expect("a pod");
    assert_eq!(manifest.key, PodKey::new("default", "web"));
    let spec = manifest.pod.spec.expect("a spec");
    assert_eq!(spec.node_name.as_deref(), Some("node1"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(manifest.pod.metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn the_suffix_goes_behind_the_name() {
    let opts = ReadOptions { name_suffix: Some("Node1".into()), ..ReadOptions::default() };
    let documents = read(pod("").as_bytes(), &opts);
    assert_eq!(documents[0].name, "web-node1");
    let manifest = documents[0].pod.as_ref().expect("a pod");
    assert_eq!(manifest.pod.metadata.name.as_deref(), Some("web-node1"));
    assert_eq!(manifest.hashes, one(&pod("")).pod.expect("a pod").hashes);
}

#[test]
fn nothing_gives_no_document() {
    for text in ["", "\n\n", "# a comment\n", "---\n---\n", "null\n"] {
        assert!(read_with(text, false).is_empty(), "{text:?}");
    }
}

#[test]
fn a_syntax_error_is_a_document_behind_those_before_it() {
    let documents = read_with(&format!("{}---\na: [\n", pod("")), false);
    assert_eq!(documents.len(), 2);
    assert!(documents[0].pod.is_some());
    assert_eq!((documents[1].kind.as_str(), documents[1].verdict()), ("", Verdict::Reject));
    assert_eq!(documents[1].diagnostics[0].code, Code::Syntax);
    assert_eq!(documents[1].line, 10);
}

#[test]
fn unknown_fields_are_warned_about_with_what_was_meant() {
    let text =
        pod("  restartpolicy: Never\n  hostNetwrok: true\n  privileged: true\n  volume-s: []\n  zzz: 1\n")
            .replace("  name: web\n", "  name: web\n  hostNetwork: true\n")
            .replace("    image:", "    tolerations: []\n    image:");
    assert_eq!(
        says(&text),
        [
            "warning unknown 5:3 metadata.hostNetwork: unknown field \"hostNetwork\", it has no effect; hostNetwork belongs under spec",
            "warning unknown 7:3 spec.restartpolicy: unknown field \"restartpolicy\", it has no effect; did you mean restartPolicy?",
            "warning unknown 8:3 spec.hostNetwrok: unknown field \"hostNetwrok\", it has no effect; did you mean hostNetwork?",
            "warning unknown 9:3 spec.privileged: unknown field \"privileged\", it has no effect; privileged belongs under spec.containers[].securityContext",
            "warning unknown 10:3 spec.volume-s: unknown field \"volume-s\", it has no effect; did you mean volumes?",
            "warning unknown 11:3 spec.zzz: unknown field \"zzz\", it has no effect",
            "warning unknown 14:5 spec.containers[0].tolerations: unknown field \"tolerations\", it has no effect; tolerations belongs under spec",
        ]
    );
    let document = one(&text);
    assert_eq!(document.pod.expect("it runs").warnings, document.diagnostics);
}

#[test]
fn unknown_fields_are_errors_under_strict() {
    let documents = read_with(&pod("  hostNetwrok: true\n"), true);
    assert_eq!(
        lines(&documents),
        ["error unknown 6:3 spec.hostNetwrok: unknown field \"hostNetwrok\"; did you mean hostNetwork?"]
    );
    assert!(documents[0].pod.is_none());
}

#[test]
fn every_wrong_type_is_found_and_said_where() {
    let text = pod("  hostNetwork: \"true\"\n  terminationGracePeriodSeconds: soon\n  volumes: {name: a}\n  nodeSelector: [a]\n")
        .replace("    image: busybox:1", "    image: 5\n    command: sleep 1\n    args: [yes, 'a', {echo b: c}]\n    env:\n    - name: A\n      value: 080\n    ports:\n    - containerPort: \"80\"\n      hostPort: 1.5\n    - containerPort: 99999999999\n    resources: {limits: {cpu: [1]}}");
    assert_eq!(
        says(&text),
        [
            "error type 6:16 spec.hostNetwork: expected true or false, got the string \"true\"; remove the quotes",
            "error type 7:34 spec.terminationGracePeriodSeconds: expected a number, got the string \"soon\"",
            "error type 8:12 spec.volumes: expected a list of Volume, got a mapping; begin each item with a dash",
            "warning no-effect 9:3 spec.nodeSelector: os and hostname are checked against this node, arch and other labels only where the settings give nodeLabels; a pod that does not match waits",
            "error type 9:17 spec.nodeSelector: expected a mapping of names to strings, got a list",
            "error type 12:12 spec.containers[0].image: expected a string, got the number 5; put it in quotes",
            "error type 13:14 spec.containers[0].command: expected a list of strings, got the string \"sleep 1\"; write it as a list: [\"sleep\", \"1\"]",
            "error type 14:12 spec.containers[0].args[0]: expected a string, got the boolean true; put it in quotes",
            "error type 14:22 spec.containers[0].args[2]: expected a string, got a mapping; a colon followed by a blank makes a mapping: put the whole text in quotes",
            "error type 17:14 spec.containers[0].env[0].value: expected a string, got the number 80; put it in quotes",
            "error type 19:22 spec.containers[0].ports[0].containerPort: expected a number, got the string \"80\"; remove the quotes",
            "error type 20:17 spec.containers[0].ports[0].hostPort: expected a whole number, got 1.5",
            "error type 21:22 spec.containers[0].ports[1].containerPort: expected a whole number of 32 bits, got 99999999999",
            "error type 22:31 spec.containers[0].resources.limits[cpu]: expected a quantity such as 500m or 1Gi, got a list",
        ]
    );
}

#[test]
fn whole_floats_are_integers_and_numbers_are_quantities() {
    let text = pod("  terminationGracePeriodSeconds: 3e1\n")
        .replace("    image:", "    resources: {limits: {cpu: 0.5, memory: 1e6}}\n    image:");
    let document = one(&text);
    assert!(document.diagnostics.is_empty(), "{:?}", document.diagnostics);
    let spec = document.pod.expect("a pod").pod.spec.expect("a spec");
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    let limits = spec.containers[0].resources.as_ref().and_then(|r| r.limits.as_ref()).expect("limits");
    assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("0.5", "1000000"));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let text = pod("  hostUsers: false\n  securityContext: {fsGroup: 5, seccompProfile: {type: Localhost, localhostProfile: a}}\n  volumes: [{name: c, configMap: {name: c}}, {name: d, glusterfs: {endpoints: e, path: p}}]\n")
        .replace("    image:", "    livenessProbe: {exec: {command: [a]}}\n    volumeMounts: [{name: c, mountPath: /c, bindMountOptions: [nodev]}]\n    image:");
    assert_eq!(
        says(&text),
        [
            "error unsupported 8:56 spec.volumes[1].glusterfs: volume type glusterfs is not supported: volumes of storage systems are not mounted; mount it on the host and use hostPath",
        ]
    );
}

#[test]
fn defaults_written_out_are_neither_refused_nor_warned_about() {
    let text = pod("  hostUsers: true\n  dnsPolicy: ClusterFirst\n  schedulerName: default-scheduler\n  automountServiceAccountToken: false\n  enableServiceLinks: true\n  nodeName: node1\n  affinity: {}\n  tolerations: []\n  readinessGates: []\n  subdomain: ''\n  os: {name: linux}\n  securityContext: {supplementalGroupsPolicy: Merge, sysctls: []}\n  volumes: [{name: e, emptyDir: {}}]\n")
        .replace("    image:", "    securityContext: {procMount: Default}\n    lifecycle: {}\n    volumeMounts: [{name: e, mountPath: /e, subPath: '', mountPropagation: None, recursiveReadOnly: Disabled}]\n    image:");
    assert_eq!(says(&text), [""; 0]);
}

#[test]
fn what_only_means_something_in_a_cluster_is_warned_about() {
    let text = format!(
        "{}status: {{phase: Running, nonsense: [1]}}\n",
        pod(
            "  nodeSelector: {a: b}\n  nodeName: other\n  priority: 5\n  volumes: [{name: e, emptyDir: {sizeLimit: 1Mi}}]\n"
        )
    );
    assert_eq!(
        says(&text),
        [
            "warning no-effect 6:3 spec.nodeSelector: os and hostname are checked against this node, arch and other labels only where the settings give nodeLabels; a pod that does not match waits",
            "warning no-effect 7:3 spec.nodeName: nodeName: \"other\" has no effect: pods are not assigned to nodes here; it runs on this node",
            "warning no-effect 8:3 spec.priority: it orders starts, and who comes first of those that wait for the node; nothing that runs is put out for it. Classes are the system's and those under priorityClasses in the settings",
            "warning no-effect 9:34 spec.volumes[0].emptyDir.sizeLimit: sizeLimit has no effect on disk: static pods are not evicted; with medium: Memory it is a hard limit",
            "warning no-effect 13:1 status: status has no effect: podling reports the status itself; what the manifest says of it is ignored",
        ]
    );
    assert!(one(&text).pod.is_some());
}

#[test]
fn what_only_podman_reads_is_said_with_what_gives_the_same_here() {
    let annotations = "metadata:\n  annotations:\n    io.podman.annotations.ulimit: nofile=5:5\n    io.podman.annotations.init/c: 'TRUE'\n    io.podman.annotations.privileged/c: 'FALSE'\n    io.podman.annotations.autoremove/c: 'TRUE'\n    io.podman.annotations.pids-limit/c: '9'\n    bind-mount-options: /srv:z\n";
    let text = pod("  volumes: [{name: e, emptyDir: {}}]\n")
        .replace("metadata:\n", annotations)
        .replace("    image:", "    volumeMounts: [{name: e, mountPath: '/e:U,z'}]\n    image:");
    let path = "metadata.annotations";
    let of_podman = "io.podman.annotations.";
    assert_eq!(
        says(&text),
        [
            format!("warning no-effect 5:5 {path}[{of_podman}ulimit]: \"{of_podman}ulimit\" has no effect: use podling.dev/ulimits"),
            format!("warning no-effect 6:5 {path}[{of_podman}init/c]: \"{of_podman}init/c\" has no effect: use shareProcessNamespace: true, under which the pod's first process takes in orphans"),
            format!("warning no-effect 9:5 {path}[{of_podman}pids-limit/c]: \"{of_podman}pids-limit/c\" has no effect: it is for podman only"),
            format!("warning no-effect 10:5 {path}[bind-mount-options]: \"bind-mount-options\" has no effect: volumes keep the SELinux labels they have; chcon them on the host"),
            "warning no-effect 16:41 spec.containers[0].volumeMounts[0].mountPath: \"U,z\" is part of the path, as under a kubelet; options behind a colon are podman's: use readOnly and bindMountOptions".to_owned(),
        ]
    );
}

#[test]
fn other_kinds_beside_a_pod_are_skipped_with_a_word() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: ns}\n";
    let documents = read_with(&format!("{}{service}", pod("")), false);
    assert!(documents[0].pod.is_some());
    assert_eq!(
        (documents[1].kind.as_str(), documents[1].namespace.as_str(), documents[1].name.as_str()),
        ("Service", "ns", "s")
    );
    assert_eq!(
        lines(&documents),
        [
            "warning kind 11:1 kind: podling runs Pods (v1), also in a List; this Service is not run; publish ports with hostPort or hostNetwork"
        ]
    );
}

#[test]
fn a_claim_is_taken_beside_pods_and_alone_and_says_once_what_has_no_effect() {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, annotations: {volume.podman.io/uid: '5'}}\nspec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: fast\n  resources: {requests: {storage: 1Gi}}\n";
    let said = "warning no-effect 4:1 spec: this claim is the directory claims/default/data of the state directory; what it says under resources, storageClassName has no effect";
    let of_podman = "warning no-effect 3:38 metadata.annotations[volume.podman.io/uid]: \"volume.podman.io/uid\" has no effect: put what the claim shall be, or a link to it, in place of its directory";
    assert_eq!(says(claim), [of_podman, said]);
    let documents = read_with(&format!("{}---\n{claim}", pod("")), false);
    assert!(documents[0].pod.is_some() && documents[1].verdict() == Verdict::Warn);
    let plain = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem}\n";
    assert!(says(plain).is_empty());
    let block = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: x}\nspec: {volumeMode: Block}\n";
    assert_eq!(
        says(block),
        [
            "warning no-effect 4:1 spec: this claim is what claims/x/data of the state directory is; put a link to the block device there"
        ]
    );
    let wrong = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: Data}\nspec: {accessModes: ReadWriteOnce, acessModes: []}\n";
    let found = says(wrong);
    assert!(found[0].starts_with("error invalid 3:18 metadata.name: Invalid value: \"Data\""), "{found:?}");
    assert!(found[1].contains("spec.accessModes: expected a list of strings"), "{found:?}");
    assert!(found[2].contains("unknown field \"acessModes\", it has no effect; did you mean accessModes?"));
}

#[test]
fn what_only_an_api_server_reads_is_harmless_beside_pods_and_alone() {
    for kind in ["Namespace", "ServiceAccount", "ClusterRoleBinding"] {
        let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n");
        let found = says(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("warning no-effect 2:1 kind: this {kind} has no effect: ")));
    }
}

#[test]
fn an_object_with_more_data_than_the_api_takes_is_refused() {
    let map = |size: usize| {
        let half = "x".repeat(size / 2);
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: {half}, b: {half}}}\n")
    };
    assert!(says(&map(1 << 20)).is_empty(), "although the file is larger");
    let found = says(&map((1 << 20) + 2));
    let text = "data: Too long: 1048578 bytes of data; a ConfigMap may hold 1048576";
    assert!(found.len() == 1 && found[0].ends_with(text), "{found:?}");
}

#[test]
fn a_file_without_anything_to_run_is_refused() {
    let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n";
    assert_eq!(
        says(text),
        [
            "error kind 2:1 kind: podling runs Pods (v1), also in a List; this Deployment is not run; put its template into a Pod of its own"
        ]
    );
}

#[test]
fn what_a_document_is_must_be_said_and_right() {
    let cases = [
        (
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n",
            "error kind 1:1 : apiVersion is missing; write apiVersion: v1",
        ),
        (
            "apiVersion: core/v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n",
            "error kind 1:13 apiVersion: there is no kind Pod in version \"core/v1\"; write apiVersion: v1",
        ),
        (
            "apiVersion: 1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n",
            "error type 1:13 apiVersion: expected a string, got the number 1; put it in quotes",
        ),
        ("apiVersion: v1\nmetadata: {name: a}\n", "error kind 1:1 kind: kind is missing; write kind: Pod"),
        (
            "a: b\n",
            "error kind 1:1 kind: apiVersion and kind are missing; a pod begins with apiVersion: v1 and kind: Pod",
        ),
        ("apiVersion: v1\nkind: pod\n", "error kind 2:7 kind: kind \"pod\" is not known; did you mean Pod?"),
        ("apiVersion: v1\nkind: [Pod]\n", "error kind 2:7 kind: kind must be a string, got a list"),
        ("- a\n", "error type 1:1 : a manifest is a mapping with apiVersion and kind; this is a list"),
        (
            "apiVersion: v1\nkind: List\nitems: {}\n",
            "error type 3:8 items: expected a list of objects, got a mapping",
        ),
        ("apiVersion: v1\nkind: List\n", "warning no-effect 1:1 : this List has no items; nothing runs"),
    ];
    for (text, expected) in cases {
        assert_eq!(says(text), [expected], "{text}");
    }
}

#[test]
fn items_of_lists_are_documents_of_their_own() {
    let text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i:1}]}\n- metadata: {name: b}\n  spec: {containers: [{name: c, image: i:1, imag: x, imag: y}]}\n";
    let documents = read_with(text, false);
    let seen: Vec<_> =
        documents.iter().map(|d| (d.line, d.kind.as_str(), d.name.as_str(), d.pod.is_some())).collect();
    assert_eq!(seen, [(1, "PodList", "", false), (4, "Pod", "a", true), (6, "Pod", "b", true)]);
    assert_eq!(
        lines(&documents),
        [
            "warning no-effect 2:1 kind: podling runs the items of this PodList; a kubelet takes no PodList from a file",
            "warning unknown 7:54 spec.containers[0].imag: unknown field \"imag\", it has no effect; did you mean image?",
            "warning duplicate 7:54 spec.containers[0].imag: key \"imag\" stands twice in this mapping, on line 7 and on line 7; the last one counts",
        ]
    );
}

#[test]
fn several_pods_in_a_file_all_run_and_that_is_said_once() {
    let other = |name: &str| pod("").replace("  name: web\n", &format!("  name: {name}\n"));
    let documents = read_with(&format!("{}---\n{}---\n{}", pod(""), other("b"), other("c")), false);
    assert!(documents.iter().all(|d| d.pod.is_some()));
    assert_eq!(documents[1].diagnostics.len(), 1);
    let said = lines(&documents);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].ends_with("this file holds 3 Pods: podling runs them all, a kubelet only the first"),
        "{said:?}"
    );
}

#[test]
fn a_place_left_open_in_a_command_is_warned_of_unless_a_shell_reads_it() {
    let with = |command: &str| format!("{}    command: {command}\n", pod(""));
    let said = says(&with("[/bin/etcd, --name, '${NODE_NAME}']"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].ends_with(
            "spec.containers[0].command[2]: ${NODE_NAME} reaches the program as it stands: fill it in, or write \
             $(NODE_NAME) for the value of a variable of env"
        ),
        "{said:?}"
    );
    assert!(says(&with("[sh, -c, 'echo ${NODE_NAME}']")).is_empty());
}

#[test]
fn flow_style_that_a_kubelet_takes_for_json_is_warned_of() {
    let flow =
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: i:1}]}}";
    let said = says(flow);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("begins with { for JSON"), "{said:?}");
    let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "i:1"}]}}"#;
    assert!(says(json).is_empty());
}

#[test]
fn config_maps_and_secrets_are_decoded() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\nimmutable: true\n\
        data: {a: b, e: }\nbinaryData: {x: /wA=}\n";
    let object = one(map).object.expect("a ConfigMap");
    assert_eq!(object.key, ObjectKey::new(ObjectKind::ConfigMap, "shop", "c"));
    let data = [("a", &b"b"[..]), ("e", b""), ("x", &[255, 0])].map(|(k, v)| (k.to_owned(), v.to_vec()));
    assert_eq!(object.data, data.into());
    assert!(object.immutable);
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\ndata:\n  a: |\n    cGF\n    zcw==\n  b: eA==\n\
        stringData: {b: plain}\n";
    let object = one(secret).object.expect("a Secret");
    assert_eq!(object.data["a"], b"pass");
    assert_eq!(object.data["b"], b"plain", "stringData stands over data");
    assert_eq!(object.secret_type.as_deref(), Some("Opaque"));
    assert!(says(map).is_empty() && says(secret).is_empty());
}

#[test]
fn what_is_wrong_in_a_secret_is_said_without_showing_it() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\ndata: {a: plain!, b: 5, ..c: eA==}\n";
    assert_eq!(
        says(secret),
        [
            "error type 4:11 data[a]: is not base64; plain text goes under stringData",
            "error type 4:22 data[b]: expected a string, got something else; put it in quotes",
            "error invalid 4:30 data[..c]: Invalid value: \"..c\": a key must consist of alphanumeric characters, '-', '_' or '.', have at most 253 of them, and not begin with '..'",
        ]
    );
    assert_eq!(says("apiVersion: v1\nkind: ConfigMap\ndata: [a]\n").len(), 2);
    let both = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\nbinaryData: {a: eA==}\n";
    assert_eq!(
        says(both),
        ["error invalid 5:17 binaryData[a]: Invalid value: \"a\": stands in data as well"]
    );
    let tls =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\ntype: kubernetes.io/tls\ndata: {tls.crt: eA==}\n";
    assert_eq!(
        says(tls),
        ["error invalid 5:7 data[tls.key]: Required value: a Secret of type kubernetes.io/tls needs tls.key"]
    );
}

#[test]
fn unknown_fields_of_data_objects_are_warned_about() {
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, label: {}}\ndatas: {a: b}\nstringData: {}\n";
    assert_eq!(
        says(map),
        [
            "warning unknown 3:21 metadata.label: unknown field \"label\", it has no effect; did you mean labels?",
            "warning unknown 4:1 datas: unknown field \"datas\", it has no effect; did you mean data?",
            "warning unknown 5:1 stringData: unknown field \"stringData\", it has no effect",
        ]
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\npassword: secret\n";
    assert_eq!(says(secret), ["warning unknown 4:1 password: unknown field \"password\", it has no effect"]);
}

#[test]
fn a_probe_or_hook_of_a_port_that_has_another_name_is_warned_about() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: i\n\
        \x20   ports: [{name: web, containerPort: 80}]\n    readinessProbe: {tcpSocket: {port: web}}\n\
        \x20   lifecycle: {preStop: {httpGet: {port: wbe}}}\n";
    assert_eq!(
        says(pod),
        [
            "warning no-effect 10:43 spec.containers[0].lifecycle.preStop.httpGet.port: wbe is no port of this container, so it fails each time; its ports are web"
        ]
    );
}

#[test]
fn a_secret_in_a_file_that_everybody_can_read_is_refused() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    let documents = read(text.as_bytes(), &ReadOptions { exposed: true, ..ReadOptions::default() });
    assert!(documents[0].object.is_none() && documents[1].object.is_some());
    assert_eq!(documents[0].diagnostics[0].code, Code::Exposed);
    assert!(documents[0].diagnostics[0].text.contains("chmod 0600"));
}

#[test]
fn a_generated_name_is_no_name() {
    assert_eq!(
        says(&pod("").replace("  name: web", "  generateName: web-")),
        [
            "error invalid 4:3 metadata.name: Required value: name is needed; generateName only works with an API server",
            "warning no-effect 4:3 metadata.generateName: generateName has no effect: names are made up by API servers only; metadata.name is used",
        ]
    );
}

#[test]
fn annotations_that_choose_profiles_are_not_overlooked() {
    let text = pod("").replace("  name: web\n", "  name: web\n  annotations:\n    seccomp.security.alpha.kubernetes.io/pod: runtime/default\n    container.apparmor.security.beta.kubernetes.io/app: localhost/x\n    container.apparmor.security.beta.kubernetes.io/b: unconfined\n");
    assert_eq!(
        says(&text),
        [
            "warning no-effect 6:5 metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: this annotation has no effect: kubelets ignore it since 1.27; use securityContext.seccompProfile",
            "error invalid 8:5 metadata.annotations[container.apparmor.security.beta.kubernetes.io/b]: Invalid value: \"b\": container not found",
        ]
    );
}

#[test]
fn null_items_are_empty_items() {
    let text = pod("").replace("    image:", "    args:\n    - a\n    -\n    env:\n    -\n    image:");
    assert_eq!(
        says(&text),
        [
            "warning no-effect 10:6 spec.containers[0].args[1]: an item with nothing in it is taken for the empty string \"\"",
            "error invalid 12:6 spec.containers[0].env[0].name: Required value",
        ]
    );
}

#[test]
fn thousands_of_mistakes_do_not_make_thousands_of_findings() {
    let mut text = pod("");
    for i in 0..20_000 {
        text.push_str(&format!("    unknown{i}: 1\n"));
    }
    text.push_str("    env: 5\n");
    let document = one(&text);
    assert_eq!(document.diagnostics.len(), 500);
    assert_eq!(document.verdict(), Verdict::Reject);
}

#[test]
fn files_full_of_mistakes_are_read_in_no_time() {
    let many = |n: usize, line: fn(usize) -> String| (0..n).map(line).collect::<String>();
    let labels = many(24_000, |i| format!("    -bad{i}: x\n"));
    let doubles = many(24_000, |_| "    same: x\n".to_owned());
    let env = many(8_000, |_| "    - {name: '', value: 5}\n".to_owned());
    let pods = many(1_500, |i| format!("- kind: Pod\n  a: {i}\n  a: {i}\n"));
    let start = clock::now();
    one(&pod("").replace("  name: web\n", &format!("  name: web\n  labels:\n{labels}")));
    one(&pod("").replace("  name: web\n", &format!("  name: web\n  labels:\n{doubles}")));
    one(&format!("{}    env:\n{env}", pod("")));
    let documents = read_with(&format!("apiVersion: v1\nkind: List\nitems:\n{pods}"), false);
    assert_eq!(documents.len(), 1_501);
    assert!(clock::now().since(start) < Duration::from_secs(6), "{:?}", clock::now().since(start));
}

#[test]
fn the_page_on_supported_fields_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/manifest-support.md");
    let page = support_table_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("docs/");
        std::fs::write(&path, &page).expect("the page");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "docs/manifest-support.md is stale: run UPDATE_DOCS=1 cargo test --lib manifest");
}

fn full_pod() -> String {
    pod("  hostNetwork: true\n  restartPolicy: Never\n  volumes:\n  - name: v\n    hostPath: {path: /x, type: Directory}\n  - name: e\n    emptyDir: {medium: Memory, sizeLimit: 1Mi}\n")
        .replace("    image:", "    command: [sh, -c, \"echo $HOME\"]\n    env:\n    - {name: A, value: \"1\"}\n    ports:\n    - {containerPort: 80, name: http}\n    volumeMounts:\n    - {name: v, mountPath: /v, readOnly: true}\n    resources:\n      limits: {cpu: 500m, memory: 64Mi}\n    securityContext:\n      capabilities: {add: [NET_ADMIN], drop: [ALL]}\n    image:")
}

#[test]
fn a_full_pod_is_accepted_without_a_word() {
    assert_eq!(says(&full_pod()), [""; 0]);
}

proptest! {
    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes, &ReadOptions::default());
    }

    #[test]
    fn no_damage_to_a_manifest_breaks_it(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..6)
    ) {
        let mut bytes = full_pod().into_bytes();
        for (at, what, byte) in edits {
            if bytes.len() < 2 {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        for document in read(&bytes, &ReadOptions::default()) {
            prop_assert!(document.diagnostics.iter().all(|d| d.line > 0 && d.column > 0));
            prop_assert_eq!(document.pod.is_some(), document.kind == "Pod" && document.verdict() != Verdict::Reject);
        }
    }

    #[test]
    fn no_word_in_place_of_a_value_breaks_it(at in any::<prop::sample::Index>(), word in "(~|\\[\\]|\\{\\}|-1|1e99|yes|\\[~\\]|\"\"|99999999999|!!str|\\{a: b\\})") {
        let text = full_pod();
        let lines: Vec<&str> = text.lines().collect();
        let values: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(": ")).collect();
        let line = values[at.index(values.len())];
        let cut = lines[line].find(": ").unwrap_or_default();
        let changed = format!("{}: {word}", &lines[line][..cut]);
        let mut lines = lines.clone();
        lines[line] = &changed;
        read(lines.join("\n").as_bytes(), &ReadOptions::default());
    }

    #[test]
    fn hashes_do_not_depend_on_the_order_of_keys(swap in 0usize..3) {
        let text = full_pod();
        let moved = match swap {
            0 => text.replace("  hostNetwork: true\n  restartPolicy: Never\n", "  restartPolicy: Never\n  hostNetwork: yes\n"),
            1 => text.replace("{cpu: 500m, memory: 64Mi}", "{memory: 64Mi, cpu: 500m}"),
            _ => format!("# comment\n{}", text.replace("kind: Pod\n", "").replace("apiVersion: v1\n", "kind: Pod\napiVersion: v1\n")),
        };
        prop_assert_eq!(one(&text).pod.expect("a pod").hashes, one(&moved).pod.expect("a pod").hashes);
    }
}
