//! System calls on futexes.

pub mod calls;
pub mod robust;
pub mod waitv;
