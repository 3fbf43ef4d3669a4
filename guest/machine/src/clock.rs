//! The host's clocks, read without a host call through the host's vDSO pages.
//!
//! The guest kernel moves the host's vDSO to a fixed address at boot (boot.rs), so the functions below stay
//! valid in every address space and in clones.

use core::sync::atomic::{AtomicU64, Ordering};

/// CLOCK_REALTIME
pub const REALTIME: i32 = 0;
/// CLOCK_MONOTONIC
pub const MONOTONIC: i32 = 1;

/// CLOCK_REALTIME_COARSE
pub const REALTIME_COARSE: i32 = 5;

/// Address of the host's `__vdso_clock_gettime`; set once by boot.rs before the first fork.
static CLOCK_GETTIME: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_vdso(addr: u64) {
    CLOCK_GETTIME.store(addr, Ordering::Relaxed);
}

/// Address of the host's clock_gettime function, for the domain's own vDSO.
pub(crate) fn vdso_address() -> u64 {
    CLOCK_GETTIME.load(Ordering::Relaxed)
}

/// Nanoseconds of a host clock (REALTIME, MONOTONIC, BOOTTIME and their COARSE forms).
pub fn host_clock_ns(clock: i32) -> u64 {
    let f = CLOCK_GETTIME.load(Ordering::Relaxed);
    if f == 0 {
        return 0;
    }
    let mut ts = [0u64; 2];
    // SAFETY: boot.rs found this address by name in the host's vDSO; the C signature is fixed by the ABI.
    let f: extern "C" fn(i32, *mut u64) -> i32 = unsafe { core::mem::transmute(f) };
    f(clock, ts.as_mut_ptr());
    ts[0] * 1_000_000_000 + ts[1]
}

/// The host's CLOCK_MONOTONIC in nanoseconds: the time base of [`crate::host::futex_wait`] deadlines.
pub fn host_monotonic_ns() -> u64 {
    host_clock_ns(MONOTONIC)
}

/// The host's CPU that this code runs on, or ran on a moment ago.
pub fn cpu() -> u16 {
    /// The descriptor whose limit Linux keeps for this: the CPU's number below the node's.
    const SELECTOR: u32 = 0x7b;
    const BITS: u32 = 12;
    let mut limit = 0u32;
    // SAFETY: reads a descriptor's limit; where there is no such one, `limit` stays as it is.
    unsafe {
        core::arch::asm!("lsl {0:e}, {1:e}", inout(reg) limit, in(reg) SELECTOR, options(nomem, nostack));
    }
    (limit & ((1 << BITS) - 1)) as u16
}

/// Whether `pc` lies in the moved host vDSO.
pub(crate) fn in_host_vdso(pc: u64) -> bool {
    const SIZE: u64 = 64 * doppel_abi_machine::layout::PAGE;
    (doppel_abi_machine::layout::HOST_VDSO_BASE..doppel_abi_machine::layout::HOST_VDSO_BASE + SIZE)
        .contains(&pc)
}
