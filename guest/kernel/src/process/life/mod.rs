//! How processes begin, become other programs, and end.

pub mod clone;
pub mod elf;
pub mod ending;
pub mod exec;
pub mod exit;
pub mod flags;
pub mod spare;
pub mod stack;
pub mod start;
pub mod vdso;
pub mod vfork;
pub mod wait;
