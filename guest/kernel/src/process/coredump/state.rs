//! The state of a process' dump.

use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;

use doppel_machine::sync::SpinLock;

/// The state of a process' dump.
#[derive(Default)]
pub struct Dump {
    /// A thread writes, the others must stand still.
    pub(crate) under_way: AtomicBool,
    /// Those that do.
    pub(crate) still: SpinLock<Vec<i32>>,
}
