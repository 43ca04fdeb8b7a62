//! What in the files about registries will not have the effect that was meant.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::FILE;
use super::file::parse;
use crate::settings::Settings;

/// containerd's own settings on the host.
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";

/// Findings about all files about registries that count under these settings.
pub fn lint_all(settings: &Settings) -> Vec<String> {
    let dirs = &settings.images.registry_dirs;
    let own = settings.paths.root.join("etc/containerd/config.toml");
    let files = std::iter::once(own).chain((!settings.paths.is_system()).then(|| CONTAINERD_CONFIG.into()));
    let of_files = files.flat_map(|file| lint_containerd(&file, dirs));
    dirs.iter().flat_map(|dir| lint(dir)).chain(of_files).collect()
}

/// Findings about the files below `dir` that make containerd and podling not see what was meant.
pub fn lint(dir: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_dir() {
            if name.ends_with(".toml") {
                findings.push(format!(
                    "{} is not read: it belongs into a directory named after the registry, as {}",
                    path.display(),
                    dir.join("docker.io").join(FILE).display()
                ));
            }
            continue;
        }
        findings.extend(lint_directory(&path, &name));
    }
    findings
}

fn lint_directory(dir: &Path, name: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if name.contains("://") || name.starts_with("http:") || name.starts_with("https:") {
        findings.push(format!("{} is not read: a directory's name has no scheme", dir.display()));
    }
    if matches!(name, "index.docker.io" | "registry-1.docker.io" | "hub.docker.com") {
        findings.push(format!(
            "{} is not read: images of Docker Hub are those of docker.io, so name it {}",
            dir.display(),
            dir.with_file_name("docker.io").display()
        ));
    }
    for wrong in ["host.toml", "hosts.tml", "hosts.conf", "hosts.yaml", "config.toml"] {
        let path = dir.join(wrong);
        if path.exists() && !dir.join(FILE).exists() {
            findings.push(format!("{} is not read: the file must be named {FILE}", path.display()));
        }
    }
    let file = dir.join(FILE);
    if let Ok(text) = fs::read_to_string(&file) {
        match parse(dir, &file, &text, name) {
            Ok((_, unknown)) => findings.extend(unknown),
            Err(e) => findings.push(e.to_string()),
        }
    }
    findings
}

/// Findings about the configuration file of containerd itself, whose part about registries is its CRI's alone.
/// `dirs` are the directories that are read.
pub fn lint_containerd(file: &Path, dirs: &[PathBuf]) -> Vec<String> {
    let Ok(text) = fs::read_to_string(file) else { return Vec::new() };
    let Ok(top) = text.parse::<Table>() else { return Vec::new() };
    let plugins = top.get("plugins").and_then(Value::as_table);
    let of = |plugin: &str| plugins?.get(plugin)?.get("registry")?.as_table();
    let names = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "cri"];
    let mut findings = Vec::new();
    for registry in names.into_iter().filter_map(of) {
        for key in ["mirrors", "configs", "auths"] {
            if registry.get(key).and_then(Value::as_table).is_some_and(|t| !t.is_empty()) {
                let instead = match key {
                    "mirrors" => "name mirrors in <registry>/hosts.toml",
                    _ => "TLS belongs into <registry>/hosts.toml, credentials into a docker config.json",
                };
                findings.push(format!(
                    "{}: registry.{key} is for containerd's CRI and is not read; {instead}",
                    file.display()
                ));
            }
        }
        let paths = registry.get("config_path").and_then(Value::as_str).unwrap_or_default();
        for path in paths.split(':').filter(|p| !p.is_empty()).map(Path::new) {
            if !dirs.iter().any(|d| d == path) {
                findings.push(format!(
                    "{}: registry.config_path names {}, which is not read; add it to registryConfigDirs",
                    file.display(),
                    path.display()
                ));
            }
        }
    }
    findings
}
