//! The words of refusals, as kubectl prints them, and the checks that need no more than a string.

use std::collections::HashMap;
use std::fmt::Debug;

use crate::manifest::node::quote;
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

/// Appended to a name's own rule.
pub const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (such as 'my-name'), and have at most 63 characters";
/// Rule of names that may hold dots.
pub const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character (such as 'example.com'), and have at most 253 \
    characters";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character, with an optional DNS subdomain prefix and '/' (such as 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character, and have at most 63 characters";

/// Shorthands for reporting errors.
pub trait Refuse {
    /// A value that must be there is not.
    fn required(&mut self, path: &Path, why: &str);
    /// A value breaks a rule.
    fn invalid(&mut self, path: &Path, value: impl Shown, why: &str);
    /// A value is none of those allowed.
    fn unsupported(&mut self, path: &Path, value: &str, allowed: &[&str]);
    /// A value that must be unique is not.
    fn duplicate(&mut self, path: &Path, value: impl Shown, first: &str);
    /// A name refers to nothing.
    fn not_found(&mut self, path: &Path, value: &str, known: &str);
    /// A field may not be set here.
    fn forbidden(&mut self, path: &Path, why: &str);
}

/// A value as a message shows it.
pub trait Shown {
    /// The text.
    fn shown(&self) -> String;
}

impl Shown for &str {
    fn shown(&self) -> String {
        quote(self)
    }
}

impl Shown for i32 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for bool {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Refuse for Findings<'_> {
    fn required(&mut self, path: &Path, why: &str) {
        let text =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        self.error(Code::Invalid, path, text);
    }

    fn invalid(&mut self, path: &Path, value: impl Shown, why: &str) {
        self.error(Code::Invalid, path, format!("Invalid value: {}: {why}", value.shown()));
    }

    fn unsupported(&mut self, path: &Path, value: &str, allowed: &[&str]) {
        let list = allowed.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(", ");
        let hint = match allowed.iter().find(|a| a.eq_ignore_ascii_case(value)) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => String::new(),
        };
        self.error(
            Code::Invalid,
            path,
            format!("Unsupported value: {}: supported values: {list}{hint}", quote(value)),
        );
    }

    fn duplicate(&mut self, path: &Path, value: impl Shown, first: &str) {
        self.error(
            Code::Invalid,
            path,
            format!("Duplicate value: {}: {first} has it already", value.shown()),
        );
    }

    fn not_found(&mut self, path: &Path, value: &str, known: &str) {
        self.error(Code::Invalid, path, format!("Not found: {}: {known}", quote(value)));
    }

    fn forbidden(&mut self, path: &Path, why: &str) {
        self.error(Code::Invalid, path, format!("Forbidden: {why}"));
    }
}

/// Checks a value against a list, when it is set.
pub fn one_of(findings: &mut Findings<'_>, path: &Path, value: Option<&str>, allowed: &[&str]) {
    if let Some(value) = value.filter(|value| !allowed.contains(value)) {
        findings.unsupported(path, value, allowed);
    }
}

/// Reports values that stand more than once; each value comes with its path.
pub fn unique<K: std::hash::Hash + Eq + Debug>(
    values: impl IntoIterator<Item = (K, Path)>,
    mut report: impl FnMut(&K, &Path, &Path),
) {
    let mut seen: HashMap<K, Path> = HashMap::new();
    for (value, path) in values {
        match seen.get(&value) {
            Some(first) => report(&value, &path, first),
            None => drop(seen.insert(value, path)),
        }
    }
}

/// Whether this is a DNS label: what containers, volumes and namespaces are named.
pub fn is_label(name: &str) -> bool {
    !name.is_empty() && name.len() <= 63 && is_label_part(name)
}

fn is_label_part(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner)
        && bytes.iter().all(|&b| inner(b) || b == b'-')
}

/// Whether this is a DNS subdomain: what pods are named.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label_part)
}

/// Whether this may be a part of a label key or a label's value.
fn is_token(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Whether this is a name with an optional domain before a slash.
pub fn is_qualified(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_token(name),
        None => is_token(name),
    }
}

/// Refuses a text that is no DNS label.
pub fn label(findings: &mut Findings<'_>, path: &Path, text: &str) {
    if !is_label(text) {
        findings.invalid(path, text, LABEL);
    }
}

/// Refuses keys and values that labels may not have.
pub fn labels(findings: &mut Findings<'_>, path: &Path, labels: &std::collections::BTreeMap<String, String>) {
    for (key, value) in labels {
        qualified(findings, &path.key(key), key);
        if !value.is_empty() && !is_token(value) {
            findings.invalid(&path.key(key), value.as_str(), LABEL_VALUE);
        }
    }
}

/// Refuses a key that is no qualified name.
pub fn qualified(findings: &mut Findings<'_>, path: &Path, key: &str) {
    if !is_qualified(key) {
        findings.invalid(path, key, QUALIFIED);
    }
}

/// Whether this is an IPv4 or IPv6 address.
pub fn is_ip(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}
