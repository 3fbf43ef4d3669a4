//! Calls at the fixed addresses of the vsyscall page (time, gettimeofday, getcpu), which old programs make.
//!
//! A host that has the page makes system calls of them, which the filter answers with SIGSYS as it does all others; the
//! program counter is then that of the caller already, and only the signal's information has the address that was called.
//! A host without the page gives the fault that it gives any program.

use core::sync::atomic::Ordering;

use super::personality::{FaultInfo, personality};
use crate::task::Frame;

const PAGE: u64 = 0xffff_ffff_ff60_0000;
const EFAULT: u64 = 14;

/// Whether a call came by the page, from the address that was called.
pub(crate) fn is_call(addr: u64) -> bool {
    addr & !0xfff == PAGE
}

/// Serves the call of the current task that came by address `at`. A bad pointer is no error of the call but a fault, at that
/// address, as if the page's code had followed the pointer.
pub(crate) fn serve(at: u64) {
    const SIGSEGV: i32 = 11;
    const SI_KERNEL: i32 = 0x80;
    const PAGE_FAULT: u64 = 14;
    const USER_WRITE: u64 = 6;
    personality().syscall()();
    // SAFETY: ctx points to the frame of the current task, which runs here and has left its program.
    let f = unsafe { &mut *(crate::cpu::vcpu().ctx.load(Ordering::Relaxed) as *mut Frame) };
    if f.regs.rax == EFAULT.wrapping_neg() {
        f.regs.rip = at;
        f.regs.rsp = f.regs.rsp.wrapping_sub(8);
        f.regs.orig_rax = u64::MAX;
        personality().fault(FaultInfo {
            signo: SIGSEGV,
            code: SI_KERNEL,
            addr: 0,
            trapno: PAGE_FAULT,
            err: USER_WRITE,
        });
    }
}
