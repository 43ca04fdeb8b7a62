//! `podling describe pod`: all that is known about a pod, in kubectl's layout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, EnvVarSource, Event, Pod, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::args::{Describe, pod_name};
use super::client::Client;
use super::error::{CliError, say};
use super::get::problem_line;
use super::table::{Table, plain, row};
use super::{Outcome, age, printer};
use crate::server::query::{Query, encode};
use crate::server::wire::{NodeStatus, PodDetails, ProbeResult};

pub(super) async fn describe(client: Client, namespace: String, args: Describe) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for (i, name) in targets(&args.target)?.into_iter().enumerate() {
        let path = format!("/podling/v1/namespaces/{}/pods/{}", encode(&namespace), encode(&name));
        let none = Query::default();
        let details: PodDetails = match client.get(&path, &none).await {
            Ok(details) => details,
            Err(error) if error.is_not_found() => {
                say(&error.to_string());
                code = ExitCode::FAILURE;
                continue;
            }
            Err(error) => return Err(error),
        };
        let path = format!("/api/v1/namespaces/{}/events", encode(&namespace));
        let events: List<Event> = client.get(&path, &none).await?;
        let status: NodeStatus = client.get("/podling/v1/status", &none).await?;
        let gap = if i > 0 { "\n\n" } else { "" };
        let text = page(&details, &events.items, &status, Timestamp::now());
        std::io::stdout().lock().write_all(format!("{gap}{}", plain(&text)).as_bytes())?;
    }
    Ok(code)
}

/// `pod web`, `pods web db`, `pod/web`.
fn targets(words: &[String]) -> Result<Vec<String>, CliError> {
    match words {
        [kind, names @ ..] if matches!(kind.as_str(), "pod" | "pods" | "po") && !names.is_empty() => {
            names.iter().map(|n| pod_name(n).map(str::to_owned)).collect()
        }
        words if words.iter().all(|w| w.contains('/')) => {
            words.iter().map(|w| pod_name(w).map(str::to_owned)).collect()
        }
        _ => Err(CliError::Usage("describe what? Say `podling describe pod NAME`".to_owned())),
    }
}

/// Column at which the values of the head begin.
const HEAD: usize = 18;

struct Page {
    out: String,
}

impl Page {
    /// `Name:   value`, the value in the column that `width` gives, behind `indent` blanks.
    fn line(&mut self, indent: usize, width: usize, name: &str, value: &str) {
        let name = format!("{name}:");
        let line = format!("{:indent$}{name:width$}{value}", "");
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn head(&mut self, name: &str, value: &str) {
        self.line(0, HEAD, name, value);
    }

    /// The first value beside the name, the others below it.
    fn many(&mut self, name: &str, values: &[String]) {
        self.head(name, values.first().map_or("<none>", |v| v.as_str()));
        for value in values.iter().skip(1) {
            let _ = writeln!(self.out, "{:HEAD$}{value}", "");
        }
    }
}

fn page(details: &PodDetails, events: &[Event], status: &NodeStatus, now: Timestamp) -> String {
    let pod = &details.pod;
    let mut page = Page { out: String::new() };
    head(&mut page, pod);
    manifest(&mut page, details, status);
    let spec = pod.spec.clone().unwrap_or_default();
    let state = pod.status.clone().unwrap_or_default();
    let init = spec.init_containers.unwrap_or_default();
    if !init.is_empty() {
        page.out.push_str("Init Containers:\n");
        let states = state.init_container_statuses.as_deref().unwrap_or_default();
        containers(&mut page, &init, states, &details.probes, now);
    }
    page.out.push_str("Containers:\n");
    let states = state.container_statuses.as_deref().unwrap_or_default();
    containers(&mut page, &spec.containers, states, &details.probes, now);
    conditions(&mut page, pod);
    volumes(&mut page, &spec.volumes.unwrap_or_default());
    let qos = state.qos_class.as_deref().unwrap_or("<none>");
    page.head("QoS Class", qos);
    event_table(&mut page, pod, events, now);
    page.out
}

fn head(page: &mut Page, pod: &Pod) {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "<none>".to_owned());
    let pairs = |map: &Option<std::collections::BTreeMap<String, String>>, sign: &str| -> Vec<String> {
        map.iter().flatten().map(|(k, v)| format!("{k}{sign}{v}")).collect()
    };
    let meta = &pod.metadata;
    let status = pod.status.clone().unwrap_or_default();
    page.head("Name", &text(&meta.name));
    page.head("Namespace", &text(&meta.namespace));
    page.head("UID", &text(&meta.uid));
    page.head("Node", &text(&pod.spec.as_ref().and_then(|s| s.node_name.clone())));
    page.head("Start Time", &time(status.start_time.as_ref()));
    page.many("Labels", &pairs(&meta.labels, "="));
    page.many("Annotations", &pairs(&meta.annotations, ": "));
    page.head("Status", &printer::status_word(pod));
    if let Some(reason) = status.reason.filter(|r| !r.is_empty()) {
        page.head("Reason", &reason);
    }
    if let Some(message) = status.message.filter(|m| !m.is_empty()) {
        page.head("Message", &message);
    }
    page.head("IP", &text(&status.pod_ip));
}

