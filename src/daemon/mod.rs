//! The daemon: puts the parts together, in an order in which each may fail and be tried again, and waits for
//! the signal to end. Ending it ends no pod.
//!
//! It alone knows all rooms at once: it hands the runtime to the server (`access`), the node's address and
//! images to the pods (`node`), and signals to whom they concern. It decides nothing about a pod.

mod access;
mod collect;
mod images;
mod memory;
mod node;
mod reach;
mod signals;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::access::RuntimeSlot;
use self::reach::end_containerd;
use self::signals::Signal;
use crate::manifest::{PodKey, ReadOptions};
use crate::objects::Objects;
use crate::objects::keep::Keep;
use crate::pod::board::{Board, Control, EventType};
use crate::pod::context::{Context, Routes};
use crate::pod::orphans::Orphans;
use crate::pod::status;
use crate::pod::sync_loop::{Inputs, SyncLoop};
use crate::registry::lint_all;
use crate::runtime::Runtime;
use crate::runtime::containerd::pleg;
use crate::server::{self, Backend};
use crate::settings::Settings;
use crate::source::{FileSource, FileSourceOptions, Seed};
use crate::store::{PodRecord, Store};
use crate::system::{notify, raw};

/// Worker threads: the work is waiting, not computing.
const THREADS: usize = 2;
/// Most threads for file work that would block (each `logs -f` holds one); they come and go.
const BLOCKING_THREADS: usize = 32;
/// How long the first pods wait for archives in the images directory; large ones are not waited for.
const FIRST_IMPORT: Duration = Duration::from_secs(2);
/// How often the service manager is told how many pods run.
const STATUS_LINE: Duration = Duration::from_secs(5);
/// How long a status that is not urgent may be at the mercy of a power cut.
const SYNC: Duration = Duration::from_secs(1);

