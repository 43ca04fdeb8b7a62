//! Housekeeping: what crashes and reboots leave behind, looked for from time to time. Each step only touches what
//! no pod owns.

use std::collections::HashSet;

use super::context::Context;

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
    ctx.runtime.end_stray_shims().await;
    ctx.runtime.restore_host_ports().await;
    ctx.runtime.leave_network().await;
    let runtime = ctx.runtime.clone();
    // A task that is gone expired nothing; the next round does.
    let _ = tokio::task::spawn_blocking(move || runtime.expire_logs(&known)).await;
}
