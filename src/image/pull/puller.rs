//! All pulls of the node: each image once at a time, some at once, again after a while when one failed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::error::PullError;
use super::job::{Pulled, Setup, pull};
use super::progress::{Progress, Reading};
use crate::image::policy::{Decision, PullPolicy, decide};
use crate::image::reference::ImageRef;
use crate::image::store::{Image, ImageError};
use crate::registry::secrets::{Keyring, Keys, Plugins};
use crate::runtime::containerd::{Containerd, RuntimeError};
use crate::system::clock::{self, Moment};

/// How long an answer of a registry is good for: starts that asked this much later share it.
const FRESH: Duration = Duration::from_millis(100);
/// How often a registry that could not be reached is looked for.
const LOOK: Duration = Duration::from_secs(5);
/// How long a finished pull is remembered.
const REMEMBER: Duration = Duration::from_secs(60);
/// How often a person who waits is told how far it is.
const TELL: Duration = Duration::from_millis(200);

/// How pulls are done.
#[derive(Clone, Debug)]
pub struct PullerOptions {
    /// docker configuration files with credentials.
    pub credential_files: Vec<PathBuf>,
    /// CredentialProviderConfig and the directory of its programs.
    pub credential_providers: Option<(PathBuf, PathBuf)>,
    /// Images pulled at once.
    pub parallel: usize,
    /// `Always` means it: an image that cannot be checked is not run.
    pub strict: bool,
    /// First and longest wait after a failure.
    pub backoff: (Duration, Duration),
}

/// A container's wish for an image.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// Name as written.
    pub image: &'a str,
    /// imagePullPolicy.
    pub policy: PullPolicy,
    /// Credentials of the pod.
    pub keys: &'a [Keys],
    /// Since when this start is being tried; what was checked before does not count for `Always`.
    pub asked: Moment,
    /// Hash of the manifest: one that was never tried does not wait for another one's back-off.
    pub by: &'a str,
}

/// An image that can be run.
#[derive(Clone, Debug)]
pub struct Ready {
    /// It, unpacked.
    pub image: Image,
    /// Why it could not be checked for a newer one, though the policy asks for that.
    pub stale: Option<String>,
    /// What was pulled for it.
    pub pulled: Option<Pulled>,
}

/// An image that cannot be run now.
#[derive(Debug)]
pub enum NotReady {
    /// It is being pulled; [`Puller::changed`] tells when to ask again.
    Pulling(Reading),
    /// Something failed.
    Failed {
        /// What.
        error: ImageError,
        /// When it is worth asking again; none when nothing is tried by itself.
        until: Option<Moment>,
    },
}

impl From<ImageError> for NotReady {
    fn from(error: ImageError) -> Self {
        Self::Failed { error, until: None }
    }
}

enum State {
    Running { progress: Arc<Progress> },
    Done { began: Moment, ended: Moment, pulled: Pulled },
    Failed(Failed),
}

#[derive(Clone)]
struct Failed {
    error: Arc<PullError>,
    ended: Moment,
    until: Moment,
    delay: Duration,
    /// Manifests that wait for it.
    by: BTreeSet<String>,
    /// It was said once; from then on it is a back-off.
    said: bool,
}

/// The node's pulls; cheap to clone.
#[derive(Clone)]
pub struct Puller {
    inner: Arc<Inner>,
}

struct Inner {
    setup: Setup,
    options: PullerOptions,
    plugins: Option<Arc<Plugins>>,
    turns: Semaphore,
    pulls: Mutex<BTreeMap<Key, State>>,
    changed: watch::Sender<u64>,
}

/// Full name, and a hash of the pod's own credentials: with others the outcome may be another.
type Key = (String, u64);

