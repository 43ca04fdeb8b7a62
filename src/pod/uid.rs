//! Which uid a pod gets: it is the name of its directory and cgroup, so no two pods have one.

use super::board::EventType;
use super::context::Context;
use super::manager::PodManager;
use crate::manifest::{PodKey, PodManifest};

/// The uid that the manifest gives its pod, unless another pod has it, or has not quite gone with it, as when a
/// manifest with a uid is copied, or renamed.
pub(super) fn of_its_own(manager: &PodManager, ctx: &Context, manifest: &PodManifest) -> Option<String> {
    let uid = manifest.uid.as_ref()?;
    let other = |key: &PodKey| *key != manifest.key;
    let wanted = manager.holder(uid).filter(|key| other(key)).cloned();
    let Some(holder) = wanted.or_else(|| ctx.store.holder(uid).filter(other)) else {
        return Some(uid.clone());
    };
    let text = format!(
        "metadata.uid: {uid} is that of pod {holder}, so this pod gets one of its own; leave uid out of its manifest"
    );
    tracing::warn!(pod = %manifest.key, "{text}");
    ctx.board.event(EventType::Warning, "DuplicateUID", Some(&manifest.key), text);
    None
}
