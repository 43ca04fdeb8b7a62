//! PID 1 of a pid namespace that the containers of a pod share.
//!
//! It does what an init must: reap the children that lost their parent, and go when told to. Nothing
//! else runs in its container, whose root file system is empty; so it is static and uses only `std`.

use std::process::exit;

/// Large enough for `sigset_t` of glibc and musl (128 bytes), and aligned like it.
#[repr(C)]
struct SignalSet([u64; 16]);

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIG_BLOCK: i32 = 0;
const WNOHANG: i32 = 1;

unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> i32;
    fn sigaddset(set: *mut SignalSet, signal: i32) -> i32;
    fn sigprocmask(how: i32, set: *const SignalSet, old: *mut SignalSet) -> i32;
    fn sigwait(set: *const SignalSet, signal: *mut i32) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

fn main() {
    let signals = block_signals();
    loop {
        match next_signal(&signals) {
            SIGCHLD => reap(),
            SIGINT | SIGTERM => exit(0),
            _ => {}
        }
    }
}

/// Blocks what we wait for. The kernel drops unhandled signals sent to PID 1 from inside its namespace,
/// except blocked ones, which it queues: that is why this waits instead of installing handlers.
fn block_signals() -> SignalSet {
    let mut set = SignalSet([0; 16]);
    // SAFETY: `set` is a valid, writable sigset_t for the duration of the calls; the old mask is not asked for.
    unsafe {
        sigemptyset(&mut set);
        for signal in [SIGINT, SIGTERM, SIGCHLD] {
            sigaddset(&mut set, signal);
        }
        sigprocmask(SIG_BLOCK, &set, std::ptr::null_mut());
    }
    set
}

fn next_signal(set: &SignalSet) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are valid for the call, which blocks until one of the signals is pending.
    unsafe { sigwait(set, &mut signal) };
    signal
}

/// One SIGCHLD may stand for many children.
fn reap() {
    // SAFETY: a null status is allowed; WNOHANG never blocks.
    while unsafe { waitpid(-1, std::ptr::null_mut(), WNOHANG) } > 0 {}
}
