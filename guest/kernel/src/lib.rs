//! The guest kernel: a Linux personality as a library operating system (docs/design.md §2-6).
//!
//! It runs in every process of a para domain, on what `doppel-machine` offers, and holds no unsafe code.
//! All its state lies in the arena and hangs off [`Kernel`] and its [parts](part::Part).
//!
//! Lock order, outermost first: process tree → process → mm → fd table → file position → inode → page
//! object → wait queue → run queue. A lock is never held across a blocking wait.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod boot;
mod builtin;
pub mod channel;
pub mod console;
mod first;
pub mod freezer;
pub mod fs;
pub mod hook;
pub mod ipc;
pub mod log;
pub mod mm;
pub mod net;
pub mod part;
pub mod personality;
pub mod root;
pub mod sched;
pub mod sessions;
pub mod shadow;
pub mod signal;
pub mod subject;
pub mod task;
pub mod tidy;
pub mod time;
pub mod tty;

pub use doppel_abi_linux::errno::{Errno, Result};
pub use root::{Kernel, kernel};
