//! Tasks: a register context, a kernel stack, and the switch between them.
//!
//! Key types: [`Task`] is embedded in the kernel's thread object; [`UserContext`] is what a program sees of
//! its registers. A task runs on at most one vCPU (`on_cpu`); [`switch_to`](crate::cpu::switch_to) waits for that.
//! All of it lies in the arena, so a task can continue in another host process (exec hand-over, clone).

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::cpu::Vcpu;
use crate::xstate::XSave;

/// Bytes of a task's kernel stack.
pub const KSTACK_SIZE: usize = 64 << 10;

/// A program's registers at the moment it entered the guest kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct UserContext {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The system call number on entry by system call, -1 (all ones) otherwise.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
    /// The thread pointer; GS belongs to the guest kernel.
    pub fs_base: u64,
}

/// What entry code fills in: the registers, and after a fast entry the vector registers kernel code may touch.
#[repr(C, align(16))]
pub(crate) struct Frame {
    pub(crate) regs: UserContext,
    /// 1: the program's extended state is still in the processor, except xmm0-15, which are in `xmm`.
    /// 0: all of it is in the task's XSAVE area.
    pub(crate) live: u64,
    _pad: u64,
    pub(crate) xmm: [[u8; 16]; 16],
}

// Offsets used by assembly in trap.rs and fast.rs.
const _: () = {
    assert!(core::mem::offset_of!(Frame, live) == 176);
    assert!(core::mem::offset_of!(Frame, xmm) == 192);
};

/// Selectors of 64-bit user mode on Linux.
pub const USER_CS: u64 = 0x33;
/// Stack selector of user mode on Linux.
pub const USER_SS: u64 = 0x2b;

/// Flag bits a program may choose for itself: CF PF AF ZF SF TF DF OF RF NT? AC ID.
pub const USER_FLAGS: u64 = 0x0025_0dd5;

/// One 16-byte aligned kernel stack.
#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; KSTACK_SIZE]>);

/// The machine part of a guest thread.
pub struct Task {
    frame: UnsafeCell<Frame>,
    xsave: UnsafeCell<Box<XSave>>,
    stack: Box<Stack>,
    /// Saved kernel stack pointer while switched out.
    krsp: UnsafeCell<u64>,
    /// Set while a vCPU runs on this task's kernel stack.
    on_cpu: AtomicBool,
    /// The vCPU it runs on, for kicks.
    pub(crate) vcpu: AtomicPtr<Vcpu>,
    /// Nonzero: the kernel has something to do before the task returns to its program.
    pub(crate) work: AtomicU32,
}

// SAFETY: ctx and xsave are touched only by the vCPU that runs the task (methods check that) or while it is
// switched out and claimed through on_cpu; the rest is atomic.
unsafe impl Sync for Task {}
// SAFETY: nothing in a task belongs to a host thread.
unsafe impl Send for Task {}

impl Task {
    /// A task that will first run `Personality::task_start`, then its program at `ctx`.
    pub fn new(ctx: UserContext, xsave: Box<XSave>) -> Self {
        // SAFETY: a stack is plain bytes; Box<Stack> is created in place, not on the current stack.
        let stack: Box<Stack> = unsafe { Box::new_uninit().assume_init() };
        let top = stack.0.get() as u64 + KSTACK_SIZE as u64;
        // The first switch "returns" into task_entry with a clean frame.
        let krsp = crate::cpu::initial_frame(top);
        Self {
            frame: UnsafeCell::new(Frame { regs: ctx, live: 0, _pad: 0, xmm: [[0; 16]; 16] }),
            xsave: UnsafeCell::new(xsave),
            stack,
            krsp: UnsafeCell::new(krsp),
            on_cpu: AtomicBool::new(false),
            vcpu: AtomicPtr::new(core::ptr::null_mut()),
            work: AtomicU32::new(0),
        }
    }

    /// A copy of the program's registers. The task must be the current one or be stopped.
    pub fn regs(&self) -> UserContext {
        // SAFETY: see the type's Sync reason; a torn read of a running foreign task is prevented by callers
        // stopping it first, and would only give wrong numbers.
        unsafe { (*self.frame.get()).regs }
    }

