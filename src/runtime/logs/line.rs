//! One line of a log file: `TIME stdout|stderr TAGS TEXT`.

use jiff::Timestamp;

/// Which output a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output; everything, for a container with a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A parsed line, borrowing from the file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// The time as written.
    pub time: &'a [u8],
    /// Where it came from.
    pub stream: Stream,
    /// False for a piece that continues in the next line of the same stream.
    pub full: bool,
    /// The text, without its newline.
    pub text: &'a [u8],
}

impl<'a> LogLine<'a> {
    /// Reads a line without its newline. `None` when it is not a CRI line.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (time, rest) = split_space(line)?;
        let (stream, rest) = split_space(rest)?;
        let (tags, text) = split_space(rest)?;
        let stream = match stream {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // The first of the colon-separated tags says whether the line is whole.
        let full = match tags.split(|b| *b == b':').next()? {
            b"F" => true,
            b"P" => false,
            _ => return None,
        };
        Some(Self { time, stream, full, text })
    }

    /// The time of the line; `None` when what stands there is none.
    pub fn timestamp(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.time).ok()?.parse().ok()
    }
}

fn split_space(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == b' ')?;
    Some((&text[..at], &text[at + 1..]))
}
