//! Collecting images: which ones somebody wants, and making room when the disk fills up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::image::collect::{CollectRule, Uses, collect, is_full, named_in};
use crate::pod::board::{Board, EventType};
use crate::runtime::Runtime;
use crate::settings::{Paths, Settings};
use crate::system::clock;

/// How often images are collected (the kubelet's).
const EVERY: Duration = Duration::from_secs(300);
/// How often the disk is looked at in between: a pull or a pod can fill it at any time.
const LOOK: Duration = Duration::from_secs(10);
/// Largest manifest or record that is looked into, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Collects images for as long as the daemon runs.
pub async fn keep_room(runtime: Runtime, settings: watch::Receiver<Arc<Settings>>, board: Board) {
    let order = settings.borrow().paths.state().join("image-uses.json");
    let mut uses = Uses::load(&order);
    let mut due = clock::now() + EVERY;
    // What did not help does not help ten seconds later; but somebody else may have made room.
    let mut hopeless = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let settings = settings.borrow().clone();
        let regular = clock::now() >= due;
        let ctd = runtime.containerd();
        let dir = ctd.snapshot_dir().await.unwrap_or_else(|| settings.paths.containerd_root());
        if !regular && hopeless == is_full(&dir, &rule(&settings)) {
            continue;
        }
        due = clock::now() + EVERY;
        let wanted = wanted(&settings.paths, &settings.manifest_dirs).await;
        let collected = collect(ctd, &dir, &rule(&settings), &wanted, &mut uses).await;
        uses.store(&order);
        match collected {
            Ok(done) => {
                hopeless = done.still.is_some();
                if !done.removed.is_empty() {
                    let text = format!("removed images that nobody uses: {}", done.removed.join(", "));
                    tracing::info!("{text}");
                    board.event(EventType::Normal, "ImageGC", None, text);
                }
                let full = done.still.map(|percent| {
                    format!(
                        "the disk of {} is {percent} % full and no image is left that could go; remove something else",
                        dir.display()
                    )
                });
                if let Some(text) = &full {
                    tracing::warn!("{text}");
                    board.event(EventType::Warning, "FreeDiskSpaceFailed", None, text.as_str());
                }
                board.node("DiskPressure", full);
            }
            Err(e) => tracing::warn!("cannot collect images: {e}"),
        }
    }
}

fn rule(settings: &Settings) -> CollectRule {
    let images = &settings.images;
    CollectRule {
        high: images.gc_high,
        low: images.gc_low,
        min_age: images.gc_min_age,
        max_age: (!images.gc_max_age.is_zero()).then_some(images.gc_max_age),
    }
}

/// Names and digests of the images that stay: what any file in the manifest directories names, be it whole or
/// broken, and what the records of pods name, their runs and the runs before an update.
pub async fn wanted(paths: &Paths, manifest_dirs: &[PathBuf]) -> BTreeSet<String> {
    let (pods, dirs) = (paths.pods(), manifest_dirs.to_vec());
    let read = tokio::task::spawn_blocking(move || {
        let mut names = BTreeSet::new();
        for dir in dirs {
            files(&dir).iter().for_each(|file| names.extend(named_in(&text(file))));
        }
        for pod in files(&pods) {
            for record in ["pod.json", "status.json"] {
                names.extend(named_in(&text(&pod.join(record))));
            }
        }
        names
    });
    read.await.unwrap_or_default()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// A file's text, nothing for one that cannot be read: what it names is named by the pod's record too.
fn text(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() && m.len() <= FILE_MAX => {
            std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Has failed pulls tried at once when the node gets another address.
pub async fn watch_network(runtime: Runtime, mut addresses: watch::Receiver<Vec<String>>) {
    while addresses.changed().await.is_ok() {
        runtime.images().network_changed();
    }
}
