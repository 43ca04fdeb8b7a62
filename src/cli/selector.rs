//! Label selectors of `-l`: `app=web,tier!=test,canary,!old`.

use std::collections::BTreeMap;

/// Requirements that all must hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    Has(String),
    Lacks(String),
}

impl Selector {
    /// Reads a selector; the error says what is allowed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("selector: `{part}` is not KEY=VALUE, KEY!=VALUE, KEY or !KEY");
        let word = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let requirement = |part: &str| {
            let pair = |sign| part.split_once(sign).map(|(k, v): (&str, &str)| (k.trim(), v.trim()));
            let found = if let Some((k, v)) = pair("!=") {
                (k, v, Requirement::Differs(k.to_owned(), v.to_owned()))
            } else if let Some((k, v)) = pair("==").or_else(|| pair("=")) {
                (k, v, Requirement::Equals(k.to_owned(), v.to_owned()))
            } else if let Some(k) = part.strip_prefix('!') {
                (k.trim(), "", Requirement::Lacks(k.trim().to_owned()))
            } else {
                (part, "", Requirement::Has(part.to_owned()))
            };
            let (key, value, requirement) = found;
            if key.is_empty() || !word(key) || !word(value) { Err(wrong(part)) } else { Ok(requirement) }
        };
        text.split(',').map(str::trim).map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Whether labels meet all requirements.
    pub(super) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value = |key: &String| labels.and_then(|l| l.get(key));
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equals(key, wanted) => value(key) == Some(wanted),
            Requirement::Differs(key, unwanted) => value(key) != Some(unwanted),
            Requirement::Has(key) => value(key).is_some(),
            Requirement::Lacks(key) => value(key).is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_must_hold() {
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())]);
        let matches = |text: &str| Selector::parse(text).unwrap().matches(Some(&labels));
        assert!(
            matches("app=web") && matches("app==web,tier!=b") && matches("app,!old") && matches("gone!=x")
        );
        assert!(!matches("app=db") && !matches("app,old") && !matches("!app") && !matches("tier!=a"));
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_shown() {
        for text in ["", "app=web,", "=x", "app in (a,b)"] {
            let error = Selector::parse(text).unwrap_err();
            assert!(error.ends_with("is not KEY=VALUE, KEY!=VALUE, KEY or !KEY"), "{error}");
        }
    }
}
