//! Reads a corpus of manifests found in the wild and compares what podling says with what it should.
//!
//! The corpus is not part of this repository. `PODLING_CORPUS` names its folder, which holds
//! `INDEX.tsv` (path, source, licence, kinds, fields, expected, ...) and `yaml-dialect/VERDICTS.tsv`;
//! without it the tests pass and say so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use podling::manifest::{Code, Diagnostic, Document, ReadOptions, Severity, read};

/// Files on which podling and the index differ on purpose, or which need more than reading.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("docs/pods/resource/cpu-request-limit-2.yaml", "more cpu than any node has is for admission to find"),
    (
        "docs/pods/resource/memory-request-limit-3.yaml",
        "more memory than the node has is for admission to find",
    ),
    ("yaml-oddities/.hidden.yaml", "the name of a file is the source's business"),
    ("yaml-oddities/manifest.yaml.bak", "the name of a file is the source's business"),
    ("yaml-oddities/empty.yaml", "no document; the source keeps the last good one"),
    ("yaml-oddities/whitespace-only.yaml", "no document; the source keeps the last good one"),
];

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("PODLING_CORPUS").map(PathBuf::from);
    if folder.is_none() {
        println!("PODLING_CORPUS is not set: nothing compared");
    }
    folder
}

fn options() -> ReadOptions {
    ReadOptions { node_name: "node1".into(), ..ReadOptions::default() }
}

fn diagnostics(documents: &[Document]) -> Vec<Diagnostic> {
    documents.iter().flat_map(|document| document.diagnostics.clone()).collect()
}

/// What is wrong with podling's verdict, or nothing.
fn mismatch(expected: &str, documents: &[Document]) -> Option<String> {
    let found = diagnostics(documents);
    let errors: Vec<&Diagnostic> = found.iter().filter(|d| d.severity == Severity::Error).collect();
    let first =
        errors.iter().find(|d| d.code != Code::Unsupported).map(|d| format!("{}: {}", d.path, d.text));
    let (verdict, warned) = expected.split_once("warn: ").unwrap_or((expected, ""));
    let verdict = verdict.trim_end_matches([' ', ';']);
    if verdict.starts_with("reject") {
        return errors.is_empty().then(|| "accepted".to_owned());
    }
    if !warned.is_empty() && found.is_empty() {
        return Some("warns of nothing".to_owned());
    }
    if verdict.is_empty() {
        return None;
    }
    if let Some(first) = first {
        return Some(format!("refused: {first}"));
    }
    if verdict.starts_with("support") && !errors.is_empty() {
        return Some("a ConfigMap or Secret is refused".to_owned());
    }
    if verdict.starts_with("run") && errors.is_empty() && documents.iter().all(|d| d.pod.is_none()) {
        return Some("no pod came out".to_owned());
    }
    let missing: Vec<&str> = warnings_named(warned).into_iter().filter(|word| !says(&found, word)).collect();
    (!missing.is_empty()).then(|| format!("says nothing of {}", missing.join(", ")))
}

/// The field names and kinds in the index's words on warnings.
fn warnings_named(text: &str) -> Vec<&str> {
    let text = text.split(" (").next().unwrap_or_default();
    let text = text.strip_prefix("ignored kinds ").unwrap_or(text);
    // Null items are shown as what they become.
    let text = text.strip_prefix("null items in ").unwrap_or(text);
    let text = text.strip_prefix("unfilled ").map_or(text, |_| "NODE_NAME");
    text.split([',', ' '])
        .filter(|word| word.chars().any(|c| c.is_ascii_alphabetic()))
        .filter(|word| {
            ![
                "unknown", "field", "fields", "ignored", "kinds", "in", "one", "file", "Pods", "extended",
                "resource", "and",
            ]
            .contains(word)
        })
        .filter_map(|word| word.rsplit('.').next())
        .collect()
}

fn says(found: &[Diagnostic], word: &str) -> bool {
    found.iter().any(|d| d.text.contains(word) || d.path.contains(word))
}

fn has_places(documents: &[Document]) -> bool {
    diagnostics(documents).iter().all(|d| d.line > 0 && d.column > 0)
}

#[test]
fn every_manifest_of_the_corpus_gets_the_verdict_it_deserves() {
    let Some(folder) = corpus() else { return };
    let index = fs::read_to_string(folder.join("INDEX.tsv")).expect("INDEX.tsv");
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for line in index.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (path, expected) = (columns[0], columns[5]);
        let documents = read(&fs::read(folder.join(path)).expect(path), &options());
        let errors = documents.iter().any(|d| d.diagnostics.iter().any(|d| d.severity == Severity::Error));
        *seen.entry(if errors { "refused" } else { "accepted" }).or_default() += 1;
        if std::env::var_os("PODLING_CORPUS_SHOW").is_some() {
            show(path, expected, &documents);
        }
        assert!(has_places(&documents), "{path}: a finding without a place");
        if let Some(why) = mismatch(expected, &documents)
            && !EXCEPTIONS.iter().any(|(exception, _)| *exception == path)
        {
            wrong.push(format!("{path}\n    expected  {expected}\n    podling   {why}"));
        }
    }
    println!("{seen:?}");
    assert!(wrong.is_empty(), "{} mismatches:\n{}", wrong.len(), wrong.join("\n"));
}

fn show(path: &str, expected: &str, documents: &[Document]) {
    println!("== {path}  [{expected}]");
    for document in documents {
        println!("   {} {}/{}", document.kind, document.namespace, document.name);
        for d in &document.diagnostics {
            println!("     {:?} {:?} {}:{} {}: {}", d.severity, d.code, d.line, d.column, d.path, d.text);
        }
    }
}

#[test]
fn the_exceptions_name_files_of_the_corpus() {
    let Some(folder) = corpus() else { return };
    for (path, _) in EXCEPTIONS {
        assert!(folder.join(path).exists(), "{path}");
    }
}

#[test]
fn whole_files_of_random_damage_never_break_the_reader() {
    let Some(folder) = corpus() else { return };
    let index = fs::read_to_string(folder.join("INDEX.tsv")).expect("INDEX.tsv");
    for line in index.lines().skip(1).step_by(7) {
        let path: &Path = Path::new(line.split('\t').next().expect("a path"));
        let bytes = fs::read(folder.join(path)).expect("a manifest");
        // A cut at any point is what a crash leaves behind.
        for cut in (0..bytes.len().min(4000)).step_by(61) {
            let documents = read(&bytes[..cut], &options());
            assert!(has_places(&documents), "{}: cut at {cut}", path.display());
        }
    }
}
