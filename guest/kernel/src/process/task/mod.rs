//! Processes and threads.
//!
//! Key types: [`Process`] (a thread group), [`Thread`], [`Cred`] (identity). Life cycle: clone.rs makes them,
//! exec.rs replaces a program, exit.rs ends and reaps them.
//! Lock order: process tree (`Tasks::processes`) → one process' fields, each a leaf of its own.

pub mod attrs;
pub mod cred;
pub mod directory;
pub mod limits;
pub mod load;
pub(crate) mod process;
pub mod remote;
pub mod schedule;
pub mod services;
pub mod space;
pub mod subject;
pub mod table;
mod thread;
pub mod version;

pub use super::life::clone::spawn_requested_spaces;
pub use super::life::exec::load_program;
pub use super::life::exit::{begin_exec, end_domain, end_if_exiting, exit_work};
pub use super::life::spare::SPARES;
pub use super::life::start::{fault, identity, start_session, thread_start};
pub use crate::core::subject::{Cred, Resource, Rlimit, Rlimits};
pub use process::{Carried, ControllingTerminal, Process, Session};
pub use space::{IdleThread, SPACES, Space, current_space, yield_now};
pub use table::TASKS;
pub use thread::{Thread, current, current_ref, try_current};

pub use super::life::ending::do_group_exit;
pub use table::init_pid;
