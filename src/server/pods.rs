//! Pods: list, get, watch, and what is known beyond the v1 Pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use k8s_openapi::{List, ListableResource};

use super::query::Query;
use super::reply::{Answer, Refusal, json};
use super::routes::Routes;
use super::watch::{self, Scope};
use super::wire::{PodDetails, ProbeResult, RunningPull};
use crate::image::ImageRef;
use crate::manifest::PodKey;
use crate::pod::board::PodView;
use crate::probe::{Last, Outcome, ProbeKind};

/// `GET …/pods`, with `watch` as a stream. `fieldSelector=metadata.name=x` narrows it to one pod.
pub(super) fn list(routes: &Routes, namespace: Option<&str>, query: &Query) -> Answer {
    let scope = Scope { namespace: namespace.map(str::to_owned), name: field_selector(query)? };
    if query.flag("watch") {
        return Ok(watch::pods(routes, scope, query.flag("allowWatchBookmarks")));
    }
    let board = routes.backend.board.subscribe();
    let views: Vec<Arc<PodView>> =
        board.borrow().pods.iter().filter(|(key, _)| scope.holds(key)).map(|(_, v)| v.clone()).collect();
    Ok(json(&list_of(views.iter().map(|v| v.to_pod()).collect())))
}

/// A v1 list object around `items`.
pub(super) fn list_of<T: ListableResource>(items: Vec<T>) -> List<T> {
    List { items, metadata: ListMeta::default() }
}

fn field_selector(query: &Query) -> Result<Option<String>, Refusal> {
    match query.get("fieldSelector") {
        None | Some("") => Ok(None),
        Some(text) => match text.strip_prefix("metadata.name=") {
            Some(name) => Ok(Some(name.trim_start_matches('=').to_owned())),
            None => Err(Refusal::bad_request(format!("field selector `{text}` is not metadata.name=NAME"))),
        },
    }
}

/// `GET …/pods/{name}`.
pub(super) fn get(routes: &Routes, key: &PodKey) -> Answer {
    Ok(json(&find(routes, key)?.to_pod()))
}

/// `GET /podling/v1/…/pods/{name}`.
pub(super) fn details(routes: &Routes, key: &PodKey) -> Answer {
    let view = find(routes, key)?;
    let manifest = &view.manifest;
    Ok(json(&PodDetails {
        pod: view.to_pod(),
        source: view.source.to_owned(),
        file: manifest.origin.file.clone(),
        line: manifest.origin.line,
        hash: manifest.hashes.manifest.clone(),
        warnings: manifest.warnings.clone(),
        probes: routes.backend.board.probe_results(key).into_iter().map(probe_result).collect(),
        pulls: pulls(routes, &view.manifest.pod),
    }))
}

/// The pod's images that are being pulled.
fn pulls(routes: &Routes, pod: &Pod) -> Vec<RunningPull> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
    let names = containers.filter_map(|c| c.image.as_deref()).chain(of_volumes);
    let wanted: BTreeSet<String> =
        names.filter_map(|name| Some(ImageRef::parse(name).ok()?.name())).collect();
    let running = routes.backend.runtime.pulls().into_iter().filter(|(image, _)| wanted.contains(image));
    running.map(|(image, progress)| RunningPull { image, progress }).collect()
}

fn probe_result((container, probe, last): (String, ProbeKind, Last)) -> ProbeResult {
    let outcome = match last.outcome {
        Outcome::Success | Outcome::Warning(_) => "passed",
        Outcome::Failure(_) => "failed",
        Outcome::Broken(_) | Outcome::Unknown(_) => "errored",
    };
    ProbeResult {
        container,
        probe,
        at: last.at,
        outcome: outcome.to_owned(),
        message: last.outcome.text().to_owned(),
        streak: last.streak,
    }
}

/// The pod, or Kubernetes' words for its absence.
pub(super) fn find(routes: &Routes, key: &PodKey) -> Result<Arc<PodView>, Refusal> {
    let board = routes.backend.board.subscribe();
    let view = board.borrow().pods.get(key).cloned();
    view.ok_or_else(|| Refusal::not_found(format!("pods {:?} not found", key.name)))
}

/// The names of a pod's containers, then its init containers, as in its spec.
pub(super) fn container_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.as_ref();
    let main = spec.into_iter().flat_map(|s| s.containers.iter());
    let init = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten());
    main.chain(init).map(|c| c.name.as_str())
}

/// The container asked for, or the only one there is.
pub(super) fn pick_container(view: &PodView, query: &Query) -> Result<String, Refusal> {
    let pod = &view.manifest.pod;
    let name = &view.manifest.key.name;
    match query.get("container") {
        Some(wanted) if container_names(pod).any(|c| c == wanted) => Ok(wanted.to_owned()),
        Some(wanted) => Err(Refusal::bad_request(format!("container {wanted} is not valid for pod {name}"))),
        None => {
            let containers: Vec<_> = pod.spec.iter().flat_map(|s| &s.containers).collect();
            match containers.as_slice() {
                [only] => Ok(only.name.clone()),
                _ => {
                    let names: Vec<&str> = container_names(pod).collect();
                    Err(Refusal::bad_request(format!(
                        "a container name must be specified for pod {name}, choose one of: [{}]",
                        names.join(" ")
                    )))
                }
            }
        }
    }
}