/// The file behind the pod, the hash in force, and what podling has to say about either.
fn manifest(page: &mut Page, details: &PodDetails, status: &NodeStatus) {
    page.head("Manifest", &format!("{}:{}", details.file.display(), details.line));
    page.head("Manifest Hash", &details.hash);
    let own = |key: &crate::manifest::PodKey| {
        Some(&key.name) == details.pod.metadata.name.as_ref()
            && Some(&key.namespace) == details.pod.metadata.namespace.as_ref()
    };
    let accepted = details.warnings.iter().map(|d| {
        let path = if d.path.is_empty() { String::new() } else { format!("{}: ", d.path) };
        format!("{}:{}:{}: {path}{}", details.file.display(), d.line, d.column, d.text)
    });
    let problems = status.sources.values().flat_map(|r| &r.problems);
    let problems = problems.filter(|p| p.path == details.file || p.keeps.iter().any(own));
    let problems = problems.map(|p| problem_line(p).trim_start_matches("warning: ").to_owned());
    let warnings: Vec<String> = problems.chain(accepted).collect();
    if !warnings.is_empty() {
        page.many("Warnings", &warnings);
    }
    let pulls: Vec<String> = details.pulls.iter().map(|p| format!("{}: {}", p.image, p.progress)).collect();
    if !pulls.is_empty() {
        page.many("Pulling", &pulls);
    }
}

fn time(time: Option<&Time>) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |t| t.0.to_string())
}

/// Column at which the values of a container begin, and how far its names stand in.
const BODY: usize = 17;
const INDENT: usize = 4;

fn containers(
    page: &mut Page,
    specs: &[Container],
    states: &[ContainerStatus],
    results: &[ProbeResult],
    now: Timestamp,
) {
    for spec in specs {
        let state = states.iter().find(|s| s.name == spec.name);
        let _ = writeln!(page.out, "  {}:", spec.name);
        container(page, spec, state);
        for (name, value) in super::probes::lines(spec, results, now) {
            page.line(INDENT, BODY, &name, &value);
        }
        environment_from(page, spec);
        environment(page, spec);
        mounts(page, spec);
    }
}

fn container(page: &mut Page, spec: &Container, state: Option<&ContainerStatus>) {
    let id = state.and_then(|s| s.container_id.as_deref()).unwrap_or_default();
    page.line(INDENT, BODY, "Container ID", id);
    page.line(INDENT, BODY, "Image", spec.image.as_deref().unwrap_or_default());
    page.line(INDENT, BODY, "Image ID", state.map_or("", |s| &s.image_id));
    let ports: Vec<String> = spec.ports.iter().flatten().map(port).collect();
    page.line(INDENT, BODY, "Ports", &none_if_empty(ports.join(", ")));
    for (name, words) in [("Command", &spec.command), ("Args", &spec.args)] {
        let Some(words) = words.as_ref().filter(|w| !w.is_empty()) else { continue };
        page.line(INDENT, BODY, name, "");
        for word in words {
            let _ = writeln!(page.out, "{:6}{word}", "");
        }
    }
    if let Some(state) = state {
        show_state(page, "State", state.state.as_ref());
        show_state(
            page,
            "Last State",
            state.last_state.as_ref().filter(|s| **s != ContainerState::default()),
        );
        let ready = if state.ready { "True" } else { "False" };
        page.line(INDENT, BODY, "Ready", ready);
        page.line(INDENT, BODY, "Restart Count", &state.restart_count.to_string());
    }
    let resources = spec.resources.clone().unwrap_or_default();
    for (name, amounts) in [("Limits", resources.limits), ("Requests", resources.requests)] {
        let Some(amounts) = amounts.filter(|a| !a.is_empty()) else { continue };
        page.line(INDENT, BODY, name, "");
        for (resource, amount) in amounts {
            page.line(INDENT + 2, BODY - 2, &resource, &amount.0);
        }
    }
}

