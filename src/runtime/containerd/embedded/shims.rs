//! Whether containers run under a given containerd, told by their shims, which outlive it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// True when a shim runs that belongs to the containerd at `socket` and to `namespace`.
pub(super) fn any(socket: &Path, namespace: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        // A process that ended meanwhile is no shim.
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|cmdline| belongs(&cmdline, socket.as_os_str().as_bytes(), namespace.as_bytes()))
}

/// A shim's command line is `containerd-shim-… -namespace NAMESPACE -id ID -address SOCKET` on all
/// versions.
fn belongs(cmdline: &[u8], socket: &[u8], namespace: &[u8]) -> bool {
    let args: Vec<&[u8]> = cmdline.split(|b| *b == 0).collect();
    let value = |flag: &[u8]| args.iter().position(|a| *a == flag).and_then(|at| args.get(at + 1));
    let program = args.first().is_some_and(|p| p.windows(15).any(|w| w == b"containerd-shim"));
    program && value(b"-namespace") == Some(&namespace) && value(b"-address") == Some(&socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_belongs_to_its_socket_and_namespace_only() {
        let shim = b"/usr/bin/containerd-shim-runc-v2\0-namespace\0podling\0-id\0ab\0-address\0/run/c.sock\0";
        assert!(belongs(shim, b"/run/c.sock", b"podling"));
        assert!(!belongs(shim, b"/run/d.sock", b"podling"));
        assert!(!belongs(shim, b"/run/c.sock", b"k8s.io"));
        assert!(!belongs(b"sh\0-namespace\0podling\0-address\0/run/c.sock\0", b"/run/c.sock", b"podling"));
        assert!(!belongs(b"", b"/run/c.sock", b"podling"));
    }
}
