//! Numbers of processes and threads as programs give and see them: those of their PID namespace.

use alloc::sync::Arc;

use crate::core::namespace::pid::{self, PidNamespace};
use crate::process::task::{Process, TASKS, Thread, current_ref};
use crate::{Errno, Result};

/// The PID namespace a process is in.
pub fn of(p: &Process) -> &Arc<PidNamespace> {
    p.numbers.as_ref().map_or_else(|| pid::first(), |n| &n.namespace)
}

/// The kernel's number for one that the current thread names; ESRCH if nobody has it there.
#[inline]
pub fn kernel(n: i32) -> Result<i32> {
    match &current_ref().process.numbers {
        None => Ok(n),
        Some(mine) => mine.namespace.kernel(n).ok_or(Errno::ESRCH),
    }
}

/// What the current thread is told of one of the kernel's numbers; 0 for what is not in its namespace.
#[inline]
pub fn shown(kernel: i32) -> i32 {
    shown_to(&current_ref().process, kernel)
}

/// As [`shown`], what a process is told.
#[inline]
pub fn shown_to(p: &Process, kernel: i32) -> i32 {
    match &p.numbers {
        None => kernel,
        Some(mine) => mine.namespace.shown(kernel),
    }
}

/// The process that the current thread names.
#[inline]
pub fn process(n: i32) -> Result<Arc<Process>> {
    TASKS.process(kernel(n)?)
}

/// The thread that the current thread names.
#[inline]
pub fn thread(n: i32) -> Result<Arc<Thread>> {
    TASKS.thread(kernel(n)?)
}

/// Whether a process is in the current thread's namespace or below.
#[inline]
pub fn sees(p: &Process) -> bool {
    shown(p.pid) != 0
}

/// Whether a process is the first of its namespace, which only those above it and the kernel can kill.
#[inline]
pub fn is_init(p: &Process) -> bool {
    match &p.numbers {
        None => p.pid == 1,
        Some(n) => n.is_init(),
    }
}
