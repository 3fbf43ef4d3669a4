//! Calls of asynchronous input and output.

pub mod aio;
pub mod uring;
