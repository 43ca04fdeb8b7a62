//! runtime
pub mod spec;