fn none_if_empty(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

fn port(port: &k8s_openapi::api::core::v1::ContainerPort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    match port.host_port {
        Some(host) if host != 0 => format!("{}/{protocol} (host {host})", port.container_port),
        _ => format!("{}/{protocol}", port.container_port),
    }
}

fn show_state(page: &mut Page, name: &str, state: Option<&ContainerState>) {
    let Some(state) = state else { return };
    let mut inner = Vec::new();
    let word = if let Some(running) = &state.running {
        inner.push(("Started", time(running.started_at.as_ref())));
        "Running"
    } else if let Some(end) = &state.terminated {
        inner.push(("Reason", end.reason.clone().unwrap_or_default()));
        inner.push(("Message", end.message.clone().unwrap_or_default()));
        inner.push(("Exit Code", end.exit_code.to_string()));
        inner.push(("Signal", end.signal.filter(|s| *s != 0).map(|s| s.to_string()).unwrap_or_default()));
        inner.push(("Started", time(end.started_at.as_ref())));
        inner.push(("Finished", time(end.finished_at.as_ref())));
        "Terminated"
    } else {
        if let Some(waiting) = &state.waiting {
            inner.push(("Reason", waiting.reason.clone().unwrap_or_default()));
            inner.push(("Message", waiting.message.clone().unwrap_or_default()));
        }
        "Waiting"
    };
    page.line(INDENT, BODY, name, word);
    for (name, value) in inner.into_iter().filter(|(_, v)| !v.is_empty()) {
        page.line(INDENT + 2, BODY - 2, name, &value);
    }
}

fn environment(page: &mut Page, spec: &Container) {
    let variables = spec.env.as_deref().unwrap_or_default();
    if variables.is_empty() {
        return page.line(INDENT, BODY, "Environment", "<none>");
    }
    page.line(INDENT, BODY, "Environment", "");
    for variable in variables {
        let source = variable.value_from.as_ref().map(variable_source);
        let value = source.unwrap_or_else(|| variable.value.clone().unwrap_or_default());
        page.line(INDENT + 2, BODY - 2, &variable.name, &format!(" {value}"));
    }
}

/// Where the value of a variable comes from, in kubectl's words; never the value, which may be secret.
fn variable_source(from: &EnvVarSource) -> String {
    let key = |key: &str, kind: &str, name: &str, optional: Option<bool>| {
        format!("<set to the key '{key}' {kind} '{name}'>  Optional: {}", optional == Some(true))
    };
    if let Some(field) = &from.field_ref {
        return format!(" ({}:{})", field.api_version.as_deref().unwrap_or("v1"), field.field_path);
    }
    if let Some(resource) = &from.resource_field_ref {
        let container = resource.container_name.as_ref().map(|name| format!("{name}:")).unwrap_or_default();
        return format!(" ({container}{})", resource.resource);
    }
    if let Some(secret) = &from.secret_key_ref {
        return key(&secret.key, "in secret", &secret.name, secret.optional);
    }
    if let Some(map) = &from.config_map_key_ref {
        return key(&map.key, "of config map", &map.name, map.optional);
    }
    from.file_key_ref.as_ref().map_or_else(String::new, |file| {
        key(&file.key, &format!("of file '{}' in volume", file.path), &file.volume_name, file.optional)
    })
}

/// The objects whose keys all become variables.
fn environment_from(page: &mut Page, spec: &Container) {
    let sources = spec.env_from.as_deref().unwrap_or_default();
    if sources.is_empty() {
        return;
    }
    page.line(INDENT, BODY, "Environment Variables from", "");
    for from in sources {
        let map = from.config_map_ref.as_ref().map(|r| ("ConfigMap", &r.name, r.optional));
        let secret = from.secret_ref.as_ref().map(|r| ("Secret", &r.name, r.optional));
        let Some((kind, name, optional)) = map.or(secret) else { continue };
        let prefix = from.prefix.as_deref().filter(|p| !p.is_empty());
        let prefix = prefix.map(|p| format!(" with prefix '{p}'")).unwrap_or_default();
        let text = format!("{kind}{prefix}  Optional: {}", optional == Some(true));
        page.line(INDENT + 2, BODY - 2, name, &text);
    }
}

fn mounts(page: &mut Page, spec: &Container) {
    let mounts = spec.volume_mounts.as_deref().unwrap_or_default();
    if mounts.is_empty() {
        return page.line(INDENT, BODY, "Mounts", "<none>");
    }
    page.line(INDENT, BODY, "Mounts", "");
    for mount in mounts {
        let mode = if mount.read_only == Some(true) { "ro" } else { "rw" };
        let sub = mount.sub_path.as_ref().map(|p| format!(",path={p:?}")).unwrap_or_default();
        let _ = writeln!(page.out, "      {} from {} ({mode}{sub})", mount.mount_path, mount.name);
    }
}

fn conditions(page: &mut Page, pod: &Pod) {
    let list = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let mut rows = vec![row(["  Type", "Status"])];
    let mut reasons = Vec::new();
    for condition in list {
        rows.push(vec![format!("  {}", condition.type_), condition.status.clone()]);
        if let Some(message) = condition.message.as_ref().filter(|m| !m.is_empty()) {
            reasons.push(format!("  {}: {message}\n", condition.type_));
        }
    }
    page.out.push_str("Conditions:\n");
    page.out.push_str(&Table::default().render(&rows));
    // kubectl hides these; they are what a person asks next.
    page.out.extend(reasons);
}

fn volumes(page: &mut Page, volumes: &[Volume]) {
    if volumes.is_empty() {
        return page.head("Volumes", "<none>");
    }
    page.out.push_str("Volumes:\n");
    for volume in volumes {
        let _ = writeln!(page.out, "  {}:", volume.name);
        // Each kind is one field of the object, with its settings below.
        let Ok(Value::Object(fields)) = serde_json::to_value(volume) else { continue };
        for (kind, settings) in fields.iter().filter(|(k, _)| *k != "name") {
            page.line(INDENT, BODY, "Type", kind);
            for (name, value) in settings.as_object().into_iter().flatten() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                page.line(INDENT, BODY, name, &text);
            }
        }
    }
}

