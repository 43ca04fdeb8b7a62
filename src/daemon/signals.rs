//! Signals, by signal-hook: its handlers may run anywhere, so a thread turns them into messages.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT: end the daemon; its pods stay.
    Stop,
    /// HUP: read settings and manifests again.
    Reload,
    /// USR1: write the state to the log.
    Dump,
}

/// Starts listening.
pub fn listen() -> std::io::Result<mpsc::Receiver<Signal>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let (tx, rx) = mpsc::channel(8);
    std::thread::Builder::new().name("signals".into()).stack_size(64 << 10).spawn(move || {
        for number in signals.forever() {
            let signal = match number {
                SIGHUP => Signal::Reload,
                SIGUSR1 => Signal::Dump,
                _ => Signal::Stop,
            };
            if tx.blocking_send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(rx)
}
