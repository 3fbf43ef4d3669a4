//! Calls of asynchronous input and output.

pub mod aio;
