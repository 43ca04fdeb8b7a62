//! Making room: which images go when the disk is full, and which never do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::reference::ImageRef;
use crate::runtime::containerd::images::ImageRecord;
use crate::runtime::containerd::{Containerd, RuntimeError};
use crate::system::clock::{self, Moment};
use crate::system::files::{self, Durability};

/// Labels of images that are never collected: those that came from archives, and those that the CRI pins.
const KEPT: [&str; 2] = ["podling.dev/imported", "io.cri-containerd.pinned"];

/// When images are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectRule {
    /// Percent of the disk in use above which images go; 100 means never.
    pub high: u32,
    /// Percent down to which they go.
    pub low: u32,
    /// An image that was seen or used more recently stays.
    pub min_age: Duration,
    /// An image that nobody used for this long goes whatever the disk; none means never.
    pub max_age: Option<Duration>,
}

/// When each image was first seen and last used. The order outlives the process, in a file; the times do not, as
/// with a kubelet: a clock that was wrong would make images old.
#[derive(Debug, Default)]
pub struct Uses {
    seen: BTreeMap<String, (Moment, Moment)>,
    /// The order that the process before this one left, the least recently used first.
    before: Vec<String>,
    /// The order as it is on the disk.
    stored: Vec<String>,
}

/// What a collection did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Names that went.
    pub removed: Vec<String>,
    /// Percent in use when that was not enough.
    pub still: Option<u32>,
}

impl Uses {
    /// Goes on with what [`Uses::store`] left; with nothing where it left nothing that can be read.
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let order: Vec<String> = serde_json::from_slice(&text).unwrap_or_default();
        Self { before: order.clone(), stored: order, ..Self::default() }
    }

    /// Keeps the order, when it is another than last time.
    pub fn store(&mut self, path: &Path) {
        let mut names: Vec<_> = self.seen.keys().cloned().collect();
        names.sort_by_cached_key(|name| self.rank(name));
        if names == self.stored {
            return;
        }
        let bytes = serde_json::to_vec(&names).unwrap_or_default();
        match files::replace(path, &bytes, 0o600, Durability::Lazy) {
            Ok(()) => self.stored = names,
            Err(e) => tracing::debug!("cannot write {}: {e}", path.display()),
        }
    }

    /// Orders images from the least to the most recently used. Those that were not used since the start were used,
    /// if at all, before those that were; among them counts the order of the process before.
    fn rank(&self, name: &str) -> (Moment, usize, Moment, String) {
        let (seen, used) = self.seen.get(name).copied().unwrap_or_default();
        let before = self.before.iter().position(|b| b == name).unwrap_or(usize::MAX);
        (used, before, seen, name.to_owned())
    }

    /// Notes which images are there and which are `wanted`.
    fn note(&mut self, records: &[ImageRecord], wanted: &BTreeSet<String>, now: Moment) {
        self.seen.retain(|name, _| records.iter().any(|r| r.name == *name));
        for record in records {
            let (_, used) = self.seen.entry(record.name.clone()).or_insert((now, Moment::default()));
            if is_kept(record, wanted) {
                *used = now;
            }
        }
    }

    /// What may go, the least recently used first.
    fn candidates(
        &self,
        records: &[ImageRecord],
        wanted: &BTreeSet<String>,
        rule: &CollectRule,
        now: Moment,
    ) -> Vec<String> {
        let old_enough = |name: &str| {
            self.seen.get(name).is_some_and(|(seen, used)| now.since(*seen.max(used)) >= rule.min_age)
        };
        let free = records.iter().filter(|r| !is_kept(r, wanted) && old_enough(&r.name));
        let mut names: Vec<_> = free.map(|r| r.name.clone()).collect();
        names.sort_by_cached_key(|name| self.rank(name));
        names
    }

    fn too_old(&self, name: &str, rule: &CollectRule, now: Moment) -> bool {
        let Some((seen, used)) = self.seen.get(name) else { return false };
        rule.max_age.is_some_and(|age| now.since(*seen.max(used)) >= age)
    }
}

/// Kept for its label, or for somebody who names it or its digest.
fn is_kept(record: &ImageRecord, wanted: &BTreeSet<String>) -> bool {
    is_pinned(record) || is_wanted(record, wanted)
}

/// Kept whatever anybody wants.
pub(super) fn is_pinned(record: &ImageRecord) -> bool {
    KEPT.iter().any(|label| record.labels.contains_key(*label))
}

fn is_wanted(record: &ImageRecord, wanted: &BTreeSet<String>) -> bool {
    wanted.contains(&record.name) || wanted.contains(&record.digest)
}

/// Looks at the disk that `dir` is on and removes images by the rule. `wanted` are full names and digests
/// that stay.
pub async fn collect(
    client: &Containerd,
    dir: &Path,
    rule: &CollectRule,
    wanted: &BTreeSet<String>,
    uses: &mut Uses,
) -> Result<Collected, RuntimeError> {
    let records = client.image_records().await?;
    let now = clock::now();
    uses.note(&records, wanted, now);
    let mut done = Collected::default();
    let mut candidates = uses.candidates(&records, wanted, rule, now);
    for name in candidates.extract_if(.., |name| uses.too_old(name, rule, now)) {
        client.remove_image_record(&name).await?;
        done.removed.push(name);
    }
    let Some(mut used) = percent_used(dir) else { return Ok(done) };
    if rule.high >= 100 || used < rule.high {
        return Ok(done);
    }
    for name in candidates {
        if used <= rule.low {
            break;
        }
        client.remove_image_record(&name).await?;
        done.removed.push(name);
        used = percent_used(dir).unwrap_or(0);
    }
    done.still = (used > rule.low).then_some(used);
    Ok(done)
}

