//! The probes of one pod: one task that makes each when it is due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Container;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::check::Check;
use super::state::{Last, Target, Tracked, Verdict};
use super::{Outcome, ProbeKind};
use crate::manifest::PodManifest;
use crate::runtime::Runtime;
use crate::system::clock::{self, Moment};

/// What is to be watched.
#[derive(Clone)]
pub struct Watch {
    /// The manifest in force.
    pub manifest: Arc<PodManifest>,
    /// Addresses of the pod, best first.
    pub addresses: Vec<String>,
    /// Its running containers that have probes.
    pub targets: Vec<Target>,
}

/// Who is told of each result: container, probe, outcome. Called from the pod's task; must not block.
pub type Listener = Box<dyn Fn(&str, ProbeKind, &Outcome) + Send + Sync>;

/// The probes of one pod. Dropping it ends them, and with them the commands that run.
pub struct ProbeSet {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    runtime: Runtime,
    listener: Listener,
    state: Mutex<State>,
    /// Something to watch has changed.
    kick: Notify,
    /// A verdict has changed.
    news: Arc<Notify>,
}

struct State {
    watch: Watch,
    containers: Vec<Tracked>,
    runs: Vec<(String, ProbeKind, AbortHandle)>,
}

/// A run that has ended.
struct Done {
    id: String,
    kind: ProbeKind,
    /// None for the sweeping up after an earlier podling.
    outcome: Option<Outcome>,
}

impl ProbeSet {
    /// Begins to watch. `news` is notified whenever a verdict changes.
    pub fn new(runtime: Runtime, watch: Watch, news: Arc<Notify>, listener: Listener) -> Self {
        let empty = Watch { targets: Vec::new(), ..watch.clone() };
        let state = Mutex::new(State { watch: empty, containers: Vec::new(), runs: Vec::new() });
        let shared = Arc::new(Shared { runtime, listener, state, kick: Notify::new(), news });
        let task = tokio::spawn(work(shared.clone()));
        let set = Self { shared, task };
        set.watch(watch);
        set
    }

    /// Says what is to be watched from now on.
    pub fn watch(&self, watch: Watch) {
        let mut state = self.shared.lock();
        let same = Arc::ptr_eq(&state.watch.manifest, &watch.manifest)
            && state.watch.addresses == watch.addresses
            && state.watch.targets == watch.targets;
        if !same {
            state.follow(watch, clock::now());
            self.shared.kick.notify_one();
        }
    }

    /// What the probes of a container say; none for one that is not watched.
    pub fn verdict(&self, id: &str) -> Option<Verdict> {
        self.shared.lock().containers.iter().find(|c| c.target.id == id).map(|c| c.verdict.clone())
    }

    /// A handle for those who want to look at results.
    pub fn results(&self) -> Results {
        Results { shared: self.shared.clone() }
    }
}

impl Drop for ProbeSet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The latest results of a pod's probes, for display.
#[derive(Clone)]
pub struct Results {
    shared: Arc<Shared>,
}

