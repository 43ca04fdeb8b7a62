//! After a power cut: an image whose program is empty or no program is unpacked again before it runs.
//!
//! containerd takes a layer that it committed for whole for ever, though its files may have been lost with the
//! page cache. So after a boot that nothing announced, each image is looked into once, before its first start.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Container;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::{Runtime, StartError};
use crate::image::{self, Image};
use crate::manifest::PodManifest;
use crate::settings::Paths;
use crate::system::clock;
use crate::system::files::{self, Durability};

/// Bytes that are read of a program: its header, or the first line of a script.
const HEAD: usize = 256;
/// Where the libraries of programs are.
const LIBRARIES: [&str; 5] = ["lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib"];
/// Scripts run by scripts that are followed, as the kernel does.
const DEPTH: usize = 4;

/// Whether images are to be looked into, and which ones were.
pub(super) struct Suspicion {
    mark: PathBuf,
    checked: Mutex<Option<BTreeSet<String>>>,
}

impl Suspicion {
    /// The mark of the podling before this one tells: one that ended by a signal has removed it, one that was
    /// killed in this boot has left this boot's.
    pub(super) fn at_start(paths: &Paths) -> Self {
        let mark = paths.state().join("boot");
        let before = std::fs::read_to_string(&mark).unwrap_or_default();
        let unclean = !before.is_empty() && before != clock::boot_id();
        if unclean {
            tracing::warn!(
                "the machine went down unannounced; each image is looked into before it first runs"
            );
        } else if let Err(e) = files::replace(&mark, clock::boot_id().as_bytes(), 0o600, Durability::Synced) {
            tracing::debug!("cannot write {}: {e}", mark.display());
        }
        Self { mark, checked: Mutex::new(unclean.then(BTreeSet::new)) }
    }

    /// Whether this image has still to be looked into; asked once, unless it is [given back](Self::gives_back).
    fn takes(&self, chain_id: &str) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.as_mut().is_some_and(|done| done.insert(chain_id.to_owned()))
    }

    /// It could not be looked into or not be mended: it must not run as it is the next time.
    fn gives_back(&self, chain_id: &str) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = checked.as_mut() {
            done.remove(chain_id);
        }
    }
}

impl Runtime {
    /// podling ends in good order.
    pub fn ends_cleanly(&self) {
        // Nothing depends on it but a look into images that are whole.
        let _ = std::fs::remove_file(&self.inner.suspicion.mark);
    }

    /// Mends the image when it needs it.
    pub(super) async fn mend(
        &self,
        image: &Image,
        container: &Container,
        manifest: &PodManifest,
    ) -> Result<(), StartError> {
        if image.chain_id.is_empty() || !self.inner.suspicion.takes(&image.chain_id) {
            return Ok(());
        }
        let result = self.look_and_mend(image, container, manifest).await;
        if result.is_err() {
            self.inner.suspicion.gives_back(&image.chain_id);
        }
        result
    }

    async fn look_and_mend(
        &self,
        image: &Image,
        container: &Container,
        manifest: &PodManifest,
    ) -> Result<(), StartError> {
        let (program, path) = program(image, container);
        let name = program.clone();
        if self.look_into(image, move |root| is_program(root, &name, &path)).await? {
            return Ok(());
        }
        tracing::warn!(image = image.name, program, "damaged by the last shutdown; unpacking it again");
        let broken = |e: String| {
            let text = format!("image \"{}\" was damaged by the last shutdown: {e}", image.name);
            StartError::new("ImageInspectError", text)
        };
        // What another image had unpacked was never fetched.
        let keys = self.pull_keys(manifest)?;
        self.images().complete(image, &keys).await.map_err(|e| broken(e.to_string()))?;
        image::mend(&self.inner.ctd, image).await.map_err(|e| broken(e.to_string()))
    }
}

/// What the container runs first, and where it is looked for.
fn program(image: &Image, container: &Container) -> (String, String) {
    let config = image.config.config().clone().unwrap_or_default();
    let first = |list: Option<&Vec<String>>| list.and_then(|l| l.first()).cloned();
    let program = first(container.command.as_ref())
        .or_else(|| first(config.entrypoint().as_ref()))
        .or_else(|| first(container.args.as_ref().or(config.cmd().as_ref())));
    let path = config.env().iter().flatten().find_map(|e| e.strip_prefix("PATH=").map(str::to_owned));
    (program.unwrap_or_default(), path.unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()))
}

/// Whether the program is there and is one that the kernel can run. One that is not there may have been lost
/// with its directory.
fn is_program(root: &Path, program: &str, path: &str) -> bool {
    if program.is_empty() {
        return true;
    }
    let places: Vec<String> = match program.contains('/') {
        true => vec![program.to_owned()],
        false => path.split(':').map(|dir| format!("{dir}/{program}")).collect(),
    };
    places.iter().find_map(|place| open_within(root, place)).is_some_and(|file| runs(root, &file, 0))
}

