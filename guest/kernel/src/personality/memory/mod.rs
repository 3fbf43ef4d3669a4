//! System calls on memory.

pub mod map;
pub mod ranges;
