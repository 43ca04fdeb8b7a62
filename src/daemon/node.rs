//! What the daemon knows of its node: its address, its images directory, and what makes a pod ready.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::{Notify, watch};

use crate::image::{LEFT_OUT, Preloader, Seen, archives};
use crate::pod::board::{Board, EventType};
use crate::runtime::Runtime;
use crate::runtime::containerd::ContainerdHandle;
use crate::settings::{ContainerdChoice, Settings};
use crate::system::clock::{self, Moment};

/// How often the node's address is looked up again: DHCP may come late.
const ADDRESS: Duration = Duration::from_secs(10);
/// How often the images directory is looked at.
const IMAGES: Duration = Duration::from_secs(2);
/// Longest wait before an import is tried again.
const LONGEST: Duration = Duration::from_secs(300);

/// Paths in one word for a log line: `/etc/pods,/srv/pods`.
pub fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(",")
}

/// Whether a directory's disk takes a few pages.
pub fn probe_disk(dir: &Path) -> std::io::Result<()> {
    use std::io::Write;
    let mut probe = tempfile::tempfile_in(dir)?;
    probe.write_all(&[0; 64 << 10])?;
    probe.sync_all()
}

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
        (ContainerdChoice::Auto, socket) if socket.starts_with('/') => {
            ContainerdChoice::Socket(socket.into())
        }
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

/// The addresses that the node's default routes leave by, IPv4 first; follows changes.
pub fn watch_addresses() -> watch::Receiver<Vec<String>> {
    let (tx, rx) = watch::channel(addresses());
    tokio::spawn(async move {
        while !tx.is_closed() {
            tokio::time::sleep(ADDRESS).await;
            let now = addresses();
            tx.send_if_modified(|old| std::mem::replace(old, now.clone()) != now);
        }
    });
    rx
}

/// Connecting a UDP socket sends nothing; it only makes the kernel choose a source address. The targets are
/// from blocks reserved for documentation (RFC 5737, RFC 3849). Without a route, the node is its loopback.
fn addresses() -> Vec<String> {
    let choose = |any: &str, target: &str| -> std::io::Result<String> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip().to_string())
    };
    let found = [choose("0.0.0.0:0", "192.0.2.1:9"), choose("[::]:0", "[2001:db8::1]:9")];
    let mut found: Vec<String> = found.into_iter().flatten().collect();
    if found.is_empty() {
        found.push("127.0.0.1".into());
    }
    found
}

/// Imports what lies in the images directory, at start and when something is dropped in. A file that still
/// grows is left until it has been the same for one look; one that failed is tried again when it changes. A
/// directory that was removed is made again, for the next archive.
///
/// `arrived` is told after each import, for the pods that wait for one.
pub async fn keep_images(runtime: Runtime, settings: Arc<Settings>, board: Board, arrived: Arc<Notify>) {
    let (dir, state) = (settings.paths.images(), settings.paths.state().join("imports.json"));
    let mut preloader = Preloader::new(dir.clone(), state);
    let mut before = contents(&dir);
    let mut retry = Retry::default();
    loop {
        let done = import(&runtime, &mut preloader, &settings.images.signature_policy, &board).await;
        arrived.notify_one();
        retry.note(done);
        let mut now = contents(&dir);
        loop {
            tokio::time::sleep(IMAGES).await;
            let next = contents(&dir);
            let settled = next == now;
            now = next;
            if settled && (now != before || retry.is_due()) {
                break;
            }
        }
        if now != before {
            retry = Retry::default();
        }
        before = now;
    }
}

/// When an import that failed for a reason that may pass is tried again. On a full disk each try may write gigabytes.
#[derive(Default)]
struct Retry {
    due: Option<Moment>,
    wait: Duration,
}

impl Retry {
    fn note(&mut self, done: bool) {
        if done {
            *self = Self::default();
            return;
        }
        self.wait = (self.wait * 2).clamp(IMAGES, LONGEST);
        self.due = Some(clock::now() + self.wait);
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| clock::now() >= due)
    }
}

/// Imports what is new; false when something failed that may go well the next time.
async fn import(runtime: &Runtime, preloader: &mut Preloader, policy: &Path, board: &Board) -> bool {
    let report = preloader.run(runtime.containerd(), Some(policy)).await;
    if !report.imported.is_empty() {
        let text = format!("imported {}", report.imported.join(", "));
        tracing::info!("{text}");
        board.event(EventType::Normal, "ImageImported", None, text);
    }
    for text in report.twice {
        tracing::warn!("{text}");
        board.event(EventType::Warning, "ImageImportedTwice", None, text);
    }
    let left_out = report.left_out.iter().map(|e| format!("{LEFT_OUT}: {e}"));
    for text in report.failed.iter().map(ToString::to_string).chain(left_out) {
        tracing::error!("{text}");
        board.event(EventType::Warning, "ImageImportFailed", None, text);
    }
    let broken: Vec<_> = preloader.broken().collect();
    board.node("ImageArchives", (!broken.is_empty()).then(|| broken.join("; ")));
    !report.failed.iter().any(|e| e.class().is_transient())
}

/// What a look at the directory's archives tells. One that is gone is made again, for it is where people put them.
fn contents(dir: &Path) -> Vec<(PathBuf, Seen)> {
    archives(dir).unwrap_or_else(|e| {
        if e.kind() == std::io::ErrorKind::NotFound
            && let Err(e) = std::fs::create_dir_all(dir)
        {
            tracing::debug!("cannot make {}: {e}", dir.display());
        }
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_that_failed_is_tried_again_later_and_later() {
        let mut retry = Retry::default();
        assert!(!retry.is_due());
        let waits = [(); 9].map(|()| {
            retry.note(false);
            retry.wait.as_secs()
        });
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(!retry.is_due());
        retry.note(true);
        assert_eq!(retry.due, None);
    }
}
