//! The pod's spec as a whole.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec, Toleration};

use super::container::Surroundings;
use super::words::{
    LABEL, Refuse, SUBDOMAIN, is_ip, is_label, is_subdomain, label, labels, one_of, qualified, unique,
};
use super::{container, mounts, node_affinity, ports, resources, security, volumes};
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

/// Most name servers, search domains and characters of all search domains that resolvers take.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// The kernel's limit for a host name.
const MAX_HOSTNAME: usize = 64;

/// Checks a spec.
pub fn check(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let volumes = volumes::check(spec, path, findings);
    containers(spec, &volumes, path, findings);
    let policy = spec.restart_policy.as_deref();
    one_of(findings, &path.field("restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
    dns(spec, path, findings);
    host(spec, path, findings);
    security::pod(spec, path, findings);
    if let Some(resources) = &spec.resources {
        resources::check(resources, &path.field("resources"), findings);
        resources::pod_level(spec, resources, &path.field("resources"), findings);
    }
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        findings.invalid(
            &path.field("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    if let Some(os) = &spec.os {
        one_of(findings, &path.field("os").field("name"), Some(&os.name), &["linux", "windows"]);
        if os.name == "linux" {
            security::not_of_windows(spec, path, findings);
        }
    }
    cluster(spec, path, findings);
}

fn containers(spec: &PodSpec, volumes: &HashSet<&str>, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("containers");
    if spec.containers.is_empty() {
        findings.required(&at, "a pod needs at least one container");
    }
    let context = spec.security_context.as_ref();
    let empty = spec.volumes.iter().flatten().filter(|v| v.empty_dir.is_some());
    let empty_dirs: HashSet<&str> = empty.map(|v| v.name.as_str()).collect();
    let mut around = Surroundings {
        volumes,
        empty_dirs: &empty_dirs,
        host_network: spec.host_network == Some(true),
        has_os: spec.os.as_ref().is_some_and(|os| !os.name.is_empty()),
        grace: spec.termination_grace_period_seconds.unwrap_or(30),
        user_namespace: spec.host_users == Some(false),
        pod_non_root: context.is_some_and(|context| context.run_as_non_root == Some(true)),
        init: true,
    };
    let init_at = path.field("initContainers");
    let init = || spec.init_containers.iter().flatten().enumerate().map(|(i, c)| (c, init_at.index(i)));
    let regular = || spec.containers.iter().enumerate().map(|(i, c)| (c, at.index(i)));
    for (container, path) in init() {
        container::check(container, &around, &path, findings);
        container::resize(container, spec.restart_policy.as_deref(), &path, findings);
        mounts::check_devices(container, spec.volumes.as_deref().unwrap_or_default(), &path, findings);
        // Init containers run one after another, so each is looked at alone.
        ports::check_host_ports(std::iter::once((container, path)), findings);
    }
    around.init = false;
    for (container, path) in regular() {
        container::check(container, &around, &path, findings);
        container::resize(container, spec.restart_policy.as_deref(), &path, findings);
        mounts::check_devices(container, spec.volumes.as_deref().unwrap_or_default(), &path, findings);
    }
    ports::check_host_ports(regular(), findings);
    let names = init().chain(regular()).filter(|(c, _)| !c.name.is_empty());
    unique(names.map(|(c, path)| (c.name.as_str(), path.field("name"))), |name, at, first| {
        findings.duplicate(at, *name, &first.to_string());
    });
}

fn dns(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let policy = spec.dns_policy.as_deref();
    let allowed = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of(findings, &path.field("dnsPolicy"), policy, allowed);
    let at = path.field("dnsConfig");
    let servers =
        spec.dns_config.as_ref().and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if policy == Some("None") && servers.is_empty() {
        findings.required(
            &at.field("nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        );
    }
    if let Some(config) = &spec.dns_config {
        dns_config(config, &at, findings);
    }
}

fn dns_config(config: &PodDNSConfig, path: &Path, findings: &mut Findings<'_>) {
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let at = path.field("nameservers");
    if servers.len() > MAX_NAMESERVERS {
        let text = format!("Too many: {}: must have at most {MAX_NAMESERVERS} nameservers", servers.len());
        findings.error(Code::Invalid, &at, text);
    }
    for (i, server) in servers.iter().enumerate().filter(|(_, server)| !is_ip(server)) {
        findings.invalid(
            &at.index(i),
            server.as_str(),
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let at = path.field("searches");
    let chars = searches.iter().map(|s| s.len() + 1).sum::<usize>().saturating_sub(1);
    if searches.len() > MAX_SEARCHES || chars > MAX_SEARCH_CHARS {
        let text = format!(
            "Too many: {} domains of {chars} characters: must have at most {MAX_SEARCHES} of {MAX_SEARCH_CHARS}",
            searches.len()
        );
        findings.error(Code::Invalid, &at, text);
    }
    for (i, search) in searches.iter().enumerate() {
        // `.` alone and a trailing dot are legal in a search list, and so are underscores.
        let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        if search != "." && !is_subdomain(name.trim_matches('-')) {
            findings.invalid(&at.index(i), search.as_str(), SUBDOMAIN);
        }
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().is_none_or(str::is_empty) {
            findings.required(&path.field("options").index(i).field("name"), "must not be empty");
        }
    }
}

fn host(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    for (field, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = value.as_deref().filter(|name| !name.is_empty() && !is_label(name)) {
            findings.invalid(&path.field(field), name, LABEL);
        }
    }
    hostname_override(spec, path, findings);
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        findings.invalid(
            &path.field("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = path.field("hostAliases").index(i);
        match alias.ip.as_str() {
            "" => findings.required(&path.field("ip"), ""),
            ip if !is_ip(ip) => {
                findings.invalid(
                    &path.field("ip"),
                    ip,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                );
            }
            _ => {}
        }
        for (n, name) in alias.hostnames.iter().flatten().enumerate().filter(|(_, name)| !is_subdomain(name))
        {
            findings.invalid(&path.field("hostnames").index(n), name.as_str(), SUBDOMAIN);
        }
    }
    if spec.host_users == Some(false) {
        for (field, set) in
            [("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc), ("hostNetwork", spec.host_network)]
        {
            if set == Some(true) {
                findings.forbidden(&path.field(field), "when `hostUsers` is false");
            }
        }
        let lists =
            [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&spec.containers[..]))];
        for (list, containers) in lists {
            for (i, container) in containers.unwrap_or_default().iter().enumerate() {
                if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
                    let at = path.field(list).index(i).field("volumeDevices");
                    findings.forbidden(&at, "when `hostUsers` is false");
                }
            }
        }
    }
}

fn hostname_override(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let Some(name) = spec.hostname_override.as_deref() else { return };
    let at = path.field("hostnameOverride");
    if name.len() > MAX_HOSTNAME {
        let text = format!("must be no more than {MAX_HOSTNAME} characters");
        findings.invalid(&at, name, &text);
    } else if !is_subdomain(name) {
        findings.invalid(&at, name, SUBDOMAIN);
    }
    for (field, set) in [("setHostnameAsFQDN", spec.set_hostname_as_fqdn), ("hostNetwork", spec.host_network)]
    {
        if set == Some(true) {
            findings.forbidden(&path.field(field), "when `hostnameOverride` is set");
        }
    }
}

/// Labels by which a pod chooses the operating system of its node; the second one is of old manifests.
const OS_LABELS: &[&str] = &["kubernetes.io/os", "beta.kubernetes.io/os"];

/// What only means something in a cluster, but is refused by the API when it is wrong.
fn cluster(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    if let Some(map) = &spec.node_selector {
        let path = path.field("nodeSelector");
        labels(findings, &path, map);
        for key in OS_LABELS.iter().filter(|key| map.get(**key).is_some_and(|os| os == "windows")) {
            findings.invalid(&path.key(key), "windows", "this node runs Linux containers only");
        }
    }
    node_affinity::check(spec, path, findings);
    for (field, value) in [
        ("serviceAccountName", &spec.service_account_name),
        ("priorityClassName", &spec.priority_class_name),
        ("schedulerName", &spec.scheduler_name),
        ("runtimeClassName", &spec.runtime_class_name),
    ] {
        if let Some(name) = value.as_deref().filter(|name| !name.is_empty() && !is_subdomain(name)) {
            findings.invalid(&path.field(field), name, SUBDOMAIN);
        }
    }
    let policy = spec.preemption_policy.as_deref();
    one_of(findings, &path.field("preemptionPolicy"), policy, &["Never", "PreemptLowerPriority"]);
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(toleration, &path.field("tolerations").index(i), findings);
    }
    for (i, spread) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let path = path.field("topologySpreadConstraints").index(i);
        if spread.max_skew <= 0 {
            findings.invalid(&path.field("maxSkew"), spread.max_skew, "must be greater than zero");
        }
        if spread.topology_key.is_empty() {
            findings.required(&path.field("topologyKey"), "can not be empty");
        }
        let allowed = &["DoNotSchedule", "ScheduleAnyway"];
        one_of(findings, &path.field("whenUnsatisfiable"), Some(&spread.when_unsatisfiable), allowed);
    }
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let at = path.field("readinessGates").index(i).field("conditionType");
        qualified(findings, &at, &gate.condition_type);
    }
    for (i, gate) in spec.scheduling_gates.iter().flatten().enumerate() {
        qualified(findings, &path.field("schedulingGates").index(i).field("name"), &gate.name);
    }
    for (i, claim) in spec.resource_claims.iter().flatten().enumerate() {
        label(findings, &path.field("resourceClaims").index(i).field("name"), &claim.name);
    }
}

fn check_toleration(toleration: &Toleration, path: &Path, findings: &mut Findings<'_>) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (key, operator, effect) =
        (text(&toleration.key), text(&toleration.operator), text(&toleration.effect));
    if !key.is_empty() {
        qualified(findings, &path.field("key"), &key);
    } else if operator != "Exists" {
        findings.invalid(
            &path.field("operator"),
            operator.as_str(),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    one_of(findings, &path.field("operator"), Some(&operator), &["", "Equal", "Exists"]);
    if operator == "Exists" && toleration.value.as_deref().is_some_and(|value| !value.is_empty()) {
        findings.invalid(
            &path.field("operator"),
            operator.as_str(),
            "value must be empty when `operator` is 'Exists'",
        );
    }
    let effects = &["", "NoExecute", "NoSchedule", "PreferNoSchedule"];
    one_of(findings, &path.field("effect"), Some(&effect), effects);
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        findings.invalid(
            &path.field("effect"),
            effect.as_str(),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        );
    }
}