/// Why the daemon cannot run at all.
#[derive(Debug, thiserror::Error)]
enum DaemonError {
    #[error("{0}")]
    System(#[from] crate::system::SystemError),
    #[error("{0}")]
    Server(#[from] crate::server::ServerError),
    #[error("{0}")]
    Store(#[from] crate::store::StoreError),
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
}

/// Runs until TERM or INT. Exit code 1 when it cannot start.
pub fn run(settings: Settings) -> ExitCode {
    raw::use_one_malloc_arena();
    raw::resolve_without_plugins();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(1))
        .thread_stack_size(2 << 20)
        .enable_all()
        .build()
        .map_err(DaemonError::Threads);
    let ended = runtime.and_then(|rt| {
        let ended = rt.block_on(Daemon::start(settings));
        // What workers were doing is continued by the next start; nothing waits for it here.
        rt.shutdown_timeout(Duration::from_millis(200));
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

struct Daemon {
    settings: watch::Sender<Arc<Settings>>,
    board: Board,
    signals: mpsc::Receiver<Signal>,
    shutdown: CancellationToken,
    objects: Objects,
    host_ips: watch::Receiver<Vec<String>>,
}

impl Daemon {
    async fn start(settings: Settings) -> Result<(), DaemonError> {
        crate::system::require_root()?;
        let endpoint = server::bind_after(&settings.paths).await?;
        let signals = signals::listen().map_err(DaemonError::Signals)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            root = %settings.paths.root.display(),
            manifests = %node::names(&settings.manifest_dirs),
            "podling starts"
        );
        let store = Arc::new(Store::open(settings.paths.state())?);
        let board = Board::default();
        let (control_tx, control) = mpsc::channel(16);
        let slot = RuntimeSlot::new(board.clone(), &settings);
        let objects = Objects::default();
        let backend = Backend {
            objects: objects.clone(),
            board: board.clone(),
            control: control_tx,
            runtime: Arc::new(slot.clone()),
            node_name: settings.node_name.clone(),
            paths: settings.paths.clone(),
        };
        let shutdown = CancellationToken::new();
        let settings = watch::channel(Arc::new(settings)).0;
        let (records, problems) = store.load();
        for problem in problems {
            tracing::error!("{}", problem.message);
            board.event(EventType::Warning, "DamagedState", None, problem.message);
        }
        // Those on their way out first: a pod that came after one of the same name is the one to show.
        let (going, staying): (Vec<_>, Vec<_>) = records.iter().partition(|r| r.spec.removing);
        for record in going.into_iter().chain(staying) {
            board.publish(status::from_record(record));
        }
        let api = tokio::spawn(server::serve_on(endpoint, backend, shutdown.clone()));
        let host_ips = node::watch_addresses();
        let mut daemon = Self { settings, board, signals, shutdown, objects, host_ips };
        // From here on also while containerd is waited for, which may take as long as it likes.
        let alive = tokio::spawn(tell_watchdog());
        notify::ready("waiting for containerd");
        let stick = records.iter().any(|r| r.status.sandbox.is_some() || r.status.is_lost());
        if let Some((handle, runtime)) = daemon.reach_containerd(stick).await {
            slot.fill(runtime.clone());
            daemon.work(runtime.clone(), store, records, control).await;
            daemon.leave_objects(&runtime).await;
            end_containerd(handle, &runtime).await;
        }
        notify::stopping();
        alive.abort();
        daemon.shutdown.cancel();
        if let Ok(Err(e)) = api.await {
            tracing::warn!("{e}");
        }
        Ok(())
    }

    /// The daemon's life once containerd answers.
    async fn work(
        &mut self,
        runtime: Runtime,
        store: Arc<Store>,
        mut records: Vec<PodRecord>,
        control: mpsc::Receiver<Control>,
    ) {
        for note in runtime.notes() {
            tracing::warn!("{note}");
            self.board.event(EventType::Warning, "NodeLimits", None, note);
        }
        let Some(mut orphans) = self.find_orphans(&runtime, &records).await else { return };
        adopt(&runtime, &mut records, &mut orphans);
        let (done_tx, done) = mpsc::unbounded_channel();
        let context = self.context(&runtime, &store, done_tx);
        let seed = self.seed(&records, &store);
        let (sources_tx, sources) = mpsc::channel(16);
        let (wakes_tx, wakes) = mpsc::channel(256);
        let (reload_tx, reload) = mpsc::channel(1);
        let settings = self.settings.borrow().clone();
        let listed = Arc::new(Notify::new());
        pleg::spawn(runtime.containerd().clone(), settings.relist, wakes_tx, listed.clone());
        let arrived = Arc::new(Notify::new());
        let mut chores = self.chores(&runtime, &arrived);
        chores.spawn(memory::give_back(listed));
        lint_all(&settings).iter().for_each(|finding| tracing::warn!("{finding}"));
        // The first pods should find the images that were laid out for them.
        let _ = tokio::time::timeout(FIRST_IMPORT, arrived.notified()).await;
        let source = Arc::new(FileSource::spawn(source_options(&settings), seed, sources_tx));
        let inputs = Inputs {
            sources,
            wakes,
            control,
            done,
            reload: reload_tx,
            files: source.clone(),
            images: arrived,
        };
        let sync_loop = tokio::spawn(SyncLoop::new(context, records, orphans).run(inputs));
        self.watch_over(sync_loop, reload, &source, &store).await;
        chores.abort_all();
        store.sync();
        if let Err(e) = store.save_source(&source.dir_identities()) {
            tracing::warn!("{e}");
        }
        runtime.ends_cleanly();
        tracing::info!("podling ends; {}", self.farewell());
    }

    /// What goes on beside the pods: images of archives, room on the disk, a network that nobody changed.
    fn chores(&self, runtime: &Runtime, arrived: &Arc<Notify>) -> JoinSet<()> {
        let settings = self.settings.borrow().clone();
        let mut chores = JoinSet::new();
        chores.spawn(node::keep_images(runtime.clone(), settings, self.board.clone(), arrived.clone()));
        chores.spawn(collect::keep_room(runtime.clone(), self.settings.subscribe(), self.board.clone()));
        chores.spawn(collect::watch_network(runtime.clone(), self.host_ips.clone()));
        chores
    }

    /// Until a signal says to end; ends the sync loop, which never ends by itself.
    async fn watch_over(
        &mut self,
        mut sync_loop: JoinHandle<()>,
        mut reload: mpsc::Receiver<()>,
        source: &FileSource,
        store: &Arc<Store>,
    ) {
        let mut line = tokio::time::interval(STATUS_LINE);
        let mut sync = tokio::time::interval(SYNC);
        loop {
            tokio::select! {
                signal = self.signals.recv() => match signal {
                    Some(Signal::Stop) | None => break,
                    Some(Signal::Reload) => self.reload(source).await,
                    Some(Signal::Dump) => self.dump(),
                },
                Some(()) = reload.recv() => self.reload(source).await,
                _ = line.tick() => notify::status(&self.summary()),
                _ = sync.tick() => make_durable(store),
                ended = &mut sync_loop => {
                    tracing::error!("the sync loop ended by itself: {ended:?}; ending so that the service manager starts podling again");
                    break;
                }
            }
        }
        sync_loop.abort();
    }

    fn keep(&self) -> Keep {
        Keep::at(self.settings.borrow().paths.kept_objects())
    }

    /// Where nothing runs, nothing stays behind: a tmpfs of podling's own goes too.
    async fn leave_objects(&self, runtime: &Runtime) {
        let idle = runtime.observe_all().await.is_ok_and(|left| left.is_empty());
        if idle && let Err(e) = tokio::task::block_in_place(|| self.keep().leave()) {
            tracing::warn!("{e}");
        }
    }

    /// What the file source begins with: what was accepted before, and which directory each manifest
    /// directory was when its pods were last known. Objects are in force at once, for the pods that go on.
    fn seed(&self, records: &[PodRecord], store: &Store) -> Seed {
        let (dirs, problem) = store.load_source();
        if let Some(problem) = problem {
            tracing::error!("{}", problem.message);
        }
        let objects = self.keep().load().unwrap_or_else(|e| {
            tracing::warn!("{e}");
            Vec::new()
        });
        self.objects.restore(&objects);
        let objects: Vec<_> = objects.into_iter().map(|kept| kept.object).collect();
        if !objects.is_empty() {
            self.objects.set_known();
        }
        let kept = records.iter().filter(|r| !r.spec.removing);
        Seed { pods: kept.map(|r| r.spec.manifest.clone()).collect(), objects, dirs }
    }

    fn context(&self, runtime: &Runtime, store: &Arc<Store>, done: mpsc::UnboundedSender<PodKey>) -> Context {
        Context {
            runtime: runtime.clone(),
            store: store.clone(),
            board: self.board.clone(),
            settings: self.settings.subscribe(),
            claims: Default::default(),
            order: Default::default(),
            routes: Routes::default(),
            done,
            host_ips: self.host_ips.clone(),
            objects: self.objects.clone(),
            keep: self.keep(),
            closing: Default::default(),
        }
    }

    async fn reload(&self, source: &FileSource) {
        notify::reloading();
        if let Some(settings) = self.read_settings() {
            source.set_options(source_options(&settings));
        }
        source.relist().await;
        notify::ready(&self.summary());
    }

    /// New settings, or, when they are wrong, the old ones and a line that says why.
    fn read_settings(&self) -> Option<Arc<Settings>> {
        let fresh = self.settings.borrow().reload();
        match fresh {
            Ok(fresh) => {
                let fresh = Arc::new(fresh);
                let waiting = self.settings.borrow().waiting_for_restart(&fresh);
                if !waiting.is_empty() {
                    tracing::warn!(
                        "changed, but in force only after a restart of podling: {}",
                        waiting.join(", ")
                    );
                }
                self.settings.send_replace(fresh.clone());
                tracing::info!("settings read again");
                Some(fresh)
            }
            Err(e) => {
                tracing::error!("the new settings are wrong, the old ones stay: {e}");
                None
            }
        }
    }
}

/// Takes up what runs: whose sandboxes they are, before housekeeping looks for those that nobody has, and the
/// status of pods whose own was lost.
fn adopt(runtime: &Runtime, records: &mut [PodRecord], orphans: &mut Orphans) {
    for (sandbox, uid) in orphans.sandboxes() {
        runtime.adopt_sandbox(sandbox, uid);
    }
    for record in records {
        if record.status.is_lost()
            && let Some(status) = orphans.status_of(&record.spec)
        {
            let (pod, uid) = (&record.spec.manifest.key, &record.spec.uid);
            tracing::info!(%pod, %uid, "its status is taken from its containers' labels");
            record.status = status;
        }
        if let Some(sandbox) = &record.status.sandbox {
            runtime.adopt_sandbox(&sandbox.id, &record.spec.uid);
        }
    }
}

/// Tells the service manager's watchdog that this process makes progress, as long as its threads do.
async fn tell_watchdog() {
    let Some(every) = notify::watchdog_interval() else { return };
    let mut due = tokio::time::interval(every);
    loop {
        due.tick().await;
        notify::watchdog();
    }
}

fn source_options(settings: &Settings) -> FileSourceOptions {
    FileSourceOptions {
        dirs: settings.manifest_dirs.clone(),
        object_dirs: settings.object_dirs.clone(),
        read: ReadOptions {
            strict: settings.strict,
            name_suffix: settings.append_node_name.then(|| settings.node_name.clone()),
            node_name: settings.node_name.clone(),
            runtime_classes: settings.runtime_classes.keys().cloned().collect(),
            // Of each file by its mode.
            exposed: false,
        },
        settle: settings.settle,
        relist: settings.file_check,
        extensionless: settings.extensionless,
    }
}

/// Syncs in the background what was written without.
fn make_durable(store: &Arc<Store>) {
    if store.needs_sync() {
        let store = store.clone();
        tokio::task::spawn_blocking(move || store.sync());
    }
}
