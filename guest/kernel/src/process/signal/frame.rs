//! Handler frames on the program's stack: the exact layout of x86-64 Linux (`struct rt_sigframe`).
//!
//! From low to high addresses: return address (the restorer), `ucontext`, `siginfo`, then, 64-byte aligned,
//! the extended state in XSAVE form with its marks. Everything is written and read by copy; what a program
//! changed in a frame is checked by `Task::set_regs` and `XSave::sanitize` before it is used.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

use doppel_abi_linux::signal::frame::{
    FP_XSTATE_MAGIC1, FP_XSTATE_MAGIC2, RED_ZONE, SIGINFO_SIZE, SW_BYTES, UC_FP_XSTATE, UC_SIGCONTEXT_SS,
    UC_STRICT_RESTORE_SS,
};
use doppel_machine::pod_struct;
use doppel_machine::task::{USER_CS, USER_SS, UserContext};
use doppel_machine::user::UserPtr;
use doppel_machine::xstate::{XSave, enabled_features, used_size};

use super::state::{Action, ActionFlags, AltStack, AltStackFlags};
use super::{SigInfo, SigSet, set_mask};
use crate::process::task::Thread;
use crate::{Errno, Result};

pod_struct! {
    /// `stack_t`.
    pub struct StackT {
        /// Lowest address.
        pub sp: u64,
        /// SS_ONSTACK, SS_DISABLE, SS_AUTODISARM.
        pub flags: u32,
        /// Padding.
        pub pad: u32,
        /// Bytes.
        pub size: u64,
    }
}

pod_struct! {
    /// `struct ucontext` with `struct sigcontext_64` in it.
    pub struct UContext {
        /// UC_FP_XSTATE and others.
        pub flags: u64,
        /// Unused.
        pub link: u64,
        /// The alternate stack in force.
        pub stack: StackT,
        /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
        pub gregs: [u64; 16],
        /// Program counter.
        pub rip: u64,
        /// Flags.
        pub rflags: u64,
        /// cs, gs, fs, ss.
        pub selectors: [u16; 4],
        /// Page fault error code of the last fault.
        pub err: u64,
        /// Trap number of the last fault.
        pub trapno: u64,
        /// The mask to go back to, low word.
        pub oldmask: u64,
        /// Address of the last page fault.
        pub cr2: u64,
        /// Address of the extended state, or 0.
        pub fpstate: u64,
        /// Reserved.
        pub reserved: [u64; 8],
        /// The mask to go back to.
        pub mask: u64,
    }
}

pod_struct! {
    /// `struct rt_sigframe`.
    pub struct Frame {
        /// Return address of the handler.
        pub restorer: u64,
        /// Context to go back to.
        pub uc: UContext,
        /// `siginfo_t`.
        pub info: [u8; SIGINFO_SIZE],
    }
}

const UCONTEXT_SIZE: u64 = 304;
const FRAME_SIZE: u64 = 8 + UCONTEXT_SIZE + SIGINFO_SIZE as u64;

const _: () = assert!(size_of::<UContext>() == UCONTEXT_SIZE as usize);
const _: () = assert!(size_of::<Frame>() == FRAME_SIZE as usize);

impl StackT {
    /// How sigaltstack reports a stack while the program's stack pointer is `sp`.
    pub(crate) fn of(a: &AltStack, sp: u64) -> Self {
        let on = if a.contains(sp) { AltStackFlags::ONSTACK } else { AltStackFlags::empty() };
        Self { sp: a.sp, flags: (a.flags | on).bits(), pad: 0, size: a.size }
    }
}

/// Builds the frame for a handler and sets the registers to enter it. `back` is the mask sigreturn restores.
pub(super) fn build(t: &Arc<Thread>, info: &SigInfo, action: &Action, back: SigSet) -> Result<()> {
    if !action.flags.contains(ActionFlags::RESTORER) {
        return Err(Errno::EFAULT);
    }
    let mut regs = t.task.regs();
    let (alt, fault) = {
        let s = t.signals.private.lock();
        (s.altstack, s.fault)
    };
    let mut sp = regs.rsp.wrapping_sub(RED_ZONE);
    let nested = alt.contains(regs.rsp);
    let mut entering = false;
    if action.flags.contains(ActionFlags::ONSTACK) && !nested && alt.size != 0 {
        sp = alt.sp.wrapping_add(alt.size);
        entering = true;
    }
    let size = used_size() as u64;
    let fpstate = sp.wrapping_sub(size + 4) & !63;
    let at = (fpstate.wrapping_sub(FRAME_SIZE) & !15).wrapping_sub(8);
    if (nested || entering) && !alt.covers(at) {
        return Err(Errno::EFAULT);
    }
    t.task.push_xstate(UserPtr(fpstate))?;
    write_marks(UserPtr(fpstate), size as usize)?;
    let uc = UContext {
        flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        link: 0,
        stack: StackT { sp: alt.sp, flags: alt.flags.bits(), pad: 0, size: alt.size },
        gregs: [
            regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rdi, regs.rsi,
            regs.rbp, regs.rbx, regs.rdx, regs.rax, regs.rcx, regs.rsp,
        ],
        rip: t.space().mm.shown_pc(regs.rip, t.task.is_after_call()),
        rflags: regs.rflags,
        selectors: [USER_CS as u16, 0, 0, USER_SS as u16],
        err: fault[1],
        trapno: fault[0],
        oldmask: back,
        cr2: fault[2],
        fpstate,
        reserved: [0; 8],
        mask: back,
    };
    UserPtr(at).write(&Frame { restorer: action.restorer, uc, info: info.to_bytes() })?;

    regs.rdi = info.signo as u64;
    regs.rsi = at + 8 + UCONTEXT_SIZE;
    regs.rdx = at + 8;
    regs.rax = 0;
    regs.rip = action.handler;
    regs.rsp = at;
    regs.rflags &= !(FLAG_DF | FLAG_RF | FLAG_TF);
    regs.orig_rax = u64::MAX;
    // Handlers take nothing in these; so set, they are entered by a jump (`Task::is_after_call`).
    regs.rcx = regs.rip;
    regs.r11 = regs.rflags;
    t.task.set_regs(&regs);
    t.task.reset_xstate();
    if alt.flags.contains(AltStackFlags::AUTODISARM) {
        t.signals.private.lock().altstack = AltStack::NONE;
    }
    Ok(())
}

