//! The table of every field of the Pod API and what podling does with it.
//!
//! One table drives type checks, the search for unknown fields, the refusals of what is not supported,
//! the warnings about what only means something in a cluster, and `docs/manifest-support.md`. To
//! support a field, change its word in the table to [`HONOURED`]; the fields below it carry their own
//! words already. A test holds the table to the API types that podling decodes into.

mod cluster;
mod container;
mod meta;
mod pod;
mod probe;
mod resources;
mod security;
mod storage;
#[cfg(test)]
mod tests;
mod volume;

pub use meta::{CONFIG_MAP, OBJECT_META, PERSISTENT_VOLUME_CLAIM, SECRET};
pub use pod::POD;
pub use resources::{RESOURCE_NAMES, resource_support};
pub use volume::VOLUME;

use Support::{Honoured, Partly, Refused, Warned};

/// What podling does with a field that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has the effect that the Pod API gives it.
    Honoured,
    /// It has the effect that one node can give it, which is this much.
    Partly(&'static str),
    /// It has no effect, for this reason, and the pod runs.
    Warned(&'static str),
    /// The pod is refused, since without this field it would do something else.
    Refused(&'static str),
}

/// The field has the effect that the Pod API gives it.
pub const HONOURED: Support = Honoured;

/// The field has the effect that one node can give it.
pub const fn partly(what: &'static str) -> Support {
    Partly(what)
}

/// The field has no effect, for this reason, and the pod runs.
pub const fn warned(why: &'static str) -> Support {
    Warned(why)
}

/// The pod is refused, for this reason.
pub const fn refused(why: &'static str) -> Support {
    Refused(why)
}

/// Which values a field takes.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A string.
    Text,
    /// `true` or `false`.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A quantity such as `500m` or `1Gi`: a string or a number.
    Quantity,
    /// A port number or the name of a port.
    IntOrText,
    /// A time such as `2024-01-01T00:00:00Z`.
    Time,
    /// Anything: podling never looks inside.
    Any,
    /// A list of strings.
    Texts,
    /// A list of integers of 32 bits.
    Int32s,
    /// A list of integers of 64 bits.
    Int64s,
    /// A mapping of free keys to strings.
    TextMap,
    /// A mapping of resource names to quantities.
    QuantityMap,
    /// A mapping with the fields of an object.
    Object(&'static Object),
    /// A list of such mappings.
    Objects(&'static Object),
}

/// A value that is treated otherwise than its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lit {
    /// This boolean.
    Bool(bool),
    /// This string.
    Text(&'static str),
    /// A mapping without members.
    Empty,
    /// A mapping that says `optional: true`.
    Optional,
}

/// One field of an object.
#[derive(Debug)]
pub struct Field {
    /// Its name in a manifest.
    pub name: &'static str,
    /// Which values it takes.
    pub shape: Shape,
    /// What podling does with it.
    pub support: Support,
    /// Values that are treated otherwise; the API's own default is always among the honoured ones.
    pub except: &'static [(Lit, Support)],
    /// What the documentation says about it besides.
    pub note: &'static str,
}

/// One type of the Pod API.
#[derive(Debug)]
pub struct Object {
    /// The name of the type.
    pub name: &'static str,
    /// Its fields, in alphabetical order.
    pub fields: &'static [Field],
}

/// A field of the table.
const fn f(name: &'static str, shape: Shape, support: Support) -> Field {
    Field { name, shape, support, except: &[], note: "" }
}

impl Field {
    /// The same field with values that are treated otherwise.
    const fn but(self, except: &'static [(Lit, Support)]) -> Self {
        Self { except, ..self }
    }

    /// The same field with a remark for the documentation.
    const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The object type behind this field, if there is one.
    pub fn object(&self) -> Option<&'static Object> {
        match self.shape {
            Shape::Object(object) | Shape::Objects(object) => Some(object),
            _ => None,
        }
    }
}

impl Object {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
