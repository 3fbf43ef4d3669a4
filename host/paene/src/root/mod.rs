//! A container's files: the image below, its own layer above, whose they are, and what it is given of the host's.

pub mod check;
pub(crate) mod inside;
pub mod layer;
pub mod lower;
pub mod owners;
pub mod tree;
pub mod volumes;
