//! Inter-process communication and event descriptors: pipes, FIFOs, eventfd, pidfd, poll, select, epoll.
//!
//! Key types: [`pipe::Pipe`], [`epoll::Epoll`], [`eventfd::EventFd`]. Boundary: everything here is a `FileOps`
//! or a system call over files; nothing knows how files of other kinds work.
//! Lock order: epoll scan lock (outer epoll before inner) → a file's own state → its wait queue → epoll ready
//! list → the epoll's wait queue.

pub mod dnotify;
pub mod epoll;
pub mod eventfd;
pub mod fifo;
pub mod inotify;
pub mod memfd;
pub mod pipe;
pub mod splice;
pub mod sysv;
pub mod timeout;
pub mod timerfd;

use crate::objects::vfs::File;
use crate::{Errno, Result};

/// The `fcntl(2)` commands of pipes and memfds (F_SETPIPE_SZ … F_GET_SEALS); EINVAL for all others.
pub fn fcntl(file: &File, cmd: u32, arg: u64) -> Result<u64> {
    match cmd {
        pipe::F_SETPIPE_SZ | pipe::F_GETPIPE_SZ => pipe::fcntl(file, cmd, arg),
        memfd::F_ADD_SEALS | memfd::F_GET_SEALS => memfd::fcntl(file, cmd, arg),
        _ => Err(Errno::EINVAL),
    }
}

/// Releases what a process holds in IPC objects (SEM_UNDO…).
pub fn process_exit(pid: i32) {
    sysv::sem::process_exit(pid);
}
