//! What the service manager is told (sd_notify). Without one, every call does nothing.

use std::time::Duration;

use sd_notify::NotifyState;

/// The start is done: pods that were running are adopted and the socket answers.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line for `systemctl status`.
pub fn status(line: &str) {
    send(&[NotifyState::Status(line)]);
}

/// The settings are being read again; [`ready`] ends it.
pub fn reloading() {
    // systemd 253 and newer wait for the time beside it, older ones ignore that.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// podling is about to end; its pods are not.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// How often [`watchdog`] must be called: half of what the service manager allows. `None` without a watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Still alive.
pub fn watchdog() {
    send(&[NotifyState::Watchdog]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}
