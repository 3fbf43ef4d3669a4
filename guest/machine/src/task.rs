//! Tasks: a register context, a kernel stack, and the switch between them.
//!
//! Key types: [`Task`] is embedded in the kernel's thread object; [`UserContext`] is what a program sees of
//! its registers. A task runs on at most one vCPU (`on_cpu`); [`switch_to`](crate::cpu::switch_to) waits for that.
//! All of it lies in the arena, so a task can continue in another host process (exec hand-over, clone).

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::cpu::Vcpu;
use crate::memory::layout::pinned;
use crate::position::Resting;
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

/// What entry code fills in: the registers, and after a fast entry vector registers that kernel code may touch.
#[repr(C, align(16))]
pub(crate) struct Frame {
    pub(crate) regs: UserContext,
    /// [`LIVE`], [`PLAIN`], [`INTACT`].
    pub(crate) state: u64,
    _pad: u64,
    /// xmm0-15 after a fast entry, where kernel code is compiled with SSE.
    pub(crate) xmm: [[u8; 16]; SAVED_XMM],
}

/// [`Frame::state`]: the program's extended state is still in the processor (but for `Frame::xmm`); without it
/// all of it is in the task's XSAVE area.
pub(crate) const LIVE: u64 = 1;
/// [`Frame::state`]: the program goes on behind a system call, where the processor leaves the program counter in
/// rcx and the flags in r11: it can be continued by a jump. `UserContext::r11` may be out of date meanwhile.
pub(crate) const PLAIN: u64 = 2;

/// [`Frame::state`]: entered by a patched call, and no register was replaced since, so callee-saved ones need not
/// be loaded from here.
pub(crate) const INTACT: u64 = 4;

/// How many vector registers the fast entry has to keep.
const SAVED_XMM: usize = if cfg!(target_feature = "sse") { 16 } else { 0 };

const NO_XSTATE: &str = "an idle task has no extended state";

impl Frame {
    pub(crate) fn set_regs(&mut self, regs: UserContext) {
        self.regs = regs;
        let plain = regs.rcx == regs.rip && regs.r11 == regs.rflags;
        self.state = self.state & LIVE | if plain { PLAIN } else { 0 };
    }
}

