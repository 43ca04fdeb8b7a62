//! Which OCI runtime to use: crun where it works on this host, for it starts a container 10 ms sooner,
//! else runc.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::OciRuntime;
use crate::settings::Paths;
use crate::system::clock;
use crate::system::programs::{find_program, search_path};

/// How long the trial container may take. It takes 30 ms.
const TRIAL: Duration = Duration::from_secs(10);

/// The runtime to use: `setting` if there is one (`runc`, `crun`, or a path), else crun if a trial
/// container runs with it here, else runc. The verdict is kept under `/run/podling` until the next boot
/// or another crun.
pub async fn probe(setting: Option<&str>, paths: &Paths) -> OciRuntime {
    let with = |binary: Option<String>| OciRuntime { binary, ..OciRuntime::default() };
    match setting {
        Some("" | "runc") => with(None),
        Some(name) => {
            let found = if name.contains('/') { None } else { find_program(name) };
            with(Some(found.map_or_else(|| name.to_owned(), |p| p.to_string_lossy().into_owned())))
        }
        None => match find_program("crun") {
            Some(crun) if works(&crun, &paths.run().join("crun.json")).await => {
                with(Some(crun.to_string_lossy().into_owned()))
            }
            _ => with(None),
        },
    }
}

/// A verdict, and what it was about.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Verdict {
    binary: PathBuf,
    changed: (i64, i64),
    boot: String,
    works: bool,
}

async fn works(binary: &Path, cache: &Path) -> bool {
    let Ok(metadata) = fs::metadata(binary) else { return false };
    let mut verdict = Verdict {
        binary: binary.to_owned(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
        boot: clock::boot_id().to_owned(),
        works: false,
    };
    let known = fs::read(cache).ok().and_then(|data| serde_json::from_slice::<Verdict>(&data).ok());
    if let Some(known) = known {
        verdict.works = known.works;
        if known == verdict {
            return known.works;
        }
    }
    let trial = try_container(binary).await;
    verdict.works = trial.is_ok();
    match trial {
        Ok(()) => tracing::info!("using {}: a trial container ran", binary.display()),
        Err(why) => tracing::info!("using runc, since {} does not work here: {why}", binary.display()),
    }
    let saved = serde_json::to_vec(&verdict).map_err(io::Error::from).and_then(|data| {
        if let Some(dir) = cache.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(cache, data)
    });
    if let Err(e) = saved {
        tracing::debug!("cannot keep the verdict on {} in {}: {e}", binary.display(), cache.display());
    }
    verdict.works
}

/// Runs `true` in a container the way pods are run: own namespaces, a cgroup with limits.
async fn try_container(binary: &Path) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let program =
        find_program("true").and_then(|p| fs::canonicalize(p).ok()).ok_or("the host has no `true`")?;
    let bundle = tempfile::Builder::new().prefix("podling-probe-").tempdir().map_err(text)?;
    fs::create_dir(bundle.path().join("rootfs")).map_err(text)?;
    let id = format!("podling-probe-{}", std::process::id());
    let spec = trial_spec(&program, &id).to_string();
    fs::write(bundle.path().join("config.json"), spec).map_err(text)?;
    let mut base = tokio::process::Command::new(binary);
    base.arg("--root").arg(bundle.path().join("state")).env("PATH", search_path());
    base.stdin(Stdio::null()).kill_on_drop(true);
    base.args(["run", "--bundle"]).arg(bundle.path()).arg(&id);
    let verdict = match tokio::time::timeout(TRIAL, base.output()).await {
        Err(_) => Err(format!("no end of a trial container within {} s", TRIAL.as_secs())),
        Ok(Err(e)) => Err(e.to_string()),
        Ok(Ok(output)) if output.status.success() => return Ok(()),
        Ok(Ok(output)) => {
            let words = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, super::error::clean(&words)))
        }
    };
    clean_up(binary, bundle.path(), &id).await;
    verdict
}

/// What a failed trial can leave: the container, and empty cgroups.
async fn clean_up(binary: &Path, bundle: &Path, id: &str) {
    let mut delete = tokio::process::Command::new(binary);
    delete.arg("--root").arg(bundle.join("state")).args(["delete", "--force", id]);
    delete.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let _ = tokio::time::timeout(TRIAL, delete.status()).await;
    let cgroups = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(cgroups).into_iter().flatten().flatten().map(|e| e.path());
    for hierarchy in hierarchies.chain([cgroups.to_owned()]) {
        // There in few of them, if at all.
        let _ = fs::remove_dir(hierarchy.join(id));
    }
}

fn trial_spec(program: &Path, id: &str) -> Value {
    let system = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32"]
        .iter()
        .filter(|dir| Path::new(dir).is_dir())
        .map(|dir| json!({"destination": dir, "type": "bind", "source": dir, "options": ["rbind", "ro"]}));
    let own = [
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        // Not only for the look of it: newer crun opens the directory.
        json!({
            "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]
        }),
    ];
    let mounts: Vec<Value> = system.chain(own).collect();
    let namespaces = ["pid", "network", "ipc", "uts", "mount"]
        .iter()
        .map(|kind| json!({"type": kind}))
        .collect::<Vec<_>>();
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"user": {"uid": 0, "gid": 0}, "args": [program], "cwd": "/", "noNewPrivileges": true},
        "mounts": mounts,
        "linux": {
            "cgroupsPath": format!("/{id}"),
            "namespaces": namespaces,
            "resources": {
                "devices": [{"allow": false, "access": "rwm"}],
                "memory": {"limit": 64 << 20},
                "cpu": {"shares": 128, "quota": 50_000, "period": 100_000},
                "pids": {"limit": 64}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("crun");
        // By rename, so that no other thread's child holds it open for writing when it is run.
        let temporary = dir.join("crun.new");
        fs::write(&temporary, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(temporary, &path).unwrap();
        path
    }

    #[tokio::test]
    async fn a_setting_is_taken_as_given() {
        let paths = Paths::under("/nowhere");
        assert_eq!(probe(Some("runc"), &paths).await, OciRuntime::default());
        let own = probe(Some("/opt/bin/youki"), &paths).await;
        assert_eq!(own.binary.as_deref(), Some("/opt/bin/youki"));
        let absent = probe(Some("no-such-runtime"), &paths).await;
        assert_eq!(absent.binary.as_deref(), Some("no-such-runtime"));
    }

    #[tokio::test]
    async fn a_runtime_that_fails_its_trial_is_not_used_and_not_tried_twice() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("runs");
        let crun =
            script(dir.path(), &format!("echo \"$*\" >> {}; echo no hybrid >&2; exit 1", log.display()));
        let cache = dir.path().join("run/crun.json");
        assert!(!works(&crun, &cache).await);
        assert!(!works(&crun, &cache).await);
        let runs = fs::read_to_string(&log).unwrap();
        assert_eq!(runs.lines().filter(|l| l.contains(" run ")).count(), 1, "{runs}");
        assert_eq!(try_container(&crun).await.unwrap_err(), "exit status: 1: no hybrid");
    }

    #[tokio::test]
    async fn a_runtime_that_was_replaced_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("crun.json");
        assert!(!works(&script(dir.path(), "exit 1"), &cache).await);
        assert!(works(&script(dir.path(), "exit 0"), &cache).await);
        fs::write(&cache, "damaged").unwrap();
        assert!(works(&dir.path().join("crun"), &cache).await);
    }
}
