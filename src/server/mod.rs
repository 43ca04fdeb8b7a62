//! The daemon's API: HTTP over a unix socket, for podling's own CLI and for anything that speaks HTTP.
//!
//! Data enters as requests on `/run/podling/podling.sock` (0600, so root's alone) and leaves as JSON,
//! log text and exec frames. Where Kubernetes has a path for something, the path, the parameters and
//! the objects are Kubernetes'; the rest lies under `/podling/v1`. Status comes from the
//! [`Board`], orders go through its `Control`, and what needs containerd goes
//! through [`RuntimeAccess`]. Nothing here decides anything about pods, and no reader, however slow,
//! holds up more than its own connection.

mod access;
mod events;
mod exec;
pub mod frame;
mod images;
mod logs;
mod objects;
mod orders;
mod pods;
mod pulls;
pub mod query;
mod reply;
mod routes;
mod service;
mod socket;
mod watch;
pub mod wire;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::objects::Objects;
use crate::pod::board::{Board, ControlSender};
use crate::settings::Paths;

pub use access::{
    AccessError, ArchiveRequest, BoxFuture, ExecRequest, ExecStreams, ImageInfo, LogRequest, PruneRequest,
    RuntimeAccess, TerminalSize,
};
pub use reply::Body;
pub use socket::{Endpoint, ServerError, bind, bind_after, connect};

/// All that the server serves from.
#[derive(Clone)]
pub struct Backend {
    /// Status of pods, events and sources.
    pub board: Board,
    /// Where stop, start and restart go.
    pub control: ControlSender,
    /// ConfigMaps and Secrets in force.
    pub objects: Objects,
    /// Logs, exec and images.
    pub runtime: Arc<dyn RuntimeAccess>,
    /// `spec.nodeName`, and the object of events that concern no pod.
    pub node_name: String,
    /// Where the socket lies and where uploads go.
    pub paths: Paths,
}

/// Binds the socket and serves until `shutdown`. A daemon that must not touch anything while another
/// one runs calls [`bind`] first thing and [`serve_on`] later.
pub async fn serve(backend: Backend, shutdown: CancellationToken) -> Result<(), ServerError> {
    let endpoint = bind(&backend.paths)?;
    serve_on(endpoint, backend, shutdown).await
}

/// Serves on a socket bound before, until `shutdown`; then open answers get a second to end.
pub async fn serve_on(
    endpoint: Endpoint,
    backend: Backend,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    service::run(endpoint, backend, shutdown).await
}
