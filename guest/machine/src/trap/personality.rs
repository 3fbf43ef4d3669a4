//! What the kernel above this layer is told.

use core::sync::atomic::{AtomicU64, Ordering};

/// A processor exception taken by a program.
#[derive(Clone, Copy, Debug)]
pub struct FaultInfo {
    /// Linux signal number: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP.
    pub signo: i32,
    /// `si_code` as the host gave it.
    pub code: i32,
    /// Faulting address (`si_addr`).
    pub addr: u64,
    /// x86 trap number.
    pub trapno: u64,
    /// x86 error code.
    pub err: u64,
}

/// What became of a guard: a page that must not be written before that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// There was one, and the page may be written now.
    Lifted,
    /// There is none here. There are some elsewhere, and one here may have been lifted meanwhile.
    Elsewhere,
    /// There are none.
    None,
}

/// The kernel above this layer.
pub trait Personality: Sync {
    /// What serves a system call: number and arguments are in the current task's registers (orig_rax, rdi rsi
    /// rdx r10 r8 r9); the result goes into its rax.
    fn syscall(&self) -> extern "C" fn();
    /// A system call is about to be served that came by a trap.
    fn trapped(&self);
    /// Serves a call of the 32-bit ABI (`int 0x80`), whose number and arguments are where that has them: orig_rax, ebx ecx
    /// edx esi edi ebp.
    fn compat_syscall(&self);
    /// The program took an exception.
    fn fault(&self, info: FaultInfo);
    /// A copy to user memory met a page that must not be written. Called on the signal stack, whatever locks the copy holds.
    fn lift_guard(&self, addr: u64) -> Guard;
    /// A copy met memory that was not there ([`crate::memory::user::take_missed`]): whether it is now. Called without locks; may block.
    fn mend(&self) -> bool;
    /// Something was posted to the current task ([`Task::post_work`](crate::task::Task::post_work)) or the vCPU should reschedule.
    fn exit_work(&self);
    /// A task runs for the first time; returning from this enters its program. Idle tasks never return.
    fn task_start(&self);
}

/// Arena word that holds the personality: a fat pointer split in two, valid in all processes because the
/// kernel text lies at one address.
static PERSONALITY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The kernel above.
pub(crate) fn personality() -> &'static dyn Personality {
    let raw = [PERSONALITY[0].load(Ordering::Relaxed), PERSONALITY[1].load(Ordering::Relaxed)];
    // SAFETY: set_personality stored the two halves of such a reference before the first task ran.
    unsafe { core::mem::transmute::<[u64; 2], &'static dyn Personality>(raw) }
}

/// Whether there is one yet.
pub(crate) fn has_personality() -> bool {
    PERSONALITY[1].load(Ordering::Relaxed) != 0
}

/// Sets the kernel; once, at boot, before the first fork.
pub(crate) fn set_personality(p: &'static dyn Personality) {
    // SAFETY: a reference to a trait object is two words.
    let raw = unsafe { core::mem::transmute::<&'static dyn Personality, [u64; 2]>(p) };
    PERSONALITY[0].store(raw[0], Ordering::Relaxed);
    PERSONALITY[1].store(raw[1], Ordering::Relaxed);
}
