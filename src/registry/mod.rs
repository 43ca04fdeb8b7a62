//! Registries: where an image comes from, who may have it, and reading manifests and blobs over HTTP.
//!
//! `hosts` says which servers to ask for a registry's images (`hosts.toml`, as containerd reads it), `login`
//! gets past their door, `client` asks them one after the other. Nothing here knows of containerd's store
//! or of pods; no credential ever reaches a message.

mod client;
mod error;
mod hosts;
mod login;
pub mod secrets;
mod transfer;

pub use client::{Answer, BlobStream, Client, ClientSource, Repository};
pub use error::{Attempt, Failure, FailureClass, RegistryError};
pub use hosts::{Capability, Endpoint, HostsConfig, HostsError, lint, lint_all, lint_containerd};