    /// Replaces the program's registers; selectors and privileged flags are forced to user values.
    /// The task must be the current one or be stopped.
    pub fn set_regs(&self, regs: &UserContext) {
        let mut c = *regs;
        c.cs = USER_CS;
        c.ss = USER_SS;
        c.rflags = (c.rflags & USER_FLAGS) | 0x202;
        // SAFETY: as for regs.
        unsafe { (*self.frame.get()).regs = c };
    }

    /// A copy of the program's extended (vector) state.
    pub fn xstate(&self) -> Box<XSave> {
        self.save_xstate();
        // SAFETY: as for regs.
        unsafe { (*self.xsave.get()).clone() }
    }

    /// Runs `f` on the program's extended state in place.
    pub fn with_xstate<R>(&self, f: impl FnOnce(&mut XSave) -> R) -> R {
        self.save_xstate();
        // SAFETY: as for regs; f cannot reach the same cell again because Task gives out no other reference.
        f(unsafe { &mut *self.xsave.get() })
    }

    /// Number and arguments of the system call being served: orig_rax, then rdi rsi rdx r10 r8 r9.
    #[inline]
    pub fn syscall_args(&self) -> (u64, [u64; 6]) {
        // SAFETY: as for regs.
        let r = unsafe { &(*self.frame.get()).regs };
        (r.orig_rax, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// Sets the result register of the current task.
    #[inline]
    pub fn set_result(&self, rax: u64) {
        // SAFETY: as for regs.
        unsafe { (*self.frame.get()).regs.rax = rax };
    }

    /// Moves extended state that is still in the processor (after a fast entry) to the XSAVE area.
    pub(crate) fn save_xstate(&self) {
        // SAFETY: as for regs: `live` is only set while this task is the current one. Kernel code uses nothing
        // of the state but xmm0-15, whose program values entry code kept in the frame.
        unsafe {
            let f = &mut *self.frame.get();
            if f.live == 0 {
                return;
            }
            let area: *mut u8 = self.xsave_ptr().cast();
            core::ptr::write_bytes(area.add(512), 0, 64);
            let features = crate::xstate::enabled_features();
            core::arch::asm!(
                "xsave64 [{}]", in(reg) area, in("eax") features as u32, in("edx") (features >> 32) as u32,
                options(nostack)
            );
            core::ptr::copy_nonoverlapping(f.xmm.as_ptr().cast::<u8>(), area.add(160), 256);
            *area.add(512) |= 2;
            f.live = 0;
        }
    }

    /// Asks the kernel to look at this task before it returns to its program, interrupting it if it runs.
    pub fn post_work(&self) {
        // One kick until the task has looked: kicks nest on the vCPU's small signal stack, so they must be few.
        if self.work.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        let v = self.vcpu.load(Ordering::SeqCst);
        if !v.is_null() && self.on_cpu.load(Ordering::SeqCst) {
            // SAFETY: vCPU blocks are never freed while their domain lives.
            let v = unsafe { &*v };
            v.kick_if_other();
        }
    }

    /// Whether a vCPU is on this task's kernel stack now.
    pub fn on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire)
    }

    pub(crate) fn kstack_top(&self) -> u64 {
        self.stack.0.get() as u64 + KSTACK_SIZE as u64
    }

    pub(crate) fn ctx_ptr(&self) -> *mut UserContext {
        // SAFETY: only the pointer is taken.
        unsafe { &raw mut (*self.frame.get()).regs }
    }

    pub(crate) fn xsave_ptr(&self) -> *mut XSave {
        // SAFETY: only the pointer is taken.
        unsafe { &raw mut **self.xsave.get() }
    }

    pub(crate) fn krsp_ptr(&self) -> *mut u64 {
        self.krsp.get()
    }

    /// Claims the right to run on this task's stack.
    pub(crate) fn acquire(&self) {
        while self.on_cpu.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
    }

    /// Gives that right back; the stack must no longer be in use.
    pub(crate) fn release(&self) {
        self.on_cpu.store(false, Ordering::Release);
    }
}
