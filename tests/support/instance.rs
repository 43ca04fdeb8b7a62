//! One containerd and one podling, and everything a scenario does to them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{panicking, sleep};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::clean::leftovers;
use super::daemon_containerd::Containerd;
use super::fault_proxy::FaultProxy;
use super::host::{self, NetNs};
use super::image::{Image, busybox};
use super::pods::PodView;

/// How long a wait lasts before it fails. Generous: these machines are shared, and a wait that succeeds takes
/// only as long as it must.
const PATIENCE: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(50);

/// `n` seconds.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How to start an [`Instance`].
#[derive(Default)]
pub struct Options {
    /// Images in the images directory; none means `test/shell:1`.
    pub images: Vec<Image>,
    /// Further lines of the settings file.
    pub settings: String,
    /// Manifests that are there before podling starts: file name and text.
    pub manifests: Vec<(String, String)>,
    /// Let podling start its own containerd instead of giving it one.
    pub embedded: bool,
    /// Where containerd keeps images and containers, when that is a disk of its own.
    pub disk: Option<PathBuf>,
    /// Put a [`FaultProxy`] between podling and containerd.
    pub proxy: bool,
    /// Further variables of podling's environment.
    pub environment: Vec<(String, String)>,
}

/// A containerd and a podling with everything private to them.
pub struct Instance {
    root: tempfile::TempDir,
    name: String,
    cgroup_root: String,
    net: NetNs,
    containerd: Option<Containerd>,
    proxy: Option<FaultProxy>,
    environment: Vec<(String, String)>,
    daemon: Option<Child>,
    checked: bool,
}

impl Instance {
    /// With the image `test/shell:1` and nothing special.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// As told.
    pub fn with(options: Options) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // runc keeps its state by containerd namespace alone, so that must be unique on the machine.
        let name = format!("podt-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (root, net) = (host::scratch(), NetNs::new());
        let containerd = (!options.embedded)
            .then(|| Containerd::start(&root.path().join("c"), options.disk.as_deref(), &net));
        let proxy = options.proxy.then(|| {
            let upstream = containerd.as_ref().expect("a proxy needs the test's own containerd").socket();
            FaultProxy::start(&root.path().join("proxy.sock"), &upstream)
        });
        let cgroup_root = format!("/{name}");
        let environment = options.environment.clone();
        let usual = options.images.is_empty() && !options.embedded && !options.proxy;
        let mut instance = Self {
            root,
            name,
            cgroup_root,
            net,
            containerd,
            proxy,
            environment,
            daemon: None,
            checked: false,
        };
        instance.prepare(options);
        instance.start_podling();
        if usual {
            instance.until("the image is imported", Self::has_image);
        }
        instance
    }

    /// Whether the image `test/shell:1` is unpacked; pulls and exports of a test may depend on it.
    pub fn has_image(&self) -> Option<()> {
        let seen = self.podling(&["image", "inspect", "test/shell:1"]);
        String::from_utf8_lossy(&seen.stdout).contains("\"unpacked\": true").then_some(())
    }

    fn prepare(&self, options: Options) {
        for dir in ["etc/pods", "etc/podling", "var/lib/podling/images", "stage"] {
            fs::create_dir_all(self.root().join(dir)).expect("the test's directory is writable");
        }
        let mut images = options.images;
        if images.is_empty() {
            images.push(Image::shell("test/shell:1"));
        }
        for image in &images {
            let path = self.root().join("var/lib/podling/images").join(format!("{}.tar", image.slug()));
            fs::write(path, image.archive()).expect("the test's directory is writable");
        }
        // A resolver that is no loopback stub, whatever the machine's own is.
        fs::write(self.root().join("etc/resolv.conf"), "nameserver 192.0.2.53\n").expect("writable");
        let mut settings = format!(
            "cgroupRoot: {}\nresolvConf: {1}/etc/resolv.conf\ncniConfDir: {1}/etc/cni/net.d\n",
            self.cgroup_root,
            self.root().display()
        );
        if !options.settings.contains("relistPeriod") {
            settings.push_str("relistPeriod: 2s\n");
        }
        settings.push_str(&options.settings);
        fs::write(self.root().join("etc/podling/config.yaml"), settings).expect("writable");
        for (file, text) in &options.manifests {
            fs::write(self.manifests().join(file), text).expect("writable");
        }
    }

