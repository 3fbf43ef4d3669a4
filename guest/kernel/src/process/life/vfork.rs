//! A vfork child's use of its parent's memory.

use crate::core::sched::WaitQueue;

/// Completion of a vfork child's use of its parent's memory.
#[derive(Default)]
pub struct Vfork {
    pub(crate) done: core::sync::atomic::AtomicBool,
    pub(crate) queue: WaitQueue,
}
