//! Parser events to trees: anchors, merge keys, duplicate keys, limits.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle, Tag};

use super::{MAX_ALIASED_BYTES, MAX_DEPTH, MAX_NODES, Note, Parsed, Stream, SyntaxError, explain, scalar};
use crate::manifest::node::{Entry, Kind, Mark, Node, quote};
use crate::manifest::objects::Code;
use crate::manifest::positions::Path;

const YAML: &str = "tag:yaml.org,2002:";

/// Most times that a text is read again with `\'` taken for `'`.
const MAX_REPAIRS: usize = 16;

/// Reads every document of a text.
///
/// The reader of kubelets takes `\'` within double quotes for `'`, which YAML does not: a scalar that
/// holds one is repaired and the text read again. Columns behind it on its line move by one.
pub fn compose(text: &str) -> Stream {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MAX_REPAIRS {
        match read(&text) {
            (stream, Some(error)) => match explain::without_escaped_quotes(&error, &text) {
                Some(repaired) => text = Cow::Owned(repaired),
                None => return Stream { error: Some(explain::scan_error(&error, &text)), ..stream },
            },
            (stream, None) => return stream,
        }
    }
    let (stream, error) = read(&text);
    match error {
        Some(error) => Stream { error: Some(explain::scan_error(&error, &text)), ..stream },
        None => stream,
    }
}

/// Reads until the end or the first error; the parser's own errors come back as they are.
fn read(text: &str) -> (Stream, Option<ScanError>) {
    let mut stream = Stream::default();
    let mut composer = Composer { json_like: text.trim_start().starts_with('{'), ..Composer::default() };
    for next in Parser::<StrInput<'_>>::new_from_str_with_options(text, options()) {
        let (event, span) = match next {
            Ok(event) => event,
            Err(error) => return (stream, Some(error)),
        };
        match composer.take(event, span, text) {
            Ok(None) => {}
            Ok(Some(document)) => stream.documents.push(document),
            Err(error) => {
                stream.error = Some(error);
                break;
            }
        }
    }
    (stream, None)
}

fn options() -> Options {
    let mut options = Options::default();
    options.set_emit_comments(false);
    // The composer's own limit speaks first; this one keeps the scanner's state small.
    options.flow_nesting_limit = MAX_DEPTH + 2;
    options.block_nesting_limit = MAX_DEPTH + 2;
    options
}

fn syntax(mark: Mark, text: impl Into<String>) -> SyntaxError {
    SyntaxError { mark, text: text.into() }
}

/// An anchored value with what repeating it costs.
struct Anchored {
    node: Node,
    size: Size,
}

/// How large a value is.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    height: usize,
}

impl Size {
    fn add_child(&mut self, child: Size) {
        self.nodes += child.nodes;
        self.bytes += child.bytes;
        self.height = self.height.max(child.height + 1);
    }
}

/// A collection that is still open.
struct Frame {
    mark: Mark,
    anchor: usize,
    size: Size,
    body: Body,
}

enum Body {
    List(Vec<Node>),
    Map(MapBody),
}

#[derive(Default)]
struct MapBody {
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
    key: Option<(String, Mark)>,
    merges: Vec<Node>,
    /// The pending key is `<<`.
    merging: bool,
}

