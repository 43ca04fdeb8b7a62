//! Why a pull failed.

use std::time::Duration;

use crate::image::verify::{PolicyError, Rejected};
use crate::registry::{FailureClass, HostsError, RegistryError};
use crate::runtime::containerd::{ErrorClass, RuntimeError};

/// Why an image was not pulled. The text names each server that was asked and shows no credential.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No registry gave it.
    #[error("{0}")]
    Registry(#[from] RegistryError),
    /// The registry's configuration cannot be used.
    #[error("{0}")]
    Hosts(#[from] HostsError),
    /// containerd failed, or the disk is full.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// It has no build for this host.
    #[error("it has no build for {want}: it has {have}")]
    Platform {
        /// This host.
        want: String,
        /// What is there.
        have: String,
    },
    /// It is something else than a container image.
    #[error("it is no container image: {0}")]
    NotAnImage(String),
    /// The signature policy does not take it.
    #[error("{0}")]
    Rejected(#[from] Rejected),
    /// The signature policy cannot be read.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// Its parts do not fit together.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl PullError {
    /// True when the registry could not be asked, so that nothing is known about the image.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Registry(e) if e.class().is_transient())
    }

    /// True when the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Runtime(e) if e.class() == ErrorClass::NoSpace)
    }

    /// The kubelet's word for it, which a waiting container shows as its reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Registry(e) if matches!(e.class(), FailureClass::Network | FailureClass::Server) => {
                "RegistryUnavailable"
            }
            Self::Rejected(_) | Self::Policy(_) => "SignatureValidationFailed",
            _ => "ErrImagePull",
        }
    }

    /// The kind of failure in one word, for logs and JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Registry(e) => match e.class() {
                FailureClass::Network => "network",
                FailureClass::Server => "server",
                FailureClass::RateLimit => "rate-limit",
                FailureClass::NotFound => "not-found",
                FailureClass::Auth => "auth",
                FailureClass::Damaged => "damaged",
                FailureClass::Refused => "refused",
                FailureClass::Config => "configuration",
            },
            Self::Hosts(_) | Self::Policy(_) => "configuration",
            Self::Rejected(_) => "signature",
            Self::Runtime(_) if self.is_disk_full() => "disk-full",
            Self::Runtime(_) => "containerd",
            Self::Platform { .. } => "platform",
            Self::NotAnImage(_) | Self::Damaged(_) => "image",
        }
    }

    /// How long the registry asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Registry(e) => e.retry_after(),
            _ => None,
        }
    }

    /// The server whose absence is the reason.
    pub fn unreachable_server(&self) -> Option<&str> {
        match self {
            Self::Registry(e) => e.unreachable(),
            _ => None,
        }
    }
}
