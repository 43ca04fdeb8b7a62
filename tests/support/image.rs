//! Images for the tests: OCI archives made from the machine's static busybox.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// An image to be: busybox with all applets, plus what is set here.
#[derive(Clone)]
pub struct Image {
    reference: String,
    config: Value,
    files: Vec<(String, Vec<u8>, u32)>,
    /// Text that makes the first layer another one than that of other images.
    base: Option<String>,
    architecture: &'static str,
}

impl Image {
    /// Busybox under a name such as `test/shell:1`; `/etc/image` holds the name.
    pub fn shell(reference: &str) -> Self {
        let files = vec![("etc/image".to_owned(), format!("{reference}\n").into_bytes(), 0o644)];
        let config = json!({"Env": ["PATH=/bin"], "Cmd": ["sh"]});
        Self { reference: reference.to_owned(), config, files, base: None, architecture: architecture() }
    }

    /// Sets a field of the image's config, such as `Entrypoint`, `User` or `Volumes`.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    /// Adds an executable file; `path` without a leading slash. (Not every test binary needs it.)
    #[allow(dead_code)]
    pub fn program(mut self, path: &str, script: &str) -> Self {
        self.files.push((path.to_owned(), script.into(), 0o755));
        self
    }

    /// Adds a program of this machine with the libraries it is linked to, all at their own paths. (Not every test
    /// binary needs it.)
    #[allow(dead_code)]
    pub fn host_program(mut self, path: &str) -> Self {
        let listed = Command::new("ldd").arg(path).output().expect("ldd, from libc-bin, runs");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
        for file in std::iter::once(path).chain(libraries) {
            let bytes = std::fs::read(file).expect("a program and its libraries are readable");
            self.files.push((file.trim_start_matches('/').to_owned(), bytes, 0o755));
        }
        self
    }

    /// Has nothing in common with other images. (Not every test binary needs it.)
    #[allow(dead_code)]
    pub fn alone(mut self) -> Self {
        self.base = Some(self.reference.clone());
        self
    }

    /// Is for machines that nobody runs these tests on. (Not every test binary needs it.)
    #[allow(dead_code)]
    pub fn foreign(mut self) -> Self {
        self.architecture = "mips64le";
        self
    }

    /// The name without its namespace and colon, fit for a file name.
    pub fn slug(&self) -> String {
        self.reference.replace(['/', ':'], "-")
    }

    /// The whole archive.
    pub fn archive(&self) -> Vec<u8> {
        Self::archive_of(std::slice::from_ref(self))
    }

    /// One archive with several images, which share their first layer.
    pub fn archive_of(images: &[Self]) -> Vec<u8> {
        let mut blobs = BTreeMap::new();
        let manifests: Vec<Value> = images.iter().map(|image| image.add_to(&mut blobs)).collect();
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        let mut tar = tar::Builder::new(Vec::new());
        put(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644);
        put(&mut tar, "index.json", index.to_string().as_bytes(), 0o644);
        for (digest, bytes) in &blobs {
            put(&mut tar, &format!("blobs/sha256/{digest}"), bytes, 0o644);
        }
        tar.into_inner().expect("writing to memory cannot fail")
    }

    /// Adds the image's blobs; what is left is its entry of the index.
    fn add_to(&self, blobs: &mut BTreeMap<String, Vec<u8>>) -> Value {
        let mut base = base_layer().to_vec();
        if let Some(text) = &self.base {
            // Two blocks of zeroes end an archive; what is put in their place goes on with it.
            base.truncate(base.len() - 1024);
            base.extend(layer_of(&[("etc/base".to_owned(), text.clone().into_bytes(), 0o644)]));
        }
        let layers = [base, layer_of(&self.files)];
        let mut add = |media: &str, bytes: Vec<u8>| {
            let digest = hex::encode(Sha256::digest(&bytes));
            let descriptor =
                json!({"mediaType": media, "digest": format!("sha256:{digest}"), "size": bytes.len()});
            blobs.insert(digest, bytes);
            descriptor
        };
        let layers = layers.map(|l| add("application/vnd.oci.image.layer.v1.tar", l));
        let diff_ids: Vec<&Value> = layers.iter().map(|l| &l["digest"]).collect();
        let config = json!({
            "architecture": self.architecture, "os": "linux", "created": "2020-01-01T00:00:00Z",
            "config": self.config, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = add("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let media = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": media, "config": config, "layers": layers});
        let mut manifest = add(media, manifest.to_string().into_bytes());
        let tag = self.reference.rsplit(':').next().unwrap_or("latest");
        manifest["annotations"] = json!({
            "io.containerd.image.name": self.full_name(), "org.opencontainers.image.ref.name": tag,
        });
        manifest
    }

    /// The name as containerd stores it.
    pub fn full_name(&self) -> String {
        match self.reference.split_once('/').map(|(host, _)| host) {
            Some(host) if host.contains(['.', ':']) || host == "localhost" => self.reference.clone(),
            _ => format!("docker.io/{}", self.reference),
        }
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Path of the static busybox.
pub fn busybox() -> &'static Path {
    let found = ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(Path::new).find(|p| p.exists());
    found.expect("busybox-static is installed (make deps)")
}

/// Busybox and what it needs. (Not every test binary takes it apart.)
#[allow(dead_code)]
pub fn base_layer() -> &'static [u8] {
    static LAYER: OnceLock<Vec<u8>> = OnceLock::new();
    LAYER.get_or_init(|| {
        let mut tar = tar::Builder::new(Vec::new());
        for (dir, mode) in [
            ("bin", 0o755),
            ("etc", 0o755),
            ("tmp", 0o1777),
            ("root", 0o700),
            ("dev", 0o755),
            ("home", 0o755),
        ] {
            let mut header = header(mode);
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, format!("{dir}/"), std::io::empty()).expect("in memory");
        }
        put(&mut tar, "bin/busybox", &std::fs::read(busybox()).expect("busybox is readable"), 0o755);
        let list = Command::new(busybox()).arg("--list").output().expect("busybox runs");
        for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|a| *a != "busybox") {
            let mut header = header(0o777);
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, format!("bin/{applet}"), "busybox").expect("in memory");
        }
        let users = "root:x:0:0:root:/root:/bin/sh\nplayer:x:1000:1000::/home:/bin/sh\n";
        put(&mut tar, "etc/passwd", users.as_bytes(), 0o644);
        put(&mut tar, "etc/group", b"root:x:0:\nplayer:x:1000:\naudio:x:29:player\n", 0o644);
        tar.into_inner().expect("writing to memory cannot fail")
    })
}

fn layer_of(files: &[(String, Vec<u8>, u32)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content, mode) in files {
        put(&mut tar, path, content, *mode);
    }
    tar.into_inner().expect("writing to memory cannot fail")
}

fn header(mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

fn put(tar: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8], mode: u32) {
    let mut header = header(mode);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, path, bytes).expect("writing to memory cannot fail");
}
