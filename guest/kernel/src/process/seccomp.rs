//! `seccomp(2)`: strict mode and filters that a program installs for itself.
//!
//! Key types: [`Seccomp`] (what one thread has installed). A filter is classic BPF over the number and the
//! arguments of each call (`doppel_algo::bpf`); it only takes rights away from the program within its domain and
//! is no part of what confines the domain. Filters are never changed, only added to, so threads and children share them.
//! No notification descriptors (SECCOMP_RET_USER_NOTIF).

use super::filters::{Filters, Seccomp};
use crate::objects::net::filter::read_insns;
use crate::process::life::ending;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_algo::bpf::Program;
use doppel_machine::user::UserPtr;

use super::task::Thread;
use super::{coredump, ptrace};
use crate::process::signal::{self, SigInfo, sig};
use crate::{Errno, Result};

const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const DISABLED: u8 = 0;
pub(crate) const STRICT: u8 = 1;
const FILTER: u8 = 2;

/// What a filter returns: the action in the upper half, its datum in the lower.
pub(crate) mod action {
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const KILL_THREAD: u32 = 0;
    pub const TRAP: u32 = 0x0003_0000;
    pub const ERRNO: u32 = 0x0005_0000;
    pub const TRACE: u32 = 0x7ff0_0000;
    pub const USER_NOTIF: u32 = 0x7fc0_0000;
    pub const LOG: u32 = 0x7ffc_0000;
    pub const ALLOW: u32 = 0x7fff_0000;
    pub const MASK: u32 = 0xffff_0000;
}

/// Instructions of all filters of a thread together, each counted with a little extra.
const MAX_TOTAL: usize = 32_768;
const EXTRA: usize = 4;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const MAX_ERRNO: u32 = 4095;

impl Seccomp {
    /// Whether calls must be looked at.
    #[inline]
    pub fn active(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != DISABLED
    }

    /// Mode and number of filters, for `prctl(PR_GET_SECCOMP)` and /proc.
    pub fn status(&self) -> (u8, usize) {
        (self.mode.load(Ordering::Relaxed), self.filters.lock().len())
    }

