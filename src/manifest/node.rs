//! A manifest as a tree of values that know where they stand.
//!
//! The dialect composes this tree; decoding, positions, hashes and the unknown-field check read it.

use serde_json::Number;
#[cfg(test)]
use serde_json::{Map, Value};

/// A place in the original file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// 1-based line; 0 when unknown.
    pub line: u32,
    /// 1-based column, in characters; 0 when unknown.
    pub column: u32,
}

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where the value begins; for a value that came by alias, where the anchor's value begins.
    pub mark: Mark,
    /// The value.
    pub kind: Kind,
}

/// The JSON data model, with mappings in the order written.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `null`, `~`, or nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer, or a float that is not integral.
    Number(Number),
    /// A string.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping; each key once.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key as a string, as JSON needs it.
    pub key: String,
    /// Where the key stands.
    pub at: Mark,
    /// The value.
    pub value: Node,
}

impl Node {
    /// The entry of a mapping with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|e| e.key == key),
            _ => None,
        }
    }

    /// The value behind a key, unless it is null.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.value).filter(|n| !n.is_null())
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(s) => Some(s),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// Whether it is a list or mapping without members.
    pub fn is_empty_collection(&self) -> bool {
        match &self.kind {
            Kind::List(items) => items.is_empty(),
            Kind::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// The plain JSON value.
    #[cfg(test)]
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Number(n) => Value::Number(n.clone()),
            Kind::Text(s) => Value::String(s.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Map(entries) => Value::Object(
                entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// What a person calls this value: `the number 80`, `the string "x"`, `a list`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".into(),
            Kind::Bool(b) => format!("the boolean {b}"),
            Kind::Number(n) => format!("the number {n}"),
            Kind::Text(s) => format!("the string {}", quote(s)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
        }
    }
}

/// Longest value that a message shows, in characters.
const SHOWN: usize = 96;

/// A string as a message shows it: quoted, escaped, and cut where it is long.
pub fn quote(s: &str) -> String {
    match s.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}...", &s[..cut]),
        None => format!("{s:?}"),
    }
}
