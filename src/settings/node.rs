//! Mappings of the config file that describe the node: amounts, labels, priority classes.

use std::collections::BTreeMap;

use super::tree::Value;
use crate::manifest::Quantity;

/// Highest priority of a class that is not the system's.
const HIGHEST_CLASS: i128 = 1_000_000_000;

/// Amounts by resource name.
pub(super) fn amounts(name: &str, value: &Value) -> Result<BTreeMap<String, Quantity>, String> {
    read(name, value, |key, value| {
        let known = matches!(key, "cpu" | "memory" | "ephemeral-storage") || key.starts_with("hugepages-");
        if !known {
            return Err("is not cpu, memory, ephemeral-storage or hugepages-<size>".into());
        }
        let text = match value {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            Value::Float(n) => n.to_string(),
            other => return Err(format!("{other} is not an amount such as 500m or 1Gi")),
        };
        let amount = Quantity::parse(&text).map_err(|e| e.to_string())?;
        if amount.is_negative() { Err(format!("`{text}` is less than nothing")) } else { Ok(amount) }
    })
}

/// Labels.
pub(super) fn labels(name: &str, value: &Value) -> Result<BTreeMap<String, String>, String> {
    read(name, value, |_, value| match value {
        Value::Text(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        other => Err(format!("{other} is not a string; put it in quotes")),
    })
}

/// Priorities by class name.
pub(super) fn classes(name: &str, value: &Value) -> Result<BTreeMap<String, i32>, String> {
    read(name, value, |key, value| {
        if key.starts_with("system-") {
            return Err("names that begin with `system-` are the system's".into());
        }
        match value {
            Value::Integer(n) if (i128::from(i32::MIN)..=HIGHEST_CLASS).contains(n) => Ok(*n as i32),
            other => Err(format!("{other} is not a whole number up to {HIGHEST_CLASS}")),
        }
    })
}

fn read<T>(
    name: &str,
    value: &Value,
    one: impl Fn(&str, &Value) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let entries = match value {
        Value::Map(entries) => entries.as_slice(),
        Value::Null => &[],
        other => return Err(format!("{name}: {other} is not a mapping")),
    };
    let read = |(key, value): &(_, serde_saphyr::Spanned<Value>)| {
        let key: &serde_saphyr::Spanned<String> = key;
        let item = one(&key.value, &value.value).map_err(|e| format!("{name}.{}: {e}", key.value))?;
        Ok((key.value.clone(), item))
    };
    entries.iter().map(read).collect()
}
