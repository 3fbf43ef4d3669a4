//! Marks threads and processes that are to end; each thread ends on its way back to its program (exit.rs).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::process::task::{Process, Thread};

/// Ends one thread at its next chance.
pub(crate) fn mark_exiting(t: &Thread) {
    t.exiting.store(true, Ordering::SeqCst);
    t.task.post_work();
}

/// Ends the whole process of `thread` with this wait status (exit code << 8 | signal | 0x80 if dumped).
/// The first caller decides the status. Returns; each thread ends on its way back to its program.
pub fn do_group_exit(thread: &Arc<Thread>, status: i32) {
    end_process(&thread.process, status);
}

/// As [`do_group_exit`], for any process.
pub fn end_process(p: &Process, status: i32) {
    p.group_exit.lock().get_or_insert(status);
    for t in p.threads() {
        t.exiting.store(true, Ordering::SeqCst);
        t.notify();
    }
}
