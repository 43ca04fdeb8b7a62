//! Reaching containerd, for as long as it takes, and what it says that runs; signals are heard meanwhile.

use std::time::Duration;

use tokio::sync::mpsc;

use super::signals::Signal;
use super::{Daemon, node};
use crate::pod::board::EventType;
use crate::pod::capacity::Capacity;
use crate::pod::orphans::Orphans;
use crate::runtime::Runtime;
use crate::runtime::containerd::{Containerd, ContainerdHandle, resolve};
use crate::store::PodRecord;

/// First and longest pause between tries to reach containerd.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

impl Daemon {
    /// Tries until containerd answers; none when a signal said to end first. With `stick`, pods exist on the
    /// containerd used last, so no other will do.
    pub(super) async fn reach_containerd(&mut self, stick: bool) -> Option<(ContainerdHandle, Runtime)> {
        let (mut pause, mut said, mut disk_full) = (PATIENCE.0, None, false);
        loop {
            // Starting a containerd again and again on a full disk only fills the log.
            if disk_full && node::probe_disk(&self.settings.borrow().paths.state()).is_err() {
                pause = PATIENCE.1;
                match self.pause(pause).await {
                    true => continue,
                    false => return None,
                }
            }
            let why = match self.try_containerd(stick, &mut disk_full).await {
                Ok(reached) => {
                    self.board.node("ContainerdUnavailable", None);
                    return Some(reached);
                }
                Err(why) => why,
            };
            if said.as_ref() != Some(&why) {
                tracing::warn!("containerd is not available, it is tried until it is: {why}");
                self.board.event(EventType::Warning, "ContainerdUnavailable", None, why.as_str());
                said = Some(why.clone());
            }
            self.board.node("ContainerdUnavailable", Some(why));
            if !self.pause(pause).await {
                return None;
            }
            pause = (pause * 2).min(PATIENCE.1);
        }
    }

    /// Waits, and hears signals meanwhile; false when one says to end.
    async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            signal = self.signals.recv() => match signal {
                Some(Signal::Stop) | None => return false,
                Some(Signal::Reload) => drop(self.read_settings()),
                Some(Signal::Dump) => self.dump(),
            },
        }
        true
    }

    async fn try_containerd(
        &self,
        stick: bool,
        disk_full: &mut bool,
    ) -> Result<(ContainerdHandle, Runtime), String> {
        let settings = self.settings.borrow().clone();
        let mark = settings.paths.state().join("containerd-in-use");
        let choice = node::containerd_choice(&settings.containerd, stick.then_some(&mark));
        let handle =
            resolve(&choice, &settings.paths, &settings.namespace).await.map_err(|e| e.to_string())?;
        let ready = async {
            let ctd =
                Containerd::connect(handle.socket(), &settings.namespace).await.map_err(|e| e.to_string())?;
            let version = ctd.version().await.map_err(|e| e.to_string())?;
            let (for_pods, objects) = (Capacity::of(&settings).for_pods(), self.objects.clone());
            let runtime = Runtime::new(ctd, &settings, for_pods, objects, self.host_ips.clone()).await;
            let runtime = runtime.map_err(|e| e.to_string())?;
            tracing::info!(
                socket = %handle.socket().display(),
                %version,
                namespace = %settings.namespace,
                runtime = runtime.oci_runtime(),
                "containerd is ready"
            );
            Ok(runtime)
        };
        let runtime: Result<Runtime, String> = ready.await;
        match runtime {
            Ok(runtime) => {
                node::mark_containerd(&mark, &handle);
                Ok((handle, runtime))
            }
            Err(e) => {
                handle.stop().await;
                // A containerd that cannot write its database answers, but has no services.
                let state = settings.paths.state();
                let probed = node::probe_disk(&state);
                *disk_full = probed.is_err();
                Err(match probed {
                    Ok(()) => e,
                    Err(full) => format!("cannot write below {}: {full}; {e}", state.display()),
                })
            }
        }
    }

    /// What runs here of which the store knows nothing; none when a signal said to end before containerd
    /// answered.
    pub(super) async fn find_orphans(&mut self, runtime: &Runtime, records: &[PodRecord]) -> Option<Orphans> {
        let whole = records.iter().filter(|r| !r.status.is_lost());
        let known: Vec<&str> = whole.map(|r| r.spec.uid.as_str()).collect();
        loop {
            let listed = tokio::select! {
                listed = runtime.observe_all() => listed,
                () = told_to_stop(&mut self.signals) => return None,
            };
            match listed {
                Ok(seen) => {
                    return Some(Orphans::find(seen, &known));
                }
                Err(e) => tracing::warn!("cannot list containers, trying again: {e}"),
            }
            tokio::select! {
                () = tokio::time::sleep(PATIENCE.1) => {}
                () = told_to_stop(&mut self.signals) => return None,
            }
        }
    }
}

/// Waits for the signal to end; others are for when there is something to do for them.
async fn told_to_stop(signals: &mut mpsc::Receiver<Signal>) {
    while !matches!(signals.recv().await, Some(Signal::Stop) | None) {}
}

/// A private containerd ends with podling unless it still has containers: their exits would be lost.
pub(super) async fn end_containerd(handle: ContainerdHandle, runtime: &Runtime) {
    let ContainerdHandle::Embedded(embedded) = &handle else { return };
    match runtime.observe_all().await {
        Ok(left) if left.is_empty() => handle.stop().await,
        _ => tracing::info!(
            pid_file = %embedded.pid_file().display(),
            "the private containerd keeps running for the pods; after removing them, kill the process in its pid file to end it"
        ),
    }
}
