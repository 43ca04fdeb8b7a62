//! Accepting connections, and ending them in time.

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::routes::Routes;
use super::{Backend, Endpoint, ServerError};

/// Time that open answers get to end when podling stops.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A request line and headers: enough for a long exec command, little for an idle connection.
const BUFFER: usize = 64 * 1024;
/// A client that connects and says nothing is let go.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(
    endpoint: Endpoint,
    backend: Backend,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    let Endpoint { listener, path, _lock } = endpoint;
    let listener = UnixListener::from_std(listener).map_err(|source| ServerError::Io {
        action: "listen on",
        path: path.clone(),
        source,
    })?;
    let routes = Routes::new(backend, shutdown.clone());
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, routes.clone(), shutdown.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    tasks.close();
    // Connections bound their own end; the extra time is for the scheduler.
    let _ = timeout(DRAIN * 2, tasks.wait()).await;
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::debug!(%error, path = %path.display(), "cannot remove the socket");
    }
    Ok(())
}

async fn connection(stream: UnixStream, routes: Routes, shutdown: CancellationToken) {
    let service = service_fn(move |request| {
        let routes = routes.clone();
        async move { Ok::<_, Infallible>(routes.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(DRAIN, connection.as_mut()).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = result {
        // Mostly clients that went away; theirs to know.
        tracing::debug!(%error, "a connection ended early");
    }
}
