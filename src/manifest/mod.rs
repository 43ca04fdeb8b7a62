//! Manifests: bytes in, typed, defaulted and validated objects out.
//!
//! This folder does no IO and knows nothing of containerd. It owns the kubelet's YAML dialect, the
//! table of fields podling honours, the API defaults, validation, and the hashes that decide what an
//! edit touches. The daemon's file source and `podling check` call the same [`read`].

mod objects;

pub use objects::*;

/// TEMP stand-in.
pub fn read(bytes: &[u8], options: &ReadOptions) -> Vec<Document> {
    use sha2::{Digest, Sha256};
    let text = String::from_utf8_lossy(bytes);
    let mut documents = Vec::new();
    let mut line = 1u32;
    let mut start = 1u32;
    let mut chunk = String::new();
    let mut chunks = Vec::new();
    for l in text.lines() {
        if l == "---" {
            chunks.push((start, std::mem::take(&mut chunk)));
            start = line + 1;
        } else {
            chunk.push_str(l);
            chunk.push('\n');
        }
        line += 1;
    }
    chunks.push((start, chunk));
    for (line, chunk) in chunks {
        if chunk.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
            continue;
        }
        let mut document = Document {
            line,
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            diagnostics: Vec::new(),
            pod: None,
        };
        let fail = |text: String| Diagnostic {
            severity: Severity::Error,
            path: String::new(),
            line,
            column: 1,
            text,
        };
        match serde_saphyr::from_str::<serde_json::Value>(&chunk) {
            Err(e) => document.diagnostics.push(fail(e.to_string())),
            Ok(value) => {
                document.kind = value["kind"].as_str().unwrap_or("").to_owned();
                document.name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
                document.namespace = value["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
                if document.kind == "ConfigMap" {
                } else if document.kind != "Pod" {
                    document.diagnostics.push(fail(format!("kind {} is not run", document.kind)));
                } else {
                    let hash = |v: &serde_json::Value| hex::encode(Sha256::digest(v.to_string().as_bytes()));
                    match serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(value.clone()) {
                        Err(e) => document.diagnostics.push(fail(e.to_string())),
                        Ok(pod) if pod.spec.is_none() => {
                            document.diagnostics.push(fail("spec is required".into()))
                        }
                        Ok(pod) => {
                            let name = match &options.name_suffix {
                                Some(s) => format!("{}-{s}", document.name),
                                None => document.name.clone(),
                            };
                            document.pod = Some(Box::new(PodManifest {
                                key: PodKey::new(document.namespace.clone(), name),
                                uid: pod.metadata.uid.clone(),
                                hashes: Hashes {
                                    manifest: hash(&value),
                                    pod: hash(&value["spec"]),
                                    ..Default::default()
                                },
                                origin: Origin { file: Default::default(), line },
                                warnings: Vec::new(),
                                pod,
                            }));
                        }
                    }
                }
            }
        }
        documents.push(document);
    }
    documents
}
