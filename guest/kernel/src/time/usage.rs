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
    /// With a CPU time.
    pub fn of(cpu_ns: u64) -> Self {
        Self { utime: Timeval::from_ns(cpu_ns), ..Self::default() }
    }
}

fn getrusage(a: &Args) -> Result<u64> {
    let p = &a.thread.process;
    let mut space = 0;
    let ns = match a.i32(0) {
        rusage::RUSAGE_SELF => cpu::process_ns(p),
        rusage::RUSAGE_CHILDREN => p.child_cpu_ns.load(Ordering::Relaxed),
        rusage::RUSAGE_THREAD => cpu::thread_ns(&a.thread),
        _ => return Err(Errno::EINVAL),
    };
    if a.i32(0) != rusage::RUSAGE_CHILDREN {
        space = crate::mm::vm_stats(&a.thread.space().mm).resident;
    }
    let mut r = Rusage::of(ns);
    r.rest[0] = space / 1024;
    a.ptr(1).write(&r)?;
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
