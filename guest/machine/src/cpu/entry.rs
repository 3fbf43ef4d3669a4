//! The first code of a task.

use super::block::vcpu;
use crate::trap;

/// Releases the task that ran before; runs first in whatever was switched to.
#[inline]
pub(super) extern "C" fn finish_switch() {
    // SAFETY: only this vCPU touches its own slot.
    let prev = unsafe { (*vcpu().prev.get()).take() };
    if let Some(p) = prev {
        p.task().release();
    }
}

/// Prepares a fresh kernel stack so that `swap_stacks` to it runs [`task_entry`]; returns its stack pointer.
pub(crate) fn initial_frame(top: u64) -> u64 {
    let sp = top - 8 * 8;
    // SAFETY: the eight words below the top belong to the new stack: six saved registers, then the return
    // address, then alignment.
    unsafe {
        let w = sp as *mut u64;
        for i in 0..8 {
            w.add(i).write(0);
        }
        w.add(6).write(task_entry as *const () as u64);
    }
    sp
}

/// First code of a task: at `ret` into it the stack is 16-byte aligned minus 8, as after a call.
extern "C" fn task_entry() -> ! {
    finish_switch();
    start_current()
}

pub(super) fn start_current() -> ! {
    trap::personality().task_start();
    trap::leave_to_user()
}
