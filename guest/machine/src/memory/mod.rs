//! Memory: the kernel's own, files' pages, and that of programs.

pub mod arena;
pub mod frozen;
pub mod layout;
mod mem;
pub mod pagefile;
pub mod shield;
pub mod swap;
pub mod user;
