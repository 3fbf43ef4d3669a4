//! io_uring (`io_uring_setup(2)`, `io_uring_enter(2)`, `io_uring_register(2)`).
//!
//! What a request does is the system call of that name, or the same part of it: `steps` says how it begins and goes on,
//! `calls` which operations are calls.

mod at_once;
pub mod calls;
mod data;
mod enter;
mod register;
mod setup;
mod sockets;
pub mod steps;
mod waits;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::personality::Support::Partial;
use crate::personality::args::{Bits, RawFd};
use crate::personality::{Syscall, call};
use enter::{EnterFlags, sys_io_uring_enter};
use register::sys_io_uring_register;
use setup::sys_io_uring_setup;

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::IO_URING_SETUP,
        sys_io_uring_setup(u32, UserPtr),
        Partial,
        "no memory of the program's, no large entries; IOPOLL polls nothing, and the thread of SQPOLL always sleeps",
    ),
    call!(
        nr::IO_URING_ENTER,
        sys_io_uring_enter(RawFd, u32, u32, Bits<EnterFlags>, UserPtr, usize),
        Partial,
        "no zero copy, splice, futexes and commands of devices; accept and linked requests go on in a call of the program's (IORING_SQ_TASKRUN)",
    ),
    call!(
        nr::IO_URING_REGISTER,
        sys_io_uring_register(RawFd, u32, UserPtr, u32),
        Partial,
        "files, buffers, event counters, probes, identities, enabling",
    ),
];
