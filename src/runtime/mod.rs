//! runtime
pub mod logs;
