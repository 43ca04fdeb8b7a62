//! The lines about probes in `podling describe pod`, as kubectl has them, with the latest result below each.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::age;
use crate::probe::ProbeKind;
use crate::server::wire::ProbeResult;

/// Names and values, in kubectl's order.
pub(super) fn lines(container: &Container, results: &[ProbeResult], now: Timestamp) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for kind in [ProbeKind::Liveness, ProbeKind::Readiness, ProbeKind::Startup] {
        let Some(probe) = kind.of(container) else { continue };
        lines.push((kind.word().to_owned(), format!("{} {}", action(probe), numbers(probe))));
        let last = results.iter().find(|r| r.container == container.name && r.probe == kind);
        if let Some(last) = last {
            lines.push(("  Last Result".to_owned(), result(last, now)));
        }
    }
    lines
}

fn action(probe: &Probe) -> String {
    let port = |port: &IntOrString| match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(exec) = &probe.exec {
        return format!("exec [{}]", exec.command.as_deref().unwrap_or_default().join(" "));
    }
    if let Some(get) = &probe.http_get {
        let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let path = text(&get.path);
        let slash = if path.starts_with('/') { "" } else { "/" };
        return format!("http-get {scheme}://{}:{}{slash}{path}", text(&get.host), port(&get.port));
    }
    if let Some(socket) = &probe.tcp_socket {
        return format!("tcp-socket {}:{}", text(&socket.host), port(&socket.port));
    }
    match &probe.grpc {
        Some(grpc) => format!("grpc <pod>:{} {}", grpc.port, text(&grpc.service)),
        None => "unknown".to_owned(),
    }
}

fn numbers(probe: &Probe) -> String {
    format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        probe.initial_delay_seconds.unwrap_or(0),
        probe.timeout_seconds.unwrap_or(1),
        probe.period_seconds.unwrap_or(10),
        probe.success_threshold.unwrap_or(1),
        probe.failure_threshold.unwrap_or(3),
    )
}

fn result(last: &ProbeResult, now: Timestamp) -> String {
    let ago = age::since(Some(last.at), now);
    let what = match last.message.lines().next() {
        Some(message) => format!("{}: {message}", last.outcome),
        None => last.outcome.clone(),
    };
    format!("{what} ({ago} ago, {} in a row)", last.streak.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_shown_as_kubectl_shows_them_with_their_latest_result() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "web",
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "readinessProbe": {"exec": {"command": ["cat", "/tmp/ok"]}, "initialDelaySeconds": 5, "periodSeconds": 2},
            "startupProbe": {"grpc": {"port": 9000, "service": "db"}},
        }))
        .unwrap();
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let failed = ProbeResult {
            container: "web".into(),
            probe: ProbeKind::Readiness,
            at: "2026-01-01T00:00:07Z".parse().unwrap(),
            outcome: "failed".into(),
            message: "no file\nof that name".into(),
            streak: 4,
        };
        let other = ProbeResult { container: "db".into(), ..failed.clone() };
        let lines: Vec<String> =
            lines(&container, &[other, failed], now).iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(
            lines,
            [
                "Liveness: http-get http://:8080/healthz delay=0s timeout=1s period=10s #success=1 #failure=3",
                "Readiness: exec [cat /tmp/ok] delay=5s timeout=1s period=2s #success=1 #failure=3",
                "  Last Result: failed: no file (3s ago, 4 in a row)",
                "Startup: grpc <pod>:9000 db delay=0s timeout=1s period=10s #success=1 #failure=3",
            ]
        );
    }
}
