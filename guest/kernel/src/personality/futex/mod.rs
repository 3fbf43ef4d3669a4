//! System calls on futexes.

pub mod calls;
pub mod robust;
mod separate;
pub mod waitv;
