//! Kubernetes quantities: `500m`, `1.5Gi`, `1e3`.
//!
//! The grammar and the rounding are those of `resource.Quantity`: what is finer than a billionth is
//! rounded away from zero, and magnitudes are capped at 2^63 - 1.

use std::ops::Add;

/// An amount, exact to a billionth; with more than twenty digits, the last of them may be rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nano: i128,
}

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a quantity: write a number with an optional suffix (m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei) or an exponent, such as 500m, 64Mi or 1e3"
)]
pub struct QuantityError {
    /// The text.
    pub text: String,
}

/// Digits that take part in the arithmetic: with the largest suffix, 2^60, they stay within 127 bits. What
/// has more digits before the point is over the cap anyway.
const MAX_DIGITS: usize = 20;
/// Parts of a unit that are kept.
const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// The largest magnitude, in billionths.
    const CAP: i128 = i64::MAX as i128 * NANO;

    /// Reads a quantity.
    ///
    /// # Errors
    /// [`QuantityError`] with the text.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|nano| Self { nano }).ok_or_else(|| QuantityError { text: text.to_owned() })
    }

    /// So many whole units.
    pub fn whole(units: u64) -> Self {
        Self { nano: (i128::from(units) * NANO).min(Self::CAP) }
    }

    /// What is left of it when so much is taken away; not less than nothing.
    pub fn less(self, other: Self) -> Self {
        Self { nano: (self.nano - other.nano).max(0) }
    }

    /// Whole units, rounded away from zero: bytes, for memory.
    pub fn value(self) -> i64 {
        narrow(away_from_zero(self.nano, NANO))
    }

    /// Thousandths, rounded away from zero and capped to what fits: millicores, for processors.
    pub fn milli(self) -> i64 {
        narrow(away_from_zero(self.nano, NANO / 1000))
    }

    /// Whole units of an amount that is not negative and not beyond 2^63 - 2: sizes that must fit.
    pub fn size(self) -> Option<u64> {
        (self.nano < Self::CAP).then(|| u64::try_from(self.value()).ok()).flatten()
    }

    /// As a number to show; the last digits may be off.
    pub fn approximate(self) -> f64 {
        self.nano as f64 / NANO as f64
    }

    /// True for less than nothing.
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// True for a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// True for nothing at all.
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }
}

impl Add for Quantity {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity { nano: (self.nano + other.nano).clamp(-Self::CAP, Self::CAP) }
    }
}

fn narrow(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

fn away_from_zero(n: i128, divisor: i128) -> i128 {
    let rest = n % divisor;
    n / divisor + if rest == 0 { 0 } else { rest.signum() }
}

fn read(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (factor, exponent) = scale(suffix)?;
    let magnitude = nano(whole, fraction, factor, exponent);
    Some(if negative { -magnitude } else { magnitude })
}

/// Factor and power of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(i128, i64)> {
    let binary = |power: u32| Some((1i128 << (10 * power), 0));
    match suffix {
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "" => Some((1, 0)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent too long for a number is as good as this one: all or nothing.
            let power = plain.parse().unwrap_or(1_000_000i64).min(1_000_000);
            Some((1, if digits.starts_with('-') { -power } else { power }))
        }
    }
}

