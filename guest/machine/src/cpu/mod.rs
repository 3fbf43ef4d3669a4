//! vCPUs: host threads that run tasks.
//!
//! Key types: [`Vcpu`], the per-host-thread block that GS points to; [`ThreadObject`], what the kernel above
//! makes of a [`Task`]. Blocks live in the arena and are reused, never freed.
//!
//! Switching: [`switch_to`] claims the next task, swaps kernel stacks, and the code that runs next releases
//! the previous one; so a task is never resumed while its stack is still in use.

pub(crate) mod block;
mod entry;
mod fast;
pub(crate) mod kept;
#[cfg(target_feature = "sse")]
pub(crate) mod vectors;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::TypeId;
use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::Ordering;

use doppel_abi_machine::{CALL_COUNTERS, CallCount, clone_flags, control, layout};

use crate::host::{self, HostError, nr};
use crate::sync::{Once, SpinLock};
use crate::task::Task;
#[cfg(not(test))]
pub(crate) use block::task_id;
use block::{BLOCK_SIZE, Block};
pub use block::{ThreadObject, Vcpu, call_timed, count_call, vcpu};
pub(crate) use entry::initial_frame;
use entry::{finish_switch, start_current};

/// 2^64 by the golden ratio: spreads numbers that are close together.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Vcpu {
    fn new(idle: Arc<dyn ThreadObject>) -> &'static Self {
        let v = match free_blocks().lock().pop() {
            // SAFETY: recycle's caller vouched that no host thread uses the block; only stale kicks may still
            // read its ids, which are atomic.
            Some(p) => unsafe { &mut *(p as *mut Self) },
            None => {
                // SAFETY: all-zero bytes are a valid block (None, zero atomics) until the fields are set.
                let block: Box<Block> = unsafe { Box::new_zeroed().assume_init() };
                &mut Box::leak(block).vcpu
            }
        };
        v.tgid.store(0, Ordering::SeqCst);
        v.tid.store(0, Ordering::SeqCst);
        v.need_resched.store(0, Ordering::SeqCst);
        v.self_ptr = core::ptr::from_ref(v) as u64;
        v.xfeatures = crate::xstate::enabled_features();
        v.fast_entry = fast::entry_address();
        v.serve = crate::trap::personality().syscall() as *const () as u64;
        // Blocks that lie together have different ones.
        let counter = v.self_ptr / BLOCK_SIZE as u64 % CALL_COUNTERS as u64;
        v.calls = layout::CONTROL_BASE + control::CALLS + counter * size_of::<CallCount>() as u64;
        let now = crate::clock::host_monotonic_ns();
        v.meter.reset(v.call_counter().load(Ordering::Relaxed), now.wrapping_mul(GOLDEN) >> 32);
        v.idle = UnsafeCell::new(Some(idle.clone()));
        idle.task().acquire();
        v.adopt(idle);
        v
    }

    /// Makes `t` (already claimed) the current task of this block.
    fn adopt(&mut self, t: Arc<dyn ThreadObject>) {
        set_entry_fields(self, t.task());
        t.task().vcpu.store(self, Ordering::SeqCst);
        // SAFETY: nobody else uses the block yet.
        unsafe { self.set_current(t) };
    }
}

fn set_entry_fields(v: &Vcpu, t: &Task) {
    v.kstack_top.store(t.kstack_top(), Ordering::Relaxed);
    v.ctx.store(t.ctx_ptr() as u64, Ordering::Relaxed);
    v.xsave.store(t.xsave_or_null() as u64, Ordering::Relaxed);
    v.work.store(core::ptr::from_ref(&t.work) as u64, Ordering::Relaxed);
}

static FREE: Once<&'static SpinLock<Vec<usize>>> = Once::new();

/// Where blocks ready for reuse are kept, in the arena; once, at boot.
pub(crate) fn set_free_blocks(blocks: &'static SpinLock<Vec<usize>>) {
    assert!(FREE.set(blocks).is_ok(), "booted twice");
}

/// Blocks ready for reuse.
fn free_blocks() -> &'static SpinLock<Vec<usize>> {
    match FREE.get() {
        Some(blocks) => blocks,
        None => panic!("vCPUs before boot"),
    }
}

/// Takes back the block of a vCPU whose host thread has ended.
pub fn recycle(v: &'static Vcpu) {
    // SAFETY: the host thread is gone, so nothing else touches its slots.
    let idle = unsafe {
        drop((*v.prev.get()).take());
        *v.object.get() = core::ptr::null();
        if let Some(t) = (*v.current.get()).take() {
            t.task().release();
        }
        (*v.idle.get()).take()
    };
    drop(idle);
    free_blocks().lock().push(core::ptr::from_ref(v) as usize);
}

