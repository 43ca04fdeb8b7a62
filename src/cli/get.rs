//! `podling get`: tables of pods, images and events, and what is wrong with the sources.

use std::io::Write;
use std::process::ExitCode;

use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{Event, Pod};

use super::args::{Get, Output};
use super::client::Client;
use super::error::{CliError, say};
use super::selector::Selector;
use super::table::{Table, row};
use super::{Outcome, age, image, objects, output, printer};
use crate::manifest::{ObjectKind, PodKey};
use crate::server::query::{Query, encode};
use crate::server::wire::{NodeStatus, Problem, WatchEvent};

pub(super) async fn get(client: Client, namespace: String, args: Get) -> Outcome {
    let (resource, names) = resource(&args)?;
    let view = View {
        namespace: (!args.all_namespaces).then_some(namespace),
        names,
        output: args.output.unwrap_or_default(),
        selector: args.selector.as_deref().map(Selector::parse).transpose().map_err(CliError::Usage)?,
        table: Table::default(),
    };
    match (resource, args.watch) {
        (Resource::Pods, false) => view.pods(&client).await,
        (Resource::Pods, true) => view.watch_pods(&client).await,
        (Resource::Events, false) => view.events(&client).await,
        (Resource::Events, true) => view.watch_events(&client).await,
        (Resource::Images, false) => image::list(&client, view.output, &view.names).await,
        (Resource::Objects(kind), false) => {
            objects::list(&client, kind, view.namespace.as_deref(), &view.names, view.output).await
        }
        (Resource::Objects(_), true) => {
            Err(CliError::Usage("configmaps and secrets cannot be watched".to_owned()))
        }
        (Resource::Images, true) => Err(CliError::Usage("images cannot be watched".to_owned())),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Pods,
    Images,
    Events,
    Objects(ObjectKind),
}

/// `pods web db`, `pod/web pod/db`: the kind and the names.
fn resource(args: &Get) -> Result<(Resource, Vec<String>), CliError> {
    let (kind, first) = match args.resource.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (args.resource.as_str(), None),
    };
    let resource = match kind {
        "pods" | "pod" | "po" => Resource::Pods,
        "images" | "image" => Resource::Images,
        "events" | "event" | "ev" => Resource::Events,
        "configmaps" | "configmap" | "cm" => Resource::Objects(ObjectKind::ConfigMap),
        "secrets" | "secret" => Resource::Objects(ObjectKind::Secret),
        other => {
            let text = format!(
                "podling has no resource type {other:?}; it has pods (po, pod), configmaps (cm), secrets, images, events (ev)"
            );
            return Err(CliError::Usage(text));
        }
    };
    let plain = |name: &String| match name.split_once('/') {
        Some((k, name)) if first.is_some() && k == kind => name.to_owned(),
        _ => name.clone(),
    };
    Ok((resource, first.map(str::to_owned).into_iter().chain(args.names.iter().map(plain)).collect()))
}

struct View {
    namespace: Option<String>,
    names: Vec<String>,
    output: Output,
    selector: Option<Selector>,
    table: Table,
}

impl View {
    fn path(&self, resource: &str) -> String {
        match &self.namespace {
            Some(ns) => format!("/api/v1/namespaces/{}/{resource}", encode(ns)),
            None => format!("/api/v1/{resource}"),
        }
    }

    fn wide(&self) -> bool {
        self.output == Output::Wide
    }

    fn nothing_found(&self) {
        match &self.namespace {
            Some(ns) => say(&format!("No resources found in {ns} namespace.")),
            None => say("No resources found"),
        }
    }

