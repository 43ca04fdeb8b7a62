//! Where two JSON values differ: paths as people write them, `spec.containers[web].image: a -> b`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Characters of a value that are shown.
const SHOWN: usize = 60;
/// Those of them that are shown of what a long value had and has in common.
const BEFORE: usize = 20;

/// One place where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Such as `spec.containers[web].image`.
    pub path: String,
    /// Such as `a -> b`, `added`, `changed`.
    pub text: String,
}

/// Where `old` and `new`, both at `path`, differ. Objects in lists are told apart by their name or path, where
/// they have one.
pub fn differences(path: &str, old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(path, old, new, &mut found);
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Difference>) {
    if old == new || (is_nothing(old) && is_nothing(new)) {
        return;
    }
    let nothing = Map::new();
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => maps(path, a, b, found),
        (Value::Null, Value::Object(b)) if is_open(path) => maps(path, &nothing, b, found),
        (Value::Object(a), Value::Null) if is_open(path) => maps(path, a, &nothing, found),
        (Value::Array(a), Value::Array(b)) => lists(path, a, b, found),
        (Value::Null, Value::Array(b)) => lists(path, &[], b, found),
        (Value::Array(a), Value::Null) => lists(path, a, &[], found),
        _ => found.push(Difference { path: path.into(), text: text(path, old, new) }),
    }
}

fn maps(path: &str, old: &Map<String, Value>, new: &Map<String, Value>, found: &mut Vec<Difference>) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        let inner = if is_free_map(path) { format!("{path}[{key}]") } else { format!("{path}.{key}") };
        compare(&inner, &of(old), &of(new), found);
    }
}

/// What says nothing is as good as absent.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
        _ => false,
    }
}

/// Mappings whose members are told one by one also when all of them come or go.
fn is_open(path: &str) -> bool {
    is_free_map(path) || path.ends_with(".resources")
}

/// Mappings whose keys are the user's.
fn is_free_map(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    matches!(
        name,
        "labels" | "annotations" | "limits" | "requests" | "nodeSelector" | "matchLabels" | "overhead"
    )
}

fn lists(path: &str, old: &[Value], new: &[Value], found: &mut Vec<Difference>) {
    let named = |list: &[Value]| -> Option<Vec<String>> {
        let keys: Vec<String> = list.iter().map(|v| key(v).map(str::to_owned)).collect::<Option<_>>()?;
        let unique: BTreeSet<&String> = keys.iter().collect();
        (unique.len() == keys.len()).then_some(keys)
    };
    let (Some(before), Some(after)) = (named(old), named(new)) else {
        return unnamed(path, old, new, found);
    };
    let at = |keys: &[String], list: &[Value], key: &String| {
        keys.iter().position(|k| k == key).map(|i| list[i].clone()).unwrap_or_default()
    };
    let keys: BTreeSet<&String> = before.iter().chain(&after).collect();
    let count = found.len();
    for key in keys {
        let (a, b) = (at(&before, old, key), at(&after, new, key));
        compare(&format!("{path}[{key}]"), &a, &b, found);
    }
    if found.len() == count {
        found.push(Difference { path: path.into(), text: "another order".into() });
    }
}

/// What a person calls an object in a list.
fn key(value: &Value) -> Option<&str> {
    ["mountPath", "devicePath", "name", "resourceName"].iter().find_map(|k| value.get(k)?.as_str())
}

fn unnamed(path: &str, old: &[Value], new: &[Value], found: &mut Vec<Difference>) {
    if old.len() == new.len() {
        for (i, (a, b)) in old.iter().zip(new).enumerate() {
            compare(&format!("{path}[{i}]"), a, b, found);
        }
        return;
    }
    let of = |list: &[Value]| Value::Array(list.to_vec());
    found.push(Difference { path: path.into(), text: text(path, &of(old), &of(new)) });
}

fn text(path: &str, old: &Value, new: &Value) -> String {
    match (old, new) {
        _ if is_private(path) => "changed".into(),
        (Value::Null, Value::Object(_)) => "added".into(),
        (Value::Object(_), Value::Null) => "removed".into(),
        _ => change(&written(old), &written(new)),
    }
}

/// Both values, from a little before where they part when that lies behind what is shown.
fn change(old: &str, new: &str) -> String {
    let same = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count();
    let fits = old.chars().count().max(new.chars().count()) <= SHOWN;
    let from = if fits || same < SHOWN - BEFORE { 0 } else { same - BEFORE };
    format!("{} -> {}", cut(old, from), cut(new, from))
}

