//! Work of the kernel's own that may wait, which PID 1 of the host's processes must not.

use alloc::boxed::Box;

use crate::core::hook::Hook;

/// Such work.
pub type Work = Box<dyn FnOnce() + Send + Sync>;

/// Does it on a thread of its own in the space of guest pid 1; false if that is just ending, or there is no memory.
pub static START: Hook<fn(Work) -> bool> = Hook::new();
