//! What the daemon knows of its node: its address, its images directory, and what makes a pod ready.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::watch;

use super::board::{Board, EventType};
use crate::image::preload;
use crate::runtime::Runtime;
use crate::runtime::containerd::ContainerdHandle;
use crate::settings::{ContainerdChoice, Settings};

/// How often the node's address is looked up again: DHCP may come late.
const ADDRESS: Duration = Duration::from_secs(10);
/// How often the images directory is looked at.
const IMAGES: Duration = Duration::from_secs(2);

/// Whether the Ready condition is true.
pub fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Which containerd to look for. `auto` may mean another one than last time, for example while the system's
/// is being restarted; with pods on the one in use before, named by `mark`, only that one counts.
pub fn containerd_choice(choice: &ContainerdChoice, mark: Option<&PathBuf>) -> ContainerdChoice {
    let before = mark.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    match (choice, before.trim()) {
        (ContainerdChoice::Auto, "embedded") => ContainerdChoice::Embedded,
        (ContainerdChoice::Auto, socket) if socket.starts_with('/') => ContainerdChoice::Socket(socket.into()),
        _ => choice.clone(),
    }
}

/// Remembers which containerd is in use.
pub fn mark_containerd(mark: &Path, handle: &ContainerdHandle) {
    let text = match handle {
        ContainerdHandle::Embedded(_) => "embedded".into(),
        ContainerdHandle::System(socket) => socket.to_string_lossy().into_owned(),
    };
    if std::fs::read_to_string(mark).is_ok_and(|old| old == text) {
        return;
    }
    if let Err(e) = crate::store::write_atomic(mark, text.as_bytes(), 0o600) {
        tracing::warn!("{e}");
    }
}

/// The address that the node's default route leaves by; follows changes.
pub fn watch_address() -> watch::Receiver<Option<String>> {
    let (tx, rx) = watch::channel(address());
    tokio::spawn(async move {
        while !tx.is_closed() {
            tokio::time::sleep(ADDRESS).await;
            let now = address();
            tx.send_if_modified(|old| std::mem::replace(old, now.clone()) != now);
        }
    });
    rx
}

/// Connecting a UDP socket sends nothing; it only makes the kernel choose a source address. The target is
/// from a block reserved for documentation (RFC 5737). Without a route, the node is its loopback.
fn address() -> Option<String> {
    let choose = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    };
    Some(choose().map_or_else(|_| "127.0.0.1".into(), |a: std::net::SocketAddr| a.ip().to_string()))
}

/// Imports what lies in the images directory, at start and when something is dropped in.
pub async fn keep_images(runtime: Runtime, settings: Arc<Settings>, board: Board) {
    let dir = settings.paths.images();
    let state = settings.paths.state();
    let mut preload = preload::Preload::new(dir, &state);
    loop {
        for outcome in preload.look(runtime.containerd()).await {
            match outcome {
                Ok(names) => {
                    let text = format!("imported {}", names.join(", "));
                    tracing::info!("{text}");
                    board.event(EventType::Normal, "ImageImported", None, text);
                }
                Err(e) => {
                    tracing::error!("{e}");
                    board.event(EventType::Warning, "ImageImportFailed", None, e.to_string());
                }
            }
        }
        tokio::time::sleep(IMAGES).await;
    }
}
