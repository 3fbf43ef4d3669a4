//! Processes and threads, their signals and timers, and what needs to know them.

pub mod async_io;
pub mod coredump;
pub mod descriptors;
pub mod filters;
pub mod futex;
pub mod keys;
pub mod life;
pub mod namespaces;
pub mod ptrace;
pub mod seccomp;
pub mod shadow;
pub mod signal;
pub mod task;
pub mod time;
