//! The pause process as PID 1 of a pid namespace.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Pause {
    /// `unshare`, which waits for it.
    outer: Child,
    pid: u32,
}

impl Pause {
    fn start() -> Self {
        let outer = Command::new("unshare")
            .args(["--pid", "--fork", env!("CARGO_BIN_EXE_podling-pause")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut pause = Self { outer, pid: 0 };
        for _ in 0..500 {
            if let [pid] = children(pause.outer.id())[..]
                && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c == "podling-pause\n")
            {
                pause.pid = pid;
                return pause;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the pause process never started");
    }

    /// Sends a signal until it is heeded: PID 1 ignores one that comes before it waits for it.
    fn stop(mut self, signal: &str) {
        for _ in 0..100 {
            let _ = Command::new("kill")
                .args(["-s", signal, &self.pid.to_string()])
                .stderr(Stdio::null())
                .status();
            std::thread::sleep(Duration::from_millis(50));
            if let Some(status) = self.outer.try_wait().unwrap() {
                return assert!(status.success(), "{status}");
            }
        }
        panic!("SIG{signal} is ignored");
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if self.outer.try_wait().is_ok_and(|status| status.is_none()) {
            if self.pid > 0 {
                let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
            }
            let _ = self.outer.kill();
            let _ = self.outer.wait();
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

#[test]
fn it_ends_when_told_to_stop() {
    for signal in ["TERM", "INT"] {
        Pause::start().stop(signal);
    }
}

#[test]
fn it_reaps_the_orphans_of_its_namespace() {
    let pause = Pause::start();
    let pid = pause.pid.to_string();
    // The subshell ends at once, so its sleepers get PID 1 as their parent.
    let script = "for i in 1 2 3 4 5; do (sleep 0.2 & sleep 1000 &); done";
    let inside =
        Command::new("nsenter").args(["--target", &pid, "--pid", "sh", "-c", script]).status().unwrap();
    assert!(inside.success());
    assert_eq!(children(pause.pid).len(), 10);
    for _ in 0..300 {
        if children(pause.pid).len() == 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(children(pause.pid).len(), 5);
    pause.stop("TERM");
}

#[test]
fn a_command_gets_an_input_that_neither_ends_nor_holds_anything() {
    let pause = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podling-pause"));
        command.stdin(Stdio::null());
        command
    };
    let listing = pause().args(["ls", "-l", "/proc/self/fd"]).output().unwrap();
    let text = String::from_utf8_lossy(&listing.stdout);
    let input = text.lines().find_map(|line| line.split_once(" 0 -> ")).expect("it has one").1;
    assert!(input.starts_with("pipe:"), "{text}");
    assert_eq!(text.matches(input).count(), 1, "no other descriptor of it is left: {text}");

    let mut reader = pause().arg("cat").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.try_wait().unwrap().is_none(), "it waits for input");
    reader.kill().unwrap();
    reader.wait().unwrap();

    let missing = pause().arg("no-such-program").output().unwrap();
    assert_eq!(missing.status.code(), Some(128));
    assert!(String::from_utf8_lossy(&missing.stderr).starts_with("cannot start no-such-program: "));
}
