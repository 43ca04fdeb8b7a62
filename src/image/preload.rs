//! The images directory: what lies in it at start is imported, once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::{ImportError, import_path};
use super::reference::ImageRef;
use crate::runtime::containerd::Containerd;
use crate::system::files::{self, Durability};

/// What came of the images directory.
#[derive(Debug, Default)]
pub struct PreloadReport {
    /// Names that were imported.
    pub imported: Vec<String>,
    /// Archives that had been imported before, unchanged.
    pub unchanged: Vec<PathBuf>,
    /// Archives that could not be imported. The others were, all the same.
    pub failed: Vec<ImportError>,
}

/// What was imported, as kept on disk.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    version: u32,
    /// By containerd namespace and archive.
    imports: BTreeMap<String, BTreeMap<PathBuf, Import>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Import {
    fingerprint: Fingerprint,
    images: Vec<String>,
}

/// By which an archive is known again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fingerprint {
    size: u64,
    changed: (i64, i64),
}

const VERSION: u32 = 1;

/// Imports every archive (`*.tar`, `*.tar.gz`, `*.tgz`, `*.tar.zst`) and OCI layout directory in `dir`, in
/// the order of their names. `state` is the file that remembers what was imported; archives that are
/// unchanged and whose images containerd still has are passed over. A directory that does not exist holds
/// nothing. Call it again for what is dropped in later, or [`import_path`] for one file.
pub async fn preload(dir: &Path, state: &Path, client: &Containerd, policy: Option<&Path>) -> PreloadReport {
    let mut report = PreloadReport::default();
    let archives = match archives(dir) {
        Ok(archives) => archives,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return report,
        Err(source) => {
            report.failed.push(ImportError::Open { path: dir.to_owned(), source });
            return report;
        }
    };
    let mut all = load(state);
    let known = all.imports.entry(client.namespace().to_owned()).or_default();
    known.retain(|path, _| archives.iter().any(|(p, _)| p == path));
    for (path, fingerprint) in archives {
        if let Some(import) = known.get(&path)
            && import.fingerprint == fingerprint
            && all_there(client, &import.images).await
        {
            report.unchanged.push(path);
            continue;
        }
        match import_path(client, &path, policy).await {
            Ok(images) => {
                report.imported.extend(images.iter().cloned());
                // Taken before the import, so that a change during it is seen the next time.
                known.insert(path, Import { fingerprint, images });
            }
            Err(e) => {
                known.remove(&path);
                report.failed.push(e);
            }
        }
    }
    all.version = VERSION;
    if let Err(e) = save(state, &all) {
        tracing::warn!("cannot write {}: {e}; images are imported again at the next start", state.display());
    }
    report
}

async fn all_there(client: &Containerd, images: &[String]) -> bool {
    for name in images {
        let Ok(reference) = ImageRef::parse(name) else { return false };
        match client.image(&reference).await {
            Ok(Some(image)) if image.unpacked => {}
            _ => return false,
        }
    }
    !images.is_empty()
}

fn archives(dir: &Path) -> io::Result<Vec<(PathBuf, Fingerprint)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') {
            continue;
        }
        // What identifies a layout is its index; blobs are named by their content.
        let identity = if path.is_dir() { path.join("index.json") } else { path.clone() };
        let is_archive = [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end));
        if !path.is_dir() && !is_archive {
            continue;
        }
        match fs::metadata(&identity) {
            Ok(m) => found.push((path, Fingerprint { size: m.len(), changed: (m.mtime(), m.mtime_nsec()) })),
            // A directory that is no layout, or something that went meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// A state that is absent, damaged or of another version is an empty one: all is imported again, which
/// takes time but breaks nothing.
fn load(path: &Path) -> State {
    let data = match fs::read(path) {
        Ok(data) => data,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                tracing::warn!("cannot read {}: {e}; importing all images again", path.display());
            }
            return State::default();
        }
    };
    match serde_json::from_slice::<State>(&data) {
        Ok(state) if state.version == VERSION => state,
        Ok(state) => {
            tracing::warn!(
                "{} has version {}, not {VERSION}; importing all images again",
                path.display(),
                state.version
            );
            State::default()
        }
        Err(e) => {
            let aside = path.with_extension("json.damaged");
            // Best effort: it is about to be written anew.
            let _ = fs::rename(path, &aside);
            tracing::warn!("{} is damaged ({e}) and set aside as {}", path.display(), aside.display());
            State::default()
        }
    }
}

fn save(path: &Path, state: &State) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    files::replace(path, &serde_json::to_vec_pretty(state)?, 0o600, Durability::Synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_and_layouts_are_found_and_the_rest_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar.gz", "c.tar.zst", "notes.txt", ".hidden.tar", "a.tar.part"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("layout")).unwrap();
        fs::write(dir.path().join("layout/index.json"), "{}").unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        let names: Vec<_> = archives(dir.path())
            .unwrap()
            .into_iter()
            .map(|(p, _)| p.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["a.tar.gz", "b.tar", "c.tar.zst", "layout"]);
    }

    #[test]
    fn the_state_survives_writing_and_a_damaged_one_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/images.json");
        let mut state = State { version: VERSION, ..State::default() };
        let import =
            Import { fingerprint: Fingerprint { size: 1, changed: (2, 3) }, images: vec!["x".into()] };
        state.imports.entry("podling".into()).or_default().insert("/a.tar".into(), import);
        save(&path, &state).unwrap();
        assert_eq!(load(&path), state);
        fs::write(&path, "{").unwrap();
        assert_eq!(load(&path), State::default());
        assert!(dir.path().join("sub/images.json.damaged").exists());
        fs::write(&path, r#"{"version": 99, "imports": {}}"#).unwrap();
        assert_eq!(load(&path), State::default());
    }
}
