//! Object metadata and label selectors.

use super::Shape::{Any, Bool, Int64, Objects, Text, TextMap, Texts, Time};
use super::{HONOURED, Object, Support, f, warned};

/// For what an API server writes into the objects it holds.
const SERVER: Support = warned("an API server wrote it, and nothing here reads it");

/// `ObjectMeta`.
pub static OBJECT_META: Object = Object {
    name: "ObjectMeta",
    fields: &[
        f("annotations", TextMap, HONOURED),
        f("creationTimestamp", Time, SERVER),
        f("deletionGracePeriodSeconds", Int64, SERVER),
        f("deletionTimestamp", Time, HONOURED).note("The pod is stopped as if its manifest were gone"),
        f("finalizers", Texts, SERVER),
        f("generateName", Text, warned("names are made up by API servers only; metadata.name is used")),
        f("generation", Int64, SERVER),
        f("labels", TextMap, HONOURED),
        f("managedFields", Objects(&MANAGED_FIELDS_ENTRY), SERVER),
        f("name", Text, HONOURED),
        f("namespace", Text, HONOURED),
        f("ownerReferences", Objects(&OWNER_REFERENCE), SERVER),
        f("resourceVersion", Text, SERVER),
        f("selfLink", Text, SERVER),
        f("uid", Text, HONOURED),
    ],
};

/// `ManagedFieldsEntry`.
pub static MANAGED_FIELDS_ENTRY: Object = Object {
    name: "ManagedFieldsEntry",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("fieldsType", Text, HONOURED),
        f("fieldsV1", Any, HONOURED),
        f("manager", Text, HONOURED),
        f("operation", Text, HONOURED),
        f("subresource", Text, HONOURED),
        f("time", Time, HONOURED),
    ],
};

/// `OwnerReference`.
pub static OWNER_REFERENCE: Object = Object {
    name: "OwnerReference",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("blockOwnerDeletion", Bool, HONOURED),
        f("controller", Bool, HONOURED),
        f("kind", Text, HONOURED),
        f("name", Text, HONOURED),
        f("uid", Text, HONOURED),
    ],
};

/// `LabelSelector`.
pub static LABEL_SELECTOR: Object = Object {
    name: "LabelSelector",
    fields: &[
        f("matchExpressions", Objects(&LABEL_SELECTOR_REQUIREMENT), HONOURED),
        f("matchLabels", TextMap, HONOURED),
    ],
};

/// `LabelSelectorRequirement`.
pub static LABEL_SELECTOR_REQUIREMENT: Object = Object {
    name: "LabelSelectorRequirement",
    fields: &[f("key", Text, HONOURED), f("operator", Text, HONOURED), f("values", Texts, HONOURED)],
};

/// `ConfigMap`. `data.rs` decodes it; the table is for the search for unknown fields.
pub static CONFIG_MAP: Object = Object {
    name: "ConfigMap",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("binaryData", TextMap, HONOURED),
        f("data", TextMap, HONOURED),
        f("immutable", Bool, HONOURED),
        f("kind", Text, HONOURED),
        f("metadata", super::Shape::Object(&OBJECT_META), HONOURED),
    ],
};

/// `Secret`, as [`CONFIG_MAP`].
pub static SECRET: Object = Object {
    name: "Secret",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("data", TextMap, HONOURED),
        f("immutable", Bool, HONOURED),
        f("kind", Text, HONOURED),
        f("metadata", super::Shape::Object(&OBJECT_META), HONOURED),
        f("stringData", TextMap, HONOURED),
        f("type", Text, HONOURED),
    ],
};

/// `PersistentVolumeClaim`. `claim.rs` says what has no effect; the table is for types and unknown fields.
pub static PERSISTENT_VOLUME_CLAIM: Object = Object {
    name: "PersistentVolumeClaim",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("kind", Text, HONOURED),
        f("metadata", super::Shape::Object(&OBJECT_META), HONOURED),
        f("spec", super::Shape::Object(&super::volume::PERSISTENT_VOLUME_CLAIM_SPEC), HONOURED),
        f("status", Any, HONOURED),
    ],
};
