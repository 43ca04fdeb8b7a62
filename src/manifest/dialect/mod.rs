//! The kubelet's dialect of YAML: bytes to trees of values that know where they stand.
//!
//! Kubelets read manifests with YAML 1.1 rules (`0644` is octal, `yes` is a boolean, `<<` merges) and
//! then treat the result as JSON. `scalar` holds those rules, `compose` builds the tree from the
//! parser's events, with limits on depth, nodes and aliases. Whole floats become integers, keys become
//! strings. Where a kubelet drops things in silence, this reader differs: every document of a file is
//! read, a key that stands twice is noted with both lines, an unknown tag is noted.
//!
//! The tree is composed here, from the events of the parser beneath serde-saphyr, and not by
//! serde-saphyr itself, since only the events tell `tRue` from `true`, `08` from `8.0`, both places of a
//! key that stands twice, and the place of each value (`docs/design.md` has the figures). Tests hold the
//! two readers together.
//!
//! JSON needs no reader of its own: the parser takes tabs, `\/` and surrogate pairs as JSON has them.

mod compose;
mod encoding;
mod explain;
mod scalar;
#[cfg(test)]
mod tests;

use super::node::{Mark, Node};
use super::objects::Code;
use super::positions::Path;

/// Largest manifest file, in bytes; a kubelet's limit. A file may hold many objects.
pub const MAX_BYTES: usize = 10 << 20;
/// Deepest nesting of lists and mappings; a Pod needs 12.
pub const MAX_DEPTH: usize = 64;
/// Most values in a file, those that aliases repeat included.
pub const MAX_NODES: usize = 50_000;
/// Most bytes of text that anchors and aliases may hold and repeat.
pub const MAX_ALIASED_BYTES: usize = 4 * 1024 * 1024;

/// Why the bytes are no manifest, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where.
    pub mark: Mark,
    /// What is wrong and what to do.
    pub text: String,
}

/// Something worth saying about a document that was read all the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The field it is about.
    pub path: Path,
    /// Where it stands.
    pub mark: Mark,
    /// Kind of finding.
    pub code: Code,
    /// What to say.
    pub text: String,
}

/// One document of a file that holds something.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// Its content.
    pub root: Node,
    /// What to say about it.
    pub notes: Vec<Note>,
}

/// What a file holds: the documents before the first error, and that error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Documents with content; empty and comment-only ones are left out.
    pub documents: Vec<Parsed>,
    /// Where reading stopped, if it did.
    pub error: Option<SyntaxError>,
}

/// Reads a whole file.
pub fn parse(bytes: &[u8]) -> Stream {
    if bytes.len() > MAX_BYTES {
        let text = format!("the file has {} bytes; a manifest may have {MAX_BYTES} (10 MiB)", bytes.len());
        return Stream {
            error: Some(SyntaxError { mark: Mark { line: 1, column: 1 }, text }),
            ..Stream::default()
        };
    }
    match encoding::decode(bytes) {
        Ok(text) => compose::compose(&text),
        Err(error) => Stream { error: Some(error), ..Stream::default() },
    }
}
