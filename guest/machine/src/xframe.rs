//! Extended state in signal frames: written to and read from user memory by the processor itself, so that the
//! 2.7 KB of AVX-512 state are moved once and not thrice. The state is in the processor for most of a program's
//! time in the kernel ([`LIVE`]); where it is not, it is put there first.
//!
//! Kernel code compiled with SSE would spoil it there; such builds go through the task's XSAVE area.

use core::sync::atomic::Ordering;

use crate::cpu::vcpu;
use crate::memory::user::{Fault, UserPtr, xrstor_user, xsave_user};
use crate::task::{LIVE, Task};
use crate::xstate::{XSave, used_size};

/// The state of a new program, as far as XRSTOR reads it when all components are in their initial state.
#[repr(C, align(64))]
struct Initial([u32; 144]);

static INITIAL: Initial = {
    let mut words = [0; 144];
    words[0] = 0x37f;
    // MXCSR is read whatever the header says.
    words[6] = 0x1f80;
    Initial(words)
};

const IN_PROCESSOR: bool = !cfg!(target_feature = "sse");

impl Task {
    /// Writes the current program's extended state to `at`: 64-byte aligned, [`used_size`] bytes, with a clean
    /// header; the software-reserved bytes are left alone.
    pub fn push_xstate(&self, at: UserPtr) -> Result<(), Fault> {
        if !IN_PROCESSOR {
            return self.with_xstate(|x| {
                at.write_bytes(&x.bytes[..464])?;
                at.add(512).write_bytes(&x.bytes[512..used_size()])
            });
        }
        at.check(used_size())?;
        self.load_xstate();
        let features = vcpu().xfeatures;
        // SAFETY: the range was checked to be user memory; faults are fixed up.
        match unsafe { xsave_user(at.0, features) } {
            0 => Ok(()),
            _ => Err(Fault),
        }
    }

    /// Gives the current program the initial extended state.
    pub fn reset_xstate(&self) {
        if !IN_PROCESSOR {
            return self.set_xstate(&XSave::initial());
        }
        // SAFETY: a constant, valid area; the state belongs to the program, which is to start afresh. What was
        // in the task's area counts no longer.
        unsafe {
            xrstor(&raw const INITIAL as u64, vcpu().xfeatures);
            *self.state_ptr() |= LIVE;
        }
    }

    /// Gives the current program the extended state at `at`: a complete area of [`used_size`] bytes. It fails
    /// for what the processor does not accept (reserved bits); then the state is undefined.
    pub fn pop_xstate(&self, at: UserPtr) -> Result<(), Fault> {
        at.check(used_size())?;
        if !IN_PROCESSOR {
            return self.with_xstate(|x| {
                at.read_bytes(&mut x.bytes[..used_size()])?;
                x.bytes[464..512].fill(0);
                x.sanitize();
                Ok(())
            });
        }
        self.load_xstate();
        // SAFETY: the range was checked to be user memory; faults are fixed up, refused contents too.
        match unsafe { xrstor_user(at.0, vcpu().xfeatures) } {
            0 => Ok(()),
            _ => Err(Fault),
        }
    }

    /// Moves the extended state of the current task to its XSAVE area, all parts of it, for others to read and change.
    pub fn expose_xstate(&self) {
        if IN_PROCESSOR {
            self.load_xstate();
        }
        self.save_xstate();
    }

    /// Puts the state of the current task into the processor.
    fn load_xstate(&self) {
        let v = vcpu();
        assert!(
            core::ptr::eq(self.ctx_ptr(), v.ctx.load(Ordering::Relaxed) as *const _),
            "not the current task"
        );
        // SAFETY: the frame and the area belong to the current task.
        unsafe {
            let state = self.state_ptr();
            if *state & LIVE == 0 {
                xrstor(self.xsave_ptr() as u64, v.xfeatures);
                *state |= LIVE;
            }
        }
    }
}

/// # Safety
/// `at` is a valid XSAVE area, and the kernel keeps nothing in the registers it loads.
unsafe fn xrstor(at: u64, features: u64) {
    // SAFETY: forwarded contract.
    unsafe {
        core::arch::asm!("xrstor64 [{}]", in(reg) at, in("eax") features as u32,
            in("edx") (features >> 32) as u32, options(nostack, readonly));
    }
}
