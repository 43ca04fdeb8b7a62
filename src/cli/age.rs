//! Ages, to the precision at which people read them and in kubectl's form.

use jiff::Timestamp;

/// `12s`, `5m3s`, `47m`, `3h12m`, `26h`, `3d4h`, `40d`, `2y110d`: finer while it is young.
pub(super) fn age(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |big: i64, unit: char, rest: i64, small: char| match rest {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{rest}{small}"),
    };
    match seconds {
        // A little ahead is a clock's jitter; more is a wrong clock.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(seconds / MINUTE, 'm', seconds % MINUTE, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => pair(seconds / HOUR, 'h', seconds % HOUR / MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => pair(seconds / DAY, 'd', seconds % DAY / HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(seconds / YEAR, 'y', seconds % YEAR / DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The age of something that happened at `then`; `<unknown>` without a time.
pub(super) fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| age(now.duration_since(then).as_secs()))
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_520, "3h12m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (72_576_000, "2y110d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(age(seconds), expected, "{seconds} s");
        }
    }
}
