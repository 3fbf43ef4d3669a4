//! The domain's program, and what its streams and terminal are on the rings.

pub mod builtin;
pub mod bundle;
pub mod enter;
pub mod helper;
pub mod request;
pub mod ring;
pub mod start;
pub mod streams;
pub mod talk;