pinned!(UserContext {
    r15: 0,
    r14: 8,
    r13: 16,
    r12: 24,
    rbp: 32,
    rbx: 40,
    r11: 48,
    r10: 56,
    r9: 64,
    r8: 72,
    rax: 80,
    rcx: 88,
    rdx: 96,
    rsi: 104,
    rdi: 112,
    orig_rax: 120,
    rip: 128,
    cs: 136,
    rflags: 144,
    rsp: 152,
    ss: 160,
});
pinned!(Frame { regs: 0, state: 176, xmm: 192 });

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
    /// None in an idle task, which has no program.
    xsave: UnsafeCell<Option<Box<XSave>>>,
    stack: Box<Stack>,
    /// Saved kernel stack pointer while switched out.
    krsp: UnsafeCell<u64>,
    /// Set while a vCPU runs on this task's kernel stack.
    /// 0 free, 1 claimed, 2 claimed and awaited.
    on_cpu: AtomicU32,
    /// The vCPU it runs on, for kicks.
    pub(crate) vcpu: AtomicPtr<Vcpu>,
    pub(crate) resting: Resting,
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
        Self::make(ctx, Some(xsave))
    }

    /// A task without a program.
    pub fn idle() -> Self {
        Self::make(UserContext::default(), None)
    }

    fn make(ctx: UserContext, xsave: Option<Box<XSave>>) -> Self {
        // SAFETY: a stack is plain bytes; Box<Stack> is created in place, not on the current stack.
        let stack: Box<Stack> = unsafe { Box::new_uninit().assume_init() };
        let top = stack.0.get() as u64 + KSTACK_SIZE as u64;
        // The first switch "returns" into task_entry with a clean frame.
        let krsp = crate::cpu::initial_frame(top);
        Self {
            frame: UnsafeCell::new(Frame { regs: ctx, state: 0, _pad: 0, xmm: [[0; 16]; SAVED_XMM] }),
            xsave: UnsafeCell::new(xsave),
            stack,
            krsp: UnsafeCell::new(krsp),
            on_cpu: AtomicU32::new(0),
            vcpu: AtomicPtr::new(core::ptr::null_mut()),
            resting: Resting::default(),
            work: AtomicU32::new(0),
        }
    }

    /// A copy of the program's registers. The task must be the current one or be stopped.
    pub fn regs(&self) -> UserContext {
        // SAFETY: see the type's Sync reason; a torn read of a running foreign task is prevented by callers
        // stopping it first, and would only give wrong numbers.
        let f = unsafe { &*self.frame.get() };
        let mut regs = f.regs;
        if f.state & PLAIN != 0 {
            regs.r11 = regs.rflags;
        }
        regs
    }

    /// Replaces the program's registers; selectors and privileged flags are forced to user values.
    /// The task must be the current one or be stopped.
    pub fn set_regs(&self, regs: &UserContext) {
        let mut c = *regs;
        c.cs = USER_CS;
        c.ss = USER_SS;
        c.rflags = (c.rflags & USER_FLAGS) | 0x202;
        // SAFETY: as for regs.
        unsafe { (*self.frame.get()).set_regs(c) };
    }

    /// Whether the program goes on right behind a system call, as [`Self::regs`] would show.
    pub fn is_after_call(&self) -> bool {
        // SAFETY: as for regs.
        unsafe { (*self.frame.get()).state & PLAIN != 0 }
    }

    /// A copy of the program's extended (vector) state.
    pub fn xstate(&self) -> Box<XSave> {
        self.save_xstate();
        // SAFETY: as for regs.
        match unsafe { &*self.xsave.get() } {
            Some(area) => area.clone(),
            None => panic!("{NO_XSTATE}"),
        }
    }

    /// Runs `f` on the program's extended state in place.
    pub fn with_xstate<R>(&self, f: impl FnOnce(&mut XSave) -> R) -> R {
        self.save_xstate();
        // SAFETY: as for regs; f cannot reach the same cell again because Task gives out no other reference.
        f(unsafe { &mut *self.xsave_ptr() })
    }

    /// Number and arguments of the system call being served: the lower half of orig_rax, as Linux takes it, then rdi rsi rdx
    /// r10 r8 r9.
    #[inline]
    pub fn syscall_args(&self) -> (u64, [u64; 6]) {
        // SAFETY: as for regs.
        let r = unsafe { &(*self.frame.get()).regs };
        (r.orig_rax & 0xffff_ffff, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// Sets the result register of the current task.
    #[inline]
    pub fn set_result(&self, rax: u64) {
        // SAFETY: as for regs.
        unsafe { (*self.frame.get()).regs.rax = rax };
    }

    /// Replaces the program's extended state, which must be valid ([`XSave::sanitize`]).
    pub fn set_xstate(&self, x: &XSave) {
        // SAFETY: as for regs; what is in the processor is given up.
        unsafe {
            (*self.frame.get()).state &= !LIVE;
            (*self.xsave_ptr()).bytes.copy_from_slice(&x.bytes);
        }
    }

    /// As [`Self::save_xstate`], in an area that only XRSTOR will read: parts that the header says are in their
    /// initial state may hold anything.
    pub(crate) fn save_xstate_for_switch(&self) {
        if SAVED_XMM != 0 || !crate::xstate::has_xsaveopt() {
            return self.save_xstate();
        }
        // SAFETY: as for save_xstate. What XSAVEOPT leaves out as unchanged is in the area: the state was loaded from
        // there, and the area changes only while LIVE is not set.
        unsafe {
            let state = self.state_ptr();
            if *state & LIVE == 0 {
                return;
            }
            let area: *mut u8 = self.xsave_ptr().cast();
            core::ptr::write_bytes(area.add(512), 0, 64);
            let features = crate::cpu::vcpu().xfeatures;
            core::arch::asm!(
                "xsaveopt64 [{}]", in(reg) area, in("eax") features as u32, in("edx") (features >> 32) as u32,
                options(nostack)
            );
            *state &= !LIVE;
        }
    }

    /// Moves extended state that is still in the processor (after a fast entry) to the XSAVE area.
    pub(crate) fn save_xstate(&self) {
        // SAFETY: as for regs: LIVE is only set while this task is the current one. Kernel code uses nothing
        // of the state, or only xmm0-15, whose program values entry code kept in the frame.
        unsafe {
            let f = &mut *self.frame.get();
            if f.state & LIVE == 0 {
                return;
            }
            let area: *mut u8 = self.xsave_ptr().cast();
            core::ptr::write_bytes(area.add(512), 0, 64);
            let features = crate::xstate::enabled_features();
            core::arch::asm!(
                "xsave64 [{}]", in(reg) area, in("eax") features as u32, in("edx") (features >> 32) as u32,
                options(nostack)
            );
            if SAVED_XMM != 0 {
                core::ptr::copy_nonoverlapping(f.xmm.as_ptr().cast::<u8>(), area.add(160), 256);
                *area.add(512) |= 2;
            }
            f.state &= !LIVE;
        }
    }

    /// Asks the kernel to look at this task before it returns to its program, interrupting it if it runs.
    pub fn post_work(&self) {
        // One kick until the task has looked: kicks nest on the vCPU's small signal stack, so they must be few.
        if self.work.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        let v = self.vcpu.load(Ordering::SeqCst);
        if !v.is_null() && self.on_cpu.load(Ordering::SeqCst) != 0 {
            // SAFETY: vCPU blocks are never freed while their domain lives.
            let v = unsafe { &*v };
            v.kick_if_other();
        }
    }

    /// Gives back what its kernel stack does not use, if it is switched out.
    pub fn trim_stack(&self) {
        // SAFETY: the stack is claimed, and what lies below the saved stack pointer is dead.
        self.with_stack(|krsp| unsafe { crate::memory::arena::discard(self.stack.0.get() as u64, krsp) });
    }

    /// Runs `f`, in which this task, the current one, waits on its vCPU: meanwhile [`Self::backtrace`] shows it.
    #[inline]
    pub fn rest<R>(&self, f: impl FnOnce() -> R) -> R {
        self.resting.during(f)
    }

    /// Claims its kernel stack, if it is switched out, and gives the saved stack pointer to `f`.
    pub(crate) fn with_stack<R>(&self, f: impl FnOnce(u64) -> R) -> Option<R> {
        self.on_cpu.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: the stack is claimed, so nobody writes the word.
        let r = f(unsafe { *self.krsp.get() });
        self.release();
        Some(r)
    }

    /// Whether a vCPU is on this task's kernel stack now.
    pub fn on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire) != 0
    }

    pub(crate) fn kstack_top(&self) -> u64 {
        self.stack.0.get() as u64 + KSTACK_SIZE as u64
    }

    pub(crate) fn ctx_ptr(&self) -> *mut UserContext {
        // SAFETY: only the pointer is taken.
        unsafe { &raw mut (*self.frame.get()).regs }
    }

    pub(crate) fn state_ptr(&self) -> *mut u64 {
        // SAFETY: only the pointer is taken.
        unsafe { &raw mut (*self.frame.get()).state }
    }

    pub(crate) fn xsave_ptr(&self) -> *mut XSave {
        let area = self.xsave_or_null();
        assert!(!area.is_null(), "{NO_XSTATE}");
        area
    }

    pub(crate) fn xsave_or_null(&self) -> *mut XSave {
        // SAFETY: only the pointer is taken; the box stays where it is.
        match unsafe { &mut *self.xsave.get() } {
            Some(area) => &raw mut **area,
            None => core::ptr::null_mut(),
        }
    }

    pub(crate) fn krsp_ptr(&self) -> *mut u64 {
        self.krsp.get()
    }

    /// Claims the right to run on this task's stack.
    pub(crate) fn acquire(&self) {
        // The vCPU that leaves the stack is about to, unless the host has taken its processor away, perhaps for
        // this very vCPU.
        for _ in 0..200 {
            if self.on_cpu.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.on_cpu.swap(2, Ordering::Acquire) != 0 {
            crate::host::futex_wait(&self.on_cpu, 2, None);
        }
    }

    /// Gives that right back; the stack must no longer be in use.
    pub(crate) fn release(&self) {
        if self.on_cpu.swap(0, Ordering::Release) == 2 {
            crate::host::futex_wake(&self.on_cpu, 1);
        }
    }
}
