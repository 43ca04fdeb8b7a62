//! Images: names, archives, layers.
//!
//! An archive is streamed into containerd's content store, its layers are unpacked into snapshots, and a
//! name is made that points at it; all of that under a lease, so that the garbage collector leaves it
//! alone until the name holds it. Whether a pod may use an image is decided by [`decide`]. Nothing here
//! speaks to registries.

mod archive;
mod assemble;
mod documents;
mod ingest;
mod platform;
mod policy;
mod preload;
mod reader;
mod reference;
mod store;
mod unpack;

pub use archive::{ImportError, import_path};
pub use policy::{Decision, PullPolicy, decide};
pub use preload::{PreloadReport, preload};
pub use reference::{ImageRef, InvalidImageName};
pub use store::{Image, ImageError, ImageSummary};
