//! Trees made of what comes in: archives, compressed or not, and directories.

pub mod archive;
pub mod compressed;
pub mod directory;
pub mod pax;
