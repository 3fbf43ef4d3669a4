//! Which calls the helper may make that moves a paene domain's packets (`host/paene`, network), as data. It has all its
//! descriptors and threads by then. What is not on the list fails with EPERM.

use doppel_abi_linux::syscalls::nr;

use crate::bpf::{Instruction, program};

/// Calls with any arguments.
pub const ALLOWED: &[u32] = &[
    nr::READ,
    nr::WRITE,
    nr::CLOSE,
    nr::POLL,
    nr::MMAP,
    nr::MPROTECT,
    nr::MUNMAP,
    nr::BRK,
    nr::RT_SIGRETURN,
    nr::SCHED_YIELD,
    nr::MREMAP,
    nr::MADVISE,
    nr::EXIT,
    nr::SIGALTSTACK,
    nr::FUTEX,
    nr::RESTART_SYSCALL,
    nr::CLOCK_GETTIME,
    nr::EXIT_GROUP,
    nr::PPOLL,
    nr::GETRANDOM,
];

/// The program for seccomp.
#[must_use]
pub fn filter() -> Vec<Instruction> {
    program(&[], ALLOWED, &[])
}
