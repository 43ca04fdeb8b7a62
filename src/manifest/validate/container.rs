//! One container.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::probes::{self, ProbeKind};
use super::words::{LABEL, Refuse, is_label, one_of};
use super::{env, image, mounts, ports, resources, security, unfilled};
use crate::image::{NO_CREDENTIALS, credentials};
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

/// Longest argument or `NAME=value` the kernel takes, in bytes, its final NUL included
/// (`MAX_ARG_STRLEN`, 32 pages).
pub(super) const MAX_ARG: usize = 128 * 1024;

/// What a container's rules depend on.
pub struct Surroundings<'a> {
    /// Names of the pod's volumes.
    pub volumes: &'a HashSet<&'a str>,
    /// Those of them that are of type emptyDir.
    pub empty_dirs: &'a HashSet<&'a str>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// Whether `spec.os.name` is set.
    pub has_os: bool,
    /// `spec.terminationGracePeriodSeconds`, with its default.
    pub grace: i64,
    /// Whether the pod has a user namespace of its own (`hostUsers: false`).
    pub user_namespace: bool,
    /// `runAsNonRoot` of the pod.
    pub pod_non_root: bool,
    /// Whether it is one of `initContainers`.
    pub init: bool,
}

/// Most entries of `restartPolicyRules`, and of the exit codes of one, as the API has it.
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Checks one container.
pub fn check(container: &Container, around: &Surroundings<'_>, path: &Path, findings: &mut Findings<'_>) {
    name_and_image(container, path, findings);
    for (field, words) in [("command", &container.command), ("args", &container.args)] {
        for (i, word) in words.iter().flatten().enumerate() {
            argument(word, &path.field(field).index(i), findings);
        }
    }
    unfilled::check(container, path, findings);
    let environment = container.env.as_deref().unwrap_or_default();
    for (i, variable) in environment.iter().enumerate() {
        env::variable(variable, around.empty_dirs, &path.field("env").index(i), findings);
    }
    for (i, from) in container.env_from.iter().flatten().enumerate() {
        env::env_from(from, &path.field("envFrom").index(i), findings);
    }
    ports::check(
        container.ports.as_deref().unwrap_or_default(),
        around.host_network,
        &path.field("ports"),
        findings,
    );
    if let Some(resources) = &container.resources {
        resources::check(resources, &path.field("resources"), findings);
    }
    mounts::check(container, around.volumes, path, findings);
    if let Some(context) = &container.security_context {
        security::container(context, around, &path.field("securityContext"), findings);
    }
    hooks_and_probes(container, around, path, findings);
    port_names(container, path, findings);
    restart(container, around, path, findings);
    policies(container, path, findings);
}

fn name_and_image(container: &Container, path: &Path, findings: &mut Findings<'_>) {
    if container.name.is_empty() {
        findings.required(&path.field("name"), "");
    } else if !is_label(&container.name) {
        findings.invalid(&path.field("name"), container.name.as_str(), LABEL);
    }
    match container.image.as_deref() {
        None | Some("") => findings.required(&path.field("image"), ""),
        Some(name) => {
            if let Some(rest) = credentials(name) {
                findings.invalid(&path.field("image"), format!("***@{rest}").as_str(), NO_CREDENTIALS);
            } else if let Some(why) = image::fault(name) {
                findings.invalid(&path.field("image"), name, why);
            }
        }
    }
}