    /// A new thread starts with its maker's.
    pub fn inherit(&self, from: &Self) {
        if from.active() {
            *self.filters.lock() = from.filters.lock().clone();
            self.mode.store(from.mode.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn replace(&self, filters: Filters) {
        *self.filters.lock() = filters;
        self.mode.store(FILTER, Ordering::Relaxed);
    }
}

/// What the current call looks like to a filter: `struct seccomp_data` in words.
fn data(t: &Thread) -> [u32; 16] {
    let (number, args) = t.task.syscall_args();
    let rip = t.space().mm.original_pc(t.task.regs().rip);
    let mut d = [0; 16];
    d[0] = number as u32;
    d[1] = AUDIT_ARCH_X86_64;
    for (i, v) in core::iter::once(rip).chain(args).enumerate() {
        d[2 + 2 * i] = v as u32;
        d[3 + 2 * i] = (v >> 32) as u32;
    }
    d
}

/// The strictest verdict; among equal ones the newest filter's.
fn verdict(filters: &[Arc<Program>], d: &[u32; 16]) -> u32 {
    // As signed numbers the actions are in order of strictness.
    let strict = |v: u32| (v & action::MASK).cast_signed();
    let mut worst = action::ALLOW;
    for f in filters.iter().rev() {
        let v = f.run(d);
        if strict(v) < strict(worst) {
            worst = v;
        }
    }
    worst
}

/// Looks at the call the current thread is about to make. False: it must not happen; its result is set.
#[cold]
pub fn enter(t: &Arc<Thread>) -> bool {
    let (number, _) = t.task.syscall_args();
    if t.seccomp.mode.load(Ordering::Relaxed) == STRICT {
        let allowed =
            [nr::READ, nr::WRITE, nr::EXIT, nr::RT_SIGRETURN].iter().any(|n| u64::from(*n) == number);
        if !allowed {
            end(t, sig::SIGKILL, false);
        }
        return allowed;
    }
    let filters = t.seccomp.filters.lock().clone();
    let v = verdict(&filters, &data(t));
    let datum = v & !action::MASK;
    match v & action::MASK {
        action::ALLOW | action::LOG => return true,
        action::ERRNO => t.task.set_result((-i64::from(datum.min(MAX_ERRNO))).cast_unsigned()),
        action::TRAP => trap(t, number, datum),
        action::TRACE if ptrace::seccomp_event(t, datum) => {
            // The tracer may have changed the call: whatever it is now must be allowed.
            if t.exiting.load(Ordering::SeqCst) || t.task.regs().orig_rax == u64::MAX {
                return false;
            }
            let again = verdict(&filters, &data(t)) & action::MASK;
            if matches!(again, action::ALLOW | action::LOG | action::TRACE) {
                return true;
            }
            end(t, sig::SIGSYS, true);
        }
        action::KILL_THREAD => end(t, sig::SIGSYS, false),
        action::KILL_PROCESS => end(t, sig::SIGSYS, true),
        // Without a listener, as on Linux. What is unknown is the strictest.
        action::TRACE | action::USER_NOTIF => {
            t.task.set_result((-i64::from(Errno::ENOSYS.0)).cast_unsigned())
        }
        _ => end(t, sig::SIGSYS, true),
    }
    false
}

/// SIGSYS for the program; its handler decides what the call returned.
fn trap(t: &Arc<Thread>, number: u64, datum: u32) {
    let info = refusal(t, number, datum);
    t.task.set_result(number);
    signal::force(t, info);
}

/// What SIGSYS tells of the refused call `number`.
fn refusal(t: &Thread, number: u64, datum: u32) -> SigInfo {
    const SYS_SECCOMP: i32 = 1;
    let address = t.space().mm.original_pc(t.task.regs().rip);
    SigInfo::from_user(sig::SIGSYS, SYS_SECCOMP, number as i32, datum, address)
}

/// Ends the thread, or the process if asked or if it is the only thread.
fn end(t: &Arc<Thread>, signo: i32, process: bool) {
    if process || t.process.threads.lock().len() == 1 {
        let number = t.task.syscall_args().0;
        coredump::end_by_signal(t, &SigInfo { signo, ..refusal(t, number, 0) });
    } else {
        ending::mark_exiting(t);
    }
}

/// `struct sock_fprog` and the program it points to.
fn read_program(p: UserPtr) -> Result<Arc<Program>> {
    let [len, at]: [u64; 2] = p.read()?;
    let insns = read_insns(UserPtr(at), len as u16)?;
    Program::check(insns).map(Arc::new).ok_or(Errno::EINVAL)
}

/// Whether `old` is the beginning of `new`.
fn extends(new: &[Arc<Program>], old: &[Arc<Program>]) -> bool {
    new.len() >= old.len() && new.iter().zip(old).all(|(a, b)| Arc::ptr_eq(a, b))
}

bitflags::bitflags! {
    /// `SECCOMP_FILTER_FLAG_` flags of SECCOMP_SET_MODE_FILTER.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct FilterFlags: u32 {
        const TSYNC = 1;
        const LOG = 2;
        const SPEC_ALLOW = 4;
        const TSYNC_ESRCH = 16;
    }
}

pub(crate) fn set_filter(t: &Arc<Thread>, flags: FilterFlags, p: UserPtr) -> Result<u64> {
    if !FilterFlags::all().contains(flags) {
        return Err(Errno::EINVAL);
    }
    let program = read_program(p)?;
    let process = &t.process;
    if !process.no_new_privs.load(Ordering::Relaxed) && !process.acting_cred().has(CAP_SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    if t.seccomp.mode.load(Ordering::Relaxed) == STRICT {
        return Err(Errno::EINVAL);
    }
    let old = t.seccomp.filters.lock().clone();
    let total: usize = old.iter().map(|f| f.len() + EXTRA).sum();
    if total + program.len() > MAX_TOTAL {
        return Err(Errno::ENOMEM);
    }
    let mut all: Vec<_> = old.to_vec();
    all.push(program);
    let all = Arc::new(all);
    if flags.contains(FilterFlags::TSYNC) {
        let threads = process.threads.lock();
        let others = || threads.iter().filter(|o| !Arc::ptr_eq(o, t));
        let bad = others().find(|o| {
            o.seccomp.mode.load(Ordering::Relaxed) == STRICT || !extends(&old, &o.seccomp.filters.lock())
        });
        if let Some(o) = bad {
            return if flags.contains(FilterFlags::TSYNC_ESRCH) {
                Err(Errno::ESRCH)
            } else {
                Ok(u64::from(o.tid().unsigned_abs()))
            };
        }
        for o in others() {
            o.seccomp.replace(all.clone());
        }
    }
    t.seccomp.replace(all);
    Ok(0)
}
