//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1::{HTTPGetAction, Lifecycle, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::container::Surroundings;
use super::ports::{is_port, name_fault};
use super::words::{Refuse, one_of};
use crate::manifest::positions::{Findings, Path};
use crate::system::signal_names;

/// Which probe is checked; readiness is the one that may need several successes and ends nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// `livenessProbe` and `startupProbe`.
    Ending,
    /// `readinessProbe`.
    Readiness,
}

/// Checks one probe.
pub fn check(probe: &Probe, kind: ProbeKind, path: &Path, findings: &mut Findings<'_>) {
    let handlers =
        [probe.exec.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()];
    one_handler(&handlers, "exec, httpGet, tcpSocket or grpc", path, findings);
    if let Some(exec) = &probe.exec {
        exec_command(exec.command.as_deref().unwrap_or_default(), &path.field("exec"), findings);
    }
    if let Some(get) = &probe.http_get {
        http_get(get, &path.field("httpGet"), findings);
    }
    if let Some(socket) = &probe.tcp_socket {
        tcp_socket(socket, &path.field("tcpSocket"), findings);
    }
    if let Some(grpc) = probe.grpc.as_ref().filter(|grpc| !is_port(grpc.port)) {
        findings.invalid(
            &path.field("grpc").field("port"),
            grpc.port,
            "must be between 1 and 65535, inclusive",
        );
    }
    if let Some(grpc) = &probe.grpc {
        one_of(findings, &path.field("grpc").field("mode"), grpc.mode.as_deref(), &["Plaintext", "TLS"]);
    }
    for (name, seconds) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(seconds) = seconds.filter(|seconds| *seconds < 0) {
            findings.invalid(&path.field(name), seconds, "must be greater than or equal to 0");
        }
    }
    match (kind, probe.success_threshold) {
        (ProbeKind::Ending, Some(threshold)) if threshold > 1 => {
            findings.invalid(&path.field("successThreshold"), threshold, "must be 1");
        }
        _ => {}
    }
    if let Some(grace) = probe.termination_grace_period_seconds {
        let path = path.field("terminationGracePeriodSeconds");
        if kind == ProbeKind::Readiness {
            findings.invalid(&path, grace, "must not be set for readinessProbes");
        } else if grace <= 0 {
            findings.invalid(&path, grace, "must be greater than 0");
        }
    }
}

/// Checks the hooks of one container.
pub fn check_lifecycle(
    lifecycle: &Lifecycle,
    around: &Surroundings<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    for (name, handler) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(handler) = handler {
            check_handler(handler, around.grace, &path.field(name), findings);
        }
    }
    let Some(signal) = &lifecycle.stop_signal else { return };
    let path = path.field("stopSignal");
    if !around.has_os {
        findings.forbidden(&path, "may not be set for containers with empty `spec.os.name`");
    } else if !signal.starts_with("SIG") || signal_names::number(signal).is_none() {
        findings.invalid(
            &path,
            signal.as_str(),
            "must be the name of a signal, such as SIGTERM or SIGRTMIN+3",
        );
    }
}

fn check_handler(handler: &LifecycleHandler, grace: i64, path: &Path, findings: &mut Findings<'_>) {
    let handlers = [
        handler.exec.is_some(),
        handler.http_get.is_some(),
        handler.tcp_socket.is_some(),
        handler.sleep.is_some(),
    ];
    one_handler(&handlers, "exec, httpGet, tcpSocket or sleep", path, findings);
    if let Some(exec) = &handler.exec {
        exec_command(exec.command.as_deref().unwrap_or_default(), &path.field("exec"), findings);
    }
    if let Some(get) = &handler.http_get {
        http_get(get, &path.field("httpGet"), findings);
    }
    if let Some(socket) = &handler.tcp_socket {
        tcp_socket(socket, &path.field("tcpSocket"), findings);
    }
    // As the API has it, for both hooks; it counts a grace of less than a second as one.
    let most = grace.max(1);
    if let Some(sleep) = handler.sleep.as_ref().filter(|sleep| !(0..=most).contains(&sleep.seconds)) {
        let text = format!("must be between 0 and terminationGracePeriodSeconds, which is {most}");
        findings.invalid(&path.field("sleep").field("seconds"), sleep.seconds, &text);
    }
}

fn one_handler(set: &[bool], kinds: &str, path: &Path, findings: &mut Findings<'_>) {
    match set.iter().filter(|set| **set).count() {
        0 => findings.required(path, &format!("must specify a handler type: {kinds}")),
        1 => {}
        _ => findings.forbidden(path, "may not specify more than 1 handler type"),
    }
}

fn exec_command(command: &[String], path: &Path, findings: &mut Findings<'_>) {
    if command.is_empty() {
        findings.required(&path.field("command"), "");
    }
}

fn http_get(get: &HTTPGetAction, path: &Path, findings: &mut Findings<'_>) {
    port_or_name(&get.port, &path.field("port"), findings);
    one_of(findings, &path.field("scheme"), get.scheme.as_deref(), &["HTTP", "HTTPS"]);
    for (i, header) in get.http_headers.iter().flatten().enumerate() {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if header.name.is_empty() || !header.name.bytes().all(token) {
            let path = path.field("httpHeaders").index(i).field("name");
            findings.invalid(
                &path,
                header.name.as_str(),
                "a valid HTTP header must consist of alphanumeric characters, '-' or '_'",
            );
        }
    }
}

fn tcp_socket(socket: &TCPSocketAction, path: &Path, findings: &mut Findings<'_>) {
    port_or_name(&socket.port, &path.field("port"), findings);
}

/// `80` is a number and `"80"` a name, which needs a letter.
fn port_or_name(port: &IntOrString, path: &Path, findings: &mut Findings<'_>) {
    match port {
        IntOrString::Int(number) if !is_port(*number) => {
            findings.invalid(path, *number, "must be between 1 and 65535, inclusive");
        }
        IntOrString::Int(_) => {}
        IntOrString::String(name) => {
            if let Some(why) = name_fault(name) {
                let quoted = name.parse::<u16>().is_ok();
                let why = if quoted {
                    format!("{why}; remove the quotes to give a port number")
                } else {
                    why.to_owned()
                };
                findings.invalid(path, name.as_str(), &why);
            }
        }
    }
}