/// Gives back the memory of blocks that wait for reuse.
pub fn trim_free_blocks() {
    for v in free_blocks().lock().iter() {
        let start = *v as u64 - core::mem::offset_of!(Block, vcpu) as u64;
        // SAFETY: nobody uses the block, but for stale kicks that read its ids; zeros are a valid block.
        unsafe { crate::memory::arena::discard(start, start + BLOCK_SIZE as u64) };
    }
}

/// Gives back the memory of this vCPU's signal stack.
pub fn trim_signal_stack() {
    let (start, len) = vcpu().altstack();
    let here: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nostack, nomem, preserves_flags)) };
    assert!(!(start..start + len).contains(&here), "the signal stack is in use");
    // SAFETY: code that runs on another stack interrupts no handler, so there is nothing on this one.
    unsafe { crate::memory::arena::discard(start, start + len) };
}

/// The current thread object.
pub fn current() -> Arc<dyn ThreadObject> {
    // SAFETY: only this vCPU changes the slot, and not while this borrow lives.
    let slot = unsafe { &*vcpu().current.get() };
    match slot {
        Some(t) => t.clone(),
        None => panic!("no current task"),
    }
}

/// The current thread object as its concrete type, borrowed by the code that runs as it: no count is touched.
/// It stays on the task's own kernel stack (it is not `Send`), and a task's object lives as long as its stack
/// runs, because the vCPU or the queue it is on holds a reference.
pub struct CurrentRef<T: ThreadObject> {
    object: ManuallyDrop<Arc<T>>,
    _not_send: PhantomData<*const ()>,
}

impl<T: ThreadObject> Deref for CurrentRef<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

/// The current thread object, if it is a `T`.
#[inline]
pub fn current_as<T: ThreadObject>() -> Option<CurrentRef<T>> {
    let v = vcpu();
    // SAFETY: only this vCPU changes its slots. `kind` was written together with `object`, before any use; the
    // object is then a T, and the count this Arc stands for is the slot's own and is never given back here.
    let object = unsafe {
        let object = *v.object.get();
        if object.is_null() || (*v.kind.get()).assume_init() != TypeId::of::<T>() {
            return None;
        }
        ManuallyDrop::new(Arc::from_raw(object.cast::<T>()))
    };
    Some(CurrentRef { object, _not_send: PhantomData })
}

/// The idle object this vCPU was made with.
pub fn idle() -> Arc<dyn ThreadObject> {
    // SAFETY: set at creation, never changed.
    let slot = unsafe { &*vcpu().idle.get() };
    match slot {
        Some(t) => t.clone(),
        None => panic!("no idle task"),
    }
}

/// Runs `f` on this vCPU's idle object, without taking a reference: a vCPU may be ended by the host while `f`
/// sleeps, and a reference on its stack would never be given back.
pub fn with_idle<R>(f: impl FnOnce(&dyn ThreadObject) -> R) -> R {
    // SAFETY: set at creation, never changed while this host thread lives.
    let slot = unsafe { &*vcpu().idle.get() };
    match slot {
        Some(t) => f(&**t),
        None => panic!("no idle task"),
    }
}

/// Whether `t` is the current thread object.
#[inline]
pub fn is_current(t: &Arc<dyn ThreadObject>) -> bool {
    // SAFETY: only this vCPU changes its slots.
    unsafe { core::ptr::eq(*vcpu().object.get(), Arc::as_ptr(t).cast()) }
}

/// Runs `next` instead of the current task on this vCPU; returns when the current task is resumed,
/// perhaps on another vCPU. If `next` is the current task, returns at once.
/// `claimed` runs when no other vCPU is on the stack of `next` any more.
pub fn switch_to(next: Arc<dyn ThreadObject>, claimed: impl FnOnce(&dyn ThreadObject)) {
    let v = vcpu();
    // SAFETY: only this vCPU touches its own slots, and nothing here is re-entered by a signal handler.
    unsafe {
        let cur = (*v.current.get()).take();
        let Some(cur) = cur else { panic!("no current task") };
        if Arc::ptr_eq(&cur, &next) {
            *v.current.get() = Some(cur);
            return;
        }
        next.task().acquire();
        claimed(&*next);
        let from = cur.task().krsp_ptr();
        let to = next.task().krsp_ptr();
        cur.task().save_fs();
        cur.task().save_xstate_for_switch();
        next.task().load_fs();
        set_entry_fields(v, next.task());
        next.task().vcpu.store(core::ptr::from_ref(v).cast_mut(), Ordering::SeqCst);
        v.set_current(next);
        *v.prev.get() = Some(cur);
        swap_stacks(from, to);
    }
    finish_switch();
}

