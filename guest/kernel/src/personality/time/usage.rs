//! `getrusage(2)` and `times(2)`.

use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::USER_HZ;
use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::Result;
use crate::core::numbers::numbers;
use crate::core::time::{Timeval, monotonic_ns};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::Number;
use crate::personality::{Args, Syscall, call};
use crate::process::time::cpu;
use crate::process::time::used::Times;

const NOTE: &str = "no fault and switch counts";

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETRUSAGE, getrusage(Number<UsageOf>, UserPtr), Partial, NOTE),
    call!(nr::TIMES, times(UserPtr), Full, ""),
];

pod_struct! {
    /// `struct rusage`.
    pub struct Rusage {
        /// User CPU time.
        pub utime: Timeval,
        /// System CPU time.
        pub stime: Timeval,
        /// maxrss (KiB) and counters.
        pub rest: [u64; 14],
    }
}

impl Rusage {
    /// With a CPU time and the largest memory in bytes.
    pub fn of(times: Times, max_rss: u64) -> Self {
        let (utime, stime) = (Timeval::from_ns(times.user), Timeval::from_ns(times.system));
        let mut r = Self { utime, stime, ..Self::default() };
        r.rest[0] = max_rss / 1024;
        r
    }
}

numbers! {
    /// Whose use `getrusage(2)` tells.
    enum UsageOf {
        Process = 0,
        Thread = 1,
        /// -1: of the children that were waited for.
        Children = 0xffff_ffff,
    }
}

fn getrusage(a: &Args, who: Number<UsageOf>, out: UserPtr) -> Result<u64> {
    let p = &a.thread.process;
    let resident = || crate::memory::vm_stats(&a.thread.space().mm).resident;
    let usage = match who.get()? {
        UsageOf::Process => Rusage::of(cpu::process_times(p), resident()),
        UsageOf::Children => Rusage::of(p.used.children(), p.child_max_rss.load(Ordering::Relaxed)),
        UsageOf::Thread => Rusage::of(cpu::thread_times(&a.thread), resident()),
    };
    out.write(&usage)?;
    Ok(0)
}

fn times(a: &Args, out: UserPtr) -> Result<u64> {
    const TICK: u64 = 1_000_000_000 / USER_HZ;
    let p = &a.thread.process;
    if !out.is_null() {
        let (own, children) = (cpu::process_times(p), p.used.children());
        out.write(&[own.user, own.system, children.user, children.system].map(|ns| ns / TICK))?;
    }
    Ok(monotonic_ns() / TICK)
}
