//! What holds whatever is done to the files.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever order files are written in, and however they share pods, the same set comes out.
    #[test]
    fn the_order_in_which_files_appear_does_not_matter(
        files in proptest::collection::vec((0..4u8, 0..3u8), 1..6),
        order in any::<u64>(),
    ) {
        let text = |(name, image): (u8, u8)| yaml(&format!("p{name}"), &format!("i:{image}"));
        let mut indices: Vec<usize> = (0..files.len()).collect();
        indices.sort_by_key(|i| (order >> (i * 8)) & 0xff);
        let mut outcomes = Vec::new();
        for order in [(0..files.len()).collect::<Vec<_>>(), indices] {
            let mut b = Bench::new();
            for i in order {
                b.write(&format!("{i}.yaml"), &text(files[i]));
            }
            let found = b.scan();
            let duplicates: Vec<_> = found.problems.iter().map(|p| p.path.file_name().map(OsStr::to_owned)).collect();
            outcomes.push((running(&found), duplicates));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Write(u8, u8, u8),
    Break(u8),
    Truncate(u8),
    Rename(u8, u8),
    Remove(u8),
    MoveAway,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let file = 0..4u8;
    prop_oneof![
        4 => (0..4u8, 0..3u8, 0..3u8).prop_map(|(f, p, i)| Deed::Write(f, p, i)),
        1 => file.clone().prop_map(Deed::Break),
        1 => file.clone().prop_map(Deed::Truncate),
        2 => (0..4u8, 0..4u8).prop_map(|(a, b)| Deed::Rename(a, b)),
        2 => file.prop_map(Deed::Remove),
        1 => Just(Deed::MoveAway),
    ]
}

impl Bench {
    /// Does it, and to the model: which pod each file stands for, by its last good content.
    fn perform(&mut self, deed: &Deed, model: &mut BTreeMap<u8, Option<u8>>, seen: bool) {
        let name = |f: &u8| format!("{f}.yaml");
        let mut events = Vec::new();
        match deed {
            Deed::Write(f, pod, image) => {
                self.write(&name(f), &yaml(&format!("p{pod}"), &format!("i:{image}")));
                model.insert(*f, Some(*pod));
                events.push((name(f), Kind::Closed));
            }
            Deed::Break(f) | Deed::Truncate(f) => {
                self.write(&name(f), if matches!(deed, Deed::Break(_)) { "spec: [" } else { "" });
                model.entry(*f).or_insert(None);
                events.push((name(f), Kind::Closed));
            }
            Deed::Rename(from, to) if from != to && self.path(&name(from)).exists() => {
                let good = fs::read_to_string(self.path(&name(from))).is_ok_and(|t| t.starts_with("api"));
                fs::rename(self.path(&name(from)), self.path(&name(to))).expect("mv");
                let pod = model.remove(from).flatten();
                // A broken file carries nothing along to its new name.
                let kept = model.get(to).copied().flatten();
                model.insert(*to, if good { pod } else { kept });
                events.extend([(name(from), Kind::Gone), (name(to), Kind::MovedHere)]);
            }
            Deed::Remove(f) if self.path(&name(f)).exists() => {
                fs::remove_file(self.path(&name(f))).expect("rm");
                model.remove(f);
                events.push((name(f), Kind::Gone));
            }
            Deed::MoveAway => {
                let away = self.home.path().join("away");
                fs::rename(self.dir(), &away).expect("mv");
                self.settled();
                fs::rename(&away, self.dir()).expect("mv");
            }
            _ => {}
        }
        for (name, kind) in events.into_iter().filter(|_| seen) {
            self.event(&name, kind);
        }
    }
}

proptest! {

    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The set follows the files' last good contents, and a pod that some file stands for all the time
    /// is never missing for a moment, whether events are seen or not.
    #[test]
    fn whatever_happens_to_files_no_pod_blinks(
        deeds in proptest::collection::vec((any_deed(), any::<bool>(), 0..300u64), 1..12),
    ) {
        let mut b = Bench::new();
        b.scan();
        let mut model = BTreeMap::new();
        for (deed, seen, pause) in deeds {
            let keys = |model: &BTreeMap<u8, Option<u8>>| -> BTreeSet<String> {
                model.values().flatten().map(|p| format!("p{p}")).collect()
            };
            let before = keys(&model);
            b.perform(&deed, &mut model, seen);
            let after = keys(&model);
            for _ in 0..3 {
                let found: BTreeSet<String> = b.wait(pause).scan().pods.iter().map(|p| p.key.name.clone()).collect();
                let throughout: BTreeSet<String> = before.intersection(&after).cloned().collect();
                prop_assert!(found.is_superset(&throughout), "{deed:?}: {found:?} lacks some of {throughout:?}");
            }
            let found: BTreeSet<String> = b.settled().pods.iter().map(|p| p.key.name.clone()).collect();
            prop_assert_eq!(found, after, "{:?}", deed);
        }
    }
}