#[derive(Default)]
struct Composer {
    /// The text begins as JSON does. It may be YAML in flow style, but `["a": 1]`, which YAML reads as a
    /// list with a mapping in it, is a mistake there.
    json_like: bool,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    notes: Vec<Note>,
    nodes: usize,
    kept_nodes: usize,
    kept_bytes: usize,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, span: Span, text: &str) -> Result<Option<Parsed>, SyntaxError> {
        let mark = mark(&span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref(), mark)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Body::List(Vec::new()), anchor, tag.as_deref(), mark)?;
            }
            Event::MappingStart(style, anchor, tag) => {
                if self.json_like && style == StructureStyle::Flow && !begins_with_brace(&span, text) {
                    return Err(syntax(mark, "a list holds values: put braces around this key and value"));
                }
                self.open(Body::Map(MapBody::default()), anchor, tag.as_deref(), mark)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(id) => self.alias(id, mark)?,
            Event::DocumentEnd => {
                self.anchors.clear();
                let notes = std::mem::take(&mut self.notes);
                let root = self.root.take().filter(|root| !root.is_null());
                return Ok(root.map(|root| Parsed { root, notes }));
            }
            _ => {}
        }
        Ok(None)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        mark: Mark,
    ) -> Result<(), SyntaxError> {
        self.spend(1, mark)?;
        let plain = matches!(style, ScalarStyle::Plain);
        if plain
            && tag.is_none()
            && text == "<<"
            && let Some(map) = self.map_without_key()
        {
            map.merging = true;
            map.key = Some((text.to_owned(), mark));
            return Ok(());
        }
        let kind = match tag {
            None if plain => {
                scalar::resolve(text).map_err(|e| syntax(mark, format!("{}: {e}", quote(text))))?
            }
            None => Kind::Text(text.to_owned()),
            Some(tag) => match tag.suffix_in_namespace(YAML) {
                Some(core) => scalar::resolve_tagged(&core, text).map_err(|e| syntax(mark, e))?,
                None => {
                    self.note_tag(tag, mark);
                    Kind::Text(text.to_owned())
                }
            },
        };
        let bytes = if let Kind::Text(s) = &kind { s.len() } else { 0 };
        self.place(Node { mark, kind }, Size { nodes: 1, bytes, height: 0 }, anchor)
    }

    fn note_tag(&mut self, tag: &Tag, mark: Mark) {
        // A lone `!` only says that the value is a string.
        if tag.suffix() == "!" || (tag.handle().is_empty() && tag.suffix().is_empty()) {
            return;
        }
        let text =
            format!("the tag {} is ignored: manifests know no tags of their own", quote(&tag.original()));
        self.note(mark, Code::NoEffect, text);
    }

    fn note(&mut self, mark: Mark, code: Code, text: String) {
        let path = self.path();
        self.notes.push(Note { path, mark, code, text });
    }

    /// The path of the value that comes next.
    fn path(&self) -> Path {
        self.stack.iter().fold(Path::root(), |path, frame| match &frame.body {
            Body::List(items) => path.index(items.len()),
            Body::Map(map) => match &map.key {
                Some((key, _)) => path.field(key),
                None => path,
            },
        })
    }

    fn map_without_key(&mut self) -> Option<&mut MapBody> {
        match self.stack.last_mut().map(|frame| &mut frame.body) {
            Some(Body::Map(map)) if map.key.is_none() => Some(map),
            _ => None,
        }
    }

    fn open(&mut self, body: Body, anchor: usize, tag: Option<&Tag>, mark: Mark) -> Result<(), SyntaxError> {
        self.spend(1, mark)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(syntax(mark, format!("nesting is deeper than {MAX_DEPTH} levels")));
        }
        if self.map_without_key().is_some() {
            return Err(syntax(
                mark,
                "a list or mapping cannot be a key; is this an unrendered template such as {{ .Values.name }}?",
            ));
        }
        if let Some(tag) = tag.filter(|tag| tag.suffix_in_namespace(YAML).is_none()) {
            self.note_tag(tag, mark);
        }
        self.stack.push(Frame { mark, anchor, size: Size { nodes: 1, ..Size::default() }, body });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let kind = match frame.body {
            Body::List(items) => Kind::List(items),
            Body::Map(map) => Kind::Map(merge(map)?),
        };
        self.place(Node { mark: frame.mark, kind }, frame.size, frame.anchor)
    }

    fn alias(&mut self, id: usize, mark: Mark) -> Result<(), SyntaxError> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(syntax(mark, "the alias stands within the value that it repeats"));
        };
        let size = anchored.size;
        if self.stack.len() + size.height > MAX_DEPTH {
            return Err(syntax(mark, format!("with this alias nesting is deeper than {MAX_DEPTH} levels")));
        }
        let total = self.kept_bytes + size.bytes;
        if total > MAX_ALIASED_BYTES {
            return Err(syntax(mark, format!("aliases repeat more than {MAX_ALIASED_BYTES} bytes of text")));
        }
        // Spent before the copy is made: a bomb must cost nothing.
        self.nodes += size.nodes;
        if self.nodes > MAX_NODES {
            return Err(syntax(
                mark,
                format!("excessive aliasing: with this alias the file has more than {MAX_NODES} values"),
            ));
        }
        let node = match self.anchors.get(&id) {
            Some(anchored) => anchored.node.clone(),
            None => return Ok(()),
        };
        self.kept_bytes = total;
        self.place(node, size, 0)
    }

    fn spend(&mut self, nodes: usize, mark: Mark) -> Result<(), SyntaxError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(syntax(mark, format!("the file has more than {MAX_NODES} values")));
        }
        Ok(())
    }

    /// Puts a finished value where it belongs: as document, list item, key, or a key's value.
    fn place(&mut self, node: Node, size: Size, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.kept_nodes += size.nodes;
            self.kept_bytes += size.bytes;
            if self.kept_nodes > MAX_NODES || self.kept_bytes > MAX_ALIASED_BYTES {
                return Err(syntax(node.mark, "anchors hold too much of the file"));
            }
            self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size.add_child(size);
        match &mut frame.body {
            Body::List(items) => items.push(node),
            Body::Map(map) => match map.key.take() {
                None => map.key = Some((key_text(&node)?, node.mark)),
                Some((_, at)) if map.merging => {
                    map.merging = false;
                    add_merge(&mut map.merges, node, at)?;
                }
                Some((key, at)) => {
                    if let Some(first) = map.insert(key, at, node) {
                        self.note_duplicate(first, at);
                    }
                }
            },
        }
        Ok(())
    }

    fn note_duplicate(&mut self, (key, first): (String, Mark), second: Mark) {
        let text = format!(
            "key {} stands twice in this mapping, on line {} and on line {}; the last one counts",
            quote(&key),
            first.line,
            second.line
        );
        let path = self.path().field(&key);
        self.notes.push(Note { path, mark: second, code: Code::Duplicate, text });
    }
}

