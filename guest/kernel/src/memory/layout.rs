//! Where things lie in an address space.
//!
//! Addresses are randomised within a few megabytes only: page tables are the largest cost of an idle domain, so
//! everything stays within few 2 MB and 1 GB regions.

use doppel_abi_machine::layout::USER_END;

use super::{PAGE, page_down};

/// Room between the stack and what mmap places below it.
const STACK_GAP: u64 = 1 << 20;
/// Largest main stack.
const STACK_MAX: u64 = 64 << 20;
/// Smallest main stack.
const STACK_MIN: u64 = 128 << 10;
/// Position-independent executables, and the heap behind them: 64 GiB below the top.
const PIE_BASE: u64 = USER_END - (64 << 30);

/// Addresses chosen for one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// Lowest address of the main stack.
    pub stack_low: u64,
    /// End of the main stack.
    pub stack_top: u64,
    /// mmap goes down from here.
    pub mmap_top: u64,
    /// Where position-independent executables go.
    pub pie_base: u64,
}

/// An unpredictable number.
pub fn random_u64() -> u64 {
    let mut b = [0u8; 8];
    crate::core::random::fill(&mut b);
    u64::from_le_bytes(b)
}

impl Layout {
    /// A layout for a program whose stack limit is `limit`.
    pub fn new(limit: u64) -> Self {
        let r = random_u64();
        let stack_top = USER_END - PAGE - (r & 0x3ff) * PAGE;
        let size = page_down(limit.clamp(STACK_MIN, STACK_MAX));
        let stack_low = stack_top - size;
        let mmap_top = stack_low - STACK_GAP - ((r >> 10) & 0x1ff) * PAGE;
        Self { stack_low, stack_top, mmap_top, pie_base: PIE_BASE + ((r >> 20) & 0x1ff) * PAGE }
    }
}
