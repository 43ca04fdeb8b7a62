//! The images directory: what lies in it is imported, once.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::{ImportError, Imported, Source, import};
use super::identity;
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
    /// Images that could not be imported from an archive that holds others.
    pub left_out: Vec<ImportError>,
    /// Names that two archives hold, in words.
    pub twice: Vec<String>,
}

/// What was imported, as kept on disk.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    version: u32,
    /// By containerd namespace and archive.
    imports: BTreeMap<String, BTreeMap<PathBuf, Import>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Import {
    seen: Seen,
    /// See [`identity`].
    identity: String,
    images: Vec<String>,
    /// Why others of the archive are not among them, where that lies in what the archive is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

/// What a look at an archive tells without reading it. When it is the same, so is the archive: the time of the
/// last change of the inode cannot be set back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
    /// Files, of a directory with a layout.
    files: u64,
}

impl From<&Metadata> for Seen {
    fn from(m: &Metadata) -> Self {
        let (modified, changed) = ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        Self { size: m.len(), modified, changed, inode: m.ino(), files: 1 }
    }
}

impl Seen {
    /// Takes another file of the same layout in.
    fn add(&mut self, m: &Metadata) {
        let other = Self::from(m);
        self.size += other.size;
        self.modified = self.modified.max(other.modified);
        self.changed = self.changed.max(other.changed);
        self.files += 1;
    }
}

const VERSION: u32 = 2;

/// What archives are called, by their ends; those of the second line are refused in words.
const ENDS: [&str; 12] = [
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.zst",
    ".tzst",
    ".tar.xz",
    ".txz",
    ".tar.bz2",
    ".tbz2",
    ".tar.lz4",
    ".tar.lzma",
    ".tar.Z",
];

/// Imports what lies in a directory, and remembers it in a file.
#[derive(Debug)]
pub struct Preloader {
    dir: PathBuf,
    state: PathBuf,
    /// Archives that failed, or lack images, for what they are, which is not tried again before they change.
    broken: BTreeMap<PathBuf, (Seen, String)>,
}

impl Preloader {
    /// For the archives in `dir`; `state` is the file that remembers what was imported.
    pub fn new(dir: PathBuf, state: PathBuf) -> Self {
        Self { dir, state, broken: BTreeMap::new() }
    }

    /// What is wrong with the archives that are there.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        self.broken.values().map(|(_, text)| text.as_str())
    }

    /// Imports every archive and OCI layout directory, in the order of their names. Those that are unchanged and
    /// whose images containerd still has are passed over. A directory that does not exist holds nothing.
    pub async fn run(&mut self, client: &Containerd, policy: Option<&Path>) -> PreloadReport {
        let mut report = PreloadReport::default();
        let archives = match archives(&self.dir) {
            Ok(archives) => archives,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return report,
            Err(source) => {
                report.failed.push(ImportError::Open { path: self.dir.clone(), source });
                return report;
            }
        };
        let mut all = load(&self.state);
        let known = all.imports.entry(client.namespace().to_owned()).or_default();
        let before = known.clone();
        known.retain(|path, _| archives.iter().any(|(p, _)| p == path));
        self.broken.retain(|path, (seen, _)| archives.iter().any(|(p, s)| p == path && s == seen));
        for (path, seen) in archives {
            if let Some(import) = known.get_mut(&path)
                && is_same(&path, &seen, import).await
                && all_there(client, &import.images).await
            {
                import.seen = seen.clone();
                if !import.left_out.is_empty() {
                    self.broken.insert(path.clone(), (seen, import.left_out.join("; ")));
                }
                report.unchanged.push(path);
                continue;
            }
            // One that gave images of which one went since is worth another try.
            if self.broken.contains_key(&path) && !known.contains_key(&path) {
                continue;
            }
            match import(client, &Source::file(&path, policy)).await {
                Ok(imported) => {
                    report.twice.extend(twice(&path, &imported.names, known));
                    report.imported.extend(imported.names.iter().cloned());
                    self.remember(known, path, seen, &imported);
                    report.left_out.extend(imported.left_out);
                }
                Err(e) => {
                    known.remove(&path);
                    if e.is_of_the_archive() {
                        self.broken.insert(path, (seen, e.to_string()));
                    }
                    report.failed.push(e);
                }
            }
        }
        let changed = all.version != VERSION || all.imports.get(client.namespace()) != Some(&before);
        all.version = VERSION;
        if changed && let Err(e) = save(&self.state, &all) {
            let path = self.state.display();
            tracing::warn!("cannot write {path}: {e}; images are imported again at the next start");
        }
        report
    }

    /// Notes what an archive gave. `seen` is of before the import, so that a change during it is seen the next time.
    fn remember(
        &mut self,
        known: &mut BTreeMap<PathBuf, Import>,
        path: PathBuf,
        seen: Seen,
        imported: &Imported,
    ) {
        // An image that the signature policy refused may be taken after another look into the policy.
        if !imported.left_out.iter().all(ImportError::is_of_the_archive) {
            known.remove(&path);
            return;
        }
        let left_out: Vec<_> = imported.left_out.iter().map(ToString::to_string).collect();
        if !left_out.is_empty() {
            self.broken.insert(path.clone(), (seen.clone(), left_out.join("; ")));
        }
        let (identity, images) = (imported.identity.clone(), imported.names.clone());
        if images.is_empty() {
            known.remove(&path);
        } else {
            known.insert(path, Import { seen, identity, images, left_out });
        }
    }
}

