//! What the host and this kernel share for as long as the domain lives: the start info, the virtual registers, the image.

use core::sync::atomic::Ordering;

use doppel_abi_machine::{StartInfo, VirtualRegisters, control, event, layout};

use crate::host;

/// The start info page.
pub fn start_info() -> &'static StartInfo {
    // SAFETY: mapped at boot, read-only and constant from then on.
    unsafe { &*((layout::CONTROL_BASE + control::START_INFO) as *const StartInfo) }
}

/// The virtual registers.
pub fn vregs() -> &'static VirtualRegisters {
    // SAFETY: mapped at boot for ever; all fields are atomics.
    unsafe { &*((layout::CONTROL_BASE + control::VREGS) as *const VirtualRegisters) }
}

/// How much memory programs may have, in bytes; 0 = no limit. It may change while the domain runs. The balloon's target is no
/// limit: what is used beyond it is given back as far as that goes, by and by.
pub fn memory_limit() -> u64 {
    vregs().memory_limit.load(Ordering::Relaxed)
}

/// How many processes and threads programs may have, if there is a limit; it may change while the domain runs.
pub fn task_limit() -> Option<usize> {
    let most = vregs().task_limit.load(Ordering::Relaxed);
    (most != 0).then_some(most as usize)
}

/// The root image.
pub fn image() -> &'static [u8] {
    // SAFETY: mapped read-only at boot for ever; the host never changes a stored image.
    unsafe { core::slice::from_raw_parts(layout::IMAGE_BASE as *const u8, start_info().image_size as usize) }
}

/// Makes PID 1 look at what there is to do.
pub fn wake_init() {
    let v = vregs();
    v.pending.fetch_or(event::KERNEL, Ordering::SeqCst);
    v.event_seq.fetch_add(1, Ordering::SeqCst);
    host::futex_wake(&v.event_seq, 1);
}

/// Tells the host that the guest kernel found itself broken.
pub fn report_panic() {
    vregs().state.store(doppel_abi_machine::state::PANICKED, Ordering::SeqCst);
    host::ring_doorbell();
}
