//! A tree of values to a typed Pod, with every wrong type found on the way.
//!
//! The table of fields says which values a field takes. Values of a wrong type are reported and left
//! out, so that the rest can be decoded and validated too; decoding itself happens in one place.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Number, Value};

use super::fields::{Object, POD, Shape};
use super::node::{Entry, Kind, Node, quote};
use super::objects::Code;
use super::positions::{Findings, Path};
use super::strict;

/// The Pod behind the document, defaults not filled in. None only when it cannot be decoded at all,
/// which is a finding then.
pub fn pod(findings: &mut Findings<'_>, strict: bool) -> Option<Pod> {
    let root = findings.root();
    let mut decoder = Decoder { findings, strict };
    let mut value = decoder.object(root, &POD, &Path::root())?;
    if let Value::Object(map) = &mut value {
        // Items of a PodList leave these out.
        map.insert("apiVersion".into(), "v1".into());
        map.insert("kind".into(), "Pod".into());
    }
    match serde_json::from_value(value) {
        Ok(pod) => Some(pod),
        Err(error) => {
            findings.error(Code::Type, &Path::root(), format!("cannot be decoded as a Pod: {error}"));
            None
        }
    }
}

/// Reports the wrong types and the unknown fields of a document that is nothing but checked.
pub fn check(findings: &mut Findings<'_>, object: &'static Object, strict: bool) {
    let root = findings.root();
    Decoder { findings, strict }.object(root, object, &Path::root());
}

struct Decoder<'f, 'a> {
    findings: &'f mut Findings<'a>,
    strict: bool,
}

impl Decoder<'_, '_> {
    fn object(&mut self, node: &Node, object: &'static Object, path: &Path) -> Option<Value> {
        let Kind::Map(entries) = &node.kind else {
            let text = format!("expected a mapping ({}), got {}", object.name, node.describe());
            self.findings.broken(path, text);
            return None;
        };
        let mut map = Map::new();
        for entry in entries {
            match object.field(&entry.key) {
                Some(field) => {
                    if let Some(value) = self.value(&entry.value, field.shape, &path.field(field.name)) {
                        map.insert(entry.key.clone(), value);
                    }
                }
                None => strict::unknown(self.findings, object, entry, path, self.strict),
            }
        }
        Some(Value::Object(map))
    }

    /// The value in the shape that the API type takes; none when unset, never decoded, or wrong.
    fn value(&mut self, node: &Node, shape: Shape, path: &Path) -> Option<Value> {
        if node.is_null() {
            return None;
        }
        match shape {
            Shape::Any => None,
            Shape::Text => self.text(node, path),
            Shape::Bool => self.bool(node, path),
            Shape::Int32 => self.int(node, path, i64::from(i32::MIN), i64::from(i32::MAX), 32),
            Shape::Int64 => self.int(node, path, i64::MIN, i64::MAX, 64),
            Shape::Quantity => self.quantity(node, path),
            Shape::IntOrText => match &node.kind {
                Kind::Text(text) => Some(Value::String(text.clone())),
                _ => self.int(node, path, i64::from(i32::MIN), i64::from(i32::MAX), 32),
            },
            Shape::Time => self.time(node, path),
            Shape::Texts => self.list(node, path, "strings", Shape::Text),
            Shape::Int32s => self.list(node, path, "numbers", Shape::Int32),
            Shape::Int64s => self.list(node, path, "numbers", Shape::Int64),
            Shape::TextMap => self.map(node, path, "strings", Shape::Text),
            Shape::QuantityMap => self.map(node, path, "quantities", Shape::Quantity),
            Shape::Object(object) => self.object(node, object, path),
            Shape::Objects(object) => self.list(node, path, object.name, shape),
        }
    }

    fn text(&mut self, node: &Node, path: &Path) -> Option<Value> {
        let hint = match &node.kind {
            Kind::Text(text) => return Some(Value::String(text.clone())),
            Kind::Bool(_) | Kind::Number(_) => "; put it in quotes",
            Kind::Map(_) => "; a colon followed by a blank makes a mapping: put the whole text in quotes",
            Kind::List(_) | Kind::Null => "",
        };
        self.findings.broken(path, format!("expected a string, got {}{hint}", node.describe()));
        None
    }

    fn bool(&mut self, node: &Node, path: &Path) -> Option<Value> {
        let hint = match &node.kind {
            Kind::Bool(value) => return Some(Value::Bool(*value)),
            Kind::Text(t) if t == "true" || t == "false" => "; remove the quotes",
            _ => "",
        };
        self.findings.broken(path, format!("expected true or false, got {}{hint}", node.describe()));
        None
    }

