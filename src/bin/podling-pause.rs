//! PID 1 of a pid namespace that the containers of a pod share.
//!
//! It does what an init must: reap the children that lost their parent, and go when told to. Nothing
//! else runs in its container, whose root file system is empty; so it is static and uses only `std`.
//!
//! Given a command it becomes that instead, with a standard input that stays open and has nothing in it.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::process::exit;

/// Large enough for `sigset_t` of glibc and musl (128 bytes), and aligned like it.
#[repr(C)]
struct SignalSet([u64; 16]);

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIG_BLOCK: i32 = 0;
const WNOHANG: i32 = 1;
const SIGPIPE: i32 = 13;
const SIG_DFL: usize = 0;
const O_RDWR: i32 = 2;

unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> i32;
    fn sigaddset(set: *mut SignalSet, signal: i32) -> i32;
    fn sigprocmask(how: i32, set: *const SignalSet, old: *mut SignalSet) -> i32;
    fn sigwait(set: *const SignalSet, signal: *mut i32) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn signal(signal: i32, handler: usize) -> usize;
    fn pipe(ends: *mut [i32; 2]) -> i32;
    fn open(path: *const c_char, flags: i32) -> i32;
    fn dup2(from: i32, to: i32) -> i32;
    fn close(fd: i32) -> i32;
    fn execvp(program: *const c_char, args: *const *const c_char) -> i32;
}

/// The exit code of a program that could not be started, as the kubelet has it.
const START_ERROR: i32 = 128;

fn main() {
    // None of them holds a zero byte.
    let command: Vec<CString> =
        std::env::args_os().skip(1).filter_map(|arg| CString::new(arg.into_vec()).ok()).collect();
    if !command.is_empty() {
        exit(become_program(&command));
    }
    let signals = block_signals();
    loop {
        match next_signal(&signals) {
            SIGCHLD => reap(),
            SIGINT | SIGTERM => exit(0),
            _ => {}
        }
    }
}

/// Only returns when that fails.
fn become_program(command: &[CString]) -> i32 {
    let args: Vec<*const c_char> = command.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect();
    if !open_endless_input() {
        eprintln!("cannot open a standard input");
        return START_ERROR;
    }
    // SAFETY: all pointers are to strings that end with a zero, and the list ends with a null pointer. Rust's
    // runtime ignores SIGPIPE, which a program inherits.
    unsafe {
        signal(SIGPIPE, SIG_DFL);
        execvp(args[0], args.as_ptr());
    }
    let error = std::io::Error::last_os_error();
    eprintln!("cannot start {}: {error}", command[0].to_string_lossy());
    START_ERROR
}

/// A pipe as standard input, by one descriptor that both reads and writes: so reading never comes to an end.
fn open_endless_input() -> bool {
    let mut ends = [-1; 2];
    // SAFETY: the pointer is valid for the call.
    if unsafe { pipe(&mut ends) } != 0 {
        return false;
    }
    let Ok(path) = CString::new(format!("/proc/self/fd/{}", ends[0])) else { return false };
    // SAFETY: the path ends with a zero; the descriptors closed are our own and used no more.
    unsafe {
        let both = open(path.as_ptr(), O_RDWR);
        let done = both >= 0 && dup2(both, 0) == 0;
        for fd in [both, ends[0], ends[1]] {
            if fd > 0 {
                close(fd);
            }
        }
        done
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