fn nano(whole: &str, fraction: &str, factor: i128, exponent: i64) -> i128 {
    let digits: Vec<u8> =
        whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0').map(|b| b - b'0').collect();
    let kept = digits.len().min(MAX_DIGITS);
    let (head, tail) = digits.split_at(kept);
    let mut number = head.iter().fold(0i128, |n, d| n * 10 + i128::from(*d)) * factor;
    if number == 0 {
        return 0;
    }
    // What is cut off only decides whether there is something to round up.
    let mut more = tail.iter().any(|d| *d != 0);
    let mut power = exponent + 9 + (tail.len() as i64) - (fraction.len() as i64);
    while power > 0 && number <= Quantity::CAP {
        number *= 10;
        power -= 1;
    }
    while power < 0 && number > 0 {
        more |= number % 10 != 0;
        number /= 10;
        power += 1;
    }
    (number + i128::from(more)).min(Quantity::CAP)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn every_suffix_has_its_size() {
        let cases: [(&str, i64); 24] = [
            ("0", 0),
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("5.", 5000),
            ("+2", 2000),
            ("-1500m", -1500),
            ("1.5Ki", 1_536_000),
            ("64Mi", 67_108_864_000),
            ("1k", 1_000_000),
            ("1M", 1_000_000_000),
            ("2G", 2_000_000_000_000),
            ("1T", 1_000_000_000_000_000),
            ("1Ti", 1_099_511_627_776_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("12e-1", 1200),
            ("1e+2", 100_000),
            ("1000000u", 1000),
            ("1000000000n", 1000),
            ("0.0001", 1),
            ("-1n", -1),
            ("0e99", 0),
        ];
        for (text, milli) in cases {
            assert_eq!(parse(text).milli(), milli, "{text}");
        }
    }

    #[test]
    fn whole_units_are_rounded_away_from_zero() {
        let values = ["1.1", "1001m", "-1.1", "1.0", "0.5Ki", "1m"].map(|t| parse(t).value());
        assert_eq!(values, [2, 2, -2, 1, 512, 1]);
    }

    #[test]
    fn what_is_too_large_is_capped_and_what_is_too_small_is_rounded_up() {
        for text in
            ["9223372036854775808", "16Ei", "1e400", "1e99999999999999999999", "9999999999999999999999999E"]
        {
            assert_eq!(parse(text).value(), i64::MAX, "{text}");
            assert_eq!(parse(&format!("-{text}")).value(), -i64::MAX, "{text}");
        }
        assert_eq!(parse("9223372036854775807").value(), i64::MAX);
        assert_eq!(parse("9223372036854775806").value(), i64::MAX - 1);
        for text in ["1e-400", "0.00000000000000000000000000000001", "1n"] {
            assert_eq!(parse(text).milli(), 1, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_an_example() {
        for text in [
            "", "-", ".", "m", "1 Gi", "1gi", "1KiB", "1.2.3", "e3", "1e", "1e+", "1e1.5", "--1", "0x10", "١",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        let text = Quantity::parse("1gb").unwrap_err().to_string();
        assert!(
            text.starts_with("\"1gb\" is not a quantity") && text.ends_with("500m, 64Mi or 1e3"),
            "{text}"
        );
    }

    #[test]
    fn parts_of_a_unit_are_told_from_whole_ones() {
        assert!(parse("1k").is_whole() && parse("2000m").is_whole());
        assert!(!parse("128m").is_whole() && !parse("0.0000000001").is_whole());
        assert_eq!(parse("128m").approximate(), 0.128);
        assert!(parse("100n") < parse("0.0000002") && parse("-1n").is_negative());
    }

    #[test]
    fn a_size_is_whole_not_negative_and_fits() {
        assert_eq!(["1.5Ki", "0", "-1", "8Ei"].map(|t| parse(t).size()), [Some(1536), Some(0), None, None]);
    }

    #[test]
    fn what_is_taken_away_leaves_no_less_than_nothing() {
        assert_eq!(parse("2").less(parse("500m")), parse("1500m"));
        assert!(parse("1").less(parse("2")).is_zero());
        assert_eq!(Quantity::whole(u64::MAX).value(), i64::MAX);
    }

    #[test]
    fn sums_stay_within_the_cap() {
        assert_eq!((parse("1") + parse("500m")).milli(), 1500);
        assert_eq!((parse("9E") + parse("9E")).value(), i64::MAX);
        assert!((parse("1") + parse("-1")).is_zero());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn any_number_of_the_grammar_is_read(text in "[+-]?([0-9]{1,40}\\.?[0-9]{0,40}|\\.[0-9]{1,40})(m|k|Mi|Ei|E|n|e-?[0-9]{1,9})?") {
            prop_assert!(Quantity::parse(&text).is_ok());
        }

        #[test]
        fn milli_and_plain_writing_agree(milli in -4_000_000_000_000_000_000i64..4_000_000_000_000_000_000) {
            let sign = if milli < 0 { "-" } else { "" };
            let plain = format!("{sign}{}.{:03}", milli.unsigned_abs() / 1000, milli.unsigned_abs() % 1000);
            prop_assert_eq!(parse(&format!("{milli}m")).milli(), milli);
            prop_assert_eq!(parse(&plain).milli(), milli);
        }

        #[test]
        fn binary_suffixes_are_powers_of_1024(n in 0i64..8000, power in 1usize..=5) {
            let suffix = ["Ki", "Mi", "Gi", "Ti", "Pi"][power - 1];
            prop_assert_eq!(parse(&format!("{n}{suffix}")).value(), n << (10 * power));
        }
    }
}