    fn int(&mut self, node: &Node, path: &Path, min: i64, max: i64, bits: u8) -> Option<Value> {
        let text = match &node.kind {
            Kind::Number(number) => match number.as_i64() {
                Some(n) if (min..=max).contains(&n) => return Some(Value::Number(n.into())),
                None if number.is_f64() => format!("expected a whole number, got {number}"),
                _ => format!("expected a whole number of {bits} bits, got {number}"),
            },
            Kind::Text(t) if t.parse::<i64>().is_ok() => {
                format!("expected a number, got the string {}; remove the quotes", quote(t))
            }
            _ => format!("expected a number, got {}", node.describe()),
        };
        self.findings.broken(path, text);
        None
    }

    fn quantity(&mut self, node: &Node, path: &Path) -> Option<Value> {
        match &node.kind {
            Kind::Text(text) => Some(Value::String(text.clone())),
            Kind::Number(number) => Some(Value::String(plain_number(number))),
            _ => {
                let text = format!("expected a quantity such as 500m or 1Gi, got {}", node.describe());
                self.findings.broken(path, text);
                None
            }
        }
    }

    fn time(&mut self, node: &Node, path: &Path) -> Option<Value> {
        match &node.kind {
            Kind::Text(text) if text.parse::<jiff::Timestamp>().is_ok() => Some(Value::String(text.clone())),
            _ => {
                let got = node.describe();
                self.findings
                    .broken(path, format!("expected a time such as 2024-01-31T12:00:00Z, got {got}"));
                None
            }
        }
    }

    fn list(&mut self, node: &Node, path: &Path, of: &str, shape: Shape) -> Option<Value> {
        let Kind::List(items) = &node.kind else {
            let hint = match &node.kind {
                Kind::Text(text) if of == "strings" => format!("; write it as a list: [{}]", words(text)),
                Kind::Map(_) if matches!(shape, Shape::Objects(_)) => "; begin each item with a dash".into(),
                _ => String::new(),
            };
            self.findings.broken(path, format!("expected a list of {of}, got {}{hint}", node.describe()));
            return None;
        };
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let path = path.index(i);
            let value = match (&item.kind, shape) {
                (Kind::Null, Shape::Objects(_)) => Some(Value::Object(Map::new())),
                (Kind::Null, Shape::Text) => {
                    self.findings.warn(
                        Code::NoEffect,
                        &path,
                        "an item with nothing in it is taken for the empty string \"\"",
                    );
                    Some(Value::String(String::new()))
                }
                (Kind::Null, _) => Some(Value::Number(0.into())),
                (_, Shape::Objects(object)) => self.object(item, object, &path),
                _ => self.value(item, shape, &path),
            };
            // A wrong item keeps its place, so that paths of later items stay right.
            out.push(value.unwrap_or_else(|| empty(shape)));
        }
        Some(Value::Array(out))
    }

    fn map(&mut self, node: &Node, path: &Path, of: &str, shape: Shape) -> Option<Value> {
        let Kind::Map(entries) = &node.kind else {
            self.findings
                .broken(path, format!("expected a mapping of names to {of}, got {}", node.describe()));
            return None;
        };
        let mut out = Map::new();
        for Entry { key, value, .. } in entries {
            if value.is_null() && matches!(shape, Shape::Text) {
                out.insert(key.clone(), Value::String(String::new()));
            } else if let Some(value) = self.value(value, shape, &path.key(key)) {
                out.insert(key.clone(), value);
            }
        }
        Some(Value::Object(out))
    }
}

fn empty(shape: Shape) -> Value {
    match shape {
        Shape::Objects(_) => Value::Object(Map::new()),
        Shape::Text => Value::String(String::new()),
        _ => Value::Number(0.into()),
    }
}

/// A number as a quantity spells it: without an exponent where that is short.
fn plain_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.abs() < 1e21 => float.to_string(),
        _ => number.to_string(),
    }
}

/// What a shell would make words of, as the items of a list; what it would not leave as it is stays whole.
fn words(text: &str) -> String {
    let plain = |c: char| !"'\"\\`$|&;<>*?".contains(c);
    match text.chars().all(plain) && !text.trim().is_empty() {
        true => text.split_whitespace().map(quote).collect::<Vec<_>>().join(", "),
        false => quote(text),
    }
}
