<<<<<<< HEAD
//! Inter-process communication: pipes, eventfd, epoll, timerfd, signalfd, inotify, SysV IPC.

use alloc::sync::Arc;

use crate::task::Process;

/// Releases what a process holds in IPC objects (SEM_UNDO…).
pub fn process_exit(_p: &Arc<Process>) {}

/// Process descriptors.
pub mod pidfd {
    use alloc::sync::Arc;

    use crate::task::Process;
    use crate::{Errno, Result};

    /// A new descriptor for `target` in the table of `owner`.
    pub fn open(_owner: &Arc<Process>, _target: &Arc<Process>) -> Result<i32> {
        Err(Errno::ENOSYS)
    }

    /// The pid behind a descriptor.
    pub fn pid_of(_owner: &Arc<Process>, _fd: i32) -> Result<i32> {
        Err(Errno::EBADF)
    }
}
=======
//! Inter-process communication and event descriptors: pipes, FIFOs, eventfd, poll, select, epoll.
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
pub mod pipe;
pub mod poll;
pub mod select;
pub mod timeout;
>>>>>>> f78d9a0 (Add pipes, FIFOs, eventfd, poll, select and epoll)
