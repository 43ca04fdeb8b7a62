//! Giving memory back that only a burst needed: the start, a hundred pods at once, the regular listing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::system::raw;

/// How long the start may take.
const START: Duration = Duration::from_secs(3);
/// How long after a listing what it woke has come to rest.
const CALM: Duration = Duration::from_secs(1);
/// Longest pause, when listings are rare.
const LONGEST: Duration = Duration::from_secs(30);

/// Trims once the start is over and then after each listing of containerd. Listing is most of what an idle daemon
/// does, so until the next one it takes little more than what trimming leaves.
pub(super) async fn give_back(listed: Arc<Notify>) {
    sleep(START).await;
    loop {
        raw::trim_memory();
        // Also the shortest pause: listings may be asked for ten times a second.
        sleep(START).await;
        let _ = timeout(LONGEST, listed.notified()).await;
        sleep(CALM).await;
    }
}