impl Puller {
    /// For one containerd.
    pub fn new(setup: Setup, options: PullerOptions) -> Self {
        let plugins = options.credential_providers.as_ref().and_then(|(file, dir)| {
            // A wrong file is said, and pulls go on without it.
            Plugins::load(file, dir).map_err(|e| tracing::error!("{e}")).ok().map(Arc::new)
        });
        let turns = Semaphore::new(options.parallel.max(1));
        let inner =
            Inner { setup, options, plugins, turns, pulls: Mutex::default(), changed: watch::channel(0).0 };
        Self { inner: Arc::new(inner) }
    }

    fn ctd(&self) -> &Containerd {
        &self.inner.setup.ctd
    }

    pub(super) fn setup(&self) -> &Setup {
        &self.inner.setup
    }

    /// All credentials that a pull may use, a pod's own first.
    pub(super) fn keyring(&self, of_pod: &[Keys]) -> Keyring {
        Keyring {
            pull_secrets: of_pod.to_vec(),
            files: self.inner.options.credential_files.clone(),
            plugins: self.inner.plugins.clone(),
        }
    }

    fn pulls(&self) -> MutexGuard<'_, BTreeMap<Key, State>> {
        self.inner.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raised when a pull has ended or may be tried again.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Images came by another way: whoever waits for one looks again.
    pub fn arrived(&self) {
        self.tell();
    }

    /// Pulls under way, by image name.
    pub fn under_way(&self) -> Vec<(String, Reading)> {
        let reading = |(key, state): (&Key, &State)| match state {
            State::Running { progress } => Some((key.0.clone(), progress.read())),
            _ => None,
        };
        self.pulls().iter().filter_map(reading).collect()
    }

    /// The image, unpacked, or what it waits for. Begins a pull where the policy wants one; never waits for it.
    pub async fn image(&self, want: &Want<'_>) -> Result<Ready, NotReady> {
        let reference = ImageRef::parse(want.image).map_err(ImageError::from)?;
        let found = self.find(&reference, want.policy).await?;
        let present = match (decide(want.policy, found.is_some()), found) {
            (Decision::Use, Some(image)) => {
                let pulled = self.lately(&reference, want);
                return self.unpacked(Ready { image, stale: None, pulled }).await;
            }
            (Decision::NeverPull, _) => return Err(self.never(&reference).await.into()),
            (_, found) => found,
        };
        let whole = present.as_ref().filter(|i| i.unpacked).map(|i| i.digest.clone());
        match self.poll(&reference, want, whole) {
            Poll::Running(reading) => Err(NotReady::Pulling(reading)),
            Poll::Done(pulled) => match self.find(&reference, want.policy).await? {
                Some(image) => {
                    let pulled = (!pulled.unchanged).then_some(pulled);
                    self.unpacked(Ready { image, stale: None, pulled }).await
                }
                None => {
                    // Removed again since: pulled anew.
                    self.pulls().remove(&key(&reference, want.keys));
                    match self.poll(&reference, want, None) {
                        Poll::Failed(failed) => Err(self.failed(&reference, failed)),
                        Poll::Running(reading) => Err(NotReady::Pulling(reading)),
                        Poll::Done(_) => Err(NotReady::Pulling(Reading::default())),
                    }
                }
            },
            Poll::Failed(failed) => match present {
                Some(image) if failed.error.is_unreachable() && !self.inner.options.strict => {
                    let stale = Some(failed.error.to_string());
                    self.unpacked(Ready { image, stale, pulled: None }).await
                }
                _ => Err(self.failed(&reference, failed)),
            },
        }
    }