impl MapBody {
    /// Sets a key; the last one wins. Answers where the key stood before, if it did.
    fn insert(&mut self, key: String, at: Mark, value: Node) -> Option<(String, Mark)> {
        match self.index.get(&key) {
            Some(&i) => {
                let first = self.entries[i].at;
                self.entries[i] = Entry { key: key.clone(), at, value };
                Some((key, first))
            }
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push(Entry { key, at, value });
                None
            }
        }
    }
}

/// Fills in what `<<` brings: a key written out wins, then the mapping named first.
fn merge(map: MapBody) -> Result<Vec<Entry>, SyntaxError> {
    let MapBody { mut entries, mut index, merges, .. } = map;
    for node in merges {
        if let Kind::Map(more) = node.kind {
            for entry in more {
                if !index.contains_key(&entry.key) {
                    index.insert(entry.key.clone(), entries.len());
                    entries.push(entry);
                }
            }
        }
    }
    Ok(entries)
}

fn add_merge(merges: &mut Vec<Node>, node: Node, at: Mark) -> Result<(), SyntaxError> {
    let wrong = || syntax(at, "the value of << must be a mapping or a list of mappings");
    match node.kind {
        Kind::Map(_) => merges.push(node),
        Kind::List(items) => {
            if !items.iter().all(|item| matches!(item.kind, Kind::Map(_))) {
                return Err(wrong());
            }
            merges.extend(items);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// A key as JSON needs it: a string. The reader of kubelets turns `on:` into `"true":`; so does this.
fn key_text(node: &Node) -> Result<String, SyntaxError> {
    match &node.kind {
        Kind::Text(s) => Ok(s.clone()),
        Kind::Bool(b) => Ok(b.to_string()),
        Kind::Number(n) => Ok(n.to_string()),
        Kind::Null => Err(syntax(node.mark, "a key is missing before this colon (null cannot be a key)")),
        Kind::List(_) | Kind::Map(_) => Err(syntax(node.mark, "a list or mapping cannot be a key")),
    }
}

/// Whether the mapping that begins here is written with braces.
fn begins_with_brace(span: &Span, text: &str) -> bool {
    let rest = span.start.byte_offset().and_then(|at| text.get(at..));
    rest.is_none_or(|rest| rest.starts_with(['{', '&', '!']))
}

fn mark(span: &Span) -> Mark {
    explain::mark(&span.start)
}
