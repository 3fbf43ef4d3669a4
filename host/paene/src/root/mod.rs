//! A container's files: the image below, its own layer above, and whose they are.

pub mod check;
pub mod lower;
pub mod owners;
pub mod tree;