    /// Pulls `image` whatever is here, and tells how far it is.
    pub async fn pull(&self, image: &str, mut tell: impl FnMut(Reading)) -> Result<Pulled, ImageError> {
        let reference = ImageRef::parse(image)?;
        let found = self.find(&reference, PullPolicy::Always).await.ok().flatten();
        let present = found.filter(|i| i.unpacked).map(|i| i.digest);
        let by = uuid::Uuid::new_v4().to_string();
        let want = Want { image, policy: PullPolicy::Always, keys: &[], asked: clock::now(), by: &by };
        let mut changed = self.changed();
        loop {
            match self.poll(&reference, &want, present.clone()) {
                Poll::Running(reading) => tell(reading),
                Poll::Done(pulled) => match self.find(&reference, PullPolicy::Always).await {
                    // Removed again since.
                    Ok(None) => drop(self.pulls().remove(&key(&reference, want.keys))),
                    _ => return Ok(pulled),
                },
                Poll::Failed(failed) => return Err(self.pull_error(&reference, failed.error)),
            }
            // Its end or the time to tell, whichever comes first.
            let _ = tokio::time::timeout(TELL, changed.changed()).await;
        }
    }

    /// The network may be another one now: what failed for its sake is tried at once.
    pub fn network_changed(&self) {
        let mut pulls = self.pulls();
        for state in pulls.values_mut() {
            if let State::Failed(failed) = state
                && failed.error.is_unreachable()
            {
                (failed.until, failed.delay) = (clock::now(), Duration::ZERO);
            }
        }
        drop(pulls);
        self.tell();
    }

    fn tell(&self) {
        self.inner.changed.send_modify(|n| *n += 1);
    }

    /// The image that is here. Of one that is not whole, a pull may bring the rest.
    async fn find(&self, reference: &ImageRef, policy: PullPolicy) -> Result<Option<Image>, NotReady> {
        match self.ctd().image(reference).await {
            Err(ImageError::Incomplete { .. } | ImageError::Unreadable { .. })
                if policy != PullPolicy::Never =>
            {
                Ok(None)
            }
            other => Ok(other?),
        }
    }

    /// What was pulled since `want` was first said.
    fn lately(&self, reference: &ImageRef, want: &Want<'_>) -> Option<Pulled> {
        match self.pulls().get(&key(reference, want.keys)) {
            Some(State::Done { ended, pulled, .. }) if *ended >= want.asked && !pulled.unchanged => {
                Some(pulled.clone())
            }
            _ => None,
        }
    }

    async fn unpacked(&self, ready: Ready) -> Result<Ready, NotReady> {
        self.ctd().ensure_unpacked(&ready.image).await?;
        Ok(ready)
    }

    async fn never(&self, reference: &ImageRef) -> ImageError {
        let namespace = self.ctd().namespace().to_owned();
        let others = self.ctd().other_tags(reference).await;
        ImageError::NeverPull { name: reference.name(), namespace, others }
    }

    fn failed(&self, reference: &ImageRef, failed: Failed) -> NotReady {
        let until = Some(failed.until);
        let error = match failed.said {
            false => self.pull_error(reference, failed.error),
            true => ImageError::BackOff {
                name: reference.name(),
                namespace: self.ctd().namespace().to_owned(),
                delay: failed.delay,
                error: failed.error,
            },
        };
        NotReady::Failed { error, until }
    }

    fn pull_error(&self, reference: &ImageRef, error: Arc<PullError>) -> ImageError {
        ImageError::Pull { name: reference.name(), namespace: self.ctd().namespace().to_owned(), error }
    }

    /// How the pull for `want` stands; begins one when none that counts is under way or behind us.
    fn poll(&self, reference: &ImageRef, want: &Want<'_>, present: Option<String>) -> Poll {
        let (key, now) = (key(reference, want.keys), clock::now());
        let mut pulls = self.pulls();
        pulls.retain(|_, s| !matches!(s, State::Done { ended, .. } if *ended + REMEMBER < now));
        let delay = match pulls.get_mut(&key) {
            Some(State::Running { progress }) => return Poll::Running(progress.read()),
            Some(State::Done { began, pulled, .. })
                if want.policy != PullPolicy::Always || *began + FRESH >= want.asked =>
            {
                return Poll::Done(pulled.clone());
            }
            Some(State::Failed(failed)) if failed.by.contains(want.by) => {
                // What can run without an answer asks again at each start; what cannot waits.
                let waits = match present {
                    Some(_) => failed.ended >= want.asked,
                    None => now < failed.until,
                };
                if waits {
                    let answer = failed.clone();
                    failed.said = true;
                    return Poll::Failed(answer);
                }
                failed.delay
            }
            _ => Duration::ZERO,
        };
        let by = match pulls.get(&key) {
            Some(State::Failed(failed)) => failed.by.iter().cloned().chain([want.by.to_owned()]).collect(),
            _ => BTreeSet::from([want.by.to_owned()]),
        };
        let progress = Arc::<Progress>::default();
        let reading = progress.read();
        pulls.insert(key.clone(), State::Running { progress: progress.clone() });
        drop(pulls);
        let job = Begun { key, reference: reference.clone(), began: now, progress, delay, by };
        let keys = self.keyring(want.keys);
        tokio::spawn(self.clone().run(job, keys, present));
        Poll::Running(reading)
    }

