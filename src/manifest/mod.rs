//! Manifests: bytes in, typed, defaulted and validated objects out.
//!
//! This folder does no IO and knows nothing of containerd. It owns the kubelet's YAML dialect, the
//! table of fields podling honours, the API defaults, validation, and the hashes that decide what an
//! edit touches. The daemon's file source and `podling check` call the same [`read`].
//!
//! The way of a document: `dialect` makes a tree whose values know their places, `documents` sorts out
//! kinds, `decode` and `strict` check types and names by the table in `fields`, `defaults` fills in,
//! `validate` applies the API's rules, `support` says what podling does not honour.

pub mod annotations;
mod claim;
mod data;
mod decode;
mod defaults;
mod dialect;
mod documents;
mod fields;
mod hash;
mod node;
mod objects;
mod podman;
mod positions;
mod quantity;
pub mod references;
mod strict;
mod suggest;
mod support;
mod support_doc;
pub mod sysctl;
#[cfg(test)]
mod tests;
mod validate;

pub use data::{DataObject, ObjectKey, ObjectKind};
pub use defaults::with_defaults;
pub use dialect::MAX_BYTES;
pub use objects::*;
pub use quantity::{Quantity, QuantityError};
pub use suggest::nearest;
pub use support_doc::support_table_markdown;

/// Reads a manifest file: one [`Document`] for each YAML document with content, an item of a `List`
/// counting as one. Never fails and never panics: what is wrong is a diagnostic in its document. A
/// syntax error is a document of its own (kind "") behind those that were read before it. A file
/// without content, or with comments only, gives no document.
pub fn read(bytes: &[u8], opts: &ReadOptions) -> Vec<Document> {
    let dialect::Stream { mut documents, error } = dialect::parse(bytes);
    if let Some(first) = documents.first_mut().filter(|_| looks_like_json_and_is_not(bytes)) {
        let text = "a kubelet takes a file that begins with { for JSON, and refuses this one".to_owned();
        first.notes.push(dialect::Note {
            path: positions::Path::root(),
            mark: first.root.mark,
            code: Code::NoEffect,
            text,
        });
    }
    let mut documents = documents::read_all(documents, opts);
    documents.extend(error.map(|error| Document {
        line: error.mark.line,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        diagnostics: vec![Diagnostic {
            severity: Severity::Error,
            code: Code::Syntax,
            path: String::new(),
            line: error.mark.line,
            column: error.mark.column,
            text: error.text,
        }],
        pod: None,
        object: None,
    }));
    documents
}

/// YAML's flow style, which a kubelet never gets to read as such.
fn looks_like_json_and_is_not(bytes: &[u8]) -> bool {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    bytes.trim_ascii_start().starts_with(b"{") && values.next().is_some_and(|value| value.is_err())
}
