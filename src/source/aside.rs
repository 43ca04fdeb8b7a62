//! What lies in a manifest directory and is not read, where a person may think it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::SourceProblem;
use super::look::Stamp;

/// How long a file must lie there before it is mentioned: an editor's backup lives for milliseconds.
const AGE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Aside {
    /// Since when it is there; none when it was there at the start, and is mentioned at once.
    first: Option<Instant>,
    /// Content that was looked into, and whether it was a manifest.
    sniffed: Option<(Stamp, bool)>,
    text: String,
    present: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Asides {
    known: BTreeMap<PathBuf, Aside>,
}

impl Asides {
    /// Starts a new look.
    pub fn begin(&mut self) {
        self.known.values_mut().for_each(|a| a.present = false);
    }

    /// A sub-directory.
    pub fn directory(&mut self, path: &Path, at: Option<Instant>) {
        self.note(path, at, || "is a directory; sub-directories are not entered".into());
    }

    /// A backup of a manifest.
    pub fn backup(&mut self, path: &Path, at: Option<Instant>) {
        self.note(path, at, || {
            "is ignored by its name, as a backup; to run it, name it *.yaml, *.yml or *.json".into()
        });
    }

    /// A file without extension, mentioned when it holds a manifest. `read` is called once per content.
    pub fn extensionless(
        &mut self,
        path: &Path,
        stamp: Stamp,
        read: impl FnOnce() -> Vec<u8>,
        at: Option<Instant>,
    ) {
        let aside = self.note(path, at, || {
            "looks like a manifest but has no extension; name it *.yaml or turn on `extensionless`".into()
        });
        if aside.sniffed.is_none_or(|(known, _)| known != stamp) {
            let bytes = read();
            let has = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
            aside.sniffed = Some((stamp, has(b"apiVersion") && has(b"kind")));
        }
    }

    fn note(&mut self, path: &Path, at: Option<Instant>, text: impl FnOnce() -> String) -> &mut Aside {
        let aside = self.known.entry(path.to_owned()).or_insert_with(|| Aside {
            first: at,
            sniffed: None,
            text: text(),
            present: true,
        });
        aside.present = true;
        aside
    }

    /// Ends a look: the findings, and when one more will be old enough to be one.
    pub fn finish(&mut self, now: Instant) -> (Vec<SourceProblem>, Option<Instant>) {
        self.known.retain(|_, a| a.present);
        let mut problems = Vec::new();
        let mut due = None;
        for (path, aside) in self.known.iter().filter(|(_, a)| a.sniffed.is_none_or(|(_, is)| is)) {
            if let Some(ripe) = aside.first.map(|first| first + AGE).filter(|ripe| now < *ripe) {
                due = Some(due.map_or(ripe, |d: Instant| d.min(ripe)));
                continue;
            }
            problems.push(SourceProblem {
                path: path.clone(),
                reason: "Ignored",
                message: format!("{}: {}", path.display(), aside.text),
                diagnostics: Vec::new(),
                keeps: Vec::new(),
            });
        }
        (problems, due)
    }
}
