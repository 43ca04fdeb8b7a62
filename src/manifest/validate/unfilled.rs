//! Places that somebody meant to fill in: `${NAME}` in a command that no shell reads.

use k8s_openapi::api::core::v1::Container;

use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

const SHELLS: &[&str] = &["sh", "ash", "bash", "busybox", "dash", "env", "envsubst", "ksh", "zsh"];

/// Warns of each word with a `${NAME}` that reaches the program as it stands.
pub fn check(container: &Container, path: &Path, findings: &mut Findings<'_>) {
    let lists = [("command", &container.command), ("args", &container.args)];
    let words = || lists.iter().flat_map(|(_, words)| words.iter().flatten());
    // What runs a script, or may: the image's own entry point often does with a single word.
    if words().any(|w| w == "-c" || SHELLS.contains(&w.rsplit('/').next().unwrap_or_default())) {
        return;
    }
    for (field, words) in lists {
        for (i, word) in words.iter().flatten().enumerate() {
            let Some(name) = unfilled(word) else { continue };
            let text = format!(
                "${{{name}}} reaches the program as it stands: fill it in, or write $({name}) for the value of a \
                 variable of env"
            );
            findings.warn(Code::NoEffect, &path.field(field).index(i), text);
        }
    }
}

/// The name in the first `${NAME}` of a word. A doubled `$` is one that is meant; so are lower-case names, as in
/// templates of log formats.
fn unfilled(word: &str) -> Option<&str> {
    let mut rest = word;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let name = after.split_once('}').map(|(name, _)| name).unwrap_or_default();
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !before.ends_with('$')
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(upper)
        {
            return Some(name);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::unfilled;

    #[test]
    fn only_a_name_left_open_counts() {
        for (word, name) in [
            ("${NODE_NAME}", Some("NODE_NAME")),
            ("http://${NODE_IP}:2380", Some("NODE_IP")),
            ("$${NODE_IP}", None),
            ("$(NODE_IP)", None),
            ("${", None),
            ("${}", None),
            ("${time_local} ${IP}", Some("IP")),
            ("${A B}", None),
        ] {
            assert_eq!(unfilled(word), name, "{word}");
        }
    }
}
