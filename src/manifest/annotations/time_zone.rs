//! `podling.dev/timezone`: the time zone that containers show times in.

use k8s_openapi::api::core::v1::Pod;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeZone {
    /// The host's.
    Local,
    /// One of the tz database, such as `Europe/Berlin`.
    Named(String),
}

pub(super) fn check(text: &str, _: &Pod) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<TimeZone, String> {
    if text == "local" {
        return Ok(TimeZone::Local);
    }
    let part = |part: &str| {
        part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-+".contains(&b))
            && part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
    };
    if text.len() <= 64 && text.split('/').all(part) {
        Ok(TimeZone::Named(text.to_owned()))
    } else {
        Err("must be a name of the tz database such as Europe/Berlin, UTC, or local for the host's"
            .to_owned())
    }
}

/// The time zone for a container; none where the manifest does not say.
pub fn time_zone(pod: &Pod, container: &str) -> Option<TimeZone> {
    parse(super::container_value(pod, "timezone", container)?).ok()
}
