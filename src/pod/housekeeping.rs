//! Housekeeping: what crashes and reboots leave behind, looked for now and then. Each step only touches what
//! no pod owns.

use std::collections::HashSet;

use super::context::Context;

/// A directory this young may be about to be filled.
const FRESH: std::time::Duration = std::time::Duration::from_secs(10);

/// One round.
pub async fn sweep(ctx: Context) {
    for id in ctx.runtime.stray_sandboxes() {
        match ctx.runtime.drop_sandbox(&id).await {
            Ok(()) => tracing::info!(sandbox = %id, "took down a sandbox that no pod uses"),
            Err(e) => tracing::warn!(sandbox = %id, "cannot take down a sandbox that no pod uses: {e}"),
        }
    }
    // What exists is listed before who is known: a pod that comes meanwhile is known before it has anything.
    let groups = ctx.runtime.cgroups().pods();
    let known: HashSet<String> = ctx.store.known_uids().into_iter().collect();
    for uid in groups.into_iter().map(|p| p.uid) {
        if !known.contains(&uid)
            && !ctx.runtime.has_sandbox(&uid)
            && let Err(e) = ctx.runtime.remove_cgroup(&uid).await
        {
            tracing::debug!(%uid, "cannot remove a cgroup that no pod uses: {e}");
        }
    }
    for uid in ctx.store.orphans() {
        forget_empty(&ctx, &uid);
    }
    ctx.runtime.end_stray_shims().await;
    ctx.runtime.restore_host_ports().await;
    ctx.runtime.leave_network().await;
    let runtime = ctx.runtime.clone();
    // A task that is gone expired nothing; the next round does.
    let _ = tokio::task::spawn_blocking(move || runtime.expire_logs(&known)).await;
}

/// A pod's directory without a record is what a kill between making it and writing the record leaves; with
/// anything else in it, somebody may want to look.
fn forget_empty(ctx: &Context, uid: &str) {
    let Ok(dir) = ctx.store.pod_dir(uid) else { return };
    if ctx.runtime.has_sandbox(uid) || ctx.board.subscribe().borrow().pods.values().any(|p| p.uid == uid) {
        return;
    }
    let modified = std::fs::metadata(&dir).and_then(|m| m.modified()).ok();
    let age = modified.and_then(|t| std::time::SystemTime::now().duration_since(t).ok());
    if age.is_none_or(|age| age < FRESH) {
        return;
    }
    match std::fs::remove_dir(&dir) {
        Ok(()) => tracing::debug!(%uid, "removed an empty directory of a pod"),
        Err(e) => tracing::debug!(%uid, "cannot remove {}: {e}", dir.display()),
    }
}
