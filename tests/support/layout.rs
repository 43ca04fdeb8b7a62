//! OCI layouts of any shape, for skopeo to push: several platforms, kinds of compression, odd layers.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A layer: its archive as stored, and the digest of what it is uncompressed.
pub struct Layer {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    pub diff_id: String,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Compressed as `kind` says: `gzip`, `zstd` or nothing.
pub fn layer(tar: &[u8], kind: &str) -> Layer {
    let (media_type, bytes) = match kind {
        "gzip" => {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut gz, tar).expect("in memory");
            ("application/vnd.oci.image.layer.v1.tar+gzip", gz.finish().expect("in memory"))
        }
        "zstd" => (
            "application/vnd.oci.image.layer.v1.tar+zstd",
            zstd::stream::encode_all(tar, 1).expect("in memory"),
        ),
        _ => ("application/vnd.oci.image.layer.v1.tar", tar.to_vec()),
    };
    Layer { media_type, bytes, diff_id: digest(tar) }
}

/// A layout under construction.
pub struct Layout<'a> {
    dir: &'a Path,
}

impl<'a> Layout<'a> {
    pub fn new(dir: &'a Path) -> Self {
        fs::create_dir_all(dir.join("blobs/sha256")).expect("writable");
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("writable");
        Self { dir }
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        fs::write(self.dir.join("blobs").join(digest.replacen(':', "/", 1)), bytes).expect("writable");
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// An image of these layers; its descriptor.
    pub fn image(&self, architecture: &str, variant: Option<&str>, layers: &[Layer]) -> Value {
        let diff_ids: Vec<_> = layers.iter().map(|l| &l.diff_id).collect();
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let layers: Vec<_> = layers.iter().map(|l| self.blob(l.media_type, &l.bytes)).collect();
        let mut platform = json!({"architecture": architecture, "os": "linux"});
        if let Some(variant) = variant {
            platform["variant"] = variant.into();
        }
        self.manifest(config, layers, Some(platform))
    }

    /// A manifest of any configuration; its descriptor.
    pub fn manifest(&self, config: Value, layers: Vec<Value>, platform: Option<Value>) -> Value {
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers});
        let mut descriptor = self.blob(media_type, manifest.to_string().as_bytes());
        if let Some(platform) = platform {
            descriptor["platform"] = platform;
        }
        descriptor
    }

    /// A manifest of something that is no image.
    pub fn artifact(&self) -> Value {
        let config = self.blob("application/vnd.example.chart.config", b"{}");
        let layer = self.blob("application/vnd.example.chart", b"not an archive");
        self.manifest(config, vec![layer], None)
    }

    /// A payload and its signature in the form of cosign; their descriptor.
    pub fn signature(&self, payload: &[u8], signature: &str) -> Value {
        let config = json!({"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers",
            "diff_ids": [digest(payload)]}});
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let mut layer = self.blob("application/vnd.dev.cosign.simplesigning.v1+json", payload);
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        self.manifest(config, vec![layer], None)
    }

    /// An index over these; its descriptor.
    pub fn index(&self, manifests: &[Value]) -> Value {
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests});
        self.blob(media_type, index.to_string().as_bytes())
    }

    /// Ends the layout; what skopeo calls it.
    pub fn end(&self, mut top: Value) -> String {
        top["annotations"] = json!({"org.opencontainers.image.ref.name": "top"});
        let index = json!({"schemaVersion": 2, "manifests": [top]});
        fs::write(self.dir.join("index.json"), index.to_string()).expect("writable");
        format!("oci:{}:top", self.dir.display())
    }
}
