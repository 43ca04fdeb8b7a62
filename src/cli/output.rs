//! Objects as JSON and YAML.

use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::Output;
use super::error::CliError;

/// Prints an object as `-o json` or `-o yaml`, keys in order, as kubectl does.
pub(super) fn object(out: &mut impl Write, format: Output, object: &impl Serialize) -> Result<(), CliError> {
    let value = serde_json::to_value(object).map_err(|e| CliError::Failed(e.to_string()))?;
    if format == Output::Yaml {
        let text = yaml(&value)?;
        return Ok(out.write_all(text.as_bytes())?);
    }
    let mut text = Vec::new();
    let pretty = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, pretty);
    value.serialize(&mut serializer).map_err(|e| CliError::Failed(e.to_string()))?;
    text.push(b'\n');
    Ok(out.write_all(&text)?)
}

fn yaml(value: &Value) -> Result<String, CliError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text =
        serde_saphyr::to_string_with_options(value, options).map_err(|e| CliError::Failed(e.to_string()))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// A v1 List around objects, as kubectl prints several.
pub(super) fn list(items: &[impl Serialize]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_by_four_and_yaml_reads_back_as_it_was() {
        let value = json!({
            "b": ["yes", "0644", "1e3", "null", "", "a: b", "# no", "two\nlines\n", "tab\t", "- x"],
            "a": { "number": 12, "flag": true, "none": null, "empty": {}, "list": [] },
        });
        let mut text = Vec::new();
        object(&mut text, Output::Json, &value).unwrap();
        assert!(String::from_utf8(text).unwrap().starts_with("{\n    \"a\": {\n"));
        let text = yaml(&value).unwrap();
        assert!(text.starts_with("a:\n  empty: {}\n"), "{text}");
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }

    #[test]
    fn strings_that_older_yaml_reads_as_something_else_are_quoted() {
        let text = yaml(&json!(["yes", "off", "0644", "1_000", "12:30:00", "~"])).unwrap();
        for line in text.lines() {
            assert!(line.ends_with('"') || line.ends_with('\''), "{line}");
        }
    }
}