/// Removes every image that nobody wants, with `all` also pinned ones; in a `dry_run` only names them.
pub async fn prune(
    client: &Containerd,
    wanted: &BTreeSet<String>,
    all: bool,
    dry_run: bool,
) -> Result<Vec<String>, RuntimeError> {
    let mut removed = Vec::new();
    for record in client.image_records().await? {
        if is_wanted(&record, wanted) || !all && is_pinned(&record) {
            continue;
        }
        if dry_run || client.remove_image_record(&record.name).await? {
            removed.push(record.name);
        }
    }
    Ok(removed)
}

/// Whether the disk that `dir` is on is fuller than the rule has it.
pub fn is_full(dir: &Path, rule: &CollectRule) -> bool {
    rule.high < 100 && percent_used(dir).is_some_and(|used| used >= rule.high)
}

/// Percent of the blocks in use that are not root's reserve, as `df` shows it.
fn percent_used(dir: &Path) -> Option<u32> {
    let fs = rustix::fs::statvfs(dir).ok()?;
    let used = fs.f_blocks - fs.f_bfree;
    let all = used + fs.f_bavail;
    (all > 0).then(|| u32::try_from((used * 100).div_ceil(all)).unwrap_or(100))
}

/// Image names in the text of manifests, also of those that cannot be read: what stands behind `image:`, and
/// behind `reference:` of an image volume; in records of pods, the images of runs too. Complete names; more than there are does no harm.
pub fn named_in(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for key in ["image", "reference", "imageId", "imageBefore"] {
        for (at, _) in text.match_indices(key) {
            let rest = text[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
            let Some(value) = rest.strip_prefix(':') else { continue };
            let end = value.find(['\n', ',', '}', '#']).unwrap_or(value.len());
            let value = value[..end].trim();
            // An anchor or a tag of YAML before the value.
            let value = match value.split_once(' ') {
                Some((mark, rest)) if mark.starts_with(['&', '!']) => rest.trim(),
                _ => value,
            };
            let value = value.trim_matches(['"', '\'', ' ']);
            if let Ok(reference) = ImageRef::parse(value) {
                names.insert(reference.name());
                names.extend(reference.digest().map(str::to_owned));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, label: Option<&str>) -> ImageRecord {
        ImageRecord {
            name: name.into(),
            labels: label.into_iter().map(|l| (l.to_owned(), String::new())).collect(),
            media_type: String::new(),
            digest: format!("sha256:{name}"),
            size: 0,
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    const RULE: CollectRule = CollectRule {
        high: 85,
        low: 80,
        min_age: Duration::from_secs(120),
        max_age: Some(Duration::from_secs(9000)),
    };

    #[test]
    fn the_least_recently_used_goes_first_and_what_is_wanted_or_pinned_stays() {
        let records = [
            record("new", None),
            record("old", None),
            record("used", None),
            record("pin", Some(KEPT[0])),
            record("d", None),
        ];
        let mut uses = Uses::default();
        let wanted = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        uses.note(&records[1..], &wanted(&["used"]), at(10));
        uses.note(&records, &wanted(&[]), at(500));
        let keep = wanted(&["sha256:d"]);
        assert_eq!(uses.candidates(&records, &keep, &RULE, at(510)), ["old", "used"]);
        assert_eq!(uses.candidates(&records, &keep, &RULE, at(700)), ["old", "new", "used"]);
        assert!(uses.too_old("old", &RULE, at(9100)) && !uses.too_old("new", &RULE, at(9100)));
    }

    #[test]
    fn the_order_of_use_outlives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uses.json");
        let records = [record("a", None), record("b", None), record("c", None)];
        let wanted = |name: &str| BTreeSet::from([name.to_owned()]);
        let mut uses = Uses::load(&path);
        uses.note(&records, &wanted("b"), at(10));
        uses.note(&records, &wanted("a"), at(20));
        uses.store(&path);
        // Another boot: the clock starts anew, and a new image is there.
        let mut uses = Uses::load(&path);
        let records = [records.to_vec(), vec![record("new", None)]].concat();
        uses.note(&records, &BTreeSet::new(), at(1));
        assert_eq!(uses.candidates(&records, &BTreeSet::new(), &RULE, at(200)), ["c", "b", "a", "new"]);
        uses.note(&records, &wanted("c"), at(201));
        assert_eq!(uses.candidates(&records, &BTreeSet::new(), &RULE, at(500)), ["b", "a", "new", "c"]);
        std::fs::write(&path, "damaged").unwrap();
        assert!(Uses::load(&path).before.is_empty());
    }

    #[test]
    fn names_are_found_in_manifests_whether_they_parse_or_not() {
        let text = "spec:\n  containers:\n  - image: busybox # x\n   - {name: a, image: &i 'quay.io/a/b:1'}\n\"image\": \"c:2\",\n\
                    imagePullPolicy: Always\n  volumes: [{image: {reference: reg.io/v:3}}]\n: : :";
        let found: Vec<_> = named_in(text).into_iter().collect();
        let expected =
            ["docker.io/library/busybox:latest", "docker.io/library/c:2", "quay.io/a/b:1", "reg.io/v:3"];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_disk_is_measured_as_df_does() {
        let used = percent_used(Path::new("/")).unwrap();
        assert!(used <= 100);
        assert_eq!(percent_used(Path::new("/no/such/directory")), None);
    }
}