/// Values that may be secrets are never shown: those of variables and of request headers.
fn is_private(path: &str) -> bool {
    path.ends_with("].value") && (path.contains(".env[") || path.contains(".httpHeaders["))
}

fn written(value: &Value) -> String {
    let text = match value {
        Value::Null => "(none)".into(),
        Value::String(s) if s.is_empty() => "\"\"".into(),
        Value::String(s) => s.clone(),
        // A list that is shown whole may hold what its items would hide.
        Value::Array(items) if items.iter().any(Value::is_object) => {
            format!("{} item{}", items.len(), if items.len() == 1 { "" } else { "s" })
        }
        other => other.to_string(),
    };
    text.replace('\n', "\\n")
}

/// What is shown of a text, from one of its characters on.
fn cut(text: &str, from: usize) -> String {
    let (before, after) =
        (if from > 0 { "..." } else { "" }, text.chars().count().saturating_sub(from) > SHOWN);
    let part: String = text.chars().skip(from).take(SHOWN).collect();
    format!("{before}{part}{}", if after { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(old: Value, new: Value) -> Vec<String> {
        differences("spec", &old, &new).into_iter().map(|d| format!("{}: {}", d.path, d.text)).collect()
    }

    #[test]
    fn scalars_objects_and_lists_are_named_by_their_paths() {
        for (old, new, expected) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (json!({"a": 1}), json!({"a": 2}), vec!["spec.a: 1 -> 2"]),
            (json!({}), json!({"a": "x"}), vec!["spec.a: (none) -> x"]),
            (json!({"p": {"q": 1}}), json!({}), vec!["spec.p: removed"]),
            (json!({"args": ["a", "b"]}), json!({"args": ["a", "c"]}), vec!["spec.args[1]: b -> c"]),
            (json!({"args": ["a"]}), json!({"args": ["a", "c"]}), vec![r#"spec.args: ["a"] -> ["a","c"]"#]),
            (
                json!({"l": [{"name": "a", "x": 1}]}),
                json!({"l": [{"name": "a", "x": 2}]}),
                vec!["spec.l[a].x: 1 -> 2"],
            ),
            (
                json!({"l": [{"name": "a"}]}),
                json!({"l": [{"name": "b"}]}),
                vec!["spec.l[a]: removed", "spec.l[b]: added"],
            ),
            (
                json!({"l": [{"name": "a"}, {"name": "b"}]}),
                json!({"l": [{"name": "b"}, {"name": "a"}]}),
                vec!["spec.l: another order"],
            ),
            (json!({"p": null}), json!({"p": {"q": {}, "r": []}}), vec![]),
            (
                json!({}),
                json!({"resources": {"limits": {"cpu": "1"}}}),
                vec!["spec.resources.limits[cpu]: (none) -> 1"],
            ),
            (
                json!({"limits": {"cpu": "1"}}),
                json!({"limits": {"cpu": "2"}}),
                vec!["spec.limits[cpu]: 1 -> 2"],
            ),
        ] {
            assert_eq!(lines(old, new), expected);
        }
    }

    #[test]
    fn values_of_variables_and_headers_are_never_shown() {
        let env = |v: &str| json!({"env": [{"name": "TOKEN", "value": v}]});
        assert_eq!(lines(env("s3cret"), env("other")), ["spec.env[TOKEN].value: changed"]);
        assert_eq!(lines(json!({"env": []}), env("s3cret")), ["spec.env[TOKEN]: added"]);
        let header = |v: &str| json!({"httpHeaders": [{"name": "Authorization", "value": v}]});
        assert_eq!(lines(header("s3cret"), header("x")), ["spec.httpHeaders[Authorization].value: changed"]);
        let twice = json!({"env": [{"name": "A", "value": "s3cret"}, {"name": "A", "value": "s3cret"}]});
        assert_eq!(lines(twice, env("x")), ["spec.env: 2 items -> 1 item"]);
    }

    #[test]
    fn long_values_are_cut_and_lines_stay_lines() {
        let found = lines(json!({"a": "x\ny"}), json!({"a": "z".repeat(200)}));
        assert_eq!(found, [format!("spec.a: x\\ny -> {}...", "z".repeat(60))]);
        let script = |end: &str| json!({"a": format!("{}sleep 1; {end}", "echo on; ".repeat(20))});
        assert_eq!(
            lines(script("exit 0"), script("exit 12")),
            [format!("spec.a: {0}exit 0 -> {0}exit 12", "...o on; sleep 1; ")]
        );
    }
}
