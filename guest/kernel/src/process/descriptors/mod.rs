//! Descriptors of processes and signals, and queues that signal.

pub mod mqueue;
pub mod pidfd;
pub mod signalfd;