    /// podling's `--root`.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The manifest directory.
    pub fn manifests(&self) -> PathBuf {
        self.root().join("etc/pods")
    }

    /// containerd's namespace.
    pub fn namespace(&self) -> &str {
        &self.name
    }

    pub fn cgroup_root(&self) -> &str {
        &self.cgroup_root
    }

    pub fn net(&self) -> &NetNs {
        &self.net
    }

    pub fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().expect("the instance was started with a proxy")
    }

    // ---- podling and containerd as processes

    /// The binary under test; `PODLING_BIN` names another build of it.
    pub fn binary() -> PathBuf {
        std::env::var_os("PODLING_BIN").map_or_else(|| env!("CARGO_BIN_EXE_podling").into(), PathBuf::from)
    }

    /// Starts the daemon and waits until it answers.
    pub fn start_podling(&mut self) {
        self.spawn_podling();
        self.answers();
    }

    /// Kills the daemon while its successor starts.
    pub fn replace_podling(&mut self) {
        let mut old = self.daemon.take().expect("podling runs");
        self.spawn_podling();
        sleep(POLL);
        host::signal(old.id(), Signal::KILL);
        old.wait().expect("it is a child");
        self.answers();
    }

    fn answers(&mut self) {
        for _ in 0..800 {
            if self.podling(&["get", "pods"]).status.success() {
                return;
            }
            let ended = self.daemon.as_mut().is_some_and(|d| d.try_wait().is_ok_and(|s| s.is_some()));
            assert!(!ended, "podling ended while starting; its log:\n{}", self.log_tail());
            sleep(POLL);
        }
        panic!("podling does not answer after 40 s; its log:\n{}", self.log_tail());
    }

    /// Starts the daemon without waiting.
    pub fn spawn_podling(&mut self) {
        assert!(self.daemon.is_none(), "podling runs already");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("writable");
        let mut command = self.net.command(Self::binary());
        command.arg("--root").arg(self.root()).arg("run").args(["--namespace", &self.name]);
        command.args(["--node-name", "testnode", "--containerd"]);
        match (&self.proxy, &self.containerd) {
            (Some(_), _) => command.arg(self.root().join("proxy.sock")),
            (None, Some(containerd)) => command.arg(containerd.socket()),
            (None, None) => command.arg("embedded"),
        };
        let errors = log.try_clone().expect("a file can be duplicated");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.daemon = Some(command.spawn().expect("podling is built"));
    }

    /// The daemon's pid.
    pub fn podling_pid(&self) -> u32 {
        self.daemon.as_ref().expect("podling runs").id()
    }

    /// Ends the daemon by a signal and waits for it.
    pub fn end_podling(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().expect("podling runs");
        host::signal(daemon.id(), signal);
        for _ in 0..400 {
            if daemon.try_wait().is_ok_and(|s| s.is_some()) {
                return;
            }
            sleep(POLL);
        }
        let _ = daemon.kill();
        let _ = daemon.wait();
        panic!("podling did not end within 20 s of a signal; its log:\n{}", self.log_tail());
    }

    pub fn kill_podling(&mut self) {
        self.end_podling(Signal::KILL);
    }

    pub fn stop_podling(&mut self) {
        self.end_podling(Signal::TERM);
    }

    pub fn restart_podling(&mut self) {
        self.stop_podling();
        self.start_podling();
    }

    pub fn kill_containerd(&mut self) {
        self.containerd.as_mut().expect("the instance has its own containerd").kill();
    }

    pub fn stop_containerd(&mut self) {
        self.containerd.as_mut().expect("the instance has its own containerd").stop();
    }

    pub fn start_containerd(&mut self) {
        self.containerd.as_mut().expect("the instance has its own containerd").restart(&self.net);
    }

    /// The pid of the instance's own containerd.
    pub fn containerd_pid(&self) -> u32 {
        self.containerd.as_ref().and_then(|c| c.pid()).expect("the instance has its own containerd")
    }

    pub fn containerd_runs(&self) -> bool {
        let socket = self.containerd_socket();
        std::os::unix::net::UnixStream::connect(socket).is_ok()
    }

    fn containerd_socket(&self) -> PathBuf {
        match &self.containerd {
            Some(containerd) => containerd.socket(),
            // Wherever podling puts the socket of its private containerd, it is below its run directory.
            None => find_socket(&self.root().join("run/podling/containerd")).unwrap_or_default(),
        }
    }

    /// Processes that belong to no pod: podling, containerd and their children of that name.
    pub fn own_processes(&self) -> Vec<u32> {
        let daemon = self.daemon.as_ref().map(Child::id);
        let root = self.root().display().to_string();
        let private = host::processes_naming(&root).into_iter().filter(|pid| {
            let line = host::cmdline(*pid);
            let program = line.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            program == "containerd"
        });
        daemon.into_iter().chain(private).collect()
    }

    /// Pids of the shims in this instance's containerd namespace.
    pub fn shims(&self) -> Vec<u32> {
        let ours = |pid: &u32| host::cmdline(*pid).contains("containerd-shim");
        host::processes_naming(&format!("-namespace {} ", self.name)).into_iter().filter(ours).collect()
    }

    // ---- manifests

    /// Puts a manifest in place by rename, as a careful tool does.
    pub fn write(&self, file: &str, text: &str) {
        let staged = self.root().join("stage").join(file);
        fs::write(&staged, text).expect("the test's directory is writable");
        fs::rename(staged, self.manifests().join(file)).expect("the manifest directory is writable");
    }

    pub fn remove(&self, file: &str) {
        fs::remove_file(self.manifests().join(file)).expect("the manifest is there");
    }

    // ---- the command line

    /// Runs podling's client.
    pub fn podling(&self, args: &[&str]) -> Output {
        let mut command = self.net.command(Self::binary());
        command.arg("--root").arg(self.root()).args(args).stdin(Stdio::null());
        command.output().expect("podling is built")
    }

    /// Runs podling's client, which must succeed; its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let out = self.podling(args);
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "podling {args:?}: {}\n{stdout}{stderr}", out.status);
        stdout.into_owned()
    }

    /// Runs podling's client, which must fail with this code; all it printed.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let out = self.podling(args);
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "podling {args:?} printed:\n{text}");
        text.into_owned()
    }

    /// Runs `sh -c` in a container through `podling exec`; standard output without the last newline.
    pub fn exec(&self, pod: &str, script: &str) -> String {
        self.ok(&["exec", pod, "--", "sh", "-c", script]).trim_end().to_owned()
    }

    /// All pods.
    pub fn pods(&self) -> Vec<PodView> {
        let out = self.podling(&["get", "pods", "-A", "-o", "json"]);
        let list: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        list["items"].as_array().into_iter().flatten().cloned().map(PodView).collect()
    }

    /// A pod by name.
    pub fn pod(&self, name: &str) -> Option<PodView> {
        self.pods().into_iter().find(|p| p.name() == name)
    }

    /// `ctr` on this instance's containerd and namespace; standard output.
    pub fn ctr(&self, args: &[&str]) -> String {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(self.containerd_socket()).args(["--namespace", &self.name]).args(args);
        let out = ctr.output().expect("ctr, from containerd, runs");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// The host's pid of a container's first process, 0 when there is none.
    pub fn pid(&self, pod: &PodView, container: &str) -> u32 {
        let id = pod.id(container);
        let tasks = self.ctr(&["tasks", "ls"]);
        let line = tasks.lines().find(|l| !id.is_empty() && l.starts_with(&id));
        line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    }

    /// Fetches a page from inside the instance's network namespace.
    pub fn http(&self, url: &str) -> Result<String, String> {
        // A time limit from outside: Debian 12's static busybox crashes on wget's own (-T).
        let mut wget = self.net.command("timeout");
        wget.arg("3").arg(busybox()).args(["wget", "-q", "-O", "-", url]);
        let out = wget.output().expect("busybox runs");
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    }

    // ---- waiting

    /// Polls until `check` gives something.
    pub fn until<T>(&self, what: &str, check: impl FnMut(&Self) -> Option<T>) -> T {
        self.within(PATIENCE, what, check)
    }

    /// Polls until `check` gives something, for at most `limit`.
    pub fn within<T>(&self, limit: Duration, what: &str, mut check: impl FnMut(&Self) -> Option<T>) -> T {
        for _ in 0..limit.as_millis().div_ceil(POLL.as_millis()) {
            if let Some(found) = check(self) {
                return found;
            }
            sleep(POLL);
        }
        let table =
            String::from_utf8_lossy(&self.podling(&["get", "pods", "-A", "-o", "wide"]).stdout).into_owned();
        panic!("waited {limit:?} in vain until {what}\n{table}");
    }

    /// Asserts that `check` holds all the time.
    pub fn stays(&self, duration: Duration, what: &str, mut check: impl FnMut(&Self) -> bool) {
        for _ in 0..duration.as_millis().div_ceil(POLL.as_millis()) {
            assert!(check(self), "it should stay so that {what}");
            sleep(POLL);
        }
    }

    /// Waits for a pod that `check` accepts.
    pub fn until_pod(&self, name: &str, what: &str, check: impl Fn(&PodView) -> bool) -> PodView {
        self.until(&format!("pod {name} {what}"), |i| i.pod(name).filter(|p| check(p)))
    }

    /// Waits until a pod is Ready.
    pub fn ready(&self, name: &str) -> PodView {
        self.until_pod(name, "is ready", PodView::is_ready)
    }

    /// Waits until a pod is in a phase.
    pub fn phase(&self, name: &str, phase: &str) -> PodView {
        self.until_pod(name, &format!("is {phase}"), |p| p.phase() == phase)
    }

    /// Waits until a pod is known no more.
    pub fn gone(&self, name: &str) {
        self.until(&format!("pod {name} is gone"), |i| i.pod(name).is_none().then_some(()));
    }

    /// Whether `podling describe pod` contains a text; a pod that is not known yet says nothing.
    pub fn describes(&self, pod: &str, text: &str) -> bool {
        String::from_utf8_lossy(&self.podling(&["describe", "pod", pod]).stdout).contains(text)
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.root().join("podling.log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Whether the daemon's log contains a text.
    pub fn says(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    // ---- the end

    /// Removes all manifests and asserts that the machine is as before. Runs by itself when an instance is
    /// dropped after a test that passed.
    pub fn assert_clean(&mut self) {
        self.checked = true;
        if self.daemon.is_none() {
            self.start_podling();
        }
        let entries = fs::read_dir(self.manifests()).into_iter().flatten().flatten();
        entries.for_each(|e| drop(fs::remove_file(e.path())));
        self.until("all pods are gone", |i| {
            let listed = i.podling(&["get", "pods", "-A", "-o", "json"]);
            (listed.status.success() && i.pods().is_empty()).then_some(())
        });
        let mut left = Vec::new();
        for _ in 0..100 {
            left = leftovers(self);
            if left.is_empty() {
                return;
            }
            sleep(seconds(1) / 10);
        }
        panic!("after the last pod this is left:\n{}\n{}", left.join("\n"), self.log_tail());
    }

    /// Takes everything down by force, whatever state it is in.
    fn demolish(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let shims = self.shims();
        self.containerd = None;
        let own = self.own_processes();
        let root = format!("{}/", self.root().display());
        let strays =
            host::processes_in_cgroup(&self.cgroup_root).into_iter().chain(host::processes_naming(&root));
        for pid in strays.chain(shims).chain(own) {
            host::signal(pid, Signal::KILL);
        }
        for _ in 0..100 {
            if host::processes_in_cgroup(&self.cgroup_root).is_empty() && self.shims().is_empty() {
                break;
            }
            sleep(POLL);
        }
        host::unmount_under(self.root());
        for dir in host::cgroups(&self.cgroup_root) {
            let _ = fs::remove_dir(dir);
        }
        let _ = fs::remove_dir_all(Path::new("/run/containerd/runc").join(&self.name));
        let _ = fs::remove_dir_all(Path::new("/run/runc").join(&self.name));
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("--- podling's log\n{}\n--- end of podling's log", self.log_tail());
        } else if !self.checked {
            // A panic here still demolishes: the guard runs on unwinding too.
            let guard = Demolish(self);
            guard.0.assert_clean();
            return;
        }
        self.demolish();
    }
}

struct Demolish<'a>(&'a mut Instance);

impl Drop for Demolish<'_> {
    fn drop(&mut self) {
        self.0.demolish();
    }
}

fn find_socket(dir: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let mut entries: Vec<_> = fs::read_dir(dir).ok()?.flatten().collect();
    entries.sort_by_key(|e| e.path());
    let is_socket = |e: &fs::DirEntry| {
        e.file_type().is_ok_and(|t| t.is_socket()) && !e.file_name().to_string_lossy().contains("ttrpc")
    };
    entries.iter().find(|e| is_socket(e)).map(fs::DirEntry::path)
}
