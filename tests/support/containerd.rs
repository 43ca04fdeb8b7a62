//! A real containerd for tests: its own root, state, socket and namespace in a temporary directory, and
//! images built from the host's static busybox, so that no network and nothing of the host is needed.
//! Include it with `#[path = "support/containerd.rs"] mod containerd;`.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use podling::runtime::containerd::Containerd;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A running containerd. Dropping it ends it, its shims and their containers, and their mounts.
pub struct TestContainerd {
    dir: TempDir,
    namespace: String,
    child: Option<Child>,
}

impl TestContainerd {
    /// Starts one and waits until it answers.
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("podling-test-").tempdir().expect("temporary directory");
        // runc's state is keyed by the namespace's name alone, so two tests must not share one.
        let namespace = format!("t-{}", dir.path().file_name().unwrap().to_string_lossy().replace('.', "-"));
        let mut server = Self { dir, namespace, child: None };
        server.write_config();
        server.restart().await;
        server.client().await.ensure_namespace().await.expect("namespace");
        server
    }

    fn write_config(&self) {
        let dir = self.path();
        let config = format!(
            "version = 2\nroot = \"{0}/root\"\nstate = \"{0}/state\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \
             \"io.containerd.cri.v1.runtime\", \"io.containerd.internal.v1.restart\"]\n\
             [grpc]\naddress = \"{0}/c.sock\"\n[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{0}/opt\"\n",
            dir.display()
        );
        fs::write(dir.join("config.toml"), config).expect("write config");
    }

    /// Where everything of it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.path().join("c.sock")
    }

    /// The containerd namespace that is this test's own.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A new client.
    pub async fn client(&self) -> Containerd {
        Containerd::connect(&self.socket(), &self.namespace).await.expect("client")
    }

    /// Kills the server (not its shims and containers) without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill containerd");
            child.wait().expect("reap containerd");
        }
    }

    /// Kills the server, if it runs, and starts it again on what it left.
    pub async fn restart(&mut self) {
        self.kill();
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.path().join("log")).expect("log");
        let child = Command::new("containerd")
            .arg("--config")
            .arg(self.path().join("config.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("containerd is installed");
        self.child = Some(child);
        let client = self.client().await;
        let answers = async {
            while client.version().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), answers).await.is_err() {
            panic!("containerd does not answer:\n{}", self.log());
        }
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Shims, mounts and runtime state that are still there: nothing after a test that cleans up.
    pub fn leftovers(&self) -> Vec<String> {
        let shims = shims_of(self.path()).into_iter().map(|pid| format!("shim {pid}"));
        let mounts = mounts_under(self.path()).into_iter().map(|m| format!("mount {}", m.display()));
        let states = fs::read_dir(self.runc_state()).into_iter().flatten().flatten();
        let states = states.map(|e| format!("runc state {}", e.path().display()));
        shims.chain(mounts).chain(states).collect()
    }

    fn runc_state(&self) -> PathBuf {
        Path::new("/run/containerd/runc").join(&self.namespace)
    }

    /// A cgroup for this test's containers to be in.
    pub fn cgroup(&self) -> String {
        format!("/podling-{}", self.namespace)
    }
}

impl Drop for TestContainerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("containerd's log:\n{}", self.log());
        }
        // The server first, so that it restarts nothing; then what it started.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        remove_traces(self.path());
        let _ = fs::remove_dir_all(self.runc_state());
        remove_cgroup(&self.cgroup());
    }
}

/// Removes the cgroup `path` and those in it from all hierarchies; their processes must be gone or going.
pub fn remove_cgroup(path: &str) {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten().map(|e| e.path());
    for cgroup in hierarchies.chain([top.to_owned()]).map(|h| h.join(&path[1..])) {
        let inner = fs::read_dir(&cgroup).into_iter().flatten().flatten().filter(|e| e.path().is_dir());
        for leaf in inner.map(|e| e.path()).collect::<Vec<_>>().into_iter().chain([cgroup]) {
            for _ in 0..50 {
                match fs::remove_dir(&leaf) {
                    Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Ends all shims and containers of the containerd whose state is under `dir`, and unmounts what is there.
pub fn remove_traces(dir: &Path) {
    for shim in shims_of(dir) {
        let children = fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|p| p.parse().ok()).chain([shim]) {
            kill(pid);
        }
    }
    for mount in mounts_under(dir) {
        let _ = Command::new("umount").arg("-l").arg(mount).status();
    }
}

/// Sends SIGKILL.
pub fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Process ids of shims whose containerd's socket is under `dir`.
pub fn shims_of(dir: &Path) -> Vec<i32> {
    let dir = dir.to_string_lossy();
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
            cmdline.contains("containerd-shim") && cmdline.contains(&*dir)
        })
        .collect()
}

/// Mount points under `dir`, the innermost first.
pub fn mounts_under(dir: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let points = mounts.lines().filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from);
    let mut points: Vec<_> = points.filter(|p| p.starts_with(dir)).collect();
    points.reverse();
    points
}

/// How an archive is compressed.
#[derive(Clone, Copy, Debug)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Compresses `data`.
pub fn compress(data: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => data.to_vec(),
        Compression::Gzip => {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(data).expect("compress");
            gz.finish().expect("compress")
        }
        Compression::Zstd => zstd::stream::encode_all(data, 1).expect("compress"),
    }
}

