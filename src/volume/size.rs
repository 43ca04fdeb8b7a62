//! Sizes in bytes, written as Kubernetes quantities.

/// The number of bytes of `64Mi`, `1.5G`, `1e6`, rounded up; `None` when it is no size.
pub fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 2f64.powi(10),
        "Mi" => 2f64.powi(20),
        "Gi" => 2f64.powi(30),
        "Ti" => 2f64.powi(40),
        "Pi" => 2f64.powi(50),
        "Ei" => 2f64.powi(60),
        _ => 10f64.powi(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    // Exact up to 2^53; a size of a file system needs no more. Larger values saturate.
    Some((number * factor).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read_with_every_kind_of_suffix() {
        for (text, want) in [
            ("64Mi", 64 << 20),
            ("1.5Ki", 1536),
            ("1e6", 1_000_000),
            ("7", 7),
            ("2G", 2_000_000_000),
            ("1500m", 2),
        ] {
            assert_eq!(bytes(text), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_none() {
        for text in ["", "Mi", "-1", "1X", "1.2.3", "ten", "1e", "5 Mi"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
