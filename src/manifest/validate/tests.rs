use crate::manifest::{Code, ReadOptions, Severity, read};

mod lifecycle;
mod resources;
mod security;

/// What validation says about a pod with these lines under `spec` and under its only container.
fn refusals(spec: &str, container: &str) -> Vec<String> {
    let indent = |text: &str, by: &str| text.lines().map(|line| format!("{by}{line}\n")).collect::<String>();
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n{}  containers:\n  - name: c\n    image: i:1\n{}",
        indent(spec, "  "),
        indent(container, "    "),
    );
    let documents = read(text.as_bytes(), &ReadOptions::default());
    let all = documents.into_iter().flat_map(|document| document.diagnostics);
    all.filter(|d| d.code == Code::Invalid && d.severity == Severity::Error)
        .map(|d| {
            assert!(d.line > 0 && d.column > 0);
            format!("{}: {}", d.path, d.text)
        })
        .collect()
}

fn in_spec(spec: &str, expected: &[&str]) {
    assert_eq!(refusals(spec, ""), expected, "{spec}");
}

fn in_container(container: &str, expected: &[&str]) {
    assert_eq!(refusals("volumes: [{name: v}]", container), expected, "{container}");
}

#[test]
fn metadata_follows_the_rules_of_names() {
    let said = |metadata: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
        );
        let documents = read(text.as_bytes(), &ReadOptions::default());
        documents[0].diagnostics.iter().map(|d| format!("{}: {}", d.path, d.text)).collect::<Vec<_>>()
    };
    assert_eq!(said("{}"), ["metadata.name: Required value: name is needed"]);
    assert!(
        said("{name: a_b}")[0]
            .starts_with("metadata.name: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain")
    );
    assert!(
        said("{name: a, namespace: A}")[0]
            .starts_with("metadata.namespace: Invalid value: \"A\": a lowercase RFC 1123 label")
    );
    assert!(
        said("{name: a, labels: {k: -x}}")[0]
            .starts_with("metadata.labels[k]: Invalid value: \"-x\": a valid label")
    );
    assert!(
        said("{name: a, labels: {'a/b/c': x}}")[0]
            .starts_with("metadata.labels[a/b/c]: Invalid value: \"a/b/c\": name part")
    );
    assert!(
        said("{name: a, uid: ../x}")[0].starts_with("metadata.uid: Invalid value: \"../x\": must consist")
    );
    assert!(
        said(&format!("{{name: a, annotations: {{k: {}}}}}", "x".repeat(262_144)))[0]
            .contains("Too long: 262145 bytes: may have at most 262144")
    );
    assert_eq!(said("{name: a.b, labels: {example.com/X_y: Z.1}, annotations: {Any/Key: 'x y'}}"), [""; 0]);
}

#[test]
fn a_pod_needs_containers_with_names_and_images() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    let said = |text: &str| {
        let documents = read(text.as_bytes(), &ReadOptions::default());
        documents[0].diagnostics.iter().map(|d| format!("{} {}", d.path, d.text)).collect::<Vec<_>>()
    };
    assert_eq!(said(text), ["spec.containers Required value: a pod needs spec.containers"]);
    assert_eq!(
        said(&format!("{text}spec: {{}}\n")),
        ["spec.containers Required value: a pod needs at least one container"]
    );
    assert_eq!(
        said(&format!("{text}spec: {{containers: [{{}}]}}\n")),
        ["spec.containers[0].name Required value", "spec.containers[0].image Required value"]
    );
    in_spec(
        "initContainers: [{name: c, image: i}]",
        &["spec.containers[0].name: Duplicate value: \"c\": spec.initContainers[0].name has it already"],
    );
}

#[test]
fn images_must_be_such_that_something_can_hold_them() {
    let said = refusals(
        "initContainers: [{name: i, image: 'https://x/y'}, {name: j, image: Nginx}, {name: k, image: 'me:secret@x.io/y'}]",
        "",
    );
    assert_eq!(
        said,
        [
            "spec.initContainers[0].image: Invalid value: \"https://x/y\": an image has no scheme: leave out everything up to ://",
            "spec.initContainers[1].image: Invalid value: \"Nginx\": the name must be lower case",
            "spec.initContainers[2].image: Invalid value: \"***@x.io/y\": a name and a password do not belong into it; put them into imagePullSecrets or a docker config.json",
        ]
    );
}

