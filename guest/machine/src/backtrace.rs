//! Backtraces of the guest kernel: of a thread that waits, and of the code that panics.
//!
//! The kernel has no frame pointers. The table behind it in its file says how to leave each frame
//! (`doppel_unwind::kernel`). Stacks lie in the arena, so a thread's can be read by every process of the domain.

use core::sync::atomic::{Ordering, fence};

use doppel_abi_machine::layout::{ARENA_BASE, KERNEL_BASE, SYMBOLS_BASE};
use doppel_unwind::Registers;
use doppel_unwind::cfi::{RBP, REGISTERS, RETURN_ADDRESS, RSP};
use doppel_unwind::kernel::{self, HEADER, Table};

use crate::position::{FAULT, position};
use crate::task::{KSTACK_SIZE, Task};

/// Most frames of a backtrace.
pub const DEPTH: usize = 64;

/// The table of this kernel's functions.
pub fn table() -> Option<Table<'static>> {
    // SAFETY: the host puts the table behind every kernel it starts (host/domain, launch/symbols.rs), where it is mapped
    // read-only for ever; its header says how long it is.
    let bytes = unsafe {
        let header = core::slice::from_raw_parts(SYMBOLS_BASE as *const u8, HEADER);
        core::slice::from_raw_parts(SYMBOLS_BASE as *const u8, kernel::size(header)?)
    };
    Table::new(bytes, KERNEL_BASE)
}

/// Addresses of code, innermost first.
#[derive(Clone, Copy)]
pub struct Backtrace {
    addresses: [u64; DEPTH],
    len: usize,
}

impl Backtrace {
    /// The addresses.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..self.len]
    }

    /// Of the code at `pc`, on a stack between `low` and `high`.
    fn walk(pc: u64, sp: u64, bp: u64, (low, high): (u64, u64)) -> Self {
        let mut trace = Self { addresses: [0; DEPTH], len: 0 };
        let mut registers = Registers([0; REGISTERS]);
        (registers.0[RETURN_ADDRESS], registers.0[RSP], registers.0[RBP]) = (pc, sp, bp);
        let Some(table) = table() else { return trace };
        let mut read = |at: u64| {
            let inside = at >= low && at <= high - 8 && at.is_multiple_of(8);
            // SAFETY: inside a stack of the arena, which stays mapped. Its thread may write there meanwhile: callers
            // that cannot exclude it look whether it has, and any number is only an allegation here.
            inside.then(|| unsafe { (at as *const u64).read_volatile() })
        };
        for slot in &mut trace.addresses {
            if table.function(registers.pc().wrapping_sub(1)).is_none() {
                break;
            }
            *slot = registers.pc();
            trace.len += 1;
            match table.caller(&registers, &mut read) {
                Some(caller) => registers = caller,
                None => break,
            }
        }
        trace
    }
}

/// Of the caller, or of the code that faulted. Allocates nothing.
pub fn here() -> Backtrace {
    let arena = (ARENA_BASE, ARENA_BASE + crate::boot::start_info().arena_size);
    let [pc, sp, bp] = FAULT.each_ref().map(|word| word.load(Ordering::Relaxed));
    if pc != 0 {
        // The fault's own instruction counts, not the one before.
        return Backtrace::walk(pc + 1, sp, bp, arena);
    }
    let (pc, sp, bp) = position();
    Backtrace::walk(pc, sp, bp, arena)
}

impl Task {
    /// Where it waits; `None` if it runs.
    pub fn backtrace(&self) -> Option<Backtrace> {
        let stack = (self.kstack_top() - KSTACK_SIZE as u64, self.kstack_top());
        if let Some(trace) = self.with_stack(|krsp| {
            // What `swap_stacks` has pushed: r15 r14 r13 r12 rbx rbp, then the return address.
            // SAFETY: the stack is claimed and was switched out, or made to look so.
            let (bp, pc) =
                unsafe { (((krsp + 40) as *const u64).read(), ((krsp + 48) as *const u64).read()) };
            Backtrace::walk(pc, krsp + 56, bp, stack)
        }) {
            return Some(trace);
        }
        let turn = self.resting.turn.load(Ordering::Acquire);
        if turn.is_multiple_of(2) {
            return None;
        }
        let [pc, sp, bp] = self.resting.place.each_ref().map(|word| word.load(Ordering::Relaxed));
        let trace = Backtrace::walk(pc, sp, bp, stack);
        fence(Ordering::Acquire);
        (self.resting.turn.load(Ordering::Relaxed) == turn).then_some(trace)
    }
}