    async fn pods(mut self, client: &Client) -> Outcome {
        let (pods, missing) = self.fetch_pods(client).await?;
        let mut out = std::io::stdout().lock();
        match (self.output, pods.as_slice()) {
            (Output::Json | Output::Yaml, [only]) if self.names.len() == 1 => {
                output::object(&mut out, self.output, only)?;
            }
            (Output::Json | Output::Yaml, _) => {
                if self.names.is_empty() || !pods.is_empty() {
                    output::object(&mut out, self.output, &output::list(&pods))?;
                }
            }
            (Output::Table | Output::Wide, []) => {
                if missing.is_empty() {
                    self.nothing_found();
                }
            }
            (_, pods) => out.write_all(self.pod_rows(pods, true).as_bytes())?,
        }
        out.flush()?;
        for error in &missing {
            say(&error.to_string());
        }
        if matches!(self.output, Output::Table | Output::Wide) {
            self.warn(client).await;
        }
        Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn fetch_pods(&self, client: &Client) -> Result<(Vec<Pod>, Vec<CliError>), CliError> {
        let none = Query::default();
        let mut missing = Vec::new();
        let mut pods = Vec::new();
        if self.names.is_empty() {
            let list: List<Pod> = client.get(&self.path("pods"), &none).await?;
            pods = list.items;
        } else if self.namespace.is_none() {
            return Err(CliError::Usage(
                "a pod cannot be named across all namespaces; leave out -A".to_owned(),
            ));
        }
        for name in &self.names {
            let path = format!("{}/{}", self.path("pods"), encode(name));
            match client.get(&path, &none).await {
                Ok(pod) => pods.push(pod),
                Err(error) if error.is_not_found() => missing.push(error),
                Err(error) => return Err(error),
            }
        }
        pods.retain(|pod| self.selects(pod));
        Ok((pods, missing))
    }

    fn selects(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let named = |pod: &Pod| pod.metadata.name.as_ref().is_some_and(|n| self.names.contains(n));
        self.selector.as_ref().is_none_or(|s| s.matches(labels)) && (self.names.is_empty() || named(pod))
    }

    /// Rows in the form asked for; with the header of a table where `header` says so.
    fn pod_rows(&mut self, pods: &[Pod], header: bool) -> String {
        if self.output == Output::Name {
            let name = |pod: &Pod| format!("pod/{}\n", pod.metadata.name.as_deref().unwrap_or_default());
            return pods.iter().map(name).collect();
        }
        let (all, wide, now) = (self.namespace.is_none(), self.wide(), Timestamp::now());
        let mut rows = Vec::with_capacity(pods.len() + 1);
        if header {
            rows.push(printer::header(all, wide));
        }
        rows.extend(pods.iter().map(|pod| printer::row(pod, now).cells(all, wide)));
        self.table.render(&rows)
    }

    async fn watch_pods(mut self, client: &Client) -> Outcome {
        let mut query = Query::default();
        query.add("watch", 1).add("allowWatchBookmarks", 1);
        let mut stream = client.stream(&self.path("pods"), &query).await?;
        let mut before: Option<Vec<Pod>> = Some(Vec::new());
        let mut header = true;
        while let Some(WatchEvent { kind, object: pod }) = stream.object::<WatchEvent<Pod>>().await? {
            let shown = match before.as_mut() {
                // What was there already is shown as one table, sorted and with widths that fit.
                Some(_) if kind == "BOOKMARK" => before.take().unwrap_or_default(),
                Some(known) => {
                    if self.selects(&pod) {
                        known.push(pod);
                    }
                    continue;
                }
                None if self.selects(&pod) && kind != "BOOKMARK" => vec![pod],
                None => continue,
            };
            self.show_watched(&shown, &mut header)?;
        }
        Err(CliError::Failed("podling has stopped".to_owned()))
    }

    fn show_watched(&mut self, pods: &[Pod], header: &mut bool) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        if matches!(self.output, Output::Json | Output::Yaml) {
            for pod in pods {
                if self.output == Output::Yaml && !std::mem::take(header) {
                    out.write_all(b"---\n")?;
                }
                output::object(&mut out, self.output, pod)?;
            }
        } else if !pods.is_empty() {
            let text = self.pod_rows(pods, std::mem::take(header));
            out.write_all(text.as_bytes())?;
        }
        Ok(out.flush()?)
    }

    /// One line each for what keeps manifests or the node from being well. A daemon that does not
    /// answer has been reported before.
    async fn warn(&self, client: &Client) {
        let Ok(status) = client.get::<NodeStatus>("/podling/v1/status", &Query::default()).await else {
            return;
        };
        let concerns = |p: &&Problem| {
            let named = || p.keeps.iter().any(|key| self.names.contains(&key.name));
            !p.is_remark() && (self.names.is_empty() || named())
        };
        for problem in status.sources.values().flat_map(|r| &r.problems).filter(concerns) {
            say(&problem_line(problem));
        }
        if self.names.is_empty() {
            for (name, message) in &status.node {
                say(&format!("warning: {name}: {message}"));
            }
        }
    }

