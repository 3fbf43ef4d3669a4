//! Inter-process communication and event descriptors: pipes, FIFOs, eventfd, pidfd, poll, select, epoll.
//!
//! Key types: [`pipe::Pipe`], [`epoll::Epoll`], [`eventfd::EventFd`]. Boundary: everything here is a `FileOps`
//! or a system call over files; nothing knows how files of other kinds work.
//! Lock order: epoll scan lock (outer epoll before inner) → a file's own state → its wait queue → epoll ready
//! list → the epoll's wait queue.

pub mod anon;
pub mod epoll;
pub mod epoll_calls;
pub mod eventfd;
pub mod fifo;
pub mod mask;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod select;
pub mod signalfd;
pub mod timeout;
pub mod timerfd;

use alloc::sync::Arc;

use crate::task::Process;

/// Releases what a process holds in IPC objects (SEM_UNDO…).
pub fn process_exit(_p: &Arc<Process>) {}
