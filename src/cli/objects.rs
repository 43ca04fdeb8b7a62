//! `podling get configmaps` and `podling get secrets`.

use std::io::Write;
use std::process::ExitCode;

use jiff::Timestamp;

use super::args::Output;
use super::client::Client;
use super::error::say;
use super::table::Table;
use super::{Outcome, age, output};
use crate::objects::ObjectKind;
use crate::server::query::Query;
use crate::server::wire::{ObjectInfo, ObjectList};

const PATH: &str = "/podling/v1/objects";

/// Prints the objects of a kind, or those of `names`; of all namespaces without one.
pub(super) async fn list(
    client: &Client,
    kind: ObjectKind,
    namespace: Option<&str>,
    names: &[String],
    format: Output,
) -> Outcome {
    let ObjectList { mut items } = client.get(PATH, &Query::default()).await?;
    items.retain(|o| o.kind == kind && namespace.is_none_or(|ns| o.namespace == ns));
    let missing: Vec<&String> = names.iter().filter(|n| !items.iter().any(|o| o.name == **n)).collect();
    items.retain(|o| names.is_empty() || names.contains(&o.name));
    let mut out = std::io::stdout().lock();
    match format {
        Output::Json | Output::Yaml => output::object(&mut out, format, &ObjectList { items })?,
        Output::Name => {
            for object in &items {
                writeln!(out, "{}/{}", kind.resource(), object.name)?;
            }
        }
        Output::Table | Output::Wide if items.is_empty() => match namespace {
            _ if !missing.is_empty() => {}
            Some(ns) => say(&format!("No resources found in {ns} namespace.")),
            None => say("No resources found"),
        },
        Output::Table | Output::Wide => {
            let text = table(&items, kind, namespace.is_none(), format == Output::Wide, Timestamp::now());
            out.write_all(text.as_bytes())?;
        }
    }
    for name in &missing {
        say(&format!("Error from server (NotFound): {}s {name:?} not found", kind.resource()));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(objects: &[ObjectInfo], kind: ObjectKind, namespaced: bool, wide: bool, now: Timestamp) -> String {
    let secret = kind == ObjectKind::Secret;
    let cells = |namespace: &str, name: &str, secret_type: &str, data: String, age: String, file: String| {
        let mut cells = Vec::new();
        cells.extend(namespaced.then(|| namespace.to_owned()));
        cells.push(name.to_owned());
        cells.extend(secret.then(|| secret_type.to_owned()));
        cells.extend([data, age]);
        cells.extend(wide.then_some(file));
        cells
    };
    let [data, since, file] = ["DATA", "AGE", "FILE"].map(str::to_owned);
    let mut rows = vec![cells("NAMESPACE", "NAME", "TYPE", data, since, file)];
    rows.extend(objects.iter().map(|o| {
        let place = format!("{}:{}", o.file.display(), o.line);
        let secret_type = o.secret_type.as_deref().unwrap_or_default();
        let age = age::since(Some(o.since), now);
        cells(&o.namespace, &o.name, secret_type, o.sizes.len().to_string(), age, place)
    }));
    Table::default().render(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_kubectls_columns_and_no_values() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let object = ObjectInfo {
            kind: ObjectKind::Secret,
            namespace: "shop".into(),
            name: "db".into(),
            secret_type: Some("Opaque".into()),
            sizes: [("token".to_owned(), 5)].into(),
            immutable: false,
            since: "2026-01-01T00:00:00Z".parse().expect("a time"),
            file: "/etc/pods/db.yaml".into(),
            line: 3,
        };
        assert_eq!(
            table(std::slice::from_ref(&object), ObjectKind::Secret, false, false, now),
            "NAME   TYPE     DATA   AGE\ndb     Opaque   1      60s\n"
        );
        assert_eq!(
            table(&[object], ObjectKind::ConfigMap, true, true, now),
            "NAMESPACE   NAME   DATA   AGE   FILE\nshop        db     1      60s   /etc/pods/db.yaml:3\n"
        );
    }
}
