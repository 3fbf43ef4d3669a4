//! The block of a vCPU, which GS points to.

use alloc::sync::Arc;
use core::any::{Any, TypeId};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use doppel_abi_image::patch::ENTRY_SLOT;
use doppel_abi_machine::CallCount;

use super::kept::Kept;
use crate::host;
use crate::memory::layout::pinned;
use crate::meter::Meter;
use crate::task::Task;
use crate::trap::FaultInfo;

/// Bytes of a vCPU's block and its host signal stack: room for a frame with AVX-512 state and the handler.
pub(crate) const BLOCK_SIZE: usize = 16 << 10;
/// Of this, the block.
pub(crate) const VCPU_SIZE: usize = 512;

/// What the kernel above makes of a task: its thread object.
pub trait ThreadObject: Any + Send + Sync {
    /// The machine part.
    fn task(&self) -> &Task;
}

/// One host thread of a domain. The first fields are used by assembly through GS.
#[repr(C)]
pub struct Vcpu {
    /// gs:0: this block.
    pub(super) self_ptr: u64,
    /// gs:8: top of the current task's kernel stack.
    pub(crate) kstack_top: AtomicU64,
    /// gs:16: the current task's user context.
    pub(crate) ctx: AtomicU64,
    /// gs:24: the current task's extended state.
    pub(crate) xsave: AtomicU64,
    /// gs:32: the current task's work word.
    pub(crate) work: AtomicU64,
    /// gs:40: components to save and restore.
    pub(crate) xfeatures: u64,
    /// gs:48 ([ENTRY_SLOT]): where trampolines of patched system calls jump.
    pub(super) fast_entry: u64,
    /// What serves a system call ([`Personality::syscall`](crate::trap::Personality::syscall)).
    pub(crate) serve: u64,
    /// Address of its counter of system calls, in the control area.
    pub(super) calls: u64,
    /// The object in `current`, and its type: so that [`super::current_as`] needs no virtual call.
    pub(super) object: UnsafeCell<*const ()>,
    pub(super) kind: UnsafeCell<MaybeUninit<TypeId>>,
    pub(super) current: UnsafeCell<Option<Arc<dyn ThreadObject>>>,
    pub(super) prev: UnsafeCell<Option<Arc<dyn ThreadObject>>>,
    pub(super) idle: UnsafeCell<Option<Arc<dyn ThreadObject>>>,
    /// Host process id in the domain's PID namespace; 0 while the vCPU has not run yet.
    pub(super) tgid: AtomicI32,
    /// Host thread id, written by the host before the vCPU runs.
    pub(super) tid: AtomicU32,
    /// Set by others to make this vCPU reschedule; cleared by the scheduler.
    pub need_resched: AtomicU32,
    /// What it has used.
    pub meter: Meter,
    /// Wake-ups that wait for the end of a lock.
    pub(crate) kept: Kept,
    /// The exception being entered.
    pub(crate) fault: UnsafeCell<FaultInfo>,
    /// Where a copy of the kernel's last met memory that was not there ([`crate::memory::user::take_missed`]).
    pub(crate) missed: AtomicU64,
    /// Where a copy was tried once more, in case another vCPU had lifted a guard there.
    pub(crate) retried: AtomicU64,
}

pinned!(Vcpu {
    self_ptr: 0,
    kstack_top: 8,
    ctx: 16,
    xsave: 24,
    work: 32,
    xfeatures: 40,
    fast_entry: ENTRY_SLOT
});

/// A block behind the signal stack it comes with, which grows away from it: what is used of both lies together. Aligned so that
/// the one is found from an address in the other.
#[repr(C, align(16384))]
pub(super) struct Block {
    pub(super) altstack: UnsafeCell<[u8; BLOCK_SIZE - VCPU_SIZE]>,
    pub(super) vcpu: Vcpu,
}