/// A tar file of these regular files.
pub fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, data) in files {
        append(&mut tar, path, data, 0o644);
    }
    tar.into_inner().expect("tar")
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, data: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(mode);
    tar.append_data(&mut header, path, data).expect("tar");
}

/// The digest of a blob.
pub fn digest(data: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(data)))
}

/// A layer with busybox, its usual names, and the directories that containers mount on.
pub fn busybox_layer() -> Vec<u8> {
    let busybox = fs::read("/bin/busybox").expect("busybox-static is installed");
    let mut tar = tar::Builder::new(Vec::new());
    for dir in ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/", "run/"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        tar.append_data(&mut header, dir, std::io::empty()).expect("tar");
    }
    append(&mut tar, "bin/busybox", &busybox, 0o755);
    for name in
        ["sh", "cat", "dd", "echo", "env", "head", "id", "kill", "ls", "sleep", "stty", "true", "tty", "wc"]
    {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        tar.append_link(&mut header, format!("bin/{name}"), "busybox").expect("tar");
    }
    tar.into_inner().expect("tar")
}

/// An image to be put into archives.
pub struct TestImage {
    /// Layers, uncompressed, lowest first.
    pub layers: Vec<Vec<u8>>,
    /// The configuration's `config`.
    pub config: Value,
    /// The configuration's `architecture`.
    pub architecture: String,
}

impl TestImage {
    /// busybox for this host, running `sh`.
    pub fn busybox() -> Self {
        let second = tar_of(&[("etc/motd".to_owned(), b"hello\n".to_vec())]);
        Self {
            layers: vec![busybox_layer(), second],
            config: json!({"Cmd": ["sh"], "Env": ["PATH=/bin"]}),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            }
            .to_owned(),
        }
    }

    /// The configuration document.
    pub fn config_json(&self) -> Vec<u8> {
        let diff_ids: Vec<_> = self.layers.iter().map(|l| digest(l)).collect();
        serde_json::to_vec(&json!({
            "created": "2024-05-01T10:00:00Z",
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }))
        .expect("json")
    }

    /// The files of an OCI layout in which the image has these annotations.
    pub fn oci_files(&self, layers: Compression, annotations: Value) -> Vec<(String, Vec<u8>)> {
        let suffix = match layers {
            Compression::None => "",
            Compression::Gzip => "+gzip",
            Compression::Zstd => "+zstd",
        };
        let mut blobs = BTreeMap::new();
        let mut blob = |data: Vec<u8>, media_type: String| {
            let descriptor = json!({"mediaType": media_type, "digest": digest(&data), "size": data.len()});
            blobs.insert(digest(&data), data);
            descriptor
        };
        let config = blob(self.config_json(), "application/vnd.oci.image.config.v1+json".into());
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|l| blob(compress(l, layers), format!("application/vnd.oci.image.layer.v1.tar{suffix}")))
            .collect();
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers});
        let mut top = blob(serde_json::to_vec(&manifest).expect("json"), media_type.into());
        top["annotations"] = annotations;
        let index = json!({"schemaVersion": 2, "manifests": [top]});
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), serde_json::to_vec(&index).expect("json")),
        ];
        files.extend(blobs.into_iter().map(|(d, data)| (format!("blobs/{}", d.replace(':', "/")), data)));
        files
    }

    /// An OCI archive named `name`.
    pub fn oci_archive(&self, name: &str, layers: Compression) -> Vec<u8> {
        tar_of(&self.oci_files(layers, json!({"io.containerd.image.name": name})))
    }

    /// A `docker save` archive of the older form, layers before the manifest.
    pub fn docker_archive(&self, names: &[&str]) -> Vec<u8> {
        let config = self.config_json();
        let config_name = format!("{}.json", &digest(&config)[7..]);
        let mut files = Vec::new();
        let mut layers = Vec::new();
        for layer in &self.layers {
            let path = format!("{}/layer.tar", &digest(layer)[7..]);
            files.push((format!("{}/VERSION", &digest(layer)[7..]), b"1.0".to_vec()));
            files.push((path.clone(), layer.clone()));
            layers.push(path);
        }
        let manifest = json!([{"Config": config_name, "RepoTags": names, "Layers": layers}]);
        files.push((config_name, config));
        files.push(("manifest.json".to_owned(), serde_json::to_vec(&manifest).expect("json")));
        files.push(("repositories".to_owned(), b"{}".to_vec()));
        tar_of(&files)
    }
}
