//! Starts a corpus of manifests found in the wild, for real, with stand-ins for their images.
//!
//! The corpus is not part of this repository: `PODLING_CORPUS` names its folder, with `INDEX.tsv` and
//! `IMAGES.tsv`; without it the test passes and says so. Everything runs on a copy-on-write view of this
//! machine (see `world`), since the manifests mount and make directories all over the host.
//! `PODLING_CORPUS_ONLY` picks the files whose path contains it.

mod batch;
mod images;
mod objects;
// Shared with the scenarios; only part of it is used here.
#[allow(dead_code, unused_imports)]
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use podling::manifest::{PodManifest, ReadOptions, Severity, read};

use batch::{Batch, Outcome};
use support::{Instance, Options};

/// Files that cannot start on any one machine of today, or need what a stand-in cannot be.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("docs/pods/security/hello-apparmor", "needs an AppArmor profile that is loaded"),
    ("docs/validation/invalidPod4.yaml", "its command is an empty string, which nothing can run"),
    ("yaml-oddities/quantity-milli-memory.yaml", "a limit of one byte of memory starts nothing"),
];

/// A file of the corpus that must start.
pub struct Entry {
    pub path: String,
    /// What it needs beside its image: `secret/name`, `host:/path (type)`.
    pub needs: Vec<String>,
    pub pods: Vec<PodManifest>,
    /// What the reader has against it.
    pub refused: String,
    pub text: String,
}

fn entries(corpus: &Path) -> Vec<Entry> {
    let index = fs::read_to_string(corpus.join("INDEX.tsv")).expect("INDEX.tsv");
    let only = std::env::var("PODLING_CORPUS_ONLY").unwrap_or_default();
    let mut entries = Vec::new();
    for line in index.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (path, expected) = (columns[0], columns[5].split(';').next().unwrap_or_default());
        let excepted = EXCEPTIONS.iter().any(|(prefix, _)| path.starts_with(prefix));
        if !expected.starts_with("run") || excepted || !path.contains(&only) {
            continue;
        }
        let needs = expected.strip_prefix("run-with: ").unwrap_or_default();
        let needs: Vec<String> = needs.split(", ").map(str::to_owned).filter(|n| !n.is_empty()).collect();
        let bytes = fs::read(corpus.join(path)).expect(path);
        let options = ReadOptions { node_name: "testnode".into(), ..ReadOptions::default() };
        let documents = read(&bytes, &options);
        let refused = documents.iter().flat_map(|d| &d.diagnostics).filter(|d| d.severity == Severity::Error);
        let refused = refused.map(|d| format!("{}: {}", d.path, d.text)).collect::<Vec<_>>().join("; ");
        let pods = documents.into_iter().filter_map(|d| d.pod).map(|p| *p).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        entries.push(Entry { path: path.into(), needs, pods, refused, text });
    }
    entries
}

#[test]
fn manifests_found_in_the_wild_start_with_stand_ins_for_their_images() {
    let Some(corpus) = std::env::var_os("PODLING_CORPUS").map(PathBuf::from) else {
        return println!("PODLING_CORPUS is not set: nothing started");
    };
    if world::is_outside() {
        return world::enter(&corpus, "manifests_found_in_the_wild_start_with_stand_ins_for_their_images");
    }
    let entries = entries(&corpus);
    let stand_ins = images::for_pods(&corpus, entries.iter().flat_map(|e| &e.pods));
    let batches = batch::split(&entries);
    println!("{} files in {} batches, {} images", entries.len(), batches.len(), stand_ins.len());
    let instance = Instance::with(Options {
        images: vec![support::Image::shell("test/shell:1")],
        // Some ask for more than small machines have.
        settings: "capacity: {cpu: 64}\n".into(),
        ..Options::default()
    });
    images::import(&instance, &stand_ins);
    let mut failed = BTreeMap::new();
    for batch in &batches {
        failed.extend(run(&instance, batch));
    }
    let lines: Vec<String> = failed.iter().map(|(path, why)| format!("{path}\n    {why}")).collect();
    assert!(failed.is_empty(), "{} of {} do not start:\n{}", failed.len(), entries.len(), lines.join("\n"));
}

/// Starts the files of a batch together and takes them away again; what did not start, and why.
fn run(instance: &Instance, batch: &Batch<'_>) -> BTreeMap<String, String> {
    for need in batch.entries.iter().flat_map(|e| &e.needs) {
        world::provide(instance, need);
    }
    instance.write("objects.yaml", &objects::for_pods(batch.entries.iter().flat_map(|e| &e.pods)));
    objects::protect(instance);
    for (n, entry) in batch.entries.iter().enumerate() {
        instance.write(&format!("{n:03}.yaml"), &entry.text);
    }
    let mut failed = BTreeMap::new();
    for (entry, outcome) in batch.wait(instance) {
        if let Outcome::Waits(why) | Outcome::Never(why) = outcome {
            failed.insert(entry.path.clone(), why);
        }
    }
    batch::clear(instance);
    failed
}
