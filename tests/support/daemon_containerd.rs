//! A containerd of the test's own, inside the test's network namespace.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::host::{self, NetNs};

/// A running containerd with private root, state and socket.
pub struct Containerd {
    dir: PathBuf,
    child: Option<Child>,
}

impl Containerd {
    /// Starts one under `dir`, with its content there or on a `disk` of its own, and waits until it answers.
    pub fn start(dir: &Path, disk: Option<&Path>, net: &NetNs) -> Self {
        fs::create_dir_all(dir).expect("the test's directory is writable");
        // The CRI plugin only costs start-up time; the internal gRPC of other plugins is not needed.
        let config = format!(
            "version = 2\nroot = '{1}'\nstate = '{0}/state'\n\
             disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.internal.v1.opt']\n\
             [grpc]\naddress = '{0}/c.sock'\n[ttrpc]\naddress = '{0}/t.sock'\n[debug]\nlevel = 'warn'\n",
            dir.display(),
            disk.map_or_else(|| dir.join("root"), Path::to_path_buf).display()
        );
        fs::write(dir.join("config.toml"), config).expect("the test's directory is writable");
        let mut containerd = Self { dir: dir.to_path_buf(), child: None };
        containerd.restart(net);
        containerd
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("c.sock")
    }

    /// Its pid, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub fn restart(&mut self, net: &NetNs) {
        let log = File::options().create(true).append(true).open(self.dir.join("containerd.log"));
        let log = log.expect("the test's directory is writable");
        let mut command: Command = net.command("containerd");
        command.arg("--config").arg(self.dir.join("config.toml")).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.stderr(log).spawn().expect("containerd is installed (make deps)"));
        for _ in 0..500 {
            if UnixStream::connect(self.socket()).is_ok() && self.answers() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.dir.join("containerd.log")).unwrap_or_default();
        panic!("containerd did not come up in 10 s; its log:\n{log}");
    }

    fn answers(&self) -> bool {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(self.socket()).arg("version");
        ctr.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Stops it as `systemctl stop` would; shims and containers stay.
    pub fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut child) = self.child.take() {
            host::signal(child.id(), signal);
            let _ = child.wait();
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.kill();
    }
}
