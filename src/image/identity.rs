//! What an archive holds, in one digest: that of its lists of images, which name all else by digest.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::documents::DOCUMENT_MAX;
use super::reader::normalise;

/// The lists, of an OCI layout and of `docker save`.
pub(super) const DOCUMENTS: [&str; 2] = ["index.json", "manifest.json"];

/// The digest of the [`DOCUMENTS`], of which one may be absent.
pub(super) fn of(documents: [Option<&[u8]>; 2]) -> String {
    let mut hash = Sha256::new();
    for document in documents {
        hash.update(document.map_or(0, |d| d.len() as u64).to_be_bytes());
        hash.update(document.unwrap_or_default());
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// The identity of what lies at `path`, where it can be told without reading gigabytes: of directories, and of
/// tar files without compression, of which all but the headers and the lists is passed over.
pub(super) fn at(path: &Path) -> io::Result<Option<String>> {
    if path.is_dir() {
        let [index, manifest] = DOCUMENTS.map(|name| fs::read(path.join(name)).ok());
        return Ok(Some(of([index.as_deref(), manifest.as_deref()])));
    }
    let mut archive = tar::Archive::new(File::open(path)?);
    let mut found = [None, None];
    for entry in archive.entries_with_seek()? {
        let mut entry = entry?;
        let name = normalise(&entry.path()?.to_string_lossy());
        let Some(slot) = DOCUMENTS.iter().position(|d| *d == name) else { continue };
        let mut data = Vec::new();
        entry.by_ref().take(DOCUMENT_MAX).read_to_end(&mut data)?;
        found[slot] = Some(data);
    }
    let [index, manifest] = &found;
    let known = index.is_some() || manifest.is_some();
    Ok(known.then(|| of([index.as_deref(), manifest.as_deref()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, *data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_archive_and_its_directory_have_one_identity_whatever_lies_between() {
        let dir = tempfile::tempdir().unwrap();
        let tar = dir.path().join("a.tar");
        fs::write(&tar, tar_of(&[("blobs/sha256/a", &[7; 70_000]), ("./index.json", b"{}")])).unwrap();
        fs::write(dir.path().join("index.json"), "{}").unwrap();
        let expected = of([Some(b"{}"), None]);
        assert_eq!(at(&tar).unwrap(), Some(expected.clone()));
        assert_eq!(at(dir.path()).unwrap(), Some(expected.clone()));
        assert_ne!(of([None, Some(b"{}")]), expected);
    }

    #[test]
    fn what_is_no_plain_archive_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        fs::write(&path, tar_of(&[("x", b"y")])).unwrap();
        assert_eq!(at(&path).unwrap(), None);
        fs::write(&path, [0x1f; 2000]).unwrap();
        assert!(at(&path).is_err());
    }
}
