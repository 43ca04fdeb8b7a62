use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::system::clock;

fn value(text: &str) -> Value {
    let stream = parse(text.as_bytes());
    assert_eq!(stream.error, None, "{text:?}");
    stream.documents.first().map_or(Value::Null, |document| document.root.to_value())
}

fn error(text: &str) -> String {
    let error = parse(text.as_bytes()).error.unwrap_or_else(|| panic!("{text:?} was read"));
    format!("{}:{} {}", error.mark.line, error.mark.column, error.text)
}

#[test]
fn scalars_mean_what_they_mean_to_a_kubelet() {
    let cases = [
        ("0644", json!(420)),
        ("0o644", json!(420)),
        ("0x1a4", json!(420)),
        ("0b11", json!(3)),
        ("-0777", json!(-511)),
        ("0_7", json!(7)),
        ("00", json!(0)),
        ("08", json!(8)),
        ("019", json!(19)),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("1e3", json!(1000)),
        ("1.0", json!(1)),
        ("1.", json!(1)),
        (".5", json!(0.5)),
        ("1.10", json!(1.1)),
        ("18446744073709551615", json!(18446744073709551615u64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("123456789012345678901234567890", json!(123456789012345678901234567890f64)),
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("n", json!(false)),
        ("TRUE", json!(true)),
        ("tRue", json!("tRue")),
        ("~", Value::Null),
        ("Null", Value::Null),
        ("nUll", json!("nUll")),
        ("22:22", json!("22:22")),
        ("2024-01-01", json!("2024-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("0x", json!("0x")),
        ("1e", json!("1e")),
        ("+-1", json!("+-1")),
        ("1e400", json!("1e400")),
        ("_1", json!("_1")),
        ("'0644'", json!("0644")),
        ("\"yes\"", json!("yes")),
        ("!!str 0644", json!("0644")),
        ("!!int \"5\"", json!(5)),
        ("!!float 1", json!(1)),
        ("!!binary aGk=", json!("hi")),
        ("!x 5", json!("5")),
    ];
    for (text, expected) in cases {
        assert_eq!(value(&format!("k: {text}\n")), json!({"k": expected}), "{text}");
    }
}

#[test]
fn keys_become_strings() {
    assert_eq!(
        value("1: a\n1.5: b\non: c\n0x10: d\n\"on\": e\n"),
        json!({"1": "a", "1.5": "b", "true": "c", "16": "d", "on": "e"})
    );
}

#[test]
fn merge_keys_bring_what_is_not_written_out() {
    let text = "a: &a {x: 1, k: 1}\nb: &b {x: 2, z: 2}\none:\n  k: 3\n  <<: *a\nboth:\n  <<: [*a, *b]\n";
    assert_eq!(value(text)["one"], json!({"k": 3, "x": 1}));
    assert_eq!(value(text)["both"], json!({"x": 1, "k": 1, "z": 2}));
    assert_eq!(value("\"<<\": 1"), json!({"<<": 1}));
    assert_eq!(error("a:\n  <<: 5\n"), "2:3 the value of << must be a mapping or a list of mappings");
}

#[test]
fn a_key_that_stands_twice_is_noted_with_both_lines() {
    let stream = parse(b"spec:\n  a: 1\n  b: 2\n  a: 3\n");
    let document = &stream.documents[0];
    assert_eq!(document.root.to_value(), json!({"spec": {"a": 3, "b": 2}}));
    let note = &document.notes[0];
    assert_eq!(
        (note.path.to_string().as_str(), note.mark, note.code),
        ("spec.a", Mark { line: 4, column: 3 }, Code::Duplicate)
    );
    assert_eq!(
        note.text,
        "key \"a\" stands twice in this mapping, on line 2 and on line 4; the last one counts"
    );
}

#[test]
fn keys_that_differ_in_case_are_two_keys() {
    let stream = parse(b"Name: 1\nname: 2\n");
    assert!(stream.documents[0].notes.is_empty());
}

#[test]
fn an_unknown_tag_is_noted() {
    let stream = parse(b"a: !vault secret\n");
    assert_eq!(
        stream.documents[0].notes[0].text,
        "the tag \"!vault\" is ignored: manifests know no tags of their own"
    );
}

#[test]
fn every_encoding_with_a_mark_is_read() {
    let text = "a: \u{e9}\n";
    let utf16 = |join: fn(u16) -> [u8; 2]| -> Vec<u8> {
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(join).collect()
    };
    for bytes in [
        text.as_bytes().to_vec(),
        format!("\u{feff}{text}").into_bytes(),
        utf16(u16::to_le_bytes),
        utf16(u16::to_be_bytes),
    ] {
        let stream = parse(&bytes);
        assert_eq!(stream.error, None);
        assert_eq!(stream.documents[0].root.to_value(), json!({"a": "\u{e9}"}));
        assert_eq!(stream.documents[0].root.mark, Mark { line: 1, column: 1 });
    }
}

#[test]
fn bytes_that_are_no_text_say_where() {
    let failed = |bytes: &[u8]| parse(bytes).error.expect("an error");
    let error = failed(b"a: 1\nb: \xff\n");
    assert_eq!(
        (error.mark, error.text.as_str()),
        (Mark { line: 2, column: 4 }, "byte 0xff is not UTF-8; save the file as UTF-8")
    );
    assert_eq!(failed(b"\xff\xfea").text, "the UTF-16 file ends within a character");
    assert_eq!(failed(b"\xff\xfe\x00\xd8").text, "half a UTF-16 surrogate pair");
    assert_eq!(failed(b"\xff\xfe\0\0").text, "the file is UTF-32; save it as UTF-8");
}

#[test]
fn line_ends_of_windows_do_not_reach_values() {
    assert_eq!(value("a: |\r\n  x\r\n  y\r\nb: z\r\n"), json!({"a": "x\ny\n", "b": "z"}));
}

#[test]
fn all_documents_are_read_and_empty_ones_are_none() {
    let stream = parse(b"---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n");
    let roots: Vec<Value> = stream.documents.iter().map(|d| d.root.to_value()).collect();
    assert_eq!(roots, [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(stream.documents[1].root.mark.line, 7);
    for empty in ["", "\n \n", "# only a comment\n", "---\n", "~\n"] {
        assert_eq!(parse(empty.as_bytes()), Stream::default(), "{empty:?}");
    }
}

#[test]
fn documents_before_a_broken_one_are_kept() {
    let stream = parse(b"a: 1\n---\nb: [\n");
    assert_eq!(stream.documents.len(), 1);
    assert!(stream.error.is_some());
}

#[test]
fn errors_say_where_and_what_to_do() {
    let cases = [
        (
            "a:\n\tb: 1\n",
            "2:1 tabs disallowed within this context (block indentation): this line is indented with a tab; use spaces",
        ),
        (
            "a: @b\n",
            "1:4 unexpected character: `@': a plain value cannot begin with @, ` or %; put it in quotes",
        ),
        (
            "a: b: c\n",
            "1:5 mapping values are not allowed in this context: a plain value cannot hold a colon and a blank; put it in quotes",
        ),
        (
            "a: 1\n  b: 2\n",
            "2:4 mapping values are not allowed in this context: this line stands deeper than the one above, which has its value; align them",
        ),
        (
            "a: [*]\n",
            "1:5 while scanning an anchor or alias, did not find expected alphabetic or numeric character: a value that begins with * or & is an alias or an anchor; if it is meant as text, put it in quotes",
        ),
        (
            "a: \"\\d\"\n",
            "1:4 while parsing a quoted scalar, found unknown escape character: in double quotes \\ begins an escape; use single quotes, or \\\\",
        ),
        (
            "a: [%d]\n",
            "1:5 unexpected character: `%': a plain value cannot begin with @, ` or %; put it in quotes",
        ),
        ("a: [b\nc: d\n", "2:2 illegal placement of ':' indicator: is a bracket above not closed?"),
        ("a: 1\nb\n", "2:1 expected a colon and a blank behind this key; was the line cut off?"),
        (
            "a: 1\n<<<<<<< HEAD\nb: 2\n",
            "2:1 expected a colon and a blank behind this key; was the line cut off?: line 2 is a git conflict marker; resolve the conflict",
        ),
        (
            "name: {{ .Values.name }}\n",
            "1:8 a list or mapping cannot be a key; is this an unrendered template such as {{ .Values.name }}?",
        ),
        ("~: 1\n", "1:1 a key is missing before this colon (null cannot be a key)"),
        ("a: .inf\n", "1:4 \".inf\": infinity is no JSON value"),
        ("a: !!int x\n", "1:10 \"x\" is no !!int"),
        ("a: !!binary '*'\n", "1:13 the value of !!binary is not base64"),
        ("a: &a [*a]\n", "1:8 the alias stands within the value that it repeats"),
        ("{\"a\": [\"b\": 1]}", "1:8 a list holds values: put braces around this key and value"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected, "{text:?}");
    }
    assert!(error("\0\0\0\0").contains("NUL bytes, as after a crash"));
}

#[test]
fn single_quotes_may_be_escaped_within_double_quotes() {
    assert_eq!(value("a: \"it\\'s\"\nb: \"x\\\\y\"\n"), json!({"a": "it's", "b": "x\\y"}));
    assert!(error("a: \"\\q\"\n").starts_with("1:4 "));
}

#[test]
fn json_is_read_as_json() {
    assert_eq!(
        value("{\n\t\"a\":\t1, \"b\": \"\\u00e9\\/\\ud83d\\ude00\",\"c\":[true,null]}"),
        json!({"a": 1, "b": "\u{e9}/\u{1f600}", "c": [true, null]})
    );
}

#[test]
fn the_limits_hold() {
    let deep = |n: usize| format!("a: {}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(deep(MAX_DEPTH - 1).as_bytes()).error.is_none());
    assert!(error(&deep(MAX_DEPTH)).contains("nesting is deeper than 64 levels"));
    assert!(error(&"[".repeat(200_000)).contains("nesting is deeper than 64 levels"));
    assert!(error(&"- 1\n".repeat(MAX_NODES)).contains("more than 50000 values"));
    assert!(error(&"#".repeat(MAX_BYTES + 1)).contains("a manifest may have 10485760 (10 MiB)"));
    let mut nested = String::from("x0: &x0 [[[[[[[[[[1]]]]]]]]]]\n");
    for i in 1..8 {
        nested.push_str(&format!("x{i}: &x{i} [[[[[[[[[[*x{}]]]]]]]]]]\n", i - 1));
    }
    assert!(error(&nested).contains("with this alias nesting is deeper than 64 levels"));
}

#[test]
fn alias_bombs_cost_next_to_nothing() {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for i in 1..9 {
        let row = vec![format!("*a{}", i - 1); 9].join(", ");
        laughs.push_str(&format!("a{i}: &a{i} [{row}]\n"));
    }
    let fat = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 20_000].join(", "));
    let start = clock::now();
    assert!(error(&laughs).contains("excessive aliasing"));
    assert!(error(&fat).contains("aliases repeat more than 4194304 bytes of text"));
    assert!(clock::now().since(start) < Duration::from_millis(400));
}

#[test]
fn values_and_keys_know_their_places() {
    let stream = parse(
        "# c\nmetadata:\n  name: \u{e9}  # d\n  labels: {a: b, \u{e9}\u{e9}: c}\nspec:\n- - x\n  - y\n"
            .as_bytes(),
    );
    let root = &stream.documents[0].root;
    let at = |path: &Path| crate::manifest::positions::locate(root, path);
    let metadata = Path::root().field("metadata");
    assert_eq!(at(&metadata.field("name")), Mark { line: 3, column: 9 });
    assert_eq!(at(&metadata.field("labels").key("\u{e9}\u{e9}")), Mark { line: 4, column: 22 });
    assert_eq!(at(&Path::root().field("spec").index(0).index(1)), Mark { line: 7, column: 5 });
    assert_eq!(at(&metadata.field("uid")), Mark { line: 3, column: 3 });
}

/// The verdicts of the reader of kubelets on files that are not part of this repository.
#[test]
fn the_verdicts_of_kubelets_are_met() {
    // Read further than a kubelet would, nested deeper than is sane, and JSON by rule of its first byte.
    const DIFFERENT: &[&str] = &["11_multidoc_empty_first.yaml", "25_deep.yaml", "30_json.yaml"];
    let Some(folder) = std::env::var_os("PODLING_CORPUS") else {
        println!("PODLING_CORPUS is not set: nothing compared");
        return;
    };
    let folder = std::path::Path::new(&folder).join("yaml-dialect");
    let verdicts = std::fs::read_to_string(folder.join("VERDICTS.tsv")).expect("VERDICTS.tsv");
    let mut wrong = Vec::new();
    for line in verdicts.lines().filter(|line| !line.starts_with('#')) {
        let (name, verdict) = line.split_once('\t').expect("two columns");
        let stream = parse(&std::fs::read(folder.join(name)).expect(name));
        let ours = match (stream.documents.first(), &stream.error) {
            (Some(document), _) => document.root.to_value().to_string(),
            (None, Some(error)) => format!("error: {}", error.text),
            (None, None) => "null".to_owned(),
        };
        let same = match serde_json::from_str::<Value>(verdict) {
            Ok(value) => serde_json::from_str::<Value>(&ours).ok() == Some(value),
            Err(_) => ours.starts_with("error: "),
        };
        if !same && !DIFFERENT.contains(&name) {
            wrong.push(format!("{name}: kubelet {verdict}, podling {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        "[a-z0-9:# \\n\\t'\"\\\\{}&*!|>%@-]{0,10}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{1,8}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_json_is_read_as_that(inner in json_value()) {
        let whole = json!({"k": inner});
        for text in [
            whole.to_string(),
            serde_json::to_string_pretty(&whole).expect("json"),
            serde_json::to_string_pretty(&whole).expect("json").replace("\n  ", "\n\t"),
        ] {
            prop_assert_eq!(&value(&text), &whole, "{}", text);
        }
    }

    /// serde-saphyr is the second opinion: what it writes, this reads.
    #[test]
    fn what_another_writer_writes_is_read_as_that(inner in json_value()) {
        let whole = json!({"k": inner});
        let text = serde_saphyr::to_string(&whole).expect("yaml");
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        if let Ok(theirs) = serde_saphyr::from_str_with_options::<Value>(&text, options)
            && theirs == whole {
                prop_assert_eq!(&value(&text), &whole, "{}", text);
            }
    }

    #[test]
    fn no_text_breaks_the_reader(text in "[-a-z:\\[\\]{},&*!|>'\"%@` \\n\\t#~0-9.<]{0,60}") {
        parse(text.as_bytes());
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse(&bytes);
    }
}