const FLAG_TF: u64 = 0x100;
const FLAG_DF: u64 = 0x400;
const FLAG_RF: u64 = 0x1_0000;

/// Writes the marks of extended state (`struct _fpx_sw_bytes`, FP_XSTATE_MAGIC2).
fn write_marks(at: UserPtr, size: usize) -> Result<()> {
    let mut sw = [0u8; 48];
    sw[0..4].copy_from_slice(&FP_XSTATE_MAGIC1.to_le_bytes());
    sw[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    sw[8..16].copy_from_slice(&enabled_features().to_le_bytes());
    sw[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    at.add(SW_BYTES as u64).write(&sw)?;
    Ok(at.add(size as u64).write(&FP_XSTATE_MAGIC2)?)
}

/// Undoes the frame at the stack pointer (`rt_sigreturn(2)`): returns the restored rax.
pub(crate) fn restore(t: &Arc<Thread>) -> Result<u64> {
    let regs = t.task.regs();
    let uc: UContext = UserPtr(regs.rsp).read()?;
    restore_xstate(t, UserPtr(uc.fpstate))?;
    let g = &uc.gregs;
    let new = UserContext {
        r8: g[0],
        r9: g[1],
        r10: g[2],
        r11: g[3],
        r12: g[4],
        r13: g[5],
        r14: g[6],
        r15: g[7],
        rdi: g[8],
        rsi: g[9],
        rbp: g[10],
        rbx: g[11],
        rdx: g[12],
        rax: g[13],
        rcx: g[14],
        rsp: g[15],
        rip: uc.rip,
        rflags: uc.rflags,
        // No system call is in progress any more: nothing to restart.
        orig_rax: u64::MAX,
        ..regs
    };
    t.task.set_regs(&new);
    let alt = AltStack {
        sp: uc.stack.sp,
        size: uc.stack.size,
        flags: AltStackFlags::from_bits_retain(uc.stack.flags) - AltStackFlags::ONSTACK,
    };
    // An altstack the program spoilt in the frame is left as it is, as on Linux.
    let _ = crate::process::signal::mask::set_altstack(t, alt, new.rsp);
    set_mask(t, uc.mask);
    Ok(new.rax)
}

/// Gives the thread the extended state of a frame.
fn restore_xstate(t: &Thread, at: UserPtr) -> Result<()> {
    if !at.is_null() {
        let sw: [u32; 12] = at.add(SW_BYTES as u64).read()?;
        let features = u64::from(sw[2]) | u64::from(sw[3]) << 32;
        let size = sw[4] as usize;
        // As `write_marks` left it: the processor checks the rest.
        if sw[0] == FP_XSTATE_MAGIC1
            && features == enabled_features()
            && size == used_size()
            && at.0.is_multiple_of(64)
            && at.add(size as u64).read::<u32>()? == FP_XSTATE_MAGIC2
        {
            return Ok(t.task.pop_xstate(at)?);
        }
    }
    t.task.set_xstate(&*read_xstate(at)?);
    Ok(())
}

/// Reads extended state from a frame; one without valid marks holds only x87 and SSE.
fn read_xstate(at: UserPtr) -> Result<Box<XSave>> {
    let mut x = XSave::initial();
    if at.is_null() {
        return Ok(x);
    }
    let mut legacy = vec![0u8; 512];
    at.read_bytes(&mut legacy)?;
    let word = |i: usize| u32::from_le_bytes([legacy[i], legacy[i + 1], legacy[i + 2], legacy[i + 3]]);
    let size = word(SW_BYTES + 16) as usize;
    let marked = word(SW_BYTES) == FP_XSTATE_MAGIC1
        && (576..=used_size()).contains(&size)
        && word(SW_BYTES + 4) as usize >= size + 4
        && at.add(size as u64).read::<u32>()? == FP_XSTATE_MAGIC2;
    if marked {
        at.read_bytes(&mut x.bytes[..size])?;
    } else {
        x.bytes[..512].copy_from_slice(&legacy);
        x.bytes[512..520].copy_from_slice(&3u64.to_le_bytes());
    }
    x.bytes[SW_BYTES..512].fill(0);
    x.sanitize();
    Ok(x)
}
