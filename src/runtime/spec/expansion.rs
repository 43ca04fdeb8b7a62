//! `$(NAME)` in environment values, commands and arguments.

/// Replaces `$(NAME)` by what `lookup` knows. `$$` stands for `$`, so `$$(NAME)` gives a literal `$(NAME)`.
/// An unknown name, an unclosed `$(` and a lone `$` stay as they are. What is put in is not looked at again.
pub fn expand<'v>(text: &str, lookup: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..at + 3 + name.len()]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// As [`expand`], but a name that is unknown or stands for nothing is an error: that name.
pub fn expand_strictly<'v>(text: &str, lookup: impl Fn(&str) -> Option<&'v str>) -> Result<String, String> {
    let missing = std::cell::RefCell::new(None);
    let expanded = expand(text, |name| {
        let found = lookup(name);
        if found.is_none_or(str::is_empty) {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        found
    });
    missing.into_inner().map_or(Ok(expanded), Err)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("x"),
            "LOOP" => Some("$(A)"),
            "EMPTY" => Some(""),
            "with space" => Some("s"),
            _ => None,
        }
    }

    #[test]
    fn names_escapes_and_leftovers_are_told_apart() {
        let cases = [
            ("$(A)/$(NOPE)/$$(A)", "x/$(NOPE)/$(A)"),
            ("a$(A)$(A)b", "axxb"),
            ("$(LOOP)", "$(A)"),
            ("[$(EMPTY)]", "[]"),
            ("$(with space)", "s"),
            ("$()", "$()"),
            ("$(A", "$(A"),
            ("$A ${A} $", "$A ${A} $"),
            ("$$", "$"),
            ("$$$(A)", "$x"),
            ("$$$$(A)", "$$(A)"),
            ("$($(A))", "$($(A))"),
            ("ä$(A)ö", "äxö"),
            ("", ""),
        ];
        for (text, wanted) in cases {
            assert_eq!(expand(text, known), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_dollars_stays_as_it_is(text in "[^$]*") {
            prop_assert_eq!(expand(&text, known), text);
        }

        #[test]
        fn a_text_with_doubled_dollars_comes_back_literally(text in "\\PC*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), known), text);
        }

        #[test]
        fn unknown_names_change_nothing(text in "[a-z()$ ]*") {
            // Without a doubled dollar, nothing is known and so nothing is replaced.
            prop_assume!(!text.contains("$$"));
            prop_assert_eq!(expand(&text, |_| None), text);
        }
    }
}
