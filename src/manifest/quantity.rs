//! Quantities such as `500m`, `1.5Gi`, `1e3`.

/// Units of a billionth, in which quantities are compared.
const NANO: i128 = 1_000_000_000;

/// A quantity in billionths, rounded up as the API does; none when the text is no quantity. Values
/// too large for any machine saturate.
pub fn parse_nano(text: &str) -> Option<i128> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (factor, divisor) = scale(suffix)?;
    // 18 digits behind the point are a billion times finer than any unit that is kept.
    let fraction = &fraction[..fraction.len().min(18)];
    let digits: i128 = format!("0{whole}{fraction}").parse().unwrap_or(i128::MAX);
    let below = 10i128.pow(fraction.len() as u32).saturating_mul(divisor);
    let scaled = digits.saturating_mul(NANO).saturating_mul(factor);
    let nano = scaled / below + i128::from(scaled % below != 0);
    Some(if negative { -nano } else { nano })
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (1000 * NANO, 1),
        "P" => (1_000_000 * NANO, 1),
        "E" => (NANO * NANO, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs().min(27))?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

/// How many whole units a quantity is, rounded up; none when the text is no quantity.
pub fn parse_units(text: &str) -> Option<i128> {
    let nano = parse_nano(text)?;
    Some(nano.div_euclid(NANO) + i128::from(nano.rem_euclid(NANO) != 0))
}

/// Whether a quantity is no whole number of units.
pub fn is_fractional(text: &str) -> bool {
    parse_nano(text).is_some_and(|nano| nano % NANO != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_exponents_and_fractions_are_read() {
        let cases = [
            ("1", NANO),
            ("0.5", NANO / 2),
            (".5", NANO / 2),
            ("1.", NANO),
            ("100m", NANO / 10),
            ("1Ki", 1024 * NANO),
            ("1.5Gi", 3 * (1 << 29) * NANO),
            ("1e3", 1000 * NANO),
            ("1E3", 1000 * NANO),
            ("1E", NANO * NANO * NANO),
            ("12e-3", 12_000_000),
            ("-1", -NANO),
            ("+1k", 1000 * NANO),
        ];
        for (text, nano) in cases {
            assert_eq!(parse_nano(text), Some(nano), "{text}");
        }
    }

    #[test]
    fn a_tenth_of_a_billionth_is_rounded_up() {
        assert_eq!(parse_nano("0.0000000001"), Some(1));
        assert_eq!(parse_units("128m"), Some(1));
        assert!(is_fractional("128m"));
        assert!(!is_fractional("1k"));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "-", ".", "1.2.3", "1Kb", "1 Gi", "Gi", "ten", "1e", "0x10", "1i", "--1"] {
            assert_eq!(parse_nano(text), None, "{text}");
        }
    }

    #[test]
    fn absurd_sizes_saturate() {
        assert!(parse_nano(&"9".repeat(200)).is_some());
        assert!(parse_nano("1e99").is_some());
        assert!(parse_nano("999999999999999999999Ei").is_some());
    }
}