    async fn events(mut self, client: &Client) -> Outcome {
        let list: List<Event> = client.get(&self.path("events"), &Query::default()).await?;
        let mut out = std::io::stdout().lock();
        match self.output {
            Output::Json | Output::Yaml => {
                output::object(&mut out, self.output, &output::list(&list.items))?;
            }
            Output::Table | Output::Wide if list.items.is_empty() => self.nothing_found(),
            _ => out.write_all(self.event_rows(&list.items, true).as_bytes())?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    async fn watch_events(mut self, client: &Client) -> Outcome {
        let mut query = Query::default();
        query.add("watch", 1).add("allowWatchBookmarks", 1);
        let mut stream = client.stream(&self.path("events"), &query).await?;
        let mut before: Option<Vec<Event>> = Some(Vec::new());
        let mut header = true;
        while let Some(WatchEvent { kind, object: event }) = stream.object::<WatchEvent<Event>>().await? {
            let shown = match before.as_mut() {
                Some(_) if kind == "BOOKMARK" => before.take().unwrap_or_default(),
                Some(known) => {
                    known.push(event);
                    continue;
                }
                None if kind == "BOOKMARK" => continue,
                None => vec![event],
            };
            let mut out = std::io::stdout().lock();
            if matches!(self.output, Output::Json | Output::Yaml) {
                for event in &shown {
                    output::object(&mut out, self.output, event)?;
                }
            } else if !shown.is_empty() {
                let text = self.event_rows(&shown, std::mem::take(&mut header));
                out.write_all(text.as_bytes())?;
            }
            out.flush()?;
        }
        Err(CliError::Failed("podling has stopped".to_owned()))
    }

    fn event_rows(&mut self, events: &[Event], header: bool) -> String {
        if self.output == Output::Name {
            let name = |e: &Event| format!("event/{}\n", e.metadata.name.as_deref().unwrap_or_default());
            return events.iter().map(name).collect();
        }
        let (all, wide, now) = (self.namespace.is_none(), self.wide(), Timestamp::now());
        let mut rows = Vec::with_capacity(events.len() + 1);
        if header {
            rows.push(event_header(all, wide));
        }
        rows.extend(events.iter().map(|event| event_row(event, all, wide, now)));
        self.table.render(&rows)
    }
}

fn event_header(with_namespace: bool, wide: bool) -> Vec<String> {
    let mut names = row(["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    if with_namespace {
        names.insert(0, "NAMESPACE".to_owned());
    }
    if wide {
        names.extend(row(["FIRST SEEN", "COUNT"]));
    }
    names
}

fn event_row(event: &Event, with_namespace: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    let object = &event.involved_object;
    let mut cells = vec![
        age::since(event.last_timestamp.as_ref().map(|t| t.0), now),
        text(&event.type_),
        text(&event.reason),
        format!("{}/{}", text(&object.kind).to_lowercase(), text(&object.name)),
        text(&event.message),
    ];
    if with_namespace {
        cells.insert(0, text(&event.metadata.namespace));
    }
    if wide {
        cells.push(age::since(event.first_timestamp.as_ref().map(|t| t.0), now));
        cells.push(event.count.unwrap_or(1).to_string());
    }
    cells
}

/// `warning: /etc/pods/a.yaml:3:5: what is wrong; default/web keeps running as last accepted`.
pub(super) fn problem_line(problem: &Problem) -> String {
    let path = problem.path.display().to_string();
    let mut line = "warning: ".to_owned();
    if !problem.message.contains(&path) {
        line.push_str(&path);
        if let Some(first) = problem.diagnostics.iter().find(|d| d.line > 0) {
            line.push_str(&format!(":{}:{}", first.line, first.column));
        }
        line.push_str(": ");
    }
    line.push_str(&problem.message);
    if !problem.keeps.is_empty() && !problem.message.contains("last accepted") {
        let pods: Vec<String> = problem.keeps.iter().map(PodKey::to_string).collect();
        let verb = if pods.len() == 1 { "keeps" } else { "keep" };
        line.push_str(&format!("; {} {verb} running as last accepted", pods.join(", ")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Code, Diagnostic, Severity};

    fn args(resource: &str, names: &[&str]) -> Get {
        Get {
            resource: resource.into(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            output: None,
            watch: false,
            all_namespaces: false,
            selector: None,
            scope: Default::default(),
        }
    }

    #[test]
    fn a_resource_has_its_short_names_and_takes_names_in_both_forms() {
        let names = |n: &[&str]| n.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(resource(&args("po", &["a", "b"])).unwrap(), (Resource::Pods, names(&["a", "b"])));
        assert_eq!(resource(&args("pod/a", &["pod/b"])).unwrap(), (Resource::Pods, names(&["a", "b"])));
        assert_eq!(resource(&args("ev", &[])).unwrap(), (Resource::Events, vec![]));
        assert_eq!(
            resource(&args("svc", &[])).unwrap_err().to_string(),
            "error: podling has no resource type \"svc\"; it has pods (po, pod), configmaps (cm), secrets, images, events (ev)"
        );
    }

    #[test]
    fn a_problem_says_where_and_what_keeps_running() {
        let mut problem = Problem {
            path: "/etc/pods/a.yaml".into(),
            reason: "ParseError".into(),
            message: "expected a mapping".into(),
            diagnostics: vec![Diagnostic {
                severity: Severity::Error,
                code: Code::Syntax,
                path: String::new(),
                line: 3,
                column: 5,
                text: "expected a mapping".into(),
            }],
            keeps: vec![PodKey::new("default", "web")],
        };
        assert_eq!(
            problem_line(&problem),
            "warning: /etc/pods/a.yaml:3:5: expected a mapping; default/web keeps running as last accepted"
        );
        problem.message = "/etc/pods/a.yaml:3:5: expected a mapping".into();
        problem.keeps.push(PodKey::new("default", "db"));
        assert_eq!(
            problem_line(&problem),
            "warning: /etc/pods/a.yaml:3:5: expected a mapping; default/web, default/db keep running as last accepted"
        );
    }

    #[test]
    fn an_event_is_a_row_with_its_object() {
        let event: Event = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": "web.1", "namespace": "default" },
            "involvedObject": { "kind": "Pod", "name": "web" },
            "type": "Warning", "reason": "BackOff", "message": "waits 10 s", "count": 4,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z",
        }))
        .unwrap();
        let now = "2026-01-01T00:06:00Z".parse().unwrap();
        assert_eq!(
            event_row(&event, true, true, now),
            ["default", "60s", "Warning", "BackOff", "pod/web", "waits 10 s", "6m", "4"]
        );
        assert_eq!(event_header(true, true).len(), 8);
    }
}
