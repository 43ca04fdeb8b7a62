//! The parser's errors in words that say what to do.

use granit_parser::{ErrorKind, Marker, ScanError};

use super::{MAX_DEPTH, SyntaxError};
use crate::manifest::node::Mark;

const NOT_FIRST: &str = "a plain value cannot begin with @, ` or %; put it in quotes";

/// The parser counts lines from 1 and columns from 0.
pub fn mark(marker: &Marker) -> Mark {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Mark { line: number(marker.line()), column: number(marker.col().saturating_add(1)) }
}

/// An error of the parser, with a hint where the text shows what happened.
pub fn scan_error(error: &ScanError, text: &str) -> SyntaxError {
    let mut mark = mark(error.marker());
    let mut message = lower_first(error.info().trim_end_matches('.'));
    if message.contains("tab") {
        // The parser names the value before the tab.
        mark = tab_at_or_below(text, mark).unwrap_or(mark);
    }
    let line = text.lines().nth((mark.line as usize).saturating_sub(1)).unwrap_or_default();
    if message == "simple key expected ':'" {
        message = "expected a colon and a blank behind this key; was the line cut off?".into();
    }
    if message.contains("recursion limit") || message.contains("nesting") {
        message = format!("nesting is deeper than {MAX_DEPTH} levels");
    }
    let hint = hint(line, text).or_else(|| of_message(&message)).or_else(|| too_deep(&message, mark, text));
    if let Some(hint) = hint {
        message = format!("{message}: {hint}");
    }
    SyntaxError { mark, text: message }
}

fn hint(line: &str, text: &str) -> Option<String> {
    if let Some(at) = text.lines().position(|l| l.starts_with("<<<<<<< ")) {
        return Some(format!("line {} is a git conflict marker; resolve the conflict", at + 1));
    }
    if line.contains('\0') || text.starts_with('\0') {
        return Some("the file holds NUL bytes, as after a crash while it was written".into());
    }
    let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    if indent.contains('\t') {
        return Some("this line is indented with a tab; use spaces".into());
    }
    if line.contains("{{") {
        return Some("is this an unrendered template? {{ }} must be filled in first".into());
    }
    let value = line.trim_start_matches([' ', '-']);
    let value = value.split_once(": ").map_or(value, |(_, v)| v.trim_start());
    if value.starts_with(['@', '`', '%']) {
        return Some(NOT_FIRST.into());
    }
    if value.matches(": ").count() > 0 && !value.starts_with(['"', '\'', '{', '[']) {
        return Some("a plain value cannot hold a colon and a blank; put it in quotes".into());
    }
    None
}

/// What the parser stumbled over.
fn of_message(message: &str) -> Option<String> {
    let hints = [
        (
            "anchor",
            "a value that begins with * or & is an alias or an anchor; if it is meant as text, put it in quotes",
        ),
        ("unknown escape", "in double quotes \\ begins an escape; use single quotes, or \\\\"),
        ("unexpected character: `%'", NOT_FIRST),
        ("unexpected character: `@'", NOT_FIRST),
        ("illegal placement of ':'", "is a bracket above not closed?"),
    ];
    hints.iter().find(|(what, _)| message.contains(what)).map(|(_, hint)| (*hint).to_owned())
}

/// A key that stands deeper than a key above it which has its value in its own line.
fn too_deep(message: &str, mark: Mark, text: &str) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let upto: Vec<&str> =
        text.lines().take(mark.line as usize).filter(|line| !line.trim().is_empty()).collect();
    let [.., above, line] = upto[..] else { return None };
    let has_value =
        above.trim_start_matches([' ', '-']).split_once(": ").is_some_and(|(_, v)| !v.trim().is_empty());
    (message.starts_with("mapping values") && has_value && indent(line) > indent(above))
        .then(|| "this line stands deeper than the one above, which has its value; align them".to_owned())
}

/// The first tab within the indentation of this line or one below it.
fn tab_at_or_below(text: &str, mark: Mark) -> Option<Mark> {
    let below = text.lines().enumerate().skip((mark.line as usize).saturating_sub(1));
    let (line, column) = below.take(3).find_map(|(i, line)| {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        Some((i + 1, line[..indent].find('\t')? + 1))
    })?;
    Some(Mark { line: u32::try_from(line).ok()?, column: u32::try_from(column).ok()? })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        // Leave abbreviations such as `BOM` as they are.
        Some(first) if !chars.clone().next().is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

/// The text with each `\'` of the double-quoted scalar that the error is about taken for `'`.
pub fn without_escaped_quotes(error: &ScanError, text: &str) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::UnknownQuotedScalarEscape) {
        return None;
    }
    let start = error.marker().byte_offset()?;
    let body = text.get(start..)?.strip_prefix('"')?;
    let mut out = String::with_capacity(text.len());
    out.push_str(&text[..=start]);
    let (mut chars, mut repaired) = (body.char_indices(), false);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                out.push_str(&body[at..]);
                return repaired.then_some(out);
            }
            '\\' => match chars.next() {
                Some((_, '\'')) => {
                    out.push('\'');
                    repaired = true;
                }
                Some((_, other)) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    repaired.then_some(out)
}
