//! The guest kernel ELF.
fn main() {}