fn event_table(page: &mut Page, pod: &Pod, events: &[Event], now: Timestamp) {
    let own = |e: &&Event| {
        e.involved_object.kind.as_deref() == Some("Pod") && e.involved_object.name == pod.metadata.name
    };
    let mut rows = vec![
        row(["  Type", "Reason", "Age", "From", "Message"]),
        row(["  ----", "------", "----", "----", "-------"]),
    ];
    for event in events.iter().filter(own) {
        let text = |s: &Option<String>| s.clone().unwrap_or_default();
        let last = age::since(event.last_timestamp.as_ref().map(|t| t.0), now);
        let age = match event.count.unwrap_or(1) {
            1 => last,
            n => {
                format!("{last} (x{n} over {})", age::since(event.first_timestamp.as_ref().map(|t| t.0), now))
            }
        };
        let from = event.source.as_ref().and_then(|s| s.component.clone()).unwrap_or_default();
        rows.push(vec![
            format!("  {}", text(&event.type_)),
            text(&event.reason),
            age,
            from,
            // Nothing of it is cut off here.
            text(&event.message).split('\n').map(str::trim).collect::<Vec<_>>().join(" "),
        ]);
    }
    if rows.len() == 2 {
        return page.head("Events", "<none>");
    }
    page.out.push_str("Events:\n");
    page.out.push_str(&Table::default().render(&rows));
}

#[cfg(test)]
mod tests;
