//! Durations as Go writes them and sizes as Kubernetes quantities.

use std::time::Duration;

use crate::manifest::Quantity;

/// Parses a Go duration such as `20s`, `1m30s`, `200ms`, `1.5h` or `0`; `None` when it is not one, is
/// negative, or does not fit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        // `ms` before `m` and `s`: the longer unit wins.
        let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3)];
        let coarse = [("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (unit, scale) = units.into_iter().chain(coarse).find(|(u, _)| tail.starts_with(u))?;
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return None;
        }
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()?;
        total = total.checked_add(part)?;
        rest = &tail[unit.len()..];
    }
    Some(total)
}

/// Parses a Kubernetes quantity such as `10Mi`, `512Ki`, `1G` or `1048576` into whole bytes, rounded
/// up; `None` when it is not one, is negative, or does not fit.
pub fn parse_bytes(text: &str) -> Option<u64> {
    Quantity::parse(text).ok()?.size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        let ms = |n| Some(Duration::from_millis(n));
        for (text, expected) in [
            ("20s", ms(20_000)),
            ("1m30s", ms(90_000)),
            ("200ms", ms(200)),
            ("1.5h", ms(5_400_000)),
            ("0", ms(0)),
            ("+5s", ms(5000)),
            ("1h0m0.5s", ms(3_600_500)),
            ("", None),
            ("20", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("-5s", None),
            ("5 s", None),
            ("1d", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes_read_as_quantities() {
        for (text, expected) in [
            ("10Mi", Some(10 << 20)),
            ("512Ki", Some(512 << 10)),
            ("1G", Some(1_000_000_000)),
            ("1048576", Some(1 << 20)),
            ("1.5Ki", Some(1536)),
            ("", None),
            ("Mi", None),
            ("10MB", None),
            ("-1", None),
            ("99999999999Ti", None),
            ("1e3", Some(1000)),
        ] {
            assert_eq!(parse_bytes(text), expected, "{text:?}");
        }
    }
}