/// Saves callee-saved registers and the stack pointer to `*from`, continues at `*to`.
#[unsafe(naked)]
unsafe extern "C" fn swap_stacks(_from: *mut u64, _to: *mut u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Starts another host thread in this address space, which first runs `Personality::task_start` for `idle`.
pub fn spawn_vcpu(idle: Arc<dyn ThreadObject>) -> Result<(), HostError> {
    let v = Vcpu::new(idle);
    v.tgid.store(vcpu().tgid(), Ordering::Relaxed);
    // SAFETY: the flags are the vCPU word; the child runs on the idle task's own stack.
    unsafe { clone_onto(clone_flags::VCPU, v) }
}

/// Starts a host process with a copy of this address space, running `idle` on its first vCPU. `from_init` is
/// true on the domain's PID 1.
pub fn spawn_space(idle: Arc<dyn ThreadObject>, from_init: bool) -> Result<&'static Vcpu, HostError> {
    let v = Vcpu::new(idle);
    let flags = if from_init { clone_flags::SPACE_FROM_INIT } else { clone_flags::SPACE };
    // SAFETY: the child runs on the idle task's own stack in the shared arena; no lock in private memory exists.
    unsafe { clone_onto(flags, v) }?;
    Ok(v)
}

/// Makes the calling host thread the vCPU of `idle` (boot), and continues on its stack; never returns.
pub(crate) fn become_first_vcpu(idle: Arc<dyn ThreadObject>, tgid: i32) -> ! {
    let v = Vcpu::new(idle);
    v.tgid.store(tgid, Ordering::Relaxed);
    v.tid.store(tgid as u32, Ordering::Relaxed);
    // SAFETY: the block is valid; the idle stack is unused so far.
    unsafe {
        set_gs(v.self_ptr);
        asm!("mov rsp, {0}", "jmp {1}", in(reg) v.kstack_top.load(Ordering::Relaxed) - 8, sym vcpu_main, options(noreturn))
    }
}

/// Clones with `flags` onto the stack of `v`'s idle task.
unsafe fn clone_onto(flags: u64, v: &'static Vcpu) -> Result<(), HostError> {
    let top = v.kstack_top.load(Ordering::Relaxed);
    // SAFETY: three words below the top of an unused stack: what the gate's `ret` pops in the child, and the
    // block pointer for vcpu_start.
    unsafe {
        ((top - 32) as *mut u64).write(vcpu_start as *const () as u64);
        ((top - 24) as *mut u64).write(v.self_ptr);
    }
    // The host writes the new id into the block, in shared memory, before the child runs (PARENT_SETTID).
    // SAFETY: forwarded contract.
    let made = unsafe { host::call(nr::CLONE, [flags, top - 32, v.tid.as_ptr() as u64, 0, 0, 0]) };
    if let Err(e) = made {
        recycle(v);
        return Err(e);
    }
    Ok(())
}

/// First code of a cloned host thread: the stack holds its block's address.
#[unsafe(naked)]
unsafe extern "C" fn vcpu_start() {
    naked_asm!(
        "pop rax",
        "wrgsbase rax",
        "mov rsp, gs:[8]",
        "sub rsp, 8",
        "jmp {main}",
        main = sym vcpu_main,
    )
}

extern "C" fn vcpu_main() -> ! {
    crate::trap::set_altstack();
    let v = vcpu();
    if v.tgid() == 0 {
        v.tgid.store(v.tid.load(Ordering::Relaxed).cast_signed(), Ordering::SeqCst);
    }
    start_current()
}

/// # Safety
/// `addr` must be the address of this host thread's block.
unsafe fn set_gs(addr: u64) {
    // SAFETY: forwarded; FSGSBASE was checked at boot.
    unsafe { asm!("wrgsbase {}", in(reg) addr, options(nostack, nomem)) };
}

impl Task {
    /// Keeps the program's thread pointer; it may have changed it with wrfsbase.
    fn save_fs(&self) {
        let fs: u64;
        // SAFETY: reads a register; the context belongs to the current task.
        unsafe {
            asm!("rdfsbase {}", out(reg) fs, options(nostack, nomem));
            (*self.ctx_ptr()).fs_base = fs;
        }
    }

    /// Installs the program's thread pointer.
    fn load_fs(&self) {
        // SAFETY: FS is only used by the program; a bad value faults there.
        unsafe {
            let fs = (*self.ctx_ptr()).fs_base;
            asm!("wrfsbase {}", in(reg) fs, options(nostack, nomem));
        }
    }
}
