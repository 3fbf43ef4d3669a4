//! Which calls the helper may make that moves a paene domain's packets (`host/paene`, network), as data. It has all its
//! descriptors and threads by then. What is not on the list fails with EPERM.

use crate::bpf::{Instruction, program};

/// Calls with any arguments: number and name.
pub const ALLOWED: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (3, "close"),
    (7, "poll"),
    (9, "mmap"),
    (10, "mprotect"),
    (11, "munmap"),
    (12, "brk"),
    (15, "rt_sigreturn"),
    (24, "sched_yield"),
    (25, "mremap"),
    (28, "madvise"),
    (60, "exit"),
    (131, "sigaltstack"),
    (202, "futex"),
    (219, "restart_syscall"),
    (228, "clock_gettime"),
    (231, "exit_group"),
    (271, "ppoll"),
    (318, "getrandom"),
];

/// The program for seccomp.
#[must_use]
pub fn filter() -> Vec<Instruction> {
    program(&[], ALLOWED, &[])
}
