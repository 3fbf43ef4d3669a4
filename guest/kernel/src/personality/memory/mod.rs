//! System calls on memory.

pub mod map;
pub mod numa;
pub mod ranges;
pub mod remote;
