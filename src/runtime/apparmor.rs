//! podling's own AppArmor profile for containers, loaded into the kernel at start.
//!
//! containerd loads its profile only when a container is made through CRI, so on a node of ours nobody would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::system::files::{self, Durability};
use crate::system::node::{APPARMOR_DEFAULT, APPARMOR_PROFILES, NodeFeatures, is_loaded};
use crate::system::programs::{find_program, search_path};

/// Compiles profiles and hands them to the kernel; of the package `apparmor`.
const PARSER: &str = "apparmor_parser";
/// How long it may take. It takes 0.1 s; on small boards some seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// What distributions have below `/etc/apparmor.d`. A parser refuses a profile that includes what is not there.
const PARTS: [(&str, &str, &str); 3] = [
    // Without a word on it, newer parsers deny what older kernels do not know, user namespaces for example.
    ("ABI", "abi/3.0", "abi <abi/3.0>,"),
    ("TUNABLES", "tunables/global", "#include <tunables/global>"),
    ("BASE", "abstractions/base", "#include <abstractions/base>"),
];

/// The rules. Containers may do what their capabilities, mounts and system call filter let them; what these do not
/// cover are the files of `/proc` and `/sys` by which the machine itself is steered, mounting, and other processes.
/// A change of it needs another [`APPARMOR_DEFAULT`], since the one that is loaded stays as it is.
const RULES: &str = r"%ABI%
%TUNABLES%

profile %NAME% flags=(attach_disconnected,mediate_deleted) {
  %BASE%

  file,
  network,
  capability,
  umount,
  deny mount,

  # Processes of the host and OCI runtimes with a profile of their own end containers.
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
  # Between containers, also where the kernel stacks this profile on the runtime's: crun//&podling-default-1.
  signal (send,receive) peer=**podling-default-**,
  ptrace (trace,read,tracedby,readby) peer=**podling-default-**,

  # Of /proc only processes and kernel.shm* are written to.
  deny @{PROC}/* w,
  deny @{PROC}/{[^0-9s],s[^y],sy[^s],sys[^/]}*/** w,
  deny @{PROC}/sys/{[^k],k[^e]}** w,
  deny @{PROC}/sys/kernel/{[^s],s[^h],sh[^m]}** w,
  deny @{PROC}/{kcore,kmem,mem,sysrq-trigger} rwklx,

  # Of /sys only cgroups.
  deny /sys/{[^f],f[^s]}*/** wklx,
  deny /sys/fs/{[^c],c[^g],cg[^r]}*/** wklx,
  deny /sys/{firmware,kernel/security,devices/virtual/powercap}/** rwklx,
}
";

/// Has the default profile loaded where AppArmor is on, and notes it in `node`. Where that fails, another one for
/// containers serves if there is one, and [`NodeFeatures::notes`] tells if there is none.
pub(super) async fn load(node: &mut NodeFeatures, run: &Path) {
    let loaded = |name| fs::read_to_string(APPARMOR_PROFILES).is_ok_and(|p| is_loaded(&p, name));
    if !node.apparmor || loaded(APPARMOR_DEFAULT) {
        return;
    }
    match parse(find_program(PARSER), &run.join("apparmor-profile")).await {
        Ok(()) => node.apparmor_profile = Some(APPARMOR_DEFAULT.to_owned()),
        Err(e) => tracing::warn!("cannot load the AppArmor profile {APPARMOR_DEFAULT}: {e}"),
    }
}

async fn parse(parser: Option<PathBuf>, file: &Path) -> Result<(), String> {
    let parser = parser
        .ok_or_else(|| format!("there is no {PARSER}: install the package apparmor and restart podling"))?;
    let text = profile(Path::new("/etc/apparmor.d"));
    files::replace(file, text.as_bytes(), 0o600, Durability::Lazy)
        .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let run = Command::new(parser)
        .args(["--skip-cache", "--replace"])
        .arg(file)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match timeout(PATIENCE, run).await {
        Err(_) => return Err(format!("{PARSER} does not end within {} s", PATIENCE.as_secs())),
        Ok(Err(e)) => return Err(format!("cannot run {PARSER}: {e}")),
        Ok(Ok(output)) => output,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{PARSER}: {}: {}", output.status, said.trim())),
    }
}

/// The text for a host that has its parts in `dir`.
fn profile(dir: &Path) -> String {
    PARTS.iter().fold(RULES.replace("%NAME%", APPARMOR_DEFAULT), |text, (mark, part, line)| {
        let line = match (dir.join(part).exists(), *mark) {
            (true, _) => line,
            (false, "TUNABLES") => "@{PROC}=/proc/",
            (false, _) => "",
        };
        text.replace(&format!("%{mark}%"), line)
    })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn a_change_of_the_rules_goes_with_another_name() {
        let rules = hex::encode(Sha256::digest(RULES));
        assert_eq!(
            (APPARMOR_DEFAULT, &rules[..16]),
            ("podling-default-1", "a081ddb6579ebfdc"),
            "raise the number in the name"
        );
    }

    #[test]
    fn only_what_the_host_has_is_included() {
        let dir = tempfile::tempdir().unwrap();
        let bare = profile(dir.path());
        assert!(
            bare.contains("@{PROC}=/proc/\n") && !bare.contains("include") && !bare.contains('%'),
            "{bare}"
        );
        for (_, part, _) in PARTS {
            fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        let full = profile(dir.path());
        assert!(full.starts_with("abi <abi/3.0>,\n#include <tunables/global>\n"), "{full}");
        assert!(
            full.contains("profile podling-default-1 flags") && full.contains("#include <abstractions/base>")
        );
        assert!(!full.contains("@{PROC}=") && !full.contains('%'), "{full}");
    }

    #[tokio::test]
    async fn what_keeps_the_profile_from_being_loaded_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("profile");
        let with = async |program: &str| parse(find_program(program), &file).await;
        assert_eq!(
            with("no-such-program").await.unwrap_err(),
            "there is no apparmor_parser: install the package apparmor and restart podling"
        );
        assert_eq!(with("true").await, Ok(()));
        assert!(fs::read_to_string(&file).unwrap().contains("profile podling-default-1 "));
        let e = with("false").await.unwrap_err();
        assert!(e.starts_with("apparmor_parser: exit status: 1"), "{e}");
        let nowhere = dir.path().join("none/profile");
        let e = parse(find_program("true"), &nowhere).await.unwrap_err();
        assert!(e.starts_with(&format!("cannot write {}: ", nowhere.display())), "{e}");
    }

    #[tokio::test]
    async fn nothing_is_loaded_where_apparmor_is_off() {
        let mut node = crate::system::node::node_features();
        (node.apparmor, node.apparmor_profile) = (false, None);
        let dir = tempfile::tempdir().unwrap();
        load(&mut node, dir.path()).await;
        assert_eq!(node.apparmor_profile, None);
        assert!(!dir.path().join("apparmor-profile").exists());
    }
}
