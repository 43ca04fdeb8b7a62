//! Making room: which images go when the disk is full, and which never do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::reference::ImageRef;
use crate::runtime::containerd::images::ImageRecord;
use crate::runtime::containerd::{Containerd, RuntimeError};
use crate::system::clock::{self, Moment};

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

/// When each image was first seen and last used.
#[derive(Debug, Default)]
pub struct Uses {
    seen: BTreeMap<String, (Moment, Moment)>,
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
        let mut all: Vec<_> = records
            .iter()
            .filter(|r| !is_kept(r, wanted))
            .filter_map(|r| self.seen.get(&r.name).map(|(seen, used)| (*used, *seen, r.name.clone())))
            .filter(|(used, seen, _)| now.since(*seen.max(used)) >= rule.min_age)
            .collect();
        all.sort();
        all.into_iter().map(|(_, _, name)| name).collect()
    }

    fn too_old(&self, name: &str, rule: &CollectRule, now: Moment) -> bool {
        let Some((seen, used)) = self.seen.get(name) else { return false };
        rule.max_age.is_some_and(|age| now.since(*seen.max(used)) >= age)
    }
}

/// Kept for its label, or for somebody who names it or its digest.
fn is_kept(record: &ImageRecord, wanted: &BTreeSet<String>) -> bool {
    KEPT.iter().any(|label| record.labels.contains_key(*label))
        || wanted.contains(&record.name)
        || wanted.contains(&record.digest)
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

/// Removes every image that nobody wants.
pub async fn prune(client: &Containerd, wanted: &BTreeSet<String>) -> Result<Vec<String>, RuntimeError> {
    let mut removed = Vec::new();
    for record in client.image_records().await? {
        if !is_kept(&record, wanted) && client.remove_image_record(&record.name).await? {
            removed.push(record.name);
        }
    }
    Ok(removed)
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
            let value = value[..end].trim().trim_matches(['"', '\'', ' ']);
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
    fn names_are_found_in_manifests_whether_they_parse_or_not() {
        let text = "spec:\n  containers:\n  - image: busybox # x\n   - {name: a, image: 'quay.io/a/b:1'}\n\"image\": \"c:2\",\n\
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
