//! Freezing, going on from frozen images, and page sharing among clones.

pub mod domain;
pub mod frozen;
pub mod images;
pub mod kept;
pub mod shadow;
pub mod share;
pub mod sharer;
pub mod wake;