#[test]
fn enumerations_name_what_they_allow() {
    in_spec(
        "restartPolicy: always",
        &[
            "spec.restartPolicy: Unsupported value: \"always\": supported values: \"Always\", \"Never\", \"OnFailure\"; did you mean Always?",
        ],
    );
    in_spec(
        "dnsPolicy: Host",
        &[
            "spec.dnsPolicy: Unsupported value: \"Host\": supported values: \"ClusterFirst\", \"ClusterFirstWithHostNet\", \"Default\", \"None\"",
        ],
    );
    in_spec(
        "os: {name: plan9}",
        &["spec.os.name: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
    );
    in_container(
        "imagePullPolicy: Sometimes",
        &[
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    in_container(
        "terminationMessagePolicy: Log",
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Log\": supported values: \"FallbackToLogsOnError\", \"File\"",
        ],
    );
}

#[test]
fn ports_are_numbers_with_names_of_their_own() {
    in_container(
        "ports: [{containerPort: 80, protocol: tcp}]",
        &[
            "spec.containers[0].ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"; did you mean TCP?",
        ],
    );
    in_container("ports: [{}]", &["spec.containers[0].ports[0].containerPort: Required value"]);
    in_container(
        "ports: [{containerPort: 70000, hostPort: -1}]",
        &[
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
        ],
    );
    in_container(
        "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]",
        &[
            "spec.containers[0].ports[1].name: Duplicate value: \"a\": spec.containers[0].ports[0].name has it already",
        ],
    );
    for (name, why) in [
        ("'80'", "\"80\": must contain at least one letter (a-z)"),
        ("a--b", "\"a--b\": must not contain consecutive hyphens"),
        ("abcdefghijklmnop", "\"abcdefghijklmnop\": must be no more than 15 characters"),
        ("a-", "\"a-\": must not begin or end with a hyphen"),
        ("A", "\"A\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
    ] {
        in_container(
            &format!("ports: [{{containerPort: 1, name: {name}}}]"),
            &[&format!("spec.containers[0].ports[0].name: Invalid value: {why}")],
        );
    }
    in_container(
        "ports: [{containerPort: 1, hostIP: here}]",
        &[
            "spec.containers[0].ports[0].hostIP: Invalid value: \"here\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
}

#[test]
fn host_ports_are_unique_and_equal_under_host_network() {
    in_container(
        "ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2, hostPort: 9}, {containerPort: 2, hostPort: 9, protocol: UDP}]",
        &[
            "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP/9\": spec.containers[0].ports[0].hostPort has it already",
        ],
    );
    assert_eq!(
        refusals("hostNetwork: true", "ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2}]"),
        [
            "spec.containers[0].ports[0].hostPort: Invalid value: 9: must match `containerPort` when `hostNetwork` is true"
        ]
    );
}

#[test]
fn mounts_name_volumes_and_places() {
    in_container(
        "volumeMounts: [{name: w, mountPath: /a}, {name: v, mountPath: /b}, {name: v, mountPath: /b}, {name: v}]",
        &[
            "spec.containers[0].volumeMounts[0].name: Not found: \"w\": the pod's volumes are v",
            "spec.containers[0].volumeMounts[2].mountPath: Invalid value: \"/b\": must be unique; spec.containers[0].volumeMounts[1].mountPath mounts there too",
            "spec.containers[0].volumeMounts[3].mountPath: Required value",
        ],
    );
    in_container(
        "volumeMounts: [{name: v, mountPath: /a, subPath: /x/../y, subPathExpr: z}]",
        &[
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"/x/../y\": must be a relative path",
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"/x/../y\": must not contain '..'",
            "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"z\": subPathExpr and subPath are mutually exclusive",
        ],
    );
    in_container(
        "volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional, recursiveReadOnly: Enabled}]",
        &[
            "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
            "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
            "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
        ],
    );
    assert_eq!(
        refusals("", "volumeMounts: [{name: w, mountPath: /a}]"),
        ["spec.containers[0].volumeMounts[0].name: Not found: \"w\": the pod has no volumes"]
    );
}

#[test]
fn volumes_have_one_source_each() {
    in_spec(
        "volumes: [{name: a}, {name: a}, {name: A_}, {}]",
        &[
            "spec.volumes[1].name: Duplicate value: \"a\": spec.volumes[0].name has it already",
            "spec.volumes[2].name: Invalid value: \"A_\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (such as 'my-name'), and have at most 63 characters",
            "spec.volumes[3].name: Required value",
        ],
    );
    in_spec(
        "volumes: [{name: a, emptyDir: {}, hostPath: {path: /x}}]",
        &[
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type; emptyDir is set already",
        ],
    );
    in_spec(
        "volumes: [{name: a, hostPath: {}}, {name: b, hostPath: {path: /a/../b, type: Dir}}, {name: c, hostPath: {path: x/y}}, {name: d, hostPath: {path: x, type: File}}, {name: e, hostPath: {path: x}}]",
        &[
            "spec.volumes[0].hostPath.path: Required value",
            "spec.volumes[1].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
            "spec.volumes[1].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
            "spec.volumes[2].hostPath.path: Invalid value: \"x/y\": must be an absolute path, or without a type the name of a claim",
            "spec.volumes[3].hostPath.path: Invalid value: \"x\": must be an absolute path, or without a type the name of a claim",
        ],
    );
    in_spec(
        "volumes: [{name: a, emptyDir: {medium: Disk, sizeLimit: -1}}, {name: b, emptyDir: {sizeLimit: lots}}]",
        &[
            "spec.volumes[0].emptyDir.medium: Unsupported value: \"Disk\": supported values: \"\", \"Memory\", \"HugePages\", \"HugePages-2Mi\", \"HugePages-1Gi\"",
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be a valid resource quantity of 0 or more",
            "spec.volumes[1].emptyDir.sizeLimit: Invalid value: \"lots\": must be a quantity such as 64Mi",
        ],
    );
}

#[test]
fn other_kinds_of_volumes_name_what_they_need() {
    in_spec(
        "volumes: [{name: a, nfs: {server: '-x', path: srv}}, {name: b, image: {pullPolicy: Often}}, {name: c, persistentVolumeClaim: {claimName: a/b}}, {name: d, emptyDir: {medium: HugePages-big}}]",
        &[
            "spec.volumes[0].nfs.server: Invalid value: \"-x\": must be a host name or an address",
            "spec.volumes[0].nfs.path: Invalid value: \"srv\": must be an absolute path",
            "spec.volumes[1].image.reference: Required value",
            "spec.volumes[1].image.pullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            "spec.volumes[2].persistentVolumeClaim.claimName: Invalid value: \"a/b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (such as 'example.com'), and have at most 253 characters",
            "spec.volumes[3].emptyDir.medium: Unsupported value: \"HugePages-big\": supported values: \"\", \"Memory\", \"HugePages\", \"HugePages-2Mi\", \"HugePages-1Gi\"",
        ],
    );
}

#[test]
fn restrictions_of_mounts_and_modes_of_directories_are_checked() {
    in_container(
        "volumeMounts: [{name: v, mountPath: /a, bindMountOptions: [noexec, ro, noexec]}]",
        &[
            "spec.containers[0].volumeMounts[0].bindMountOptions[1]: Unsupported value: \"ro\": supported values: \"noexec\", \"nodev\", \"nosuid\"",
            "spec.containers[0].volumeMounts[0].bindMountOptions[2]: Duplicate value: \"noexec\": spec.containers[0].volumeMounts[0].bindMountOptions[0] has it already",
        ],
    );
    in_spec(
        "volumes: [{name: a, emptyDir: {mode: 2000}}]",
        &[
            "spec.volumes[0].emptyDir.mode: Invalid value: 2000: must be a number between 0 and 01777 (octal), both inclusive",
        ],
    );
}

#[test]
fn block_devices_come_of_volumes_that_can_be_some() {
    let said = refusals(
        "volumes: [{name: e, emptyDir: {}}, {name: p, persistentVolumeClaim: {claimName: p}}]",
        "volumeDevices: [{name: e, devicePath: /dev/a}, {name: x, devicePath: dev}, {name: p, devicePath: /dev/a}]",
    );
    assert_eq!(
        said,
        [
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"e\": can only use a persistentVolumeClaim, or a hostPath of type BlockDevice",
            "spec.containers[0].volumeDevices[1].name: Not found: \"x\": the pod has no volume of this name",
            "spec.containers[0].volumeDevices[1].devicePath: Invalid value: \"dev\": must be an absolute path and must not contain '..'",
            "spec.containers[0].volumeDevices[2].devicePath: Invalid value: \"/dev/a\": must be unique; spec.containers[0].volumeDevices[0].devicePath is there too",
        ]
    );
}

#[test]
fn nothing_is_mounted_over_the_whole_image() {
    for path in ["/", "//", "/./"] {
        let why = "must not be the root, which would hide the whole image";
        let wanted =
            format!("spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"{path}\": {why}");
        in_container(&format!("volumeMounts: [{{name: v, mountPath: {path}}}]"), &[&wanted]);
    }
}

#[test]
fn modes_meant_in_octal_are_recognised() {
    in_spec(
        "volumes: [{name: a, secret: {secretName: s, defaultMode: 600, items: [{key: k, path: /p, mode: 1000}]}}]",
        &[
            "spec.volumes[0].secret.defaultMode: Invalid value: 600: must be a number between 0 and 0777 (octal), both inclusive; did you mean 0600?",
            "spec.volumes[0].secret.items[0].path: Invalid value: \"/p\": must be a relative path",
            "spec.volumes[0].secret.items[0].mode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive",
        ],
    );
    in_spec(
        "volumes: [{name: a, configMap: {defaultMode: 0644}}, {name: b, persistentVolumeClaim: {}}]",
        &[
            "spec.volumes[0].configMap.name: Required value",
            "spec.volumes[1].persistentVolumeClaim.claimName: Required value",
        ],
    );
}

#[test]
fn a_pod_for_windows_nodes_is_refused() {
    in_spec(
        "nodeSelector: {kubernetes.io/os: windows}",
        &[
            "spec.nodeSelector[kubernetes.io/os]: Invalid value: \"windows\": this node runs Linux containers only",
        ],
    );
    in_spec("nodeSelector: {kubernetes.io/os: linux}", &[]);
}

#[test]
fn a_mode_is_the_same_in_all_spellings() {
    for mode in ["0400", "256", "0o400"] {
        in_spec(&format!("volumes: [{{name: a, secret: {{secretName: s, defaultMode: {mode}}}}}]"), &[]);
    }
}

#[test]
fn files_of_volumes_have_a_source_and_a_path_that_stays_inside() {
    in_spec(
        "volumes: [{name: a, downwardAPI: {defaultUser: -1, items: [{path: a}, {path: ..b, fieldRef: {fieldPath: status.podIP}}, \
         {path: c, resourceFieldRef: {resource: limits.cpu}}, {path: d/../e, fieldRef: {fieldPath: \"metadata.labels['x']\"}}, \
         {path: f, resourceFieldRef: {containerName: other, resource: limits.cpu, divisor: 2}}, \
         {path: g, resourceFieldRef: {containerName: c, resource: limits.disk}}]}}]",
        &[
            "spec.volumes[0].downwardAPI.defaultUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.volumes[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
            "spec.volumes[0].downwardAPI.items[1].path: Invalid value: \"..b\": must not start with '..'",
            "spec.volumes[0].downwardAPI.items[1].fieldRef.fieldPath: Unsupported value: \"status.podIP\": supported values: \"metadata.annotations['<KEY>']\", \"metadata.labels['<KEY>']\", \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\"",
            "spec.volumes[0].downwardAPI.items[2].resourceFieldRef.containerName: Required value",
            "spec.volumes[0].downwardAPI.items[3].path: Invalid value: \"d/../e\": must not contain '..'",
            "spec.volumes[0].downwardAPI.items[4].resourceFieldRef.containerName: Not found: \"other\": the containers of this pod are c",
            "spec.volumes[0].downwardAPI.items[4].resourceFieldRef.divisor: Invalid value: \"2\": only divisor's values 1m, 1 are supported with the cpu resource",
            "spec.volumes[0].downwardAPI.items[5].resourceFieldRef.resource: Unsupported value: \"limits.disk\": supported values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.hugepages-<size>\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.hugepages-<size>\", \"requests.memory\"",
        ],
    );
}

#[test]
fn sources_of_a_projected_volume_are_one_each_and_do_not_collide() {
    in_spec(
        "volumes: [{name: a, projected: {sources: [{configMap: {name: m, items: [{key: k, path: p}]}, secret: {name: s}}, \
         {secret: {items: [{key: k, path: p}]}}, {downwardAPI: {items: [{path: q, fieldRef: {fieldPath: metadata.name}}]}}]}}]",
        &[
            "spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type",
            "spec.volumes[0].projected.sources[1].secret.name: Required value",
            "spec.volumes[0].projected.sources[1].secret.items[0].path: Invalid value: \"p\": another source of the volume has this path already",
        ],
    );
}

#[test]
fn variables_and_arguments_are_such_as_the_kernel_takes() {
    in_container(
        "env: [{name: ''}, {name: A=B}, {name: \"a-b.C 1\"}, {name: A}, {name: A}]",
        &[
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].env[1].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ],
    );
    in_container(
        "args: [\"a\\0b\"]",
        &["spec.containers[0].args[0]: Invalid value: \"a\\0b\": must not contain NUL"],
    );
    let said = refusals("", &format!("args: [{}]", "x".repeat(131_072)));
    assert!(
        said[0].ends_with(
            "is 131072 bytes long: the kernel starts no program with an argument of 131072 bytes or more"
        ),
        "{said:?}"
    );
    assert_eq!(refusals("", &format!("args: [{}]", "x".repeat(131_071))), [""; 0]);
    in_container(
        "env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: p}}}]",
        &[
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"p\": supported values: \"metadata.annotations['<KEY>']\", \"metadata.labels['<KEY>']\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
        ],
    );
    in_container(
        "envFrom: [{prefix: A}]",
        &[
            "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
        ],
    );
}

#[test]
fn where_a_variable_takes_its_value_from_is_checked() {
    let at = "spec.containers[0].env[0].valueFrom";
    let from = |source: &str| refusals("", &format!("env: [{{name: A, valueFrom: {{{source}}}}}]"));
    let cases = [
        ("configMapKeyRef: {key: k}", ".configMapKeyRef.name: Required value"),
        ("secretKeyRef: {name: s}", ".secretKeyRef.key: Required value"),
        ("secretKeyRef: {name: S_, key: k}", ".secretKeyRef.name: Invalid value"),
        ("fieldRef: {fieldPath: metadata.labels}", ".fieldRef.fieldPath: Unsupported value"),
        ("fieldRef: {fieldPath: \"spec['x']\"}", ".fieldRef.fieldPath: Invalid value"),
        ("resourceFieldRef: {resource: cpu}", ".resourceFieldRef.resource: Unsupported value"),
        (
            "resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}",
            ".resourceFieldRef.divisor: Invalid value: \"1Mi\": only divisor's values 1m, 1 are supported with the cpu resource",
        ),
        (
            "resourceFieldRef: {resource: limits.memory, divisor: 3}",
            ".resourceFieldRef.divisor: Invalid value",
        ),
        ("fileKeyRef: {volumeName: v, path: p, key: k}", ".fileKeyRef.volumeName: Not found"),
        ("fileKeyRef: {path: ../p, key: k}", ".fileKeyRef.volumeName: Required value"),
    ];
    for (source, wanted) in cases {
        let said = from(source);
        assert!(said[0].starts_with(&format!("{at}{wanted}")), "{source}: {said:?}");
    }
    for source in [
        "fieldRef: {apiVersion: v1, fieldPath: \"metadata.annotations['Example.com/Note']\"}",
        "resourceFieldRef: {resource: requests.memory, divisor: 1Mi}",
        "resourceFieldRef: {resource: limits.cpu, divisor: 0}",
        "configMapKeyRef: {name: c, key: log.level, optional: true}",
    ] {
        assert_eq!(from(source), [""; 0], "{source}");
    }
    let said = refusals("", "envFrom: [{prefix: a=, configMapRef: {name: ''}}]");
    assert_eq!(said.len(), 2, "{said:?}");
}
