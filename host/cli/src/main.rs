//! Doppel: host/cli.
#![forbid(unsafe_code)]
fn main() {}