/// Whether an archive holds what was imported from it: by the look of it, else by its lists of images.
async fn is_same(path: &Path, seen: &Seen, import: &Import) -> bool {
    if import.seen == *seen {
        return true;
    }
    // What was missing or damaged may have come, which the lists do not show.
    if !import.left_out.is_empty() {
        return false;
    }
    let path = path.to_owned();
    let identity = tokio::task::spawn_blocking(move || identity::at(&path).ok().flatten()).await;
    identity.ok().flatten().as_ref() == Some(&import.identity)
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

/// Which of `names` another archive holds too.
fn twice(path: &Path, names: &[String], known: &BTreeMap<PathBuf, Import>) -> Vec<String> {
    let others = known.iter().filter(|(other, _)| *other != path);
    let both =
        others.flat_map(|(other, i)| i.images.iter().filter(|n| names.contains(n)).map(move |n| (other, n)));
    both.map(|(other, name)| {
        format!(
            "{name} is in {} and in {}; the one imported last counts, which is now the latter",
            other.display(),
            path.display()
        )
    })
    .collect()
}

/// The archives and directories of `dir`, in the order of their names, with what a look at each tells.
pub fn archives(dir: &Path) -> io::Result<Vec<(PathBuf, Seen)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // Hidden files are those of others; a file system of its own has the last one.
        if name.starts_with('.') || name == "lost+found" {
            continue;
        }
        let is_dir = path.is_dir();
        if !is_dir && !ENDS.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let seen = if is_dir { look_at_layout(&path) } else { fs::metadata(&path).map(|m| Seen::from(&m)) };
        match seen {
            Ok(seen) => found.push((path, seen)),
            // Something that went meanwhile, or a link to nothing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    found.sort();
    Ok(found)
}

/// A layout is what its index and its blobs are; while they are being copied it grows.
fn look_at_layout(dir: &Path) -> io::Result<Seen> {
    let index = fs::metadata(dir.join("index.json"));
    let mut seen = Seen::from(&index.or_else(|_| fs::metadata(dir))?);
    let blobs = fs::read_dir(dir.join("blobs/sha256")).into_iter().flatten().flatten();
    blobs.filter_map(|e| e.metadata().ok()).for_each(|m| seen.add(&m));
    Ok(seen)
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
            tracing::info!(
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
    fn archives_and_directories_are_found_and_the_rest_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar.gz", "c.tar.zst", "d.tar.xz", "notes.txt", ".hidden.tar", "a.tar.part"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        for name in ["layout", "lost+found"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/none", dir.path().join("dangling.tar")).unwrap();
        let names: Vec<_> = archives(dir.path())
            .unwrap()
            .into_iter()
            .map(|(p, _)| p.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["a.tar.gz", "b.tar", "c.tar.zst", "d.tar.xz", "layout"]);
    }

    #[test]
    fn a_file_that_was_replaced_shows_though_size_and_time_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a.tar"), dir.path().join("b"));
        let look = || archives(dir.path()).unwrap()[0].1.clone();
        fs::write(&path, "one").unwrap();
        let before = look();
        assert_eq!(look(), before);
        fs::write(&other, "two").unwrap();
        let times = fs::FileTimes::new().set_modified(fs::metadata(&path).unwrap().modified().unwrap());
        fs::File::options().write(true).open(&other).unwrap().set_times(times).unwrap();
        fs::rename(&other, &path).unwrap();
        let after = look();
        assert_eq!((after.size, after.modified), (before.size, before.modified));
        assert_ne!(after, before);
    }

    #[test]
    fn a_layout_that_is_still_being_copied_looks_another_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = dir.path().join("layout/blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(dir.path().join("layout/index.json"), "{}").unwrap();
        let look = || archives(dir.path()).unwrap()[0].1.clone();
        let empty = look();
        fs::write(blobs.join("a"), "1").unwrap();
        let one = look();
        assert_ne!(one, empty);
        fs::write(blobs.join("a"), "12").unwrap();
        assert_ne!(look(), one);
    }

    fn import(images: &[&str]) -> Import {
        let seen = Seen { size: 1, modified: (2, 3), changed: (2, 3), inode: 4, files: 1 };
        let images = images.iter().map(|i| (*i).to_owned()).collect();
        Import { seen, identity: "x".into(), images, left_out: Vec::new() }
    }

    #[test]
    fn the_state_survives_writing_and_a_damaged_one_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/images.json");
        let mut state = State { version: VERSION, ..State::default() };
        state.imports.entry("podling".into()).or_default().insert("/a.tar".into(), import(&["x"]));
        save(&path, &state).unwrap();
        assert_eq!(load(&path), state);
        fs::write(&path, "{").unwrap();
        assert_eq!(load(&path), State::default());
        assert!(dir.path().join("sub/images.json.damaged").exists());
        fs::write(&path, r#"{"version": 99, "imports": {}}"#).unwrap();
        assert_eq!(load(&path), State::default());
    }

    #[test]
    fn a_name_that_two_archives_hold_is_said() {
        let known =
            BTreeMap::from([("/a.tar".into(), import(&["x", "y"])), ("/b.tar".into(), import(&["x"]))]);
        let said = twice(Path::new("/b.tar"), &["x".to_owned()], &known);
        assert_eq!(
            said,
            ["x is in /a.tar and in /b.tar; the one imported last counts, which is now the latter"]
        );
        assert!(twice(Path::new("/c.tar"), &["z".to_owned()], &known).is_empty());
    }
}
