//! Processes and threads.
//!
//! Key types: [`Process`] (a thread group), [`Thread`], [`Cred`] (identity). Life cycle: clone.rs makes them,
//! exec.rs replaces a program, exit.rs ends and reaps them.
//! Lock order: process tree (`Kernel::processes`) → one process' fields, each a leaf of its own.

mod process;
mod thread;

pub use process::{Cred, Process, Rlimit, Session, rlimit};
pub use thread::{Thread, current};