/// Whether the kernel can run a file, with what it needs for that: the interpreter of a script, the loader of a
/// program with libraries.
fn runs(root: &Path, file: &File, depth: usize) -> bool {
    let head = read_at(file, 0, HEAD);
    let helper = if head.starts_with(b"\x7fELF") {
        let loader = loader(file, &head);
        if loader.is_some() && !LIBRARIES.iter().all(|dir| libraries_are_whole(root, dir, true)) {
            return false;
        }
        loader
    } else if head.starts_with(b"#!") {
        let line = head[2..].split(|b| *b == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).split_whitespace().next().map(str::to_owned)
    } else {
        return false;
    };
    match helper {
        Some(path) if depth < DEPTH => open_within(root, &path).is_some_and(|f| runs(root, &f, depth + 1)),
        _ => true,
    }
}

/// Whether no library in a directory is empty, nor in those right in it, such as of an architecture.
fn libraries_are_whole(root: &Path, path: &str, below: bool) -> bool {
    let Some(dir) = open_within(root, path) else { return true };
    let Ok(entries) = Dir::read_from(&dir) else { return true };
    entries.flatten().all(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        if below && entry.file_type() == FileType::Directory && !name.starts_with('.') {
            return libraries_are_whole(root, &format!("{path}/{name}"), false);
        }
        let empty = || {
            let stat = rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile && s.st_size == 0)
        };
        !(name.ends_with(".so") || name.contains(".so.")) || !empty()
    })
}

/// The loader that a program of 64 bits asks for, by its program header of type 3.
fn loader(file: &File, head: &[u8]) -> Option<String> {
    let bytes = |at: usize, n: usize| head.get(at..at + n);
    let number = |from: &[u8]| from.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    // 64 bits, the lowest byte first: what all machines have that podling runs on.
    if bytes(4, 2)? != [2, 1] {
        return None;
    }
    let (start, size, count) = (number(bytes(32, 8)?), number(bytes(54, 2)?), number(bytes(56, 2)?));
    for n in 0..count.min(64) {
        let header = read_at(file, start + n * size, 56);
        if number(header.get(..4)?) == 3 {
            let (at, length) = (number(header.get(8..16)?), number(header.get(32..40)?));
            let path = read_at(file, at, length.min(4096) as usize);
            return Some(String::from_utf8_lossy(&path).trim_end_matches('\0').to_owned());
        }
    }
    None
}

fn read_at(file: &File, at: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    let read = file.read_at(&mut buffer, at).unwrap_or(0);
    buffer.truncate(read);
    buffer
}

/// Opens a file of the image, with its links taken as the container takes them.
fn open_within(root: &Path, path: &str) -> Option<File> {
    let root =
        rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = path.trim_start_matches('/');
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_missing_program_is_damage_and_links_stay_within_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/elf"), b"\x7fELFxxxx").unwrap();
        std::fs::write(root.join("bin/script"), "#!/bin/elf\n").unwrap();
        std::fs::write(root.join("bin/empty"), "").unwrap();
        std::fs::write(root.join("bin/zeroes"), [0; 64]).unwrap();
        std::os::unix::fs::symlink("/bin/elf", root.join("bin/link")).unwrap();
        for (program, whole) in [
            ("/bin/elf", true),
            ("elf", true),
            ("link", true),
            ("/bin/script", true),
            ("", true),
            ("empty", false),
            ("/bin/zeroes", false),
            ("/bin/none", false),
        ] {
            assert_eq!(is_program(root, program, "/none:/bin"), whole, "{program}");
        }
    }

    #[test]
    fn a_program_is_no_better_than_its_interpreter_or_loader() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("lib")).unwrap();
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (program[32], program[54], program[56]) = (64, 56, 1);
        (program[64], program[64 + 8], program[64 + 32]) = (3, 120, 11);
        program.extend(b"/lib/ld.so\0");
        std::fs::write(root.join("program"), program).unwrap();
        std::fs::write(root.join("script"), "#! /program -x\nexit\n").unwrap();
        std::fs::write(root.join("circle"), "#!/circle\n").unwrap();
        let whole = |name: &str| is_program(root, name, "");
        assert!(!whole("/program") && !whole("/script"));
        std::fs::write(root.join("lib/ld.so"), "").unwrap();
        assert!(!whole("/program") && !whole("/script"));
        std::fs::write(root.join("lib/ld.so"), "\x7fELF and so on").unwrap();
        assert!(whole("/program") && whole("/script") && whole("/circle"));
        std::fs::create_dir(root.join("lib/machine")).unwrap();
        std::fs::write(root.join("lib/machine/libc.so.6"), "").unwrap();
        assert!(!whole("/program") && whole("/circle"));
        std::fs::write(root.join("lib/machine/libc.so.6"), "\x7fELF").unwrap();
        std::os::unix::fs::symlink("/none", root.join("lib/libm.so")).unwrap();
        std::fs::write(root.join("lib/notes.socks"), "").unwrap();
        assert!(whole("/program"));
    }

    #[test]
    fn a_mark_of_another_boot_makes_each_image_looked_into_once() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        std::fs::create_dir_all(paths.state()).unwrap();
        assert!(!Suspicion::at_start(&paths).takes("a"));
        // Killed within the boot.
        assert!(!Suspicion::at_start(&paths).takes("a"));
        std::fs::write(paths.state().join("boot"), "another").unwrap();
        let suspicion = Suspicion::at_start(&paths);
        assert!(suspicion.takes("a") && !suspicion.takes("a") && suspicion.takes("b"));
        suspicion.gives_back("a");
        assert!(suspicion.takes("a"));
        // Killed before all were looked into.
        assert!(Suspicion::at_start(&paths).takes("b"));
    }
}
