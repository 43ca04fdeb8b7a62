//! podling runs Kubernetes Pods from a directory of manifests, on containerd, with no API server.
//!
//! Data flows one way: `source` reads manifests and diffs them into updates, `pod` decides and
//! drives, `runtime`, `network`, `volume` and `image` act, `system` touches the kernel. Status flows
//! back up into `pod::board`, which `server` shows and `cli` prints. `docs/design.md` has the picture.

pub mod cli;
pub mod daemon;
pub mod http;
pub mod image;
pub mod manifest;
pub mod network;
pub mod objects;
pub mod pod;
pub mod probe;
pub mod registry;
pub mod runtime;
pub mod server;
pub mod settings;
pub mod source;
pub mod store;
pub mod system;
pub mod volume;
