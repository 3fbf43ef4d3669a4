//! The guest kernel: a Linux personality as a library operating system (docs/design.md §2-6).
//!
//! It runs in every process of a para domain, on what `doppel-machine` offers, and holds no unsafe code.
//! All its state lies in the arena and hangs off [`Kernel`] and its [parts](crate::core::part::Part).
//!
//! Its layers, from the ground up: `core`, [`memory`], [`objects`], [`process`], [`terminals`],
//! [`personality`], [`domain`]. A module uses its own layer and lower ones; `cargo run -p xtask -- layers` checks it.
//!
//! Lock order, outermost first: process tree → process → mm → fd table → file position → inode → page
//! object → wait queue → run queue. A lock is never held across a blocking wait.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod core;
pub mod domain;
pub mod memory;
pub mod objects;
pub mod personality;
pub mod process;
pub mod terminals;

pub use crate::core::kernel::{Kernel, kernel};
pub use doppel_abi_linux::errno::{Errno, Result};
