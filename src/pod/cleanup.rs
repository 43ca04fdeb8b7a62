//! Removing what a pod leaves when it is gone: containers, network, namespaces, volumes, cgroup, files. Every
//! step is safe to repeat; all of them are tried, and the whole is repeated until nothing is left. The
//! record goes last, so that a crash in between is continued at the next start.

use std::time::Duration;

use super::board::EventType;
use super::context::Context;
use crate::manifest::PodKey;

/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Removes everything of pod `uid` but its logs.
pub async fn clean_up(ctx: Context, key: PodKey, uid: String) {
    let mut pause = PAUSE.0;
    loop {
        let errors = once(&ctx, &key, &uid).await;
        if errors.is_empty() {
            ctx.runtime.leave_network().await;
            ctx.runtime.end_stray_shims_soon();
            tracing::info!(pod = %key, %uid, "pod removed");
            return;
        }
        for e in &errors {
            tracing::warn!(pod = %key, %uid, "cleaning up: {e}");
        }
        let text = format!("cannot remove everything yet: {}", errors.join("; "));
        ctx.board.event(EventType::Warning, "FailedCleanup", Some(&key), text);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn once(ctx: &Context, key: &PodKey, uid: &str) -> Vec<String> {
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
        // What is left of its network has a record of its own, which housekeeping works off.
        if let Err(e) = ctx.runtime.drop_sandbox(&id).await {
            tracing::warn!(pod = %key, %uid, "cannot take the sandbox down, trying again later: {e}");
            errors.extend(ctx.runtime.sandboxes_of(uid).contains(&id).then_some(e));
        }
    }
    // Before the files, which say which snapshots there are.
    errors.extend(ctx.runtime.unmount_images(uid).await.err());
    match ctx.store.pod_dir(uid) {
        // As long as snapshots are left, what names them stays.
        Ok(_) if !errors.is_empty() => {}
        Ok(dir) => errors.extend(remove_files(dir).await),
        Err(e) => errors.push(e.to_string()),
    }
    errors.extend(ctx.runtime.remove_cgroup(uid).await.err());
    if errors.is_empty() {
        ctx.runtime.forget_logs(key, uid);
        errors.extend(ctx.store.remove(uid).err().map(|e| e.to_string()));
    }
    errors
}

/// Volumes first, since they may be mounts; then what else the pod's directory holds. The record stays for
/// the caller.
async fn remove_files(dir: std::path::PathBuf) -> Vec<String> {
    let job = tokio::task::spawn_blocking(move || {
        let mut errors = Vec::new();
        if let Err(list) = crate::volume::teardown(&dir) {
            errors.extend(list.iter().map(ToString::to_string));
        }
        for name in ["containers", "image-volumes", "etc-hosts", "resolv.conf", "hostname"] {
            let path = dir.join(name);
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match removed {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    errors.push(format!("cannot remove {}: {e}", path.display()));
                }
                _ => {}
            }
        }
        errors
    });
    job.await.unwrap_or_else(|e| vec![e.to_string()])
}
