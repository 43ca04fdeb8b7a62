//! Images: names, archives, layers.
//!
//! An archive is streamed into containerd's content store, its layers are unpacked into snapshots, and a
//! name is made that points at it; all of that under a lease, so that the garbage collector leaves it
//! alone until the name holds it. A pull does the same with what a registry sends. When one is needed is
//! decided by [`decide`]; how registries are spoken to is the business of `registry`.

mod archive;
mod assemble;
pub mod collect;
mod documents;
mod export;
mod find;
mod identity;
mod ingest;
mod link;
mod mend;
mod platform;
mod policy;
mod preload;
pub mod pull;
mod reader;
mod reference;
mod store;
mod unpack;
pub mod verify;

pub use archive::{ImportError, Imported, LEFT_OUT, Source, import, import_path};
pub use export::{ExportError, export};
pub use find::FindError;
pub use mend::mend;
pub use policy::{Decision, PullPolicy, decide};
pub use preload::{PreloadReport, Preloader, Seen, archives};
pub use reference::{ImageRef, InvalidImageName, NO_CREDENTIALS, credentials};
pub use store::{Image, ImageError, ImageSummary};
