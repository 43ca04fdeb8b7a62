//! "Did you mean": the known word nearest to a mistyped one.

/// Longest word that is compared with the known ones; the longest field name of the API has 47 letters.
const COMPARED: usize = 64;

/// The word of `known` that `word` most likely stands for: one that differs only in case or dashes, else one
/// few letters away.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if word.len() > COMPARED {
        return None;
    }
    let folded = fold(word);
    if let Some(same) = known.clone().find(|k| fold(k) == folded) {
        return Some(same);
    }
    let allowed = match word.len() {
        0..4 => return None,
        4..8 => 1,
        _ => 2,
    };
    known
        .map(|k| (distance(&folded, &fold(k)), k))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, k)| k)
}

fn fold(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Number of letters to insert, remove, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
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
        let nearest = |word: &str| nearest(word, known.iter().copied());
        assert_eq!(nearest("staticPodpath"), Some("staticPodPath"));
        assert_eq!(nearest("static-pod-path"), Some("staticPodPath"));
        assert_eq!(nearest("statcPodPaht"), Some("staticPodPath"));
        assert_eq!(nearest("stirct"), Some("strict"));
        assert_eq!(nearest("authentication"), None);
        assert_eq!(nearest("x"), None);
        assert_eq!(nearest(&"strict".repeat(20)), None);
    }
}
