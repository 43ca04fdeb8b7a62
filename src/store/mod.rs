//! Checkpoint files.

mod records;

pub use records::*;
