//! Which file names are manifests.
//!
//! A manifest directory is edited by hand, by editors and by configuration management, all of which
//! leave files beside the ones meant. A name decides before anything is opened, so that a backup never
//! runs in place of the file it was made from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What a name says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClass {
    /// Read.
    Manifest,
    /// A manifest by its looks, put aside by somebody: left alone, and a person is told.
    Backup,
    /// No extension and the setting to take those is off: a person is told when it holds a manifest.
    Extensionless,
    /// Left alone without a word: hidden, an editor's or a copier's temporary file, something else.
    Other,
}

/// Extensions that are manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Endings that say "not this one": copies kept by people, editors, patch, rpm and dpkg.
const BACKUPS: [&str; 8] = [".bak", ".orig", ".old", ".save", ".disabled", ".rpmsave", ".rpmnew", ".rpmorig"];

/// Endings of files that are being written or swapped; they come and go without being anybody's wish.
const TRANSIENT: [&str; 9] =
    [".swp", ".swo", ".swx", ".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload"];

/// Judges a name. `extensionless` is the setting that takes names without an extension.
pub fn classify(name: &OsStr, extensionless: bool) -> NameClass {
    let Some(name) = name.to_str() else {
        return undecodable(name);
    };
    if name.starts_with('.') || name.starts_with('#') || name == "lost+found" {
        return NameClass::Other;
    }
    if let Some(original) = backup_of(name) {
        let counts = is_manifest(original) || (extensionless && !original.contains('.'));
        return if counts { NameClass::Backup } else { NameClass::Other };
    }
    if is_manifest(name) {
        return NameClass::Manifest;
    }
    // `4913` and its successors are what vim creates to learn whether it may write in a directory.
    let probe = name.bytes().all(|b| b.is_ascii_digit());
    if name.contains('.') || probe || TRANSIENT.iter().any(|t| name.ends_with(t)) {
        return NameClass::Other;
    }
    if extensionless { NameClass::Manifest } else { NameClass::Extensionless }
}

/// A name that is not UTF-8 cannot be printed, stored or typed back, so it is never read.
fn undecodable(name: &OsStr) -> NameClass {
    let bytes = name.as_bytes();
    let counts = EXTENSIONS.iter().any(|e| bytes.ends_with(format!(".{e}").as_bytes()));
    if counts && !bytes.starts_with(b".") { NameClass::Backup } else { NameClass::Other }
}

fn is_manifest(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, ext)| !stem.is_empty() && EXTENSIONS.contains(&ext))
}

/// The name that `name` is a backup of.
fn backup_of(name: &str) -> Option<&str> {
    if let Some(original) = name.strip_suffix('~') {
        // Also emacs' numbered ones: `web.yaml.~3~`.
        let numbered = original.rsplit_once(".~").filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
        return Some(numbered.map_or(original, |(stem, _)| stem));
    }
    if let Some(at) = name.find(".dpkg-") {
        return Some(&name[..at]);
    }
    BACKUPS.iter().find_map(|suffix| name.strip_suffix(suffix))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn class(name: &str) -> NameClass {
        classify(OsStr::new(name), false)
    }

    #[test]
    fn yaml_yml_and_json_are_manifests() {
        for name in ["web.yaml", "web.yml", "web.json", "10-web.v2.yaml", "a b.yaml", "ü.yaml"] {
            assert_eq!(class(name), NameClass::Manifest, "{name}");
        }
    }

    #[test]
    fn backups_of_manifests_are_told_from_manifests() {
        for name in [
            "web.yaml~",
            "web.yaml.~12~",
            "web.yaml.bak",
            "web.yml.orig",
            "web.json.old",
            "web.yaml.rpmsave",
            "web.yaml.rpmnew",
            "web.yaml.dpkg-old",
            "web.yaml.dpkg-dist",
            "web.yaml.dpkg-tmp",
            "web.yaml.disabled",
        ] {
            assert_eq!(class(name), NameClass::Backup, "{name}");
        }
    }

    #[test]
    fn hidden_and_temporary_files_are_nobodys_wish() {
        for name in [
            ".web.yaml",
            ".web.yaml.swp",
            "web.yaml.swp",
            "web.yaml.swx",
            "web.yaml.tmp",
            "web.yaml.part",
            "#web.yaml#",
            ".#web.yaml",
            "4913",
            "5036",
            "..data",
            "..2024_01_01",
            "lost+found",
            "README.md",
            "notes.txt",
            "notes.txt~",
            ".yaml",
        ] {
            assert_eq!(class(name), NameClass::Other, "{name}");
            assert_eq!(classify(OsStr::new(name), true), NameClass::Other, "{name}");
        }
    }

    #[test]
    fn names_without_extension_need_the_setting() {
        assert_eq!(class("web"), NameClass::Extensionless);
        assert_eq!(classify(OsStr::new("web"), true), NameClass::Manifest);
        assert_eq!(classify(OsStr::new("web~"), true), NameClass::Backup);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_never_read() {
        assert_eq!(classify(OsStr::from_bytes(b"w\xff.yaml"), true), NameClass::Backup);
        assert_eq!(classify(OsStr::from_bytes(b"w\xff"), true), NameClass::Other);
    }
}
