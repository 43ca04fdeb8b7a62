//! What decides on which node a pod runs.

use super::Shape::{Int32, Int64, Objects, Text, Texts};
use super::meta::LABEL_SELECTOR;
use super::{HONOURED, Object, Shape, f};

/// `Affinity`.
pub static AFFINITY: Object = Object {
    name: "Affinity",
    fields: &[
        f("nodeAffinity", Shape::Object(&NODE_AFFINITY), HONOURED),
        f("podAffinity", Shape::Object(&POD_AFFINITY), HONOURED),
        f("podAntiAffinity", Shape::Object(&POD_ANTI_AFFINITY), HONOURED),
    ],
};

/// `NodeAffinity`.
pub static NODE_AFFINITY: Object = Object {
    name: "NodeAffinity",
    fields: &[
        f("preferredDuringSchedulingIgnoredDuringExecution", Objects(&PREFERRED_SCHEDULING_TERM), HONOURED),
        f("requiredDuringSchedulingIgnoredDuringExecution", Shape::Object(&NODE_SELECTOR), HONOURED),
    ],
};

/// `NodeSelector`.
pub static NODE_SELECTOR: Object = Object {
    name: "NodeSelector",
    fields: &[f("nodeSelectorTerms", Objects(&NODE_SELECTOR_TERM), HONOURED)],
};

/// `NodeSelectorTerm`.
pub static NODE_SELECTOR_TERM: Object = Object {
    name: "NodeSelectorTerm",
    fields: &[
        f("matchExpressions", Objects(&NODE_SELECTOR_REQUIREMENT), HONOURED),
        f("matchFields", Objects(&NODE_SELECTOR_REQUIREMENT), HONOURED),
    ],
};

/// `NodeSelectorRequirement`.
pub static NODE_SELECTOR_REQUIREMENT: Object = Object {
    name: "NodeSelectorRequirement",
    fields: &[f("key", Text, HONOURED), f("operator", Text, HONOURED), f("values", Texts, HONOURED)],
};

/// `PreferredSchedulingTerm`.
pub static PREFERRED_SCHEDULING_TERM: Object = Object {
    name: "PreferredSchedulingTerm",
    fields: &[f("preference", Shape::Object(&NODE_SELECTOR_TERM), HONOURED), f("weight", Int32, HONOURED)],
};

/// `PodAffinity`.
pub static POD_AFFINITY: Object = Object {
    name: "PodAffinity",
    fields: &[
        f("preferredDuringSchedulingIgnoredDuringExecution", Objects(&WEIGHTED_POD_AFFINITY_TERM), HONOURED),
        f("requiredDuringSchedulingIgnoredDuringExecution", Objects(&POD_AFFINITY_TERM), HONOURED),
    ],
};

/// `PodAntiAffinity`.
pub static POD_ANTI_AFFINITY: Object = Object {
    name: "PodAntiAffinity",
    fields: &[
        f("preferredDuringSchedulingIgnoredDuringExecution", Objects(&WEIGHTED_POD_AFFINITY_TERM), HONOURED),
        f("requiredDuringSchedulingIgnoredDuringExecution", Objects(&POD_AFFINITY_TERM), HONOURED),
    ],
};

/// `PodAffinityTerm`.
pub static POD_AFFINITY_TERM: Object = Object {
    name: "PodAffinityTerm",
    fields: &[
        f("labelSelector", Shape::Object(&LABEL_SELECTOR), HONOURED),
        f("matchLabelKeys", Texts, HONOURED),
        f("mismatchLabelKeys", Texts, HONOURED),
        f("namespaceSelector", Shape::Object(&LABEL_SELECTOR), HONOURED),
        f("namespaces", Texts, HONOURED),
        f("topologyKey", Text, HONOURED),
    ],
};

/// `WeightedPodAffinityTerm`.
pub static WEIGHTED_POD_AFFINITY_TERM: Object = Object {
    name: "WeightedPodAffinityTerm",
    fields: &[
        f("podAffinityTerm", Shape::Object(&POD_AFFINITY_TERM), HONOURED),
        f("weight", Int32, HONOURED),
    ],
};

/// `Toleration`.
pub static TOLERATION: Object = Object {
    name: "Toleration",
    fields: &[
        f("effect", Text, HONOURED),
        f("key", Text, HONOURED),
        f("operator", Text, HONOURED),
        f("tolerationSeconds", Int64, HONOURED),
        f("value", Text, HONOURED),
    ],
};

/// `TopologySpreadConstraint`.
pub static TOPOLOGY_SPREAD_CONSTRAINT: Object = Object {
    name: "TopologySpreadConstraint",
    fields: &[
        f("labelSelector", Shape::Object(&LABEL_SELECTOR), HONOURED),
        f("matchLabelKeys", Texts, HONOURED),
        f("maxSkew", Int32, HONOURED),
        f("minDomains", Int32, HONOURED),
        f("nodeAffinityPolicy", Text, HONOURED),
        f("nodeTaintsPolicy", Text, HONOURED),
        f("topologyKey", Text, HONOURED),
        f("whenUnsatisfiable", Text, HONOURED),
    ],
};
