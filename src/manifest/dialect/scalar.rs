//! What a plain scalar means: the YAML 1.1 rules of the reader that kubelets use.

use serde_json::Number;

use crate::manifest::node::Kind;

/// The meaning of a plain scalar, or why JSON has no such value.
pub fn resolve(text: &str) -> Result<Kind, &'static str> {
    let Some(first) = text.bytes().next() else { return Ok(Kind::Null) };
    if let Some(word) = word(text) {
        return word;
    }
    let number = match first {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let digits: String = text.chars().filter(|c| *c != '_').collect();
            integer(&digits).or_else(|| if looks_like_float(&digits) { float(&digits) } else { None })
        }
        _ => None,
    };
    Ok(number.map_or_else(|| Kind::Text(text.to_owned()), Kind::Number))
}

/// Words with a meaning of their own. Only these spellings count: `tRue` is a string.
fn word(text: &str) -> Option<Result<Kind, &'static str>> {
    Some(Ok(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Kind::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Kind::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Kind::Null,
        ".nan" | ".NaN" | ".NAN" => return Some(Err("not-a-number is no JSON value")),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => {
            return Some(Err("infinity is no JSON value"));
        }
        _ => return None,
    }))
}

/// Integers in any base: `0x1F`, `0b101`, `0o644` and, as in YAML 1.1, `0644`.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = if let Some(hex) = lower.strip_prefix("0x") {
        (16, hex)
    } else if let Some(bits) = lower.strip_prefix("0b") {
        (2, bits)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        (8, octal)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    // from_str_radix takes a second sign; a number has one.
    if !body.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(body, radix).ok()?;
    if !negative {
        return Some(Number::from(size));
    }
    0i64.checked_sub_unsigned(size).map(Number::from)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn looks_like_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)))
}

/// A float as JSON prints it: whole ones are integers, so that `3e1` fits a field of type int32.
fn float(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
    // Up to 2^63 the cast is exact for whole values.
    if value.fract() == 0.0 && value.abs() < 9.2e18 {
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

/// The meaning of a scalar under an explicit core tag such as `!!int`.
pub fn resolve_tagged(tag: &str, text: &str) -> Result<Kind, String> {
    let kind = match tag {
        "str" => return Ok(Kind::Text(text.to_owned())),
        "binary" => return binary(text),
        _ => resolve(text)?,
    };
    let fits = match (&kind, tag) {
        (Kind::Null, "null") | (Kind::Bool(_), "bool") | (Kind::Number(_), "float") => true,
        (Kind::Number(n), "int") => !n.is_f64(),
        (Kind::Text(_), "timestamp") => true,
        (_, "null" | "bool" | "float" | "int") => false,
        // Any other tag says nothing about scalars.
        _ => return Ok(Kind::Text(text.to_owned())),
    };
    if fits { Ok(kind) } else { Err(format!("{text:?} is no !!{tag}")) }
}

/// `!!binary`: the decoded bytes, which JSON can only hold as text.
fn binary(text: &str) -> Result<Kind, String> {
    let bad = || "the value of !!binary is not base64".to_owned();
    let (mut bits, mut held, mut out) = (0u32, 0u32, Vec::new());
    let clean: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let data = clean.strip_suffix(b"==").or_else(|| clean.strip_suffix(b"=")).unwrap_or(&clean);
    if !clean.len().is_multiple_of(4) {
        return Err(bad());
    }
    for byte in data {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(bad()),
        };
        bits = (bits << 6) | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Ok(Kind::Text(String::from_utf8_lossy(&out).into_owned()))
}
