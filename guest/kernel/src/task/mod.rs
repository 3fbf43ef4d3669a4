//! Processes and threads.
//!
//! Key types: [`Process`] (a thread group), [`Thread`], [`Cred`] (identity). Life cycle: clone.rs makes them,
//! exec.rs replaces a program, exit.rs ends and reaps them.
//! Lock order: process tree (`Kernel::processes`) → one process' fields, each a leaf of its own.

pub mod attrs;
pub mod clone;
pub mod coredump;
pub mod cred;
pub mod directory;
pub(crate) mod elf;
pub mod exec;
pub mod exit;
pub mod futex;
pub mod ids;
pub mod limits;
pub mod load;
pub(crate) mod process;
pub mod ptrace;
pub mod remote;
pub mod seccomp;
pub mod space;
pub(crate) mod spare;
pub(crate) mod stack;
pub(crate) mod start;
pub mod subject;
pub mod table;
mod thread;
pub(crate) mod vdso;
pub mod version;
pub mod wait;

pub use crate::subject::{Cred, Rlimit, rlimit};
pub use clone::spawn_requested_spaces;
pub use exec::load_program;
pub use exit::{begin_exec, do_group_exit, end_domain, end_if_exiting, exit_work};
pub use process::{Carried, ControllingTerminal, Process, Session};
pub use space::{IdleThread, SPACES, Space, current_space, yield_now};
pub use spare::SPARES;
pub use start::{fault, identity, init_pid, start_session, thread_start};
pub use table::TASKS;
pub use thread::{Thread, current, current_ref, try_current};
