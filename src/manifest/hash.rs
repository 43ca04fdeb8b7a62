//! Hashes of what the user wrote.
//!
//! The canonical form is the document as JSON, after YAML's own rules have been applied (`0644` is
//! 420, `yes` is true, `3e1` is 30), with
//!
//! - object keys in order of their bytes, no blanks, strings escaped as JSON requires and no more;
//! - members that are null, an empty list, or an empty mapping left out, also where they become empty
//!   by this rule; items of lists always stay, since their position counts;
//! - nothing filled in: defaults are not part of it, so that a podling which knows more defaults
//!   restarts nothing;
//! - unknown fields left in, so that a podling which knows them restarts nothing either.
//!
//! A hash is the SHA-256 of that form in lower-case hex. Where annotations under `podling.dev/` shape the pod or a
//! container, it is the SHA-256 of that hash and their lines `"key":value`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::annotations;
use super::node::{Kind, Node};
use super::objects::Hashes;

/// The hashes of a Pod document.
pub fn hashes(root: &Node) -> Hashes {
    let spec = root.get("spec");
    let entries = |list: &str| {
        let containers = spec.and_then(|spec| spec.get(list)).map(Node::items).unwrap_or_default();
        let named = containers.iter().filter_map(|node| {
            let name = node.get("name")?.text()?;
            Some((name.to_owned(), with_annotations(digest(node, &[]), root, Some(name))))
        });
        named.collect()
    };
    Hashes {
        manifest: digest(root, &[]),
        pod: spec.map(|spec| with_annotations(digest(spec, &["containers"]), root, None)).unwrap_or_default(),
        containers: entries("containers"),
        init_containers: entries("initContainers"),
    }
}

/// A digest that also covers the annotations that shape the pod or the container; without any it stays itself.
fn with_annotations(digest: String, root: &Node, container: Option<&str>) -> String {
    let reaching = annotations::reaching(root, container);
    if reaching.is_empty() {
        return digest;
    }
    let lines = reaching.iter().map(|(key, value)| format!("{}:{}", quoted(key), item(value)));
    let form = std::iter::once(digest).chain(lines).collect::<Vec<_>>().join("\n");
    hex::encode(Sha256::digest(form.as_bytes()))
}

fn digest(node: &Node, without: &[&str]) -> String {
    let form = canonical(node, without).unwrap_or_else(|| "{}".to_owned());
    hex::encode(Sha256::digest(form.as_bytes()))
}

/// The canonical form, or none for a value that counts as absent. `without` names members to skip.
fn canonical(node: &Node, without: &[&str]) -> Option<String> {
    match &node.kind {
        Kind::Null => None,
        Kind::Bool(value) => Some(value.to_string()),
        Kind::Number(number) => Some(number.to_string()),
        Kind::Text(text) => Some(quoted(text)),
        Kind::List(items) if items.is_empty() => None,
        Kind::List(items) => {
            let items: Vec<String> = items.iter().map(item).collect();
            Some(format!("[{}]", items.join(",")))
        }
        Kind::Map(entries) => {
            let members: BTreeMap<&str, String> = entries
                .iter()
                .filter(|entry| !without.contains(&entry.key.as_str()))
                .filter_map(|entry| Some((entry.key.as_str(), canonical(&entry.value, &[])?)))
                .collect();
            if members.is_empty() {
                return None;
            }
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
            Some(format!("{{{}}}", members.join(",")))
        }
    }
}

/// An item keeps its place even when it says nothing.
fn item(node: &Node) -> String {
    canonical(node, &[]).unwrap_or_else(|| match node.kind {
        Kind::List(_) => "[]".to_owned(),
        Kind::Map(_) => "{}".to_owned(),
        _ => "null".to_owned(),
    })
}

/// A JSON string with the fewest escapes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Writing to a String cannot fail.
            c if c < ' ' => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::dialect::parse;

    fn of(yaml: &str) -> Hashes {
        let stream = parse(yaml.as_bytes());
        assert_eq!(stream.error, None, "{yaml}");
        hashes(&stream.documents[0].root)
    }

    const BASE: &str = "kind: Pod\nmetadata: {name: web}\nspec:\n  hostNetwork: true\n  containers:\n  - {name: a, args: [p, q], mode: 0644}\n  - {name: b}\n";

    #[test]
    fn order_comments_spelling_and_emptiness_change_nothing() {
        let other = "# hello\nspec:\n  containers:\n  - args:\n    - p # one\n    - \"q\"\n    name: a\n    mode: 420\n    env: []\n    resources: {limits: {}}\n  - name: b\n    image: ~\n  hostNetwork: yes\nmetadata:\n  name: web\n  labels:\nkind: Pod\n";
        assert_eq!(of(BASE), of(other));
    }

    #[test]
    fn the_order_of_list_items_counts() {
        let swapped = of(&BASE.replace("[p, q]", "[q, p]"));
        assert_ne!(of(BASE).manifest, swapped.manifest);
        assert_ne!(of(BASE).containers["a"], swapped.containers["a"]);
        assert_eq!(of(BASE).containers["b"], swapped.containers["b"]);
        assert_eq!(of(BASE).pod, swapped.pod);
    }

    #[test]
    fn a_label_changes_the_manifest_hash_only() {
        let labelled = of(&BASE.replace("{name: web}", "{name: web, labels: {a: b}}"));
        assert_ne!(of(BASE).manifest, labelled.manifest);
        assert_eq!(of(BASE).pod, labelled.pod);
        assert_eq!(of(BASE).containers, labelled.containers);
    }

    #[test]
    fn a_string_is_not_the_number_it_looks_like() {
        assert_ne!(of("a: \"1\"").manifest, of("a: 1").manifest);
    }

    /// The form is a promise: another value here would restart every pod on an upgrade.
    #[test]
    fn the_canonical_form_stays_as_it_is() {
        let node = &parse("b: [1, {}, ~, 2.50]\na: \"q\\\"\\n\\u00e9\"\nc: {}\nd: {e: ~}\n".as_bytes())
            .documents[0]
            .root;
        assert_eq!(canonical(node, &[]).as_deref(), Some("{\"a\":\"q\\\"\\u000aé\",\"b\":[1,{},null,2.5]}"));
        assert_eq!(of("a: 1").manifest, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862");
    }
}
