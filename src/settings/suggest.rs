//! "Did you mean": the known word nearest to a mistyped one.

/// The word of `known` that `word` most likely stands for: equal but for case, or few edits away.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    known
        .iter()
        .map(|k| (distance(&lower, &k.to_lowercase()), *k))
        .filter(|(d, _)| *d <= allowed)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Edits between two words: insertions, removals, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typing_slip_finds_its_word_and_a_stranger_finds_none() {
        let known = ["staticPodPath", "resolvConf", "strict"];
        assert_eq!(nearest("staticPodpath", &known), Some("staticPodPath"));
        assert_eq!(nearest("statcPodPaht", &known), Some("staticPodPath"));
        assert_eq!(nearest("stirct", &known), Some("strict"));
        assert_eq!(nearest("authentication", &known), None);
        assert_eq!(nearest("x", &known), None);
    }
}
