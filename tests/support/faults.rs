//! What the proxies of the harness have in common: the rules of what they break, what they were asked, and a
//! thread to serve on.

use std::convert::Infallible;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::host::NetNs;

struct Rule<F> {
    path: &'static str,
    fault: F,
    /// How many more requests it applies to.
    left: usize,
}

struct Kept<F> {
    rules: Vec<Rule<F>>,
    requests: Vec<String>,
}

/// Which requests suffer which fault; clones share it.
pub struct Faults<F>(Arc<Mutex<Kept<F>>>);

impl<F> Clone for Faults<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F> Default for Faults<F> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Kept { rules: Vec::new(), requests: Vec::new() })))
    }
}

impl<F: Clone> Faults<F> {
    /// From now on all requests for `path` suffer `fault`: its end, such as `Tasks/Kill`, for containerd, any
    /// part of it for a registry.
    pub fn always(&self, path: &'static str, fault: F) {
        self.times(usize::MAX, path, fault);
    }

    /// The next `count` requests for `path` suffer `fault`.
    pub fn times(&self, count: usize, path: &'static str, fault: F) {
        self.lock().rules.push(Rule { path, fault, left: count });
    }

    /// Ends all faults that are not in progress.
    pub fn heal(&self) {
        self.lock().rules.clear();
    }

    /// The requests so far, as they were noted.
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    /// How many requests have this in them.
    pub fn count(&self, text: &str) -> usize {
        self.lock().requests.iter().filter(|r| r.contains(text)).count()
    }

    /// Notes a request; the fault it suffers by the first rule whose path `is_meant` by it.
    pub(super) fn meets(&self, note: String, is_meant: impl Fn(&str) -> bool) -> Option<F> {
        let mut kept = self.lock();
        kept.requests.push(note);
        let rule = kept.rules.iter_mut().find(|r| r.left > 0 && is_meant(r.path))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Kept<F>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// What serves until this is dropped.
pub struct Served {
    _stop: oneshot::Sender<Infallible>,
}

/// Serves on a thread of its own, in a network namespace where one is given, and returns when `listen` has made
/// what `serve` serves.
pub fn serve<L, S>(
    net: Option<&NetNs>,
    listen: impl FnOnce() -> L + Send + 'static,
    serve: impl FnOnce(L) -> S + Send + 'static,
) -> Served
where
    S: Future<Output = ()>,
{
    let ns = net.map(|net| fs::File::open(net.path()).expect("the namespace is there"));
    let (stop, stopped) = oneshot::channel::<Infallible>();
    let (ready, listening) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::os::fd::AsFd;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        if let Some(ns) = ns {
            rustix::thread::move_into_link_name_space(ns.as_fd(), kind).expect("tests run as root");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            let listener = listen();
            ready.send(()).expect("the test waits");
            tokio::select! {
                () = serve(listener) => {}
                _ = stopped => {}
            }
        });
    });
    listening.recv().expect("it can listen");
    Served { _stop: stop }
}

/// Listens on a port of the loopback of this thread's network namespace.
pub fn loopback(port: u16) -> tokio::net::TcpListener {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    listener.set_nonblocking(true).expect("a socket can be non-blocking");
    tokio::net::TcpListener::from_std(listener).expect("a listener can join the runtime")
}