impl Results {
    /// The latest result of each probe that has one: container, probe, result.
    pub fn read(&self) -> Vec<(String, ProbeKind, Last)> {
        let state = self.shared.lock();
        let all = state.containers.iter().flat_map(|c| ProbeKind::ALL.map(|kind| (c, kind)));
        all.filter_map(|(c, kind)| Some((c.target.name.clone(), kind, c.track(kind)?.last.clone()?)))
            .collect()
    }
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Results")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn follow(&mut self, watch: Watch, now: Moment) {
        let old = std::mem::replace(&mut self.watch, watch);
        let (manifest, targets) = (self.watch.manifest.clone(), self.watch.targets.clone());
        let edited = !Arc::ptr_eq(&old.manifest, &manifest);
        let wanted = |id: &str| targets.iter().any(|t| t.id == id);
        self.containers.retain(|c| wanted(&c.target.id));
        self.runs.retain(|(id, _, run)| {
            wanted(id) || {
                run.abort();
                false
            }
        });
        for target in targets {
            let Some(container) = container(&manifest, &target.name) else { continue };
            match self.containers.iter_mut().find(|c| c.target.id == target.id) {
                Some(known) => {
                    if let (true, Some(before)) = (edited, self::container(&old.manifest, &target.name)) {
                        known.follow(before, container, now);
                    }
                    // What was known before is only asked when it is taken on.
                    known.target = Target { restored: known.target.restored, ..target };
                }
                None => self.containers.push(Tracked::new(target, container, now)),
            }
        }
    }

    /// Begins what is due; gives the time of what comes next.
    fn begin(&mut self, now: Moment, runtime: &Runtime, jobs: &mut JoinSet<Done>) -> Option<Moment> {
        let mut next: Option<Moment> = None;
        for tracked in &mut self.containers {
            let Some(container) = container(&self.watch.manifest, &tracked.target.name) else { continue };
            for kind in ProbeKind::ALL {
                let (Some(probe), Some(due)) = (kind.of(container), tracked.due(kind)) else { continue };
                if due > now {
                    next = Some(next.map_or(due, |n| n.min(due)));
                    continue;
                }
                let id = &tracked.target.id;
                let check = Check::new(id, kind, probe, container, &self.watch.addresses);
                let (id, runtime) = (id.clone(), runtime.clone());
                tracked.begin(kind, probe, now);
                let run = jobs.spawn({
                    let id = id.clone();
                    async move {
                        let outcome = Some(check.run(&runtime).await);
                        Done { id, kind, outcome }
                    }
                });
                self.runs.push((id, kind, run));
            }
        }
        next
    }

    /// Ends commands that an earlier podling may have left, where one was running.
    fn sweep(&self, swept: &mut Vec<String>, runtime: &Runtime, jobs: &mut JoinSet<Done>) {
        swept.retain(|id| self.containers.iter().any(|c| c.target.id == *id));
        for tracked in self.containers.iter().filter(|c| c.target.restored.is_some()) {
            let id = &tracked.target.id;
            let Some(container) = container(&self.watch.manifest, &tracked.target.name) else { continue };
            if swept.contains(id) {
                continue;
            }
            swept.push(id.clone());
            // The others are swept up by their own next run.
            let kind = ProbeKind::Startup;
            if tracked.verdict.started && kind.of(container).is_some_and(|p| p.exec.is_some()) {
                let (id, runtime) = (id.clone(), runtime.clone());
                jobs.spawn(async move {
                    runtime.end_exec(&id, kind.purpose()).await;
                    Done { id, kind, outcome: None }
                });
            }
        }
    }

    /// Counts a result; true when a verdict changed.
    fn finish(&mut self, done: &Done, listener: &Listener, now: Moment) -> bool {
        let Some(outcome) = &done.outcome else { return false };
        self.runs.retain(|(id, kind, _)| *id != done.id || *kind != done.kind);
        let Some(tracked) = self.containers.iter_mut().find(|c| c.target.id == done.id) else { return false };
        let Some(container) = container(&self.watch.manifest, &tracked.target.name) else { return false };
        listener(&tracked.target.name, done.kind, outcome);
        tracked.finish(done.kind, outcome.clone(), container, now)
    }
}

fn container<'a>(manifest: &'a PodManifest, name: &str) -> Option<&'a Container> {
    let spec = manifest.pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
}

async fn work(shared: Arc<Shared>) {
    let mut jobs = JoinSet::new();
    let mut swept = Vec::new();
    loop {
        let next = {
            let mut state = shared.lock();
            state.sweep(&mut swept, &shared.runtime, &mut jobs);
            state.begin(clock::now(), &shared.runtime, &mut jobs)
        };
        let pause = async {
            match next {
                Some(at) => tokio::time::sleep(at.since(clock::now())).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            () = pause => continue,
            () = shared.kick.notified() => continue,
            Some(done) = jobs.join_next(), if !jobs.is_empty() => done,
        };
        // A run that was called off is of a container that is gone.
        let Ok(done) = done else { continue };
        if shared.lock().finish(&done, &shared.listener, clock::now()) {
            shared.news.notify_one();
        }
    }
}
