//! Doppel: xtask.
#![forbid(unsafe_code)]
fn main() {}