fn policies(container: &Container, path: &Path, findings: &mut Findings<'_>) {
    let policy = container.image_pull_policy.as_deref();
    one_of(findings, &path.field("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    let policy = container.termination_message_policy.as_deref();
    one_of(findings, &path.field("terminationMessagePolicy"), policy, &["FallbackToLogsOnError", "File"]);
    for (i, resize) in container.resize_policy.iter().flatten().enumerate() {
        let path = path.field("resizePolicy").index(i);
        one_of(findings, &path.field("resourceName"), Some(&resize.resource_name), &["cpu", "memory"]);
        let allowed = &["NotRequired", "RestartContainer"];
        one_of(findings, &path.field("restartPolicy"), Some(&resize.restart_policy), allowed);
    }
}

fn argument(word: &str, path: &Path, findings: &mut Findings<'_>) {
    if word.contains('\0') {
        findings.invalid(path, word, "must not contain NUL");
    } else if word.len() >= MAX_ARG {
        let size = word.len();
        let why = format!(
            "is {size} bytes long: the kernel starts no program with an argument of {MAX_ARG} bytes or more"
        );
        findings.invalid(path, word, &why);
    }
}

fn hooks_and_probes(
    container: &Container,
    around: &Surroundings<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let plain_init = around.init && !sidecar;
    let probes = [
        ("livenessProbe", &container.liveness_probe, ProbeKind::Ending),
        ("readinessProbe", &container.readiness_probe, ProbeKind::Readiness),
        ("startupProbe", &container.startup_probe, ProbeKind::Ending),
    ];
    for (field, probe, kind) in probes {
        let Some(probe) = probe else { continue };
        let path = path.field(field);
        if plain_init {
            findings.forbidden(&path, "may not be set for init containers without restartPolicy=Always");
        }
        probes::check(probe, kind, &path, findings);
    }
    if let Some(lifecycle) = &container.lifecycle {
        let path = path.field("lifecycle");
        if plain_init {
            findings.forbidden(&path, "may not be set for init containers without restartPolicy=Always");
        }
        probes::check_lifecycle(lifecycle, around, &path, findings);
    }
}

/// Probes and hooks that go to a port by a name which is none of the container's: the API takes them, and they
/// fail each time.
fn port_names(container: &Container, path: &Path, findings: &mut Findings<'_>) {
    let mut used: Vec<(Path, &IntOrString)> = Vec::new();
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (field, probe) in probes {
        let Some(probe) = probe else { continue };
        used.extend(probe.http_get.iter().map(|get| (path.field(field).field("httpGet"), &get.port)));
        used.extend(probe.tcp_socket.iter().map(|to| (path.field(field).field("tcpSocket"), &to.port)));
    }
    if let Some(lifecycle) = &container.lifecycle {
        for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
            let get = hook.iter().filter_map(|hook| hook.http_get.as_ref());
            used.extend(get.map(|get| (path.field("lifecycle").field(field).field("httpGet"), &get.port)));
        }
    }
    let known: Vec<&str> = container.ports.iter().flatten().filter_map(|p| p.name.as_deref()).collect();
    for (path, port) in used {
        let IntOrString::String(name) = port else { continue };
        if ports::name_fault(name).is_none() && !known.contains(&name.as_str()) {
            let text = match known.as_slice() {
                [] => format!(
                    "{name} is no port of this container, so it fails each time; name one under ports"
                ),
                known => {
                    let known = known.join(", ");
                    format!(
                        "{name} is no port of this container, so it fails each time; its ports are {known}"
                    )
                }
            };
            findings.warn(Code::NoEffect, &path.field("port"), text);
        }
    }
}

/// `resizePolicy`: each of cpu and memory once, and no restarts where the pod has none.
pub(super) fn resize(
    container: &Container,
    pod_policy: Option<&str>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let policies = container.resize_policy.as_deref().unwrap_or_default();
    for (i, policy) in policies.iter().enumerate() {
        let path = path.field("resizePolicy").index(i);
        one_of(findings, &path.field("resourceName"), Some(&policy.resource_name), &["cpu", "memory"]);
        let allowed = &["NotRequired", "RestartContainer"];
        one_of(findings, &path.field("restartPolicy"), Some(&policy.restart_policy), allowed);
        if policies[..i].iter().any(|p| p.resource_name == policy.resource_name) {
            findings.duplicate(&path, policy.resource_name.as_str(), "resizePolicy");
        }
        if pod_policy == Some("Never") && policy.restart_policy == "RestartContainer" {
            findings.invalid(
                &path.field("restartPolicy"),
                policy.restart_policy.as_str(),
                "must be NotRequired when the pod's `restartPolicy` is Never",
            );
        }
    }
}

fn restart(container: &Container, around: &Surroundings<'_>, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("restartPolicy");
    let policy = container.restart_policy.as_deref();
    one_of(findings, &at, policy, &["Always", "Never", "OnFailure"]);
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    if !rules.is_empty() && policy.is_none() && !around.init {
        findings.required(&at, "must be set when restartPolicyRules are");
    }
    if rules.len() > RULES_MAX {
        let count = rules.len() as i64;
        findings.invalid(
            &path.field("restartPolicyRules"),
            count,
            &format!("must have at most {RULES_MAX} items"),
        );
    }
    for (i, rule) in rules.iter().enumerate() {
        restart_rule(rule, &path.field("restartPolicyRules").index(i), findings);
    }
}

fn restart_rule(rule: &ContainerRestartRule, path: &Path, findings: &mut Findings<'_>) {
    one_of(findings, &path.field("action"), Some(&rule.action), &["Restart", "RestartAllContainers"]);
    let path = path.field("exitCodes");
    match &rule.exit_codes {
        None => findings.required(&path, "must be specified"),
        Some(codes) => {
            one_of(findings, &path.field("operator"), Some(&codes.operator), &["In", "NotIn"]);
            exit_codes(codes.values.as_deref().unwrap_or_default(), &path.field("values"), findings);
        }
    }
}

fn exit_codes(values: &[i32], path: &Path, findings: &mut Findings<'_>) {
    if values.is_empty() {
        findings.required(path, "at least one exit code is needed");
    }
    if values.len() > EXIT_CODES_MAX {
        findings.invalid(path, values.len() as i64, &format!("must have at most {EXIT_CODES_MAX} items"));
    }
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            findings.invalid(&path.index(i), *value, "stands in the list already");
        }
    }
}
