//! `runtimeClasses`: what the name of a RuntimeClass means on this node.

use std::collections::BTreeMap;

use super::file::text;
use super::tree::Value;
use crate::manifest::Quantity;

/// What a pod's `runtimeClassName` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeClass {
    /// containerd's name of a runtime (`io.containerd.kata.v2`), or an OCI runtime for containerd's runc shim
    /// (`crun`, a path).
    pub handler: String,
    /// What a pod of this class needs beyond its containers, by resource name; for pods that do not say it.
    pub overhead: BTreeMap<String, String>,
}

const FIELDS: [&str; 2] = ["handler", "overhead"];

/// Reads the mapping of names to a handler, or to `{handler, overhead}`.
pub(super) fn read(name: &str, value: &Value) -> Result<BTreeMap<String, RuntimeClass>, String> {
    let Value::Map(entries) = value else {
        return Err(format!("{name}: {value} is not a mapping of class names to runtimes"));
    };
    let class = |(key, node): &(serde_saphyr::Spanned<String>, serde_saphyr::Spanned<Value>)| {
        one(&format!("{name}.{}", key.value), &node.value).map(|class| (key.value.clone(), class))
    };
    entries.iter().map(class).collect()
}

fn one(name: &str, value: &Value) -> Result<RuntimeClass, String> {
    let mut class = RuntimeClass { handler: String::new(), overhead: BTreeMap::new() };
    match value {
        Value::Map(entries) => {
            for (key, node) in entries {
                let name = format!("{name}.{}", key.value);
                match key.value.as_str() {
                    "handler" => text(&name, &node.value)?.clone_into(&mut class.handler),
                    "overhead" => class.overhead = overhead(&name, &node.value)?,
                    other => return Err(super::file::unknown(other, &FIELDS)),
                }
            }
        }
        other => text(name, other)?.clone_into(&mut class.handler),
    }
    if class.handler.is_empty() || class.handler.contains(char::is_whitespace) {
        return Err(format!(
            "{name}: the handler must be containerd's name of a runtime, such as io.containerd.kata.v2, or an \
             OCI runtime, such as crun or a path"
        ));
    }
    Ok(class)
}

fn overhead(name: &str, value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Map(entries) = value else {
        return Err(format!("{name}: {value} is not a mapping with cpu and memory"));
    };
    let amount = |(key, node): &(serde_saphyr::Spanned<String>, serde_saphyr::Spanned<Value>)| {
        let name = format!("{name}.{}", key.value);
        if !["cpu", "memory"].contains(&key.value.as_str()) {
            return Err(super::file::unknown(&key.value, &["cpu", "memory"]));
        }
        let written = match &node.value {
            Value::Integer(n) => n.to_string(),
            other => text(&name, other)?.to_owned(),
        };
        match Quantity::parse(&written) {
            Ok(quantity) if !quantity.is_negative() => Ok((key.value.clone(), written)),
            _ => Err(format!("{name}: `{written}` is not a quantity such as 250m or 64Mi")),
        }
    };
    entries.iter().map(amount).collect()
}
