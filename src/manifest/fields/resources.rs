//! Resources of containers, and which resource names podling knows.

use super::Shape::{Objects, QuantityMap, Text};
use super::{HONOURED, Object, Support, f, partly, refused, warned};

/// `ResourceRequirements`.
pub static RESOURCE_REQUIREMENTS: Object = Object {
    name: "ResourceRequirements",
    fields: &[
        f(
            "claims",
            Objects(&RESOURCE_CLAIM),
            refused("devices are claimed through an API server; the container would miss its device"),
        ),
        f("limits", QuantityMap, HONOURED).note("By resource name, see below"),
        f("requests", QuantityMap, HONOURED).note("By resource name, see below"),
    ],
};

/// `ResourceClaim`.
pub static RESOURCE_CLAIM: Object =
    Object { name: "ResourceClaim", fields: &[f("name", Text, HONOURED), f("request", Text, HONOURED)] };

/// What podling does with a resource, by its name under limits and requests; `*` stands for the rest
/// of a name.
pub const RESOURCE_NAMES: &[(&str, Support)] = &[
    ("cpu", HONOURED),
    ("memory", HONOURED),
    (
        "ephemeral-storage",
        partly("counted when pods are admitted; disk use is not limited: nothing evicts pods here"),
    ),
    ("hugepages-*", HONOURED),
    ("*/*", warned("device plugins need a kubelet; the container starts without this resource")),
];

/// What podling does with this resource.
pub fn resource_support(name: &str) -> Support {
    let known = RESOURCE_NAMES.iter().find(|(pattern, _)| match *pattern {
        "*/*" => name.contains('/'),
        pattern => match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        },
    });
    // Names that match nothing are refused by validation.
    known.map_or(HONOURED, |(_, support)| *support)
}
