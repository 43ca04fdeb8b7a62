//! Probes, hooks, security contexts, names, and what only a cluster would refuse.

use super::*;

#[test]
fn probes_and_hooks_are_checked() {
    in_container(
        "livenessProbe: {}",
        &[
            "spec.containers[0].livenessProbe: Required value: must specify a handler type: exec, httpGet, tcpSocket or grpc",
        ],
    );
    in_container(
        "livenessProbe: {successThreshold: 2, httpGet: {port: \"80\"}}",
        &[
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"80\": must contain at least one letter (a-z); remove the quotes to give a port number",
        ],
    );
    in_container(
        "readinessProbe: {terminationGracePeriodSeconds: 5, exec: {}, tcpSocket: {port: 0}}",
        &[
            "spec.containers[0].readinessProbe: Forbidden: may not specify more than 1 handler type",
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
            "spec.containers[0].readinessProbe.exec.command: Required value",
            "spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
    in_container(
        "lifecycle: {stopSignal: SIGUSR1, preStop: {sleep: {seconds: -1}}}",
        &[
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
            "spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: -1: must be between 0 and terminationGracePeriodSeconds, which is 30",
        ],
    );
    in_spec(
        "os: {name: linux}\nterminationGracePeriodSeconds: 5\ninitContainers: [{name: i, image: i, restartPolicy: Always, lifecycle: {stopSignal: TERM, preStop: {sleep: {seconds: 6}}}}]",
        &[
            "spec.initContainers[0].lifecycle.stopSignal: Invalid value: \"TERM\": must be the name of a signal, such as SIGTERM or SIGRTMIN+3",
            "spec.initContainers[0].lifecycle.preStop.sleep.seconds: Invalid value: 6: must be between 0 and terminationGracePeriodSeconds, which is 5",
        ],
    );
    in_spec(
        "initContainers: [{name: i, image: i, lifecycle: {preStop: {exec: {command: [a]}}}, startupProbe: {exec: {command: [a]}}}]",
        &[
            "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
            "spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
}

#[test]
fn security_contexts_do_not_contradict_themselves() {
    in_container(
        "securityContext: {privileged: true, allowPrivilegeEscalation: false}",
        &[
            "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ],
    );
    in_container(
        "securityContext: {procMount: Unmasked, runAsUser: -1}",
        &[
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ],
    );
    in_container(
        "securityContext: {capabilities: {add: [NET_ADMIN, cap_chown, FLY], drop: [ALL]}}",
        &[
            "spec.containers[0].securityContext.capabilities.add[2]: Invalid value: \"FLY\": the kernel knows no such capability; names are such as NET_ADMIN, or ALL",
        ],
    );
    in_container(
        "securityContext: {seccompProfile: {type: Localhost}}",
        &[
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when type is Localhost",
        ],
    );
    in_container(
        "securityContext: {seccompProfile: {type: Unconfined, localhostProfile: x}}",
        &[
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Forbidden: can only be set when type is Localhost",
        ],
    );
    in_spec(
        "hostNetwork: true\nsecurityContext: {sysctls: [{name: net.a, value: '1'}, {name: net/a}, {name: A}]}",
        &[
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.a\": may not be specified when 'hostNetwork' is true",
            "spec.securityContext.sysctls[1].name: Invalid value: \"net/a\": may not be specified when 'hostNetwork' is true",
            "spec.securityContext.sysctls[1].name: Duplicate value: \"net.a\": spec.securityContext.sysctls[0].name has it already",
            "spec.securityContext.sysctls[2].name: Invalid value: \"A\": must be such as net.core.somaxconn or net/core/somaxconn",
        ],
    );
}

#[test]
fn names_and_addresses_of_the_pod_are_checked() {
    in_spec(
        "hostname: a.b",
        &[
            "spec.hostname: Invalid value: \"a.b\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (such as 'my-name'), and have at most 63 characters",
        ],
    );
    in_spec(
        "hostAliases: [{ip: x, hostnames: [a, B]}]",
        &[
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "spec.hostAliases[0].hostnames[1]: Invalid value: \"B\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (such as 'example.com'), and have at most 253 characters",
        ],
    );
    in_spec(
        "dnsPolicy: None",
        &[
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ],
    );
    in_spec(
        "dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3, four], searches: [a.b., ., _x.y], options: [{value: '1'}]}",
        &[
            "spec.dnsConfig.nameservers: Too many: 4: must have at most 3 nameservers",
            "spec.dnsConfig.nameservers[3]: Invalid value: \"four\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "spec.dnsConfig.options[0].name: Required value: must not be empty",
        ],
    );
    in_spec(
        "hostPID: true\nshareProcessNamespace: true",
        &[
            "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ],
    );
    in_spec(
        "activeDeadlineSeconds: 0",
        &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
    );
    in_spec("hostUsers: false\nhostPID: true", &["spec.hostPID: Forbidden: when `hostUsers` is false"]);
}

#[test]
fn what_a_cluster_would_refuse_is_refused_here() {
    in_spec(
        "tolerations: [{operator: Gt, key: a}]",
        &[
            "spec.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"\", \"Equal\", \"Exists\"",
        ],
    );
    in_spec(
        "tolerations: [{key: a, operator: Exists, value: x}, {key: a, tolerationSeconds: 5}]",
        &[
            "spec.tolerations[0].operator: Invalid value: \"Exists\": value must be empty when `operator` is 'Exists'",
            "spec.tolerations[1].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ],
    );
    in_spec(
        "topologySpreadConstraints: [{}]",
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
        ],
    );
    in_spec(
        "nodeSelector: {a: -b}",
        &[
            "spec.nodeSelector[a]: Invalid value: \"-b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character, and have at most 63 characters",
        ],
    );
}
