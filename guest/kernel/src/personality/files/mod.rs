//! System calls on files, directories and mounts.

pub mod attr;
pub mod dir;
pub mod fcntl;
pub mod handle;
pub mod mount;
pub mod names;
pub mod open;
pub mod random;
pub mod rw;
pub mod stat;
pub mod xattr;
