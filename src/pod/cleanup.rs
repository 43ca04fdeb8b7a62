//! Removing what a pod leaves when it is gone: containers, network, namespaces, volumes, cgroup, files. Every
//! step is safe to repeat; all of them are tried, and the whole is repeated until nothing is left. The
//! record goes last, so that a crash in between is continued at the next start.

use std::time::Duration;

use super::board::EventType;
use super::context::Context;
use crate::manifest::PodManifest;

/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Removes everything of pod `uid` but its logs.
pub async fn clean_up(ctx: Context, pod: PodManifest, uid: String) {
    let mut pause = PAUSE.0;
    loop {
        let errors = once(&ctx, &pod, &uid).await;
        if errors.is_empty() {
            tracing::info!(pod = %pod.key, %uid, "pod removed");
            return;
        }
        for e in &errors {
            tracing::warn!(pod = %pod.key, %uid, "cleaning up: {e}");
        }
        let text = format!("cannot remove everything yet: {}", errors.join("; "));
        ctx.board.event(EventType::Warning, "FailedCleanup", Some(&pod.key), text);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn once(ctx: &Context, pod: &PodManifest, uid: &str) -> Vec<String> {
    let mut errors = Vec::new();
    match ctx.runtime.observe(uid).await {
        Ok(left) => {
            for container in left {
                errors.extend(ctx.runtime.delete(&container.id).await.err());
                ctx.routes.remove(&container.id);
            }
        }
        Err(e) => errors.push(e.to_string()),
    }
    for id in ctx.runtime.sandboxes_of(uid) {
        errors.extend(ctx.runtime.drop_sandbox(&id).await.err());
    }
    let dir = ctx.store.pod_dir(uid);
    if let Err(list) = crate::volume::teardown(&dir) {
        errors.extend(list.iter().map(ToString::to_string));
    }
    errors.extend(ctx.runtime.remove_cgroup(uid).await.err());
    if errors.is_empty() {
        ctx.runtime.forget_logs(&pod.key, uid);
        errors.extend(ctx.store.remove(uid).err().map(|e| e.to_string()));
    }
    errors
}
