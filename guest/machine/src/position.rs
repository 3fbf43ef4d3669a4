//! Where code stands: what backtraces begin with.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where the kernel faulted, as pc, sp and bp; zeros if it did not.
pub(crate) static FAULT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Says that a panic is about the code at `pc`, not about the handler that found its fault.
pub(crate) fn faulted(pc: u64, sp: u64, bp: u64) {
    for (word, value) in FAULT.iter().zip([pc, sp, bp]) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Program counter, stack and frame pointer of the caller.
#[inline(always)]
pub(crate) fn position() -> (u64, u64, u64) {
    let (pc, sp, bp);
    // SAFETY: reads registers.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) bp,
            options(nomem, nostack, preserves_flags));
    }
    (pc, sp, bp)
}

/// Where a task stands that keeps its vCPU while it waits.
#[derive(Default)]
pub(crate) struct Resting {
    /// Odd while it rests; only the task itself writes.
    pub(crate) turn: AtomicU64,
    pub(crate) place: [AtomicU64; 3],
}

impl Resting {
    /// Runs `f`, in which the task, the current one, waits on its vCPU.
    #[inline]
    pub fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        let (pc, sp, bp) = position();
        for (word, value) in self.place.iter().zip([pc, sp, bp]) {
            word.store(value, Ordering::Relaxed);
        }
        self.turn_over();
        let r = f();
        self.turn_over();
        r
    }

    fn turn_over(&self) {
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}
