//! Registers of a stopped tracee in the forms ptrace shows them.

use alloc::vec::Vec;

use doppel_machine::task::UserContext;
use doppel_machine::user::bytes_of;
use doppel_machine::xstate::{enabled_features, used_size};
use doppel_machine::{pod_struct, xstate::XSave};

use crate::process::task::Thread;
use crate::{Errno, Result};

const FLAG_TF: u64 = 0x100;
/// Bytes of `struct user_regs_struct`.
pub(crate) const GREGS: usize = 27 * 8;
/// Bytes of `struct user_fpregs_struct` (FXSAVE).
pub(crate) const FPREGS: usize = 512;
/// Where the XSAVE form names the components it holds, for debuggers.
const XCR0_AT: usize = 464;

pod_struct! {
    /// `struct user_regs_struct`.
    pub struct UserRegs {
        /// r15 to gs in the order of `<sys/user.h>`.
        pub words: [u64; 27],
    }
}

/// Turns the trap flag of a stopped or current thread on or off.
pub(super) fn set_trap_flag(t: &Thread, on: bool) {
    let mut r = t.task.regs();
    r.rflags = if on { r.rflags | FLAG_TF } else { r.rflags & !FLAG_TF };
    t.task.set_regs(&r);
}

/// The general registers. A program counter in a patched call shows as the one it stands for.
pub(crate) fn general(t: &Thread) -> UserRegs {
    let r = t.task.regs();
    let fs_base = t.ptrace.state.lock().fs_base.unwrap_or(r.fs_base);
    let rip = t.space().mm.original_pc(r.rip);
    UserRegs {
        words: [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi,
            r.rdi, r.orig_rax, rip, r.cs, r.rflags, r.rsp, r.ss, fs_base, 0, 0, 0, 0, 0,
        ],
    }
}

/// Changes the general registers; EIO for addresses and selectors no program may have.
pub(crate) fn set_general(t: &Thread, new: &UserRegs) -> Result<()> {
    let old = t.task.regs();
    let w = &new.words;
    if w[21] >= doppel_abi_machine::layout::USER_END || w[22] != 0 {
        return Err(Errno::EIO);
    }
    // Unchanged: stay where it really is, in the middle of a patched call.
    let rip = if w[16] == t.space().mm.original_pc(old.rip) { old.rip } else { w[16] };
    t.task.set_regs(&UserContext {
        r15: w[0],
        r14: w[1],
        r13: w[2],
        r12: w[3],
        rbp: w[4],
        rbx: w[5],
        r11: w[6],
        r10: w[7],
        r9: w[8],
        r8: w[9],
        rax: w[10],
        rcx: w[11],
        rdx: w[12],
        rsi: w[13],
        rdi: w[14],
        orig_rax: w[15],
        rip,
        cs: w[17],
        rflags: w[18],
        rsp: w[19],
        ss: w[20],
        fs_base: w[21],
    });
    t.ptrace.state.lock().fs_base = Some(w[21]);
    Ok(())
}

/// Bytes of the general registers.
pub fn general_bytes(t: &Thread) -> Vec<u8> {
    bytes_of(&general(t)).to_vec()
}

/// Changes the first general registers, as many as there are whole words in `bytes`.
pub(crate) fn set_general_bytes(t: &Thread, bytes: &[u8]) -> Result<()> {
    let mut r = general(t);
    for (w, b) in r.words.iter_mut().zip(bytes.chunks_exact(8)) {
        *w = u64::from_le_bytes(b.try_into().map_err(|_| Errno::EINVAL)?);
    }
    set_general(t, &r)
}

/// The state in XSAVE form, its legacy part in reset form where the processor left it out.
fn xsave(t: &Thread) -> Vec<u8> {
    const LEGACY: u64 = 3;
    let x = t.task.xstate();
    let mut out = x.bytes[..used_size()].to_vec();
    let bv = x.xstate_bv();
    if bv & LEGACY != LEGACY {
        let fresh = XSave::initial();
        if bv & 1 == 0 {
            out[..24].copy_from_slice(&fresh.bytes[..24]);
            out[32..160].fill(0);
        }
        if bv & 2 == 0 {
            out[160..416].fill(0);
        }
    }
    out
}

/// The extended state (NT_X86_XSTATE).
pub fn xstate_bytes(t: &Thread) -> Vec<u8> {
    let mut out = xsave(t);
    out[XCR0_AT..XCR0_AT + 8].copy_from_slice(&enabled_features().to_le_bytes());
    out
}

/// Changes the extended state.
pub(super) fn set_xstate_bytes(t: &Thread, bytes: &[u8]) -> Result<()> {
    let n = used_size();
    if bytes.len() < n {
        return Err(Errno::EFAULT);
    }
    t.task.with_xstate(|x| {
        x.bytes[..n].copy_from_slice(&bytes[..n]);
        x.bytes[464..512].fill(0);
        x.sanitize();
    });
    Ok(())
}

/// The x87 and SSE state (NT_PRFPREG).
pub fn fp_bytes(t: &Thread) -> Vec<u8> {
    let mut out = xsave(t);
    out.truncate(FPREGS);
    out
}

/// Changes the x87 and SSE state.
pub(crate) fn set_fp_bytes(t: &Thread, bytes: &[u8]) -> Result<()> {
    if bytes.len() < FPREGS {
        return Err(Errno::EINVAL);
    }
    t.task.with_xstate(|x| {
        x.bytes[..464].copy_from_slice(&bytes[..464]);
        x.bytes[512] |= 3;
        x.sanitize();
    });
    Ok(())
}
