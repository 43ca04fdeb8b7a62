//! A copy-on-write view of this machine: whatever is written outside the temporary directory is gone after.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Instance;

const INSIDE: &str = "PODLING_CORPUS_INSIDE";

/// Run by `unshare --mount` with the new root's directory, the corpus, the directory of the binaries, and the
/// command as arguments. Those two may be on mounts of their own, which an overlay of the root does not show.
const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
for dir in /proc /sys /dev /tmp "$2" "$3"; do
    mkdir -p "./$dir"
    mount --rbind "$dir" "./$dir"
done
mount -t tmpfs tmpfs run
mkdir -p .old
pivot_root . .old
cd /
umount -l .old
mount --make-rshared /
shift 3
exec "$@"
"#;

/// Whether this process is still on the machine itself.
pub fn is_outside() -> bool {
    std::env::var_os(INSIDE).is_none()
}

/// Runs one test of this binary inside and passes its verdict on.
pub fn enter(corpus: &Path, test: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let this = std::env::current_exe().expect("this program has a path");
    let binaries = Path::new(env!("CARGO_BIN_EXE_podling")).parent().expect("it is in a directory");
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT, "enter"])
        .arg(dir.path())
        .arg(corpus)
        .arg(binaries)
        .arg(this)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare, from util-linux, runs");
    assert!(status.success(), "see above");
}

/// Makes what a file needs to be there.
pub fn provide(instance: &Instance, need: &str) {
    if let Some((path, kind)) = need.strip_prefix("host:").and_then(|n| n.split_once(" (")) {
        if kind.starts_with("Directory") {
            fs::create_dir_all(path).expect("on a view of our own");
        } else if !Path::new(path).exists() {
            fs::write(path, "{}").expect("on a view of our own");
        }
    }
    if let Some(profile) = need.strip_prefix("seccomp-profile/") {
        let path = instance.root().join("var/lib/podling/seccomp").join(profile);
        fs::create_dir_all(path.parent().expect("below a directory")).expect("writable");
        fs::write(path, r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#).expect("writable");
    }
}
