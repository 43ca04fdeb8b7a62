//! Query strings and percent-encoding, for both ends of the socket.

use std::fmt::Write as _;

/// Appends `text` with everything but unreserved characters percent-encoded.
fn encode_into(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Percent-encodes one path segment or value.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode_into(&mut out, text);
    out
}

/// Undoes [`encode`]; `None` when it is no valid encoding of UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

/// The parameters of a request, in order; names may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URI after `?`; `None` when it is not properly encoded.
    pub fn parse(text: &str) -> Option<Self> {
        let pair = |p: &str| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            Some((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
        };
        text.split('&').filter(|p| !p.is_empty()).map(pair).collect::<Option<_>>().map(Self)
    }

    /// Adds a parameter.
    pub fn add(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// True for `1`, `true`, or the bare name.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("" | "1" | "true"))
    }

    /// The path with this query behind it.
    pub fn on(&self, path: &str) -> String {
        let mut out = path.to_owned();
        for (i, (name, value)) in self.0.iter().enumerate() {
            out.push(if i == 0 { '?' } else { '&' });
            encode_into(&mut out, name);
            out.push('=');
            encode_into(&mut out, value);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_whole() {
        let mut query = Query::default();
        query.add("command", "sh").add("command", "echo 'a&b=c' | tee /tmp/ü%+").add("tty", 1);
        let uri = query.on("/x");
        assert_eq!(Query::parse(&uri["/x?".len()..]), Some(query));
    }

    #[test]
    fn broken_encodings_are_refused() {
        assert_eq!(decode("%4"), None);
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%ff"), None);
        assert_eq!(Query::parse("a=%"), None);
    }

    #[test]
    fn a_flag_is_on_as_a_word_or_a_number() {
        let query = Query::parse("a&b=1&c=true&d=false").unwrap();
        assert!(query.flag("a") && query.flag("b") && query.flag("c"));
        assert!(!query.flag("d") && !query.flag("e"));
    }
}