    async fn run(self, job: Begun, keys: Keyring, present: Option<String>) {
        let inner = self.inner.clone();
        let (reference, progress) = (job.reference.clone(), job.progress.clone());
        // A task of its own, so that whatever happens in it has an end here.
        let task = tokio::spawn(async move {
            let _turn = inner.turns.acquire().await.ok();
            progress.begin();
            pull(&inner.setup, &reference, keys, present.as_deref(), &progress).await
        });
        let result =
            task.await.unwrap_or_else(|e| Err(RuntimeError::local("pull image", &job.key.0, e).into()));
        let (key, began) = (job.key.clone(), job.began);
        match result {
            Ok(pulled) => {
                tracing::info!(image = key.0, digest = pulled.digest, unchanged = pulled.unchanged, "pulled");
                let done = State::Done { began, ended: clock::now(), pulled };
                self.pulls().insert(key, done);
                self.tell();
            }
            Err(e) => self.end_failed(job, e).await,
        }
    }

    async fn end_failed(&self, job: Begun, error: PullError) {
        let (first, longest) = self.inner.options.backoff;
        let delay = if job.delay.is_zero() { first } else { job.delay.saturating_mul(2).min(longest) };
        let wait = delay.max(error.retry_after().unwrap_or_default());
        tracing::debug!(image = job.key.0, kind = error.kind(), "cannot pull: {error}; next try in {wait:?}");
        let server = error.unreachable_server().map(str::to_owned);
        let until = clock::now() + wait;
        let failed =
            Failed { error: Arc::new(error), ended: clock::now(), until, delay, by: job.by, said: false };
        self.pulls().insert(job.key.clone(), State::Failed(failed));
        self.tell();
        if let Some(server) = server {
            self.look_for(&job.key, &server, until).await;
        }
        tokio::time::sleep(until.since(clock::now())).await;
        self.tell();
    }

    /// Looks for a server until the back-off is over; when it is back, so is the pull.
    async fn look_for(&self, key: &Key, server: &str, until: Moment) {
        while clock::now() + LOOK < until {
            tokio::time::sleep(LOOK).await;
            let waits = |s: &State| matches!(s, State::Failed(f) if f.until == until);
            if !self.pulls().get(key).is_some_and(waits) {
                return;
            }
            if self.inner.setup.source.answers(server).await {
                if let Some(State::Failed(failed)) = self.pulls().get_mut(key) {
                    (failed.until, failed.delay) = (clock::now(), Duration::ZERO);
                }
                return self.tell();
            }
        }
    }
}

enum Poll {
    Running(Reading),
    Done(Pulled),
    Failed(Failed),
}

/// A pull that was begun.
struct Begun {
    key: Key,
    reference: ImageRef,
    began: Moment,
    progress: Arc<Progress>,
    /// The wait before this try.
    delay: Duration,
    by: BTreeSet<String>,
}

fn key(reference: &ImageRef, keys: &[Keys]) -> Key {
    let mut hasher = DefaultHasher::new();
    keys.hash(&mut hasher);
    (reference.name(), hasher.finish())
}
