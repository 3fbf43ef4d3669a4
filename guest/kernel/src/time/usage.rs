//! getrusage and times.

use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_abi_linux::time::{USER_HZ, rusage};
use doppel_machine::pod_struct;

use super::{Timeval, cpu, monotonic_ns};
use crate::syscall::Arg::{Int, Ptr};
use crate::syscall::{Args, Support::Partial, Syscall, call};
use crate::{Errno, Result};

const NOTE: &str = "CPU time is reported as user time; no fault and switch counts";

/// Rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(nr::GETRUSAGE, getrusage, Partial, &[Int, Ptr], NOTE),
    call(nr::TIMES, times, Partial, &[Ptr], NOTE),
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
    pub fn of(cpu_ns: u64, max_rss: u64) -> Self {
        let mut r = Self { utime: Timeval::from_ns(cpu_ns), ..Self::default() };
        r.rest[0] = max_rss / 1024;
        r
    }
}

fn getrusage(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    let resident = || crate::mm::vm_stats(&a.thread.space().mm).resident;
    let usage = match a.i32(0) {
        rusage::RUSAGE_SELF => Rusage::of(cpu::process_ns(p), resident()),
        rusage::RUSAGE_CHILDREN => {
            Rusage::of(p.child_cpu_ns.load(Ordering::Relaxed), p.child_max_rss.load(Ordering::Relaxed))
        }
        rusage::RUSAGE_THREAD => Rusage::of(cpu::thread_ns(&a.thread), resident()),
        _ => return Err(Errno::EINVAL),
    };
    a.ptr(1).write(&usage)?;
    Ok(0)
}

fn times(a: &Args) -> Result<u64> {
    const TICK: u64 = 1_000_000_000 / USER_HZ;
    let p = &a.thread.process;
    if !a.ptr(0).is_null() {
        let own = cpu::process_ns(p) / TICK;
        let children = p.child_cpu_ns.load(Ordering::Relaxed) / TICK;
        a.ptr(0).write(&[own, 0, children, 0])?;
    }
    Ok(monotonic_ns() / TICK)
}
