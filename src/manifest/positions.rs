//! Field paths, and the place in the file that a path stands for.

use std::fmt;

use super::node::{Kind, Mark, Node};
use super::objects::{Code, Diagnostic, Severity};

/// One step of a field path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field of an object: `.name`.
    Field(String),
    /// An item of a list: `[0]`.
    Index(usize),
    /// A key of a free mapping such as labels: `[app]`.
    Key(String),
}

/// A field path such as `spec.containers[0].resources.limits[cpu]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

impl Path {
    /// The document itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A field below this path.
    pub fn field(&self, name: &str) -> Self {
        self.step(Step::Field(name.to_owned()))
    }

    /// A list item below this path.
    pub fn index(&self, i: usize) -> Self {
        self.step(Step::Index(i))
    }

    /// A key of a free mapping below this path.
    pub fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    /// Whether `other` is this path or stands below it.
    pub fn covers(&self, other: &Path) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The index of the list document's item that this path leads into, and the path seen from there.
    pub fn within_item(&self) -> Option<(usize, Path)> {
        match self.0.as_slice() {
            [Step::Field(items), Step::Index(i), rest @ ..] if items == "items" => {
                Some((*i, Path(rest.to_vec())))
            }
            _ => None,
        }
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if i == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(n) => write!(f, "[{n}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

/// Where the value at `path` begins; where that is not written, its nearest parent that is.
pub fn locate(root: &Node, path: &Path) -> Mark {
    walk(root, path).0
}

/// Where the key of `path` stands; for a list item, where the item begins.
pub fn locate_key(root: &Node, path: &Path) -> Mark {
    walk(root, path).1
}

/// The marks of the value and of the key that leads to it.
fn walk(root: &Node, path: &Path) -> (Mark, Mark) {
    let (mut node, mut key) = (root, root.mark);
    for step in &path.0 {
        let next = match (step, &node.kind) {
            (Step::Field(name) | Step::Key(name), Kind::Map(_)) => node.entry(name).map(|e| (&e.value, e.at)),
            (Step::Index(i), Kind::List(items)) => items.get(*i).map(|n| (n, n.mark)),
            _ => None,
        };
        let Some((n, k)) = next else { break };
        (node, key) = (n, k);
    }
    // A value left out (`name:` and nothing) has no place of its own worth showing.
    if node.is_null() || node.mark.line == 0 { (key, key) } else { (node.mark, key) }
}

/// The keys with a value that are written in the mapping at `path`.
pub fn members(root: &Node, path: &Path) -> Option<Vec<String>> {
    let mut node = root;
    for step in &path.0 {
        node = match step {
            Step::Field(name) | Step::Key(name) => node.get(name)?,
            Step::Index(i) => node.items().get(*i)?,
        };
    }
    match &node.kind {
        Kind::Map(entries) => {
            Some(entries.iter().filter(|e| !e.value.is_null()).map(|e| e.key.clone()).collect())
        }
        _ => None,
    }
}

/// Most findings that one document gets; who has more has another kind of file.
const MAX_FINDINGS: usize = 500;

/// Collects the findings about one document and gives each its place.
pub struct Findings<'a> {
    root: &'a Node,
    list: Vec<Diagnostic>,
    /// Whether an error is among them.
    errors: bool,
    /// Paths whose value had the wrong type: what else is wrong there is a consequence.
    broken: Vec<Path>,
}

impl<'a> Findings<'a> {
    /// No findings yet about `root`.
    pub fn new(root: &'a Node) -> Self {
        Self { root, list: Vec::new(), errors: false, broken: Vec::new() }
    }

    /// The document they are about.
    pub fn root(&self) -> &'a Node {
        self.root
    }

    /// An error at the value of `path`.
    pub fn error(&mut self, code: Code, path: &Path, text: impl Into<String>) {
        if !self.is_full(Severity::Error) {
            self.put(Severity::Error, code, path, locate(self.root, path), text.into());
        }
    }

    /// A warning at the value of `path`.
    pub fn warn(&mut self, code: Code, path: &Path, text: impl Into<String>) {
        if !self.is_full(Severity::Warning) {
            self.put(Severity::Warning, code, path, locate(self.root, path), text.into());
        }
    }

    /// A finding at the key of `path`.
    pub fn at_key(&mut self, severity: Severity, code: Code, path: &Path, text: impl Into<String>) {
        if !self.is_full(severity) {
            self.put(severity, code, path, locate_key(self.root, path), text.into());
        }
    }

    /// A finding at a place known already.
    pub fn at(&mut self, severity: Severity, code: Code, path: &Path, mark: Mark, text: String) {
        if !self.is_full(severity) {
            self.put(severity, code, path, mark, text);
        }
    }

    /// Whether no finding of this weight is taken any more. Asked before a finding is made: what is
    /// made in vain for each of 50,000 values adds up. A list full of warnings takes one error still,
    /// since that decides the verdict.
    pub fn is_full(&self, severity: Severity) -> bool {
        self.list.len() >= MAX_FINDINGS && (self.errors || severity == Severity::Warning)
    }

    /// A value of the wrong type at `path`, which is left out of what is decoded.
    pub fn broken(&mut self, path: &Path, text: String) {
        if !self.is_full(Severity::Error) {
            self.error(Code::Type, path, text);
            self.broken.push(path.clone());
        }
    }

    /// Whether an error was found.
    pub fn has_errors(&self) -> bool {
        self.errors
    }

    /// The findings in order of place.
    pub fn into_sorted(self) -> Vec<Diagnostic> {
        let mut list = self.list;
        list.sort_by_key(|d| (d.line, d.column));
        list.dedup();
        list
    }

    fn put(&mut self, severity: Severity, code: Code, path: &Path, mark: Mark, text: String) {
        if code == Code::Invalid && self.broken.iter().any(|b| b.covers(path)) {
            return;
        }
        // The error that a full list still takes stands in place of its last warning.
        self.list.truncate(MAX_FINDINGS - 1);
        self.errors |= severity == Severity::Error;
        let path = path.to_string();
        self.list.push(Diagnostic { severity, code, path, line: mark.line, column: mark.column, text });
    }
}
