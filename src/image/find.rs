//! Images by what people type: a name in short or in full, a digest, an id, the beginning of one.

use std::collections::BTreeSet;

use super::reference::{ImageRef, InvalidImageName};
use super::store::ImageSummary;
use crate::runtime::containerd::{Containerd, RuntimeError};

/// Fewest digits of an id that are looked up: fewer are more likely a name.
const ID_MIN: usize = 4;

/// Why none is meant.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none of this name, digest or id.
    #[error("there is no such image")]
    None,
    /// What was typed is the beginning of several ids.
    #[error("it is the beginning of several ids: {}; type more of it", .0.join(", "))]
    Several(Vec<String>),
    /// It can be neither a name nor an id.
    #[error(transparent)]
    Name(#[from] InvalidImageName),
    /// containerd failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl Containerd {
    /// The images that `text` means, at least one: a name, else all names of an id.
    pub async fn find_images(&self, text: &str) -> Result<Vec<ImageSummary>, FindError> {
        meant(text, self.images().await?)
    }
}

fn meant(text: &str, images: Vec<ImageSummary>) -> Result<Vec<ImageSummary>, FindError> {
    let reference = ImageRef::parse(text);
    if let Ok(reference) = &reference {
        let named = |i: &&ImageSummary| i.name == reference.name();
        let of_repository = |i: &&ImageSummary| {
            Some(i.digest.as_str()) == reference.digest()
                && ImageRef::parse(&i.name).is_ok_and(|r| r.repository() == reference.repository())
        };
        let found = images.iter().find(named).or_else(|| images.iter().find(of_repository));
        if let Some(image) = found {
            return Ok(vec![image.clone()]);
        }
    }
    let Some(digits) = digits(text) else {
        return Err(reference.err().map_or(FindError::None, FindError::Name));
    };
    let begins = |digest: &str| digest.strip_prefix("sha256:").is_some_and(|d| d.starts_with(digits));
    let found: Vec<_> =
        images.into_iter().filter(|i| begins(&i.digest) || i.id.as_deref().is_some_and(begins)).collect();
    let ids: BTreeSet<_> = found.iter().map(|i| i.id.as_ref().unwrap_or(&i.digest).clone()).collect();
    match ids.len() {
        0 => Err(FindError::None),
        1 => Ok(found),
        _ => Err(FindError::Several(ids.into_iter().collect())),
    }
}

/// The digits of a digest or id, or of its beginning.
fn digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let hex = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (hex && digits.len() >= ID_MIN && digits.len() <= 64).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, digest: &str, id: &str) -> ImageSummary {
        let full = |d: &str| format!("sha256:{d:0<64}");
        ImageSummary {
            name: name.into(),
            digest: full(digest),
            size: None,
            created: None,
            id: Some(full(id)),
            pinned: false,
        }
    }

    #[test]
    fn names_come_first_then_digests_and_ids_by_their_beginning() {
        let all = || {
            vec![
                image("docker.io/library/a:1", "aaaa1", "1d1d1"),
                image("docker.io/library/a:2", "aaaa1", "1d1d1"),
                image("docker.io/library/beef:latest", "bbbb1", "1d1d2"),
            ]
        };
        let names = |text: &str| {
            meant(text, all())
                .map(|l| l.into_iter().map(|i| i.name).collect::<Vec<_>>())
                .map_err(|e| e.to_string())
        };
        let (one, two, beef) =
            ("docker.io/library/a:1", "docker.io/library/a:2", "docker.io/library/beef:latest");
        assert_eq!(names("a:1").unwrap(), [one]);
        assert_eq!(names("beef").unwrap(), [beef]);
        assert_eq!(names("aaaa1").unwrap(), [one, two]);
        assert_eq!(names("sha256:1d1d1").unwrap(), [one, two]);
        assert_eq!(names(&format!("a@sha256:{:0<64}", "aaaa1")).unwrap(), [one]);
        assert!(names("1d1d").unwrap_err().contains("the beginning of several ids: sha256:1d1d1"));
        assert_eq!(names("ffff").unwrap_err(), "there is no such image");
        assert!(names("No Name").unwrap_err().starts_with("invalid image name"));
    }
}