const _: () = assert!(
    size_of::<Vcpu>() <= VCPU_SIZE && size_of::<Block>() == BLOCK_SIZE && align_of::<Block>() == BLOCK_SIZE
);

// SAFETY: current, prev and idle are touched only by the vCPU itself; the rest is atomic or constant.
unsafe impl Sync for Vcpu {}
// SAFETY: as above.
unsafe impl Send for Vcpu {}

/// This host thread's block.
#[inline]
pub fn vcpu() -> &'static Vcpu {
    let p: *const Vcpu;
    // SAFETY: GS points to this thread's block from its first instruction on; blocks are never freed.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) p, options(nostack, preserves_flags, readonly));
        &*p
    }
}

/// Counts a system call for the host's accounts; true if it is one whose time is to be taken.
#[inline]
pub fn count_call() -> bool {
    let v = vcpu();
    let counter = v.call_counter();
    // No locked operation: a call that is lost now and then where two share a counter is no matter.
    let count = counter.load(Ordering::Relaxed).wrapping_add(1);
    counter.store(count, Ordering::Relaxed);
    v.meter.is_sample(count)
}

/// A system call was timed ([`Meter`]): how many it stands for.
pub fn call_timed(long: bool, dice: u64) -> u64 {
    let v = vcpu();
    v.meter.sampled(v.call_counter().load(Ordering::Relaxed), long, dice)
}

/// A number of the task this code runs as that no other live task has.
#[cfg(not(test))]
#[inline]
pub(crate) fn task_id() -> u64 {
    let id: u64;
    // SAFETY: reads the vCPU's pointer to the current task. For the code on one stack it never changes.
    unsafe { asm!("mov {}, gs:[16]", out(reg) id, options(nostack, preserves_flags, pure, nomem)) };
    id
}

impl Vcpu {
    /// # Safety
    /// Only for the vCPU itself, or before it runs.
    #[inline]
    pub(super) unsafe fn set_current(&self, t: Arc<dyn ThreadObject>) {
        let any: &dyn Any = &*t;
        // SAFETY: forwarded: nothing else touches the slots.
        unsafe {
            (*self.kind.get()).write(any.type_id());
            *self.object.get() = Arc::as_ptr(&t).cast();
            *self.current.get() = Some(t);
        }
    }

    /// Its counter of system calls.
    #[inline]
    pub(super) fn call_counter(&self) -> &'static AtomicU64 {
        // SAFETY: `Vcpu::new` has set it to a counter in the control area, which is mapped for ever.
        unsafe { &(*(self.calls as *const CallCount)).0 }
    }

    /// Host process id in the domain's PID namespace.
    pub fn tgid(&self) -> i32 {
        self.tgid.load(Ordering::Relaxed)
    }

    /// Host thread id in the domain's PID namespace.
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed).cast_signed()
    }

    /// Whether this is the first vCPU of its host process.
    pub fn is_first(&self) -> bool {
        self.tgid().cast_unsigned() == self.tid.load(Ordering::Relaxed)
    }

    /// Address and length of its signal stack.
    pub(crate) fn altstack(&self) -> (u64, u64) {
        let start = core::ptr::from_ref(self) as u64 - core::mem::offset_of!(Block, vcpu) as u64;
        (start, (BLOCK_SIZE - VCPU_SIZE) as u64)
    }

    /// Interrupts this vCPU if it is not the caller's own, so that it enters the guest kernel. One that has not
    /// run yet looks before it enters a program.
    pub fn kick_if_other(&self) {
        let tgid = self.tgid.load(Ordering::SeqCst);
        if tgid != 0 && !core::ptr::eq(self, vcpu()) {
            host::kick(tgid, self.tid.load(Ordering::Relaxed).cast_signed());
        }
    }

    /// Asks this vCPU to choose a thread anew.
    pub fn preempt(&self) {
        // One kick until it has looked, as for Task::post_work.
        if self.need_resched.swap(1, Ordering::SeqCst) == 0 {
            self.kick_if_other();
        }
    }
}
