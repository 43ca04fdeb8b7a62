//! Bytes to text: UTF-8 or UTF-16, with or without a byte order mark.

use std::borrow::Cow;

use super::SyntaxError;
use crate::manifest::node::Mark;

/// The text of a file, without its byte order mark.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, SyntaxError> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err(SyntaxError {
            mark: Mark { line: 1, column: 1 },
            text: "the file is UTF-32; save it as UTF-8".into(),
        }),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes).map(Cow::Owned),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes).map(Cow::Owned),
        _ => utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)),
    }
}

fn utf8(bytes: &[u8]) -> Result<Cow<'_, str>, SyntaxError> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(Cow::Borrowed(text)),
        Err(error) => error,
    };
    let (good, bad) = bytes.split_at(error.valid_up_to());
    let mark = end_of(&String::from_utf8_lossy(good));
    let byte = bad.first().copied().unwrap_or_default();
    Err(SyntaxError { mark, text: format!("byte 0x{byte:02x} is not UTF-8; save the file as UTF-8") })
}

fn utf16(bytes: &[u8], join: fn([u8; 2]) -> u16) -> Result<String, SyntaxError> {
    let units = bytes.chunks_exact(2).map(|pair| join([pair[0], pair[1]]));
    let mut text = String::with_capacity(bytes.len() / 2);
    for unit in char::decode_utf16(units) {
        match unit {
            Ok(c) => text.push(c),
            Err(_) => {
                let mark = end_of(&text);
                return Err(SyntaxError { mark, text: "half a UTF-16 surrogate pair".into() });
            }
        }
    }
    if bytes.len() % 2 == 1 {
        return Err(SyntaxError {
            mark: end_of(&text),
            text: "the UTF-16 file ends within a character".into(),
        });
    }
    Ok(text)
}

/// The place just behind `text`.
fn end_of(text: &str) -> Mark {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Mark { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) }
}
