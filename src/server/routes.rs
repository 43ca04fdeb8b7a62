//! Which path is answered by what.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::query::{Query, decode};
use super::reply::{Answer, Body, Refusal, json, typed};
use super::wire::{NodeStatus, Report};
use super::{Backend, events, exec, images, logs, objects, orders, pods, pulls};
use crate::manifest::PodKey;

/// A containerd that hangs must not take the status along, which is what tells of it.
const VERSION_PATIENCE: Duration = Duration::from_secs(2);

/// The routes over one backend.
#[derive(Clone)]
pub(super) struct Routes {
    pub(super) backend: Backend,
    pub(super) shutdown: CancellationToken,
}

impl Routes {
    pub(super) fn new(backend: Backend, shutdown: CancellationToken) -> Self {
        Self { backend, shutdown }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.route(request).await.unwrap_or_else(Refusal::into_response)
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let segments: Option<Vec<String>> = path.split('/').skip(1).map(decode).collect();
        let query = Query::parse(request.uri().query().unwrap_or(""));
        let (Some(segments), Some(query)) = (segments, query) else {
            return Err(Refusal::bad_request("the path or the query is not properly percent-encoded"));
        };
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let get = request.method() == Method::GET;
        let post = request.method() == Method::POST;
        match parts.as_slice() {
            ["healthz"] if get => Ok(typed("text/plain", Body::Whole(Some("ok".into())))),
            ["api", "v1", "pods"] if get => pods::list(self, None, &query),
            ["api", "v1", "events"] if get => events::list(self, None, &query),
            ["api", "v1", "namespaces", ns, rest @ ..] => self.namespaced(request, ns, rest, &query).await,
            ["podling", "v1", "status"] if get => Ok(self.status().await),
            ["podling", "v1", "shutdown"] if post => orders::shut_down(self, &query).await,
            ["podling", "v1", "objects"] if get => objects::list(self),
            ["podling", "v1", "images", "pull"] if post => pulls::pull(self, &query).await,
            ["podling", "v1", "images", "inspect"] if get => pulls::inspect(self, &query).await,
            ["podling", "v1", "images", "export"] if post => pulls::export(self, &query).await,
            ["podling", "v1", "images", "prune"] if post => pulls::prune(self, &query).await,
            ["podling", "v1", "images"] if get => images::list(self).await,
            ["podling", "v1", "images"] if post => images::import(self, &query, request.into_body()).await,
            ["podling", "v1", "images"] if request.method() == Method::DELETE => {
                images::remove(self, &query).await
            }
            ["podling", "v1", "namespaces", ns, "pods", name] if get => {
                pods::details(self, &PodKey::new(*ns, *name))
            }
            ["healthz"]
            | ["api", "v1", "pods" | "events"]
            | ["podling", "v1", "status" | "images" | "objects" | "shutdown"] => {
                Err(Refusal::method(request.method(), &path))
            }
            _ => Err(Refusal::not_found("the server could not find the requested resource")),
        }
    }

    async fn namespaced(&self, request: Request<Incoming>, ns: &str, rest: &[&str], query: &Query) -> Answer {
        let get = request.method() == Method::GET;
        let post = request.method() == Method::POST;
        let key = |name: &&str| PodKey::new(ns, *name);
        match rest {
            ["pods"] if get => pods::list(self, Some(ns), query),
            ["events"] if get => events::list(self, Some(ns), query),
            ["pods", name] if get => pods::get(self, &key(name)),
            ["pods", name, "log"] if get => logs::read(self, &key(name), query).await,
            ["pods", name, "exec"] if post => exec::start(self, &key(name), query, request).await,
            ["pods", name, order @ ("stop" | "start" | "restart")] if post => {
                orders::give(self, key(name), order).await
            }
            ["pods" | "events"]
            | ["pods", _]
            | ["pods", _, "log" | "exec" | "stop" | "start" | "restart"] => {
                Err(Refusal::method(request.method(), request.uri().path()))
            }
            _ => Err(Refusal::not_found("the server could not find the requested resource")),
        }
    }

    async fn status(&self) -> Response<Body> {
        let asked = timeout(VERSION_PATIENCE, self.backend.runtime.containerd_version()).await;
        let containerd = match asked {
            Ok(Ok(version)) => version,
            Ok(Err(e)) => format!("unknown: {e}"),
            Err(_) => format!("unknown: no answer within {} s", VERSION_PATIENCE.as_secs()),
        };
        let board = self.backend.board.subscribe();
        let snapshot = board.borrow();
        json(&NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node_name: self.backend.node_name.clone(),
            containerd,
            sources: snapshot.sources.iter().map(|(n, r)| ((*n).to_owned(), Report::from(r))).collect(),
            node: snapshot.node.iter().map(|(n, m)| ((*n).to_owned(), m.clone())).collect(),
        })
    }
}
