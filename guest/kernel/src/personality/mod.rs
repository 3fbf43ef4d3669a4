//! The system call table and dispatch.
//!
//! Each family is a module with one `CALLS` slice of [`Syscall`] rows; `table::TABLE` puts them in order. Dispatch,
//! `--trace` and docs/COMPATIBILITY.md are all made from these rows.

pub(crate) mod args;
pub mod async_io;
pub mod compat;
pub mod events;
pub mod files;
pub mod futex;
pub mod ipc;
pub mod keys;
pub mod memory;
pub mod net;
pub mod signals;
pub(crate) mod table;
pub mod tasks;
pub mod time;
mod trace;

pub(crate) use args::call;
pub use args::{Arg, Args};
pub use table::{FAMILIES, dispatch, name};

use crate::Result;

/// How much of a system call is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Everything programs use.
    Full,
    /// Works, with the limits in the note.
    Partial,
    /// Accepted without effect, or always refused with the error the note gives.
    Stub,
}

/// One system call.
pub struct Syscall {
    /// Number (`doppel_abi_linux::syscalls::nr`).
    pub nr: u32,
    /// The function that serves it.
    pub handler: fn(&Args) -> Result<u64>,
    /// How complete it is.
    pub support: Support,
    /// Kinds of its arguments, for tracing; made from the types in the handler's signature (`call!`).
    pub args: &'static [Arg],
    /// Limits and remarks for docs/COMPATIBILITY.md; empty if none.
    pub note: &'static str,
}

impl Syscall {
    /// Whether success replaces the caller's registers, so that no result must be stored.
    const fn sets_registers(&self) -> bool {
        use doppel_abi_linux::syscalls::nr;
        matches!(self.nr, nr::EXECVE | nr::EXECVEAT | nr::RT_SIGRETURN)
    }
}
